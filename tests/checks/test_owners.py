"""Who owns which file (recipes R17, R17b, R18b), and files against RECORD."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import packages
import pytest
from data.dist_info import install

from envcheck.core.exclusive import EXCLUSIVE

OWN, APART = "one-distribution-owns-each-file", "exclusive-packages-are-apart"
RECORD = "files-match-record"
CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"
ONNX = "onnxruntime/capi/onnxruntime_pybind11_state.so"


def cudnn(site: Path, *, last: str) -> None:
    """R17: the pair of pytorch/pytorch#188892, torch needing the one for CUDA 13."""
    install(site, "torch", "2.14.1", requires=("nvidia-cudnn-cu13==9.24",))
    for name in sorted(("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"), key=last.__eq__):
        version = "9.10" if name.endswith("12") else "9.24"
        install(site, name, version, tags=("py3-none-manylinux_2_27_x86_64",),
                files={CUDNN: name.encode() * 2 if name.endswith("13") else b"cu12"})  # fmt: skip


def test_the_library_that_torch_needs_was_overwritten(tmp_path: Path) -> None:
    cudnn(tmp_path, last="nvidia-cudnn-cu12")
    (finding,) = packages.ask(OWN, tmp_path)
    assert packages.told([finding]) == [
        (
            "fail",
            "nvidia-cudnn-cu12 9.10 and nvidia-cudnn-cu13 9.24",
            (
                f"1 file(s) are owned with different content: {CUDNN}; on disk is that of "
                "nvidia-cudnn-cu12 9.10, and torch needs nvidia-cudnn-cu13"
            ),
        )
    ]
    assert finding.remedy == (
        "pip uninstall -y nvidia-cudnn-cu12; "
        "pip install --force-reinstall --no-deps 'nvidia-cudnn-cu13==9.24'"
    )
    (apart,) = packages.ask(APART, tmp_path)
    assert (apart.status.value, apart.subject) == ("fail", "nvidia/cudnn")
    assert "which torch needs" in apart.message


def test_the_library_that_torch_needs_is_there(tmp_path: Path) -> None:
    cudnn(tmp_path, last="nvidia-cudnn-cu13")
    assert [f.status.value for f in packages.ask(OWN, tmp_path)] == ["warn"]
    assert [f.status.value for f in packages.ask(APART, tmp_path)] == ["warn"]


@pytest.mark.parametrize(("needer", "status"), [("torch", "fail"), ("xgboost", "warn")])
def test_who_needs_a_lost_library_decides(tmp_path: Path, needer: str, status: str) -> None:
    """xgboost asks for nvidia-nccl-cu12 beside a torch for CUDA 13, and takes what is there."""
    install(tmp_path, needer, requires=("nvidia-nccl-cu12",))
    for name in ("nvidia-nccl-cu12", "nvidia-nccl-cu13"):
        files = {"nvidia/nccl/lib/libnccl.so.2": name.encode()}
        install(tmp_path, name, tags=("py3-none-manylinux_2_28_x86_64",), files=files)
    for check in (OWN, APART):
        (finding,) = packages.ask(check, tmp_path)
        assert finding.status.value == status
        assert f"{needer} needs" in finding.message


@pytest.mark.parametrize(("last", "status"), [("onnxruntime", "fail"), ("onnxruntime-gpu", "warn")])
def test_two_onnxruntimes(tmp_path: Path, last: str, status: str) -> None:
    """R17b: microsoft/onnxruntime#23833, only the CPU provider is left."""
    for name in sorted(("onnxruntime", "onnxruntime-gpu"), key=last.__eq__):
        tags = ("cp311-cp311-manylinux_2_28_x86_64",)
        install(tmp_path, name, "1.20.1", tags=tags, files={ONNX: name.encode()})
    (apart,) = packages.ask(APART, tmp_path)
    assert apart.status.value == status
    assert apart.message.startswith(
        "onnxruntime 1.20.1, onnxruntime-gpu 1.20.1: the files of onnxruntime are those of "
        f"{last} 1.20.1"
    )
    assert "pip install --force-reinstall --no-deps 'onnxruntime-gpu==" in apart.remedy or (
        status == "warn"
    )


