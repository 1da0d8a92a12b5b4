"""device-code-runs-on-target: the recipes of the corpus, its false alarms, and what decides."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from pathlib import Path

import pytest
from inventories import ask, container, device_file, distribution, environment, judged, scanned

from envcheck import sources
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Domain, Finding, Status, Torch, Verdict

ID = "device-code-runs-on-target"


def one(sm: str, *parts: object, driver: str | None = None, path: str = "a.so") -> Finding:
    (found,) = ask(ID, scanned(device_file(path, *parts)), sm, driver)
    return found


# R01: code for one card only.
@pytest.mark.parametrize(
    ("sm", "status"), [("sm_89", Status.PASS), ("sm_120", Status.FAIL), ("sm_86", Status.FAIL)]
)
def test_a_file_for_one_card(sm: str, status: Status) -> None:
    assert one(sm, "s89").status is status


# R02: PTX only. The driver compiles it, if it takes the ISA.
@pytest.mark.parametrize(
    ("driver", "status", "mode"),
    [
        (None, Status.PASS, "jit"),
        ("570.26", Status.PASS, "jit"),
        ("570.25", Status.FAIL, "none"),
        ("550.54.14", Status.FAIL, "none"),
    ],
)
def test_a_file_of_ptx_alone(driver: str | None, status: Status, mode: str) -> None:
    found = one("sm_120", "p89:8.7", driver=driver)
    assert (found.status, found.evidence["mode"]) == (status, mode)
    if status is Status.FAIL:
        assert found.evidence["reason"] == "ptx-newer-than-driver"
        assert found.remedy == "use a host with driver 570.26 or newer"
        assert found.domain is Domain.HOST
    else:
        assert found.evidence["least_driver"] == "570.26"
        assert "JIT-only" in found.message


# R03 and EC-196: sm_89 is absent from lists by design, sm_86 serves it.
def test_code_for_ampere_serves_ada() -> None:
    found = one("sm_89", "s86")
    assert (found.status, found.evidence["reason"]) == (Status.PASS, "same-major")


# R05: what ptxas 13.0 takes, and EC-194, EC-195: sm_120 code on 12.1 is no fault.
@pytest.mark.parametrize(
    ("codes", "passes", "fails"),
    [
        ("s90a", ["sm_90"], ["sm_100", "sm_120", "sm_89"]),
        ("s100a", ["sm_100"], ["sm_103", "sm_120", "sm_110"]),
        ("s100f", ["sm_100", "sm_103"], ["sm_110", "sm_120"]),
        ("s120", ["sm_120", "sm_121"], ["sm_100", "sm_90"]),
        ("s120a", ["sm_120"], ["sm_121"]),
        ("s120f", ["sm_120", "sm_121"], ["sm_103"]),
        ("s121", ["sm_121"], ["sm_120"]),
        ("p90a", ["sm_90"], ["sm_100", "sm_120"]),
        ("p120f:8.8", ["sm_120", "sm_121"], ["sm_100"]),
        ("p100f:8.8", ["sm_100", "sm_103"], ["sm_120"]),
        ("p90", ["sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"], ["sm_89"]),
    ],
)
def test_suffixes(codes: str, passes: list[str], fails: list[str]) -> None:
    assert {sm: one(sm, codes).status for sm in passes} == dict.fromkeys(passes, Status.PASS)
    assert {sm: one(sm, codes).status for sm in fails} == dict.fromkeys(fails, Status.FAIL)


def test_evidence_lists_what_the_file_holds() -> None:
    found = one("sm_120", "s80 s90a p90:8.4 l90", container("s75", has_code=False))
    assert found.evidence == {
        "mode": "jit",
        "reason": "ptx-jit",
        "sass": ("sm_80", "sm_90a"),
        "ptx": ("compute_90",),
        "ptx_isa": {"compute_90": "8.4"},
        "other": ("lto-ir",),
        "least_driver": "550.54.14",
    }


def test_each_file_has_one_finding_and_the_rest_is_counted() -> None:
    files = [
        device_file("good.so", "s120"),
        device_file("bad.so", "s80"),
        DeviceFile(path="text.so", format="other", size=4, skipped="not a format"),
        DeviceFile(path="cut.so", format="other", size=4, problem="ELF header: cut"),
    ]
    found = ask(ID, scanned(*files, passed_over=7), "sm_120")
    assert [(f.subject, f.status) for f in found] == [
        ("good.so", Status.PASS),
        ("bad.so", Status.FAIL),
        ("text.so", Status.SKIP),
        ("cut.so", Status.ERROR),
        ("(other files)", Status.SKIP),
    ]
    assert found[3].message == "cannot be judged: ELF header: cut"
    assert found[3].evidence["reason"] == "unreadable"
    assert found[3].remedy
    assert "7 of no format" in found[4].message
    # What was passed over never makes a report inconclusive.
    assert [f.required for f in found] == [True, True, False, True, False]


def test_no_files_are_no_success() -> None:
    (found,) = ask(ID, scanned(), "sm_120")
    assert (found.status, found.required) == (Status.SKIP, False)
    assert judged(scanned(), "sm_120").verdict is Verdict.INCONCLUSIVE


# Remedies: each names what a person can run.
@pytest.mark.parametrize(
    ("path", "needed", "remedy"),
    [
        (
            "torch-2.6.0-cp311-cp311-manylinux1_x86_64.whl!/torch/lib/libtorch_cuda.so",
            (),
            "pip install --upgrade 'torch>=2.8.0'",
        ),
        (
            "nvidia_nccl_cu12-2.20.5-py3-none-any.whl!/nvidia/nccl/lib/libnccl.so.2",
            (),
            "pip install --upgrade nvidia-nccl-cu12",
        ),
        (
            "xformers-0.0.30-cp311-cp311-linux.whl!/xformers/_C.so",
            ("libc10.so",),
            "TORCH_CUDA_ARCH_LIST=12.0 pip install --force-reinstall --no-deps --no-build-isolation --no-binary xformers xformers",
        ),
        (
            "faiss_gpu-1.0-cp311-cp311-linux.whl!/faiss_gpu.libs/libfaiss.so",
            (),
            "pip install --upgrade faiss-gpu, or build it from source for sm_120",
        ),
        ("build/_C.so", ("libtorch_cuda.so",), "rebuild with TORCH_CUDA_ARCH_LIST=12.0"),
        ("build/k.so", (), "rebuild with nvcc -gencode arch=compute_120,code=sm_120"),
    ],
)
def test_the_remedy_is_a_command(path: str, needed: tuple[str, ...], remedy: str) -> None:
    file = device_file(path, "s80")
    file = DeviceFile(
        path=path, format=file.format, size=1, containers=file.containers, needed=needed
    )
    (found,) = ask(ID, scanned(file), "sm_120")
    assert found.remedy == remedy


def test_the_remedy_names_the_distribution_that_owns_the_file() -> None:
    inventory = environment(
        device_file("pkg/_C.so", "s80"),
        distributions=(distribution("pkg-gpu", "1.0", "pkg/_C.so"),),
    )
    (found,) = ask(ID, inventory, "sm_120")
    assert found.remedy == "pip install --upgrade pkg-gpu, or build it from source for sm_120"


def test_a_pass_needs_no_remedy() -> None:
    assert one("sm_120", "s120").remedy == ""


BNB = tuple(
    device_file(f"bitsandbytes/libbitsandbytes_cuda{v}.so", codes)
    for v, codes in {"118": "s80 s90", "124": "s80 s90 p90", "128": "s90 s120 p120"}.items()
)


@pytest.mark.parametrize(
    ("cuda", "sm", "verdict"),
    [
        ("12.8", "sm_120", Verdict.COMPATIBLE),
        ("12.6", "sm_120", Verdict.COMPATIBLE),  # cuda124, by its PTX
        ("11.8", "sm_120", Verdict.INCOMPATIBLE),
        ("11.8", "sm_90", Verdict.COMPATIBLE),
        ("12.8", "sm_89", Verdict.INCOMPATIBLE),
        ("13.0", "sm_120", Verdict.INCOMPATIBLE),  # no library of that major
    ],
)
def test_of_bitsandbytes_the_library_for_torchs_cuda_decides(
    cuda: str, sm: str, verdict: Verdict
) -> None:
    # A torch whose own code fits all cards: what is asked is the other package.
    torch_code = device_file("torch/lib/libtorch_cuda.so", "s80 s86 s90 s120")
    inventory = environment(*BNB, torch_code, torch=Torch(version="2.8.0", cuda=cuda))
    report = judged(inventory, sm)
    assert report.verdict is verdict, report.summary["line"]
    mine = [f for f in report.findings if f.check == ID and "bitsandbytes" in f.subject]
    assert sum(f.required for f in mine) <= 2
    for finding in mine:
        if not finding.required:
            assert finding.status is Status.SKIP
            assert "bitsandbytes loads" in finding.message


def test_a_package_none_of_whose_variants_would_load_fails_by_name() -> None:
    inventory = environment(*BNB, torch=Torch(version="2.9.0", cuda="13.0"))
    last = ask(ID, inventory, "sm_120")[-1]
    assert (last.subject, last.status) == ("bitsandbytes", Status.FAIL)
    assert last.evidence["reason"] == "no-variant-loaded"
    assert "bitsandbytes loads none with CUDA 13.0" in last.message


def test_in_a_wheel_every_variant_is_shown_and_one_that_runs_is_enough() -> None:
    files = [
        DeviceFile(path=f"b.whl!/{f.path}", format=f.format, size=1, containers=f.containers)
        for f in BNB
    ]
    report = judged(scanned(*files), "sm_120")
    mine = [f for f in report.findings if f.check == ID]
    assert [(f.status, f.required) for f in mine] == [
        (Status.FAIL, False),
        (Status.PASS, True),
        (Status.PASS, True),
    ]
    assert report.verdict is Verdict.COMPATIBLE


def test_optional_part_of_an_environment_warns_and_of_a_wheel_fails_without_deciding() -> None:
    parts = ("pkg/_A.so", "s90a"), ("pkg/_B.so", "s120")
    installed = ask(ID, environment(*(device_file(*p) for p in parts)), "sm_120")
    assert [(f.status, f.required) for f in installed] == [
        (Status.WARN, False),
        (Status.PASS, True),
    ]
    wheel = [device_file(f"w.whl!/{path}", codes) for path, codes in parts]
    scan = ask(ID, scanned(*wheel), "sm_120")
    assert [(f.status, f.required) for f in scan] == [(Status.FAIL, False), (Status.PASS, True)]


UNPACK = "unpack it first and scan the folder"
READER = "run as a user who may read it"
REGULAR = "put a regular file in its place, or leave it out"
ROOM = "set TMPDIR to a folder with room"
AGAIN = "fetch the file again; if it stays so, report it to its maintainer"


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        (os.strerror(errno.EACCES), READER),
        (os.strerror(errno.EPERM), READER),
        ("no permission to read it", READER),
        ("the folder cannot be read", READER),
        ("not a regular file", REGULAR),
        ("neither a file nor a directory", REGULAR),
        ("archive: encrypted", UNPACK),
        ("archive: zip compression method 12 is not read", UNPACK),
        ("archives nested more than 3 deep", UNPACK),
        ("archive: 9 bytes unpacked do not fit the 5 bytes free in /tmp", ROOM),
        (f"archive: [Errno 28] {os.strerror(errno.ENOSPC)}", ROOM),
        (os.strerror(errno.EDQUOT), ROOM),
        ("ELF header: cut", AGAIN),
        ("zstd: damaged, or not 80 bytes", AGAIN),
        ("archive: BadZipFile", AGAIN),
    ],
)
def test_the_remedy_for_a_file_that_cannot_be_read_is_about_its_problem(
    problem: str, remedy: str
) -> None:
    broken = DeviceFile(path="x.so", format="other", size=0, problem=problem)
    (found,) = ask(ID, scanned(broken), "sm_120")
    assert (found.status, found.remedy) == (Status.ERROR, remedy)


def test_the_remedies_meet_what_the_reader_really_says(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "method.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.so", b"\x7fELF" * 9)
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("a.so", b"\x7fELF" * 9)
    locked = bytearray(inner.getvalue())
    # Bit 0 of the general purpose flags, in the local and in the central header (APPNOTE 4.4.4).
    locked[6] |= 1
    locked[locked.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    nested = inner.getvalue()
    for _ in range(12):
        outer = io.BytesIO()
        with zipfile.ZipFile(outer, "w") as archive:
            archive.writestr("in.zip", nested)
        nested = outer.getvalue()
    (tmp_path / "nested.zip").write_bytes(nested)
    for name in ("method.zip", "locked.zip", "nested.zip"):
        seen = sources.read_paths([str(tmp_path / name)], lambda *_: None)
        files = [s.file for s in seen if s.file is not None]
        (found,) = ask(ID, scanned(*files), "sm_120")
        assert (found.status, found.remedy) == (Status.ERROR, UNPACK), name