def test_variants_of_opencv_warn_whoever_needs_them(tmp_path: Path) -> None:
    install(tmp_path, "a", requires=("opencv-python",))
    for name in ("opencv-python", "opencv-python-headless"):
        install(tmp_path, name, "4.10", tags=("cp37-abi3-x",), files={"cv2/cv2.so": name.encode()})
    assert [f.status.value for f in packages.ask(APART, tmp_path)] == ["warn"]
    assert [f.status.value for f in packages.ask(OWN, tmp_path)] == ["warn"]


def test_of_two_builds_for_a_card_neither_is_the_right_one(tmp_path: Path) -> None:
    for name in ("cupy-cuda13x", "cupy-cuda12x"):
        install(
            tmp_path, name, "14.2.0", tags=("cp311-cp311-x",), files={"cupy/a.so": name.encode()}
        )
    assert [f.status.value for f in packages.ask(APART, tmp_path)] == ["warn"]


def test_a_shim_of_one_package_is_no_second_one(tmp_path: Path) -> None:
    install(tmp_path, "faiss-gpu", "1.14", tags=("cp311-cp311-manylinux_2_28_x86_64",))
    install(tmp_path, "faiss-gpu-cu12", "1.14", requires=("faiss-gpu==1.14",))
    assert [f.status.value for f in packages.ask(APART, tmp_path)] == ["pass"]


@pytest.mark.parametrize(
    ("names", "path"),
    [
        # As RECORD of onnxruntime-qnn 2.7.0 and of nvidia-cusparselt-cu13 0.10.0 have it.
        (("onnxruntime", "onnxruntime-qnn"), "onnxruntime_qnn/libonnxruntime_providers_qnn.so"),
        (
            ("nvidia-cusparselt-cu12", "nvidia-cusparselt-cu13"),
            "nvidia/cu13/lib/libcusparseLt.so.0",
        ),
    ],
)
def test_a_package_in_a_folder_of_its_own_excludes_nobody(
    tmp_path: Path, names: tuple[str, str], path: str
) -> None:
    usual = {"onnxruntime": ONNX}.get(names[0], "nvidia/cusparselt/lib/libcusparseLt.so.0")
    library = b"\x7fELF" + bytes(60)
    for name, file in zip(names, (usual, path), strict=True):
        install(tmp_path, name, tags=("py3-none-x",), files={file: library + name.encode()})
    assert [f.status.value for f in packages.ask(APART, tmp_path)] == ["pass"]
    older = tmp_path / "older"  # releases in which both lie in one folder
    for name in names:
        install(older, name, tags=("py3-none-x",), files={usual: library + name.encode()})
    assert [f.status.value for f in packages.ask(APART, older)] == ["warn"]


@pytest.mark.parametrize(
    ("names", "together"),
    [
        (("onnxruntime", "onnxruntime-gpu"), True),
        (("onnxruntime", "onnxruntime-extensions"), False),
        (("onnxruntime", "onnxruntime-genai"), False),
        (("cupy-cuda12x", "cupy-cuda13x"), True),
        (("cupy-cuda12x", "amd-cupy"), True),
        (("cupy-cuda12x", "cupy-xarray"), False),
        (("cupy-cuda12x", "cupy-stubs"), False),
        (("opencv-python", "opencv-contrib-python-headless"), True),
        (("opencv-python", "opencv-stubs"), False),
        (("nvidia-nccl-cu12", "nvidia-nccl-cu13"), True),
        (("nvidia-nccl-cu12", "nvidia-cudnn-cu13"), False),
        # These lie in folders of their own: nvidia/cublas and nvidia/cu13.
        (("nvidia-cublas-cu12", "nvidia-cublas"), False),
        (("tensorflow", "tensorflow-io"), False),
        (("tensorflow", "tensorflow-cpu"), True),
        (("faiss-cpu", "faiss-gpu-cu12"), True),
        (("triton", "pytorch-triton"), True),
        (("triton", "triton-kernels"), False),
    ],
)
def test_the_table_names_what_excludes_each_other(names: tuple[str, ...], together: bool) -> None:
    groups = [row for row in EXCLUSIVE if all(row.names.fullmatch(name) for name in names)]
    assert bool(groups) is together


def test_every_row_has_a_source() -> None:
    assert all(row.source and isinstance(row.names, re.Pattern) for row in EXCLUSIVE)


def test_two_dist_info_of_torch_fail(tmp_path: Path) -> None:
    """R18b: pytorch/vision#9174, an upgrade that was cut short."""
    install(tmp_path, "torch", "2.6.0", files={"torch/lib/libtorch.so": b"2.6"})
    install(tmp_path, "torch", "2.8.0", files={"torch/lib/libtorch.so": b"2.8.0"})
    duplicate, *_ = packages.ask(OWN, tmp_path)
    assert packages.told([duplicate]) == [
        (
            "fail",
            "torch",
            (
                "installed twice in one folder (torch-2.6.0.dist-info and torch-2.8.0.dist-info): "
                "which files are there is not certain"
            ),
        )
    ]


def test_a_duplicate_of_pure_python_warns(tmp_path: Path) -> None:
    install(tmp_path, "six", "1.15")
    install(tmp_path, "six", "1.16")
    assert [f.status.value for f in packages.ask(OWN, tmp_path)] == ["warn"]


@pytest.mark.parametrize(("name", "status"), [("torch", "warn"), ("numpy", "pass")])
def test_what_an_earlier_folder_hides(tmp_path: Path, name: str, status: str) -> None:
    """An overlay on an image's packages is common; of torch it is named."""
    install(tmp_path / "a", name, "2.6.0")
    install(tmp_path / "b", name, "2.8.0")
    found = packages.ask(OWN, tmp_path / "a", tmp_path / "b")
    assert [f.status.value for f in found] == [status]


def test_leftovers_of_pip_are_named_and_not_judged(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.8.0")
    install(tmp_path, "torch", "2.6.0").rename(tmp_path / "~orch-2.6.0.dist-info")
    (finding,) = packages.ask(OWN, tmp_path)
    assert (finding.status.value, finding.subject) == ("warn", "~orch-2.6.0.dist-info")


@pytest.mark.parametrize(
    ("path", "one", "other", "status"),
    [
        ("nvidia/__init__.py", b"", b"", "pass"),
        ("tests/__init__.py", b"1", b"2", "pass"),
        ("LICENSE", b"1", b"2", "pass"),
        ("google/__init__.py", b"1", b"2", "warn"),
        ("x/_C.so", b"1", b"2", "warn"),
    ],
)
def test_shared_paths(tmp_path: Path, path: str, one: bytes, other: bytes, status: str) -> None:
    install(tmp_path, "a", files={path: one})
    install(tmp_path, "b", files={path: other})
    assert [f.status.value for f in packages.ask(OWN, tmp_path)] == [status]


# Files against RECORD

LIBRARY = {
    "x/_C.so": b"library",
    "x/_ext.cpython-311-x86_64-linux-gnu.so": b"module",
    "x/tests/_ext.abi3.so": b"module",
    "x/__init__.py": b"code",
    "x/sub/__init__.py": b"code",
    "x/tests/__init__.py": b"code",
    "x/data.bin": b"data",
    "x/include/x.h": b"header",
    "x/__init__.pyi": b"stub",
    "x/lib/libx.a": b"archive",
}


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("x/_C.so", b"", "fail"),
        ("x/_C.so", b"lib", "warn"),  # stripped, perhaps
        ("x/_C.so", b"LIBRARY", "warn"),
        ("x/_C.so", None, "warn"),
        ("x/__init__.py", b"patched", "warn"),
        # Python finds no package, or an empty one: no import of it works.
        ("x/__init__.py", None, "fail"),
        ("x/__init__.py", b"", "fail"),
        ("x/_ext.cpython-311-x86_64-linux-gnu.so", None, "fail"),
        ("x/tests/_ext.abi3.so", None, "warn"),
        ("x/sub/__init__.py", None, "warn"),  # trimmed, perhaps
        ("x/sub/__init__.py", b"changed", "warn"),
        ("x/sub/__init__.py", b"", "fail"),
        ("x/sub/__init__.py", b"def (", "fail"),
        ("x/tests/__init__.py", b"", "warn"),
        ("x/tests/__init__.py", None, "warn"),
        ("x/include/x.h", None, "pass"),
        ("x/__init__.pyi", None, "pass"),
        ("x/lib/libx.a", None, "warn"),
        ("x/data.bin", None, "pass"),
        ("x/data.bin", b"other data", "pass"),
        ("x/_C.so", b"library", "pass"),
    ],
)
def test_changed_files(tmp_path: Path, path: str, content: bytes | None, status: str) -> None:
    install(tmp_path, "x", files=LIBRARY)
    (tmp_path / path).unlink()
    if content is not None:
        (tmp_path / path).write_bytes(content)
    assert [f.status.value for f in packages.ask(RECORD, tmp_path)] == [status]


def test_a_package_of_which_only_the_metadata_is_left(tmp_path: Path) -> None:
    install(tmp_path, "x", "2", files=dict.fromkeys((f"x/{n}.so" for n in "abcdefgh"), b"1"))
    for path in tmp_path.glob("x/*.so"):
        path.unlink()
    (finding,) = packages.ask(RECORD, tmp_path)
    assert packages.told([finding]) == [
        ("fail", "x 2", "its metadata is there, but 8 of 8 files are gone")
    ]
    assert finding.remedy == "pip install --force-reinstall --no-deps 'x==2'"


@pytest.mark.parametrize(
    ("installer", "status"),
    [("", "pass"), ("debian", "pass"), ("conda", "pass"), ("pip", "warn"), ("uv", "warn")],
)
def test_packages_of_a_distribution_are_stripped_after_their_record(
    tmp_path: Path, installer: str, status: str
) -> None:
    info = install(tmp_path, "x", files=LIBRARY)
    (tmp_path / "x/_C.so").write_bytes(b"lib")
    (info / "INSTALLER").write_text(installer)
    assert [f.status.value for f in packages.ask(RECORD, tmp_path)] == [status]


def test_what_was_not_hashed_is_said(tmp_path: Path) -> None:
    install(tmp_path, "x", files=LIBRARY)
    (finding,) = packages.ask(RECORD, tmp_path)
    # METADATA, WHEEL, INSTALLER and ten files; of them METADATA and the compiled are hashed.
    assert finding.message == ("as installed: 13 files by size, 5 by hash too (8 were not hashed)")


def test_a_missing_part_fails_where_importing_the_package_comes_to_it(tmp_path: Path) -> None:
    files = {"x/__init__.py": b"from . import nn\n", "x/nn/__init__.py": b"1\n"}
    tests = {f"x/nn/t{n}.py": b"1\n" for n in range(20)}
    install(tmp_path, "x", files={**files, **tests})
    shutil.rmtree(tmp_path / "x/nn")
    (finding,) = packages.ask(RECORD, tmp_path)
    assert packages.told([finding]) == [
        (
            "fail",
            "x 1.0",
            (
                "x/nn/__init__.py and 20 more: missing, against its RECORD; importing x ends there "
                "(imported by x/__init__.py)"
            ),
        )
    ]
    assert finding.remedy == "pip install --force-reinstall --no-deps 'x==1.0'"


def test_what_an_import_needs_is_told_among_much_that_was_trimmed(tmp_path: Path) -> None:
    """A slimmed image, in which one file too many is gone."""
    trimmed = {f"x/lib/plugin{n}.so": b"1" for n in range(30)}
    files = {"x/__init__.py": b"import x.zz\n", "x/zz.py": b"1\n", **trimmed}
    install(tmp_path, "x", files=files)
    for path in trimmed:
        (tmp_path / path).unlink()
    assert [f.status.value for f in packages.ask(RECORD, tmp_path)] == ["warn"]
    (tmp_path / "x/zz.py").unlink()
    (finding,) = packages.ask(RECORD, tmp_path)
    assert (finding.status.value, finding.message.partition(" ")[0]) == ("fail", "x/zz.py")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        # OSError: .../libtorch_global_deps.so: cannot open shared object file
        ("torch/lib/libtorch_global_deps.so", "fail"),
        # RuntimeError: Unable to find torch_shm_manager at ...
        ("torch/bin/torch_shm_manager", "fail"),
        ("torch/bin/protoc", "pass"),
        ("torch/lib/libcaffe2_nvrtc.so", "warn"),
    ],
)
def test_what_import_torch_asks_for_by_its_path_is_vital(
    tmp_path: Path, path: str, status: str
) -> None:
    """Seen with torch 2.14.1, from which one file after the other was taken."""
    headers = {f"torch/include/a{n}.h": b"1" for n in range(30)}
    files = {"torch/__init__.py": b"", path: b"1", **headers}
    install(tmp_path, "torch", files=files)
    for gone in (*headers, path):
        (tmp_path / gone).unlink()
    assert [f.status.value for f in packages.ask(RECORD, tmp_path)] == [status]


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        # FileNotFoundError at the first kernel, at tl.math.erf, and of gcc: cuda.h
        ("driver.c", None, "fail"),
        ("lib/libdevice.10.bc", None, "fail"),
        ("include/cuda.h", None, "fail"),
        ("lib/libdevice.10.bc", b"BC", "fail"),
        ("driver.c", b"", "fail"),
        ("driver.c", b"patched", "warn"),
        # Left out of slim images: a profiler's, and headers that driver.c does not include.
        ("include/cupti.h", None, "pass"),
        ("bin/nvdisasm", None, "pass"),
    ],
)
def test_what_triton_opens_to_compile_kernels_is_vital(
    tmp_path: Path, path: str, content: bytes | None, status: str
) -> None:
    """Seen with Triton 3.8.0, from which one file after the other was taken."""
    names = ("driver.c", "lib/libdevice.10.bc", "include/cuda.h", "include/cupti.h", "bin/nvdisasm")
    files = {f"triton/backends/nvidia/{name}": b"as it was" for name in names}
    install(tmp_path, "triton", files={"triton/__init__.py": b"1\n", **files})
    where = tmp_path / "triton/backends/nvidia" / path
    where.unlink()
    if content is not None:
        where.write_bytes(content)
    assert [f.status.value for f in packages.ask(RECORD, tmp_path)] == [status]


@pytest.mark.parametrize(
    ("installer", "told"),
    [("pip", ["warn", "pass"]), ("uv", ["warn", "pass"]), ("debian", ["pass"]), ("", ["pass"])],
)
def test_a_package_without_record_was_not_compared(
    tmp_path: Path, installer: str, told: list[str]
) -> None:
    install(tmp_path, "x", files=LIBRARY)
    for name in ("torch", "a"):
        info = install(tmp_path, name, "2.14.1", files={f"{name}/__init__.py": b""})
        (info / "INSTALLER").write_text(installer)
        (info / "RECORD").unlink()
    found = packages.ask(RECORD, tmp_path)
    assert [f.status.value for f in found] == told
    if installer == "pip":
        assert packages.told(found[:1]) == [
            (
                "warn",
                "torch 2.14.1 and 1 more",
                "installed by pip and without RECORD: files were not compared",
            )
        ]
        assert found[0].remedy == "pip install --force-reinstall --no-deps 'torch==2.14.1'"


def test_where_no_package_has_a_record_that_is_said(tmp_path: Path) -> None:
    (install(tmp_path, "x", files=LIBRARY) / "RECORD").unlink()
    assert [f.status.value for f in packages.ask(RECORD, tmp_path)] == ["warn", "skip"]


def test_bytecode_in_the_place_of_sources_is_no_fault(tmp_path: Path) -> None:
    install(tmp_path, "x", files={"x/__init__.py": b"import x.a\n", "x/a.py": b"1\n"})
    for path in ("x/__init__.py", "x/a.py"):
        (tmp_path / path).rename(tmp_path / f"{path}c")
    (finding,) = packages.ask(RECORD, tmp_path)
    assert finding.status.value == "pass"
    assert "2 more differ" in finding.message


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("onnxruntime", "onnxruntime-gpu"), "onnxruntime-gpu"),
        (("cupy-cuda12x", "cupy-cuda13x"), "cupy-cuda13x"),
    ],
)
def test_the_build_for_the_card_is_the_one_to_keep(
    tmp_path: Path, names: tuple[str, str], kept: str
) -> None:
    for name in names:
        install(tmp_path, name, files={f"{name}.py": b""})
    (finding,) = packages.ask("exclusive-packages-are-apart", tmp_path)
    assert finding.remedy.endswith(f" '{kept}==1.0'")
    assert kept not in finding.remedy.partition(";")[0].split()


@pytest.mark.parametrize(("version", "status"), [("38.0.4", "pass"), ("38.0.3", "warn")])
def test_metadata_of_both_kinds_is_one_installation(
    tmp_path: Path, version: str, status: str
) -> None:
    """As Debian 12's python3-cryptography ships it, by `dpkg -L`."""
    install(tmp_path, "cryptography", "38.0.4", files={"cryptography/__init__.py": b"x"})
    info = tmp_path / "cryptography.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text(
        f"Metadata-Version: 2.1\nName: cryptography\nVersion: {version}\n"
    )
    assert [f.status.value for f in packages.ask(OWN, tmp_path)] == [status]
