"""Caches, AOT packages and engines, as `scan` finds and judges them (recipes R26 and R27)."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from building import OBJECTS, SM90, zipped
from inventories import ask, environment, judged

from envcheck import pipeline
from envcheck.core import codec
from envcheck.core.artefacts import Artefact
from envcheck.core.model import Finding, Inventory, Torch, Triton, Verdict
from envcheck.guest import artefacts
from envcheck.inflate import inflate

FITS, LOADS = "caches-fit-target", "adapter-will-load"
# Bare cubins whose SM an H200 confirmed: see data/truth.
CUBIN90 = (OBJECTS / "cu13.0__rawsass_90.cubin").read_bytes()
CUBIN120 = (OBJECTS / "cu13.0__rawsass_120.cubin").read_bytes()


def scan(*paths: Path) -> Inventory:
    return pipeline.scan([str(p) for p in paths], lambda _, __: None)


def found(check: str, inventory: Inventory, sm: str) -> list[tuple[str, bool]]:
    return [(f.status.value, f.required) for f in ask(check, inventory, sm)]


def only(check: str, inventory: Inventory, sm: str) -> Finding:
    (finding,) = ask(check, inventory, sm)
    return finding


def kernel(
    cache: Path, target: object, cubin: bytes = CUBIN90, name: str = "k", **more: object
) -> Path:
    """Write one kernel as Triton's cache has it."""
    folder = cache / f"{len(list(cache.iterdir())) if cache.exists() else 0:052}"
    folder.mkdir(parents=True)
    data = {"num_warps": 4, "shared": 0, "name": name, **more}
    if target is not None:
        data["target"] = target
    (folder / f"{name}.json").write_text(json.dumps(data))
    (folder / f"__grp__{name}.json").write_text(json.dumps({"child_paths": {}}))
    (folder / f"{name}.cubin").write_bytes(cubin)
    (folder / f"{name}.ptx").write_text(".version 8.4\n.target sm_90a\n.address_size 64\n")
    return folder


CUDA90 = {"backend": "cuda", "arch": 90, "warp_size": 32}


# R26: a cache directory with a JSON `target.arch` of another card.
def test_r26_a_triton_cache_for_another_card_warns(tmp_path: Path) -> None:
    kernel(tmp_path / "cache", CUDA90, triton_version="3.8.0")
    kernel(tmp_path / "cache", ["cuda", 90])  # as Triton 2.3 wrote it
    inventory = scan(tmp_path)
    (one,) = inventory.artefacts
    assert (one.path, one.entries) == (str(tmp_path / "cache"), 2)
    assert inventory.files == ()  # its stages are no files of their own
    assert found(FITS, inventory, "sm_90") == [("pass", False)]
    finding = only(FITS, inventory, "sm_89")
    assert (finding.status.value, finding.required) == ("warn", True)
    assert "2 kernel(s) for sm_90, none for sm_89" in finding.message
    assert judged(inventory, "sm_89").verdict is Verdict.COMPATIBLE
    assert judged(inventory, "sm_90").verdict is Verdict.COMPATIBLE


def test_a_cache_holds_launchers_too(tmp_path: Path) -> None:
    folder = kernel(tmp_path, CUDA90)
    (folder / "__triton_launcher.so").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(57))
    inventory = scan(tmp_path)
    assert len(inventory.files) == 1
    assert judged(inventory, "sm_89").verdict is Verdict.COMPATIBLE


def test_a_cache_for_several_cards_is_no_fault(tmp_path: Path) -> None:
    kernel(tmp_path, CUDA90)
    kernel(tmp_path, {**CUDA90, "arch": 120})
    assert found(FITS, scan(tmp_path), "sm_120") == [("pass", False)]


# triton-lang/triton#1323: a Triton whose key lacked the card loaded the V100's code on an A100.
def test_r26_a_cache_that_names_no_card_is_told_by_its_code(tmp_path: Path) -> None:
    kernel(tmp_path / "a cache", None)
    finding = only(FITS, scan(tmp_path), "sm_120")
    assert (finding.status.value, finding.required) == ("fail", True)
    assert finding.remedy == f"rm -r '{tmp_path}/a cache'"
    assert found(FITS, scan(tmp_path), "sm_90") == [("pass", False)]


def test_a_cache_for_another_maker(tmp_path: Path) -> None:
    kernel(tmp_path, {"backend": "hip", "arch": "gfx942"})
    finding = only(FITS, scan(tmp_path), "sm_90")
    assert finding.status.value == "warn"
    assert "hip gfx942" in finding.message


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"num_warps": 4}', '{"num_warps": 4, "target": {"arch": -1}}',
             '{"num_warps": 4, "target": {"backend": "cuda", "arch": 100000}}',
             "[" * 100000, '{"target": {"backend": "cuda", "arch": 90}}'],
)  # fmt: skip
def test_broken_metadata_is_never_a_traceback(tmp_path: Path, text: str) -> None:
    folder = kernel(tmp_path, CUDA90, cubin=b"\x7fELF")
    (folder / "k.json").write_text(text)
    inventory = scan(tmp_path)
    assert all(f.status.value in ("skip", "warn", "fail") for f in ask(FITS, inventory, "sm_90"))


@pytest.mark.parametrize(
    ("file", "left", "says"),
    [
        ("k.json", 0, "k.json is not JSON"),
        ("k.json", 20, "k.json is not JSON"),
        ("__grp__k.json", 3, "__grp__k.json is not JSON"),
        ("k.cubin", 0, "k.cubin is cut off"),
        ("k.cubin", 100, "k.cubin is cut off"),
        ("k.cubin", len(CUBIN90) - 1, "k.cubin is cut off"),
        ("k.cubin", None, "k.cubin is missing"),
        ("__triton_launcher.so", 0, "file too short"),
    ],
)
def test_a_damaged_entry_of_tritons_cache_fails_beside_whole_ones(
    tmp_path: Path, file: str, left: int | None, says: str
) -> None:
    kernel(tmp_path, CUDA90)
    folder = kernel(tmp_path, CUDA90)
    (folder / "__triton_launcher.so").write_bytes((OBJECTS / "nordc_s80.so").read_bytes())
    whole = with_caches(artefacts.of_folders([str(tmp_path)], None, inflate), triton=True)
    assert found(FITS, whole, "sm_90") == [("pass", False)]
    content = (folder / file).read_bytes()
    (folder / file).unlink()
    if left is not None:
        (folder / file).write_bytes(content[:left])
    caches = artefacts.of_folders([str(tmp_path)], None, inflate)
    findings = ask(FITS, with_caches(caches, triton=True), "sm_90")
    (bad,) = (f for f in findings if f.status.value == "fail")
    assert (bad.subject, bad.remedy) == (str(folder), f"rm -r {folder}")
    assert says in bad.message
    assert [f.status.value for f in findings if f is not bad] == ["pass"]


def test_a_damaged_entry_for_another_card_is_not_loaded_on_this_one(tmp_path: Path) -> None:
    (kernel(tmp_path, CUDA90) / "k.cubin").write_bytes(CUBIN90[:100])
    assert found(FITS, scan(tmp_path), "sm_120") == [("warn", True)]


def packed(folder: Path, *, metadata_last: bool) -> Path:
    """Pack a folder into a tar, its JSON first or last."""
    path = folder.parent / f"{folder.name}.tar"
    files = sorted(f for f in folder.rglob("*") if f.is_file())
    files.sort(key=lambda f: (f.suffix == ".json") == metadata_last)
    with tarfile.open(path, "w") as archive:
        for file in files:
            archive.add(file, file.relative_to(folder.parent))
    return path


@pytest.mark.parametrize("metadata_last", [False, True])
@pytest.mark.parametrize("damage", ["none", "cubin", "json", "group"])
@pytest.mark.parametrize("sm", ["sm_90", "sm_120"])
def test_a_cache_in_an_archive_is_judged_as_in_a_folder(
    tmp_path: Path, damage: str, sm: str, metadata_last: bool
) -> None:
    cache = tmp_path / "cache"
    kernel(cache, CUDA90)
    folder = kernel(cache, CUDA90)
    file = {"cubin": "k.cubin", "json": "k.json", "group": "__grp__k.json", "none": "k.ptx"}[damage]
    if damage != "none":
        (folder / file).write_bytes((folder / file).read_bytes()[:10])
    inside, outside = scan(packed(cache, metadata_last=metadata_last)), scan(cache)
    assert inside.files == outside.files == ()
    told = [
        sorted((f.status.value, f.required) for f in ask(FITS, i, sm)) for i in (inside, outside)
    ]
    assert told[0] == told[1]
    assert judged(inside, sm).verdict is judged(outside, sm).verdict
    assert (judged(inside, sm).verdict is Verdict.COMPATIBLE) == (
        damage == "none" or (damage == "cubin" and sm == "sm_120")
    )


def test_other_artefacts_in_an_archive_are_judged_as_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    built = folder / "torch_extensions" / "py311_cu130" / "x" / "x.so"
    built.parent.mkdir(parents=True)
    built.write_bytes((OBJECTS / "nordc_s80.so").read_bytes())
    (folder / "m.pt2").write_bytes(package("90"))
    (folder / "m.engine").write_bytes(engine(rest=CUBIN90))
    (folder / "alone.cubin").write_bytes(CUBIN90)  # of no cache
    inside, outside = scan(packed(folder, metadata_last=True)), scan(folder)
    assert {(a.kind, a.parts) for a in inside.artefacts} == {
        (a.kind, a.parts) for a in outside.artefacts
    }
    assert len(inside.artefacts) == 3
    assert [f.containers for f in inside.files] == [f.containers for f in outside.files] != []
    built.write_bytes(built.read_bytes()[:3000])
    (bad,) = (f for f in ask(FITS, scan(packed(folder, metadata_last=True)), "sm_90")
              if f.status.value == "fail")  # fmt: skip
    assert bad.subject.endswith("x.so")
    assert bad.remedy.startswith(f"make {folder}.tar again without made/torch_extensions/")


def test_json_beside_ptx_that_is_of_no_cache_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text("{")
    (tmp_path / "k.ttir").write_text("module {}")
    assert scan(tmp_path).artefacts == ()


@pytest.mark.parametrize("layout", ["torch_extensions/py311_cu130/x/x.so", "torch_extensions/x/x.so",
                                    "torch_extensions/x/x_v1.so"])  # fmt: skip
@pytest.mark.parametrize("left", [0, 40, 3000, -1])
def test_a_built_extension_that_the_loader_refuses_fails(
    tmp_path: Path, layout: str, left: int
) -> None:
    built = tmp_path / layout
    built.parent.mkdir(parents=True)
    content = (OBJECTS / "nordc_s80.so").read_bytes()
    built.write_bytes(content)
    assert found(FITS, scan(tmp_path), "sm_80") == [("pass", False)]
    built.write_bytes(content[:left])
    finding = only(FITS, scan(tmp_path), "sm_80")
    if left == -1:  # the loader does not read the end of the table of sections
        assert (finding.status.value, finding.required) == ("warn", True)
    else:
        assert (finding.status.value, finding.required) == ("fail", True)
        # A process of its own: the loader may die of SIGBUS.
        load = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(built)!r})"]
        assert subprocess.run(load, capture_output=True, timeout=60, check=False).returncode != 0
    assert finding.remedy == f"rm -r {built.parent}"


@pytest.mark.parametrize("left", [0, 100, -30])
def test_a_damaged_package_beside_a_whole_one_is_told(tmp_path: Path, left: int) -> None:
    (tmp_path / "good.pt2").write_bytes(package(k_cubin=CUBIN90))
    (tmp_path / "bad.pt2").write_bytes(package(k_cubin=CUBIN90)[:left])
    report = judged(scan(tmp_path), "sm_90")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "bad.pt2" in str(report.summary["line"])


# R26: a `.so` of another card where torch.utils.cpp_extension builds.
def test_r26_a_built_extension_for_another_card_warns(tmp_path: Path) -> None:
    built = tmp_path / "torch_extensions" / "py311_cu130" / "fused_adam" / "fused_adam.so"
    built.parent.mkdir(parents=True)
    built.write_bytes((OBJECTS / "nordc_s80.so").read_bytes())
    inventory = scan(tmp_path)
    assert inventory.files == ()
    finding = only(FITS, inventory, "sm_120")
    assert (finding.status.value, finding.required) == ("warn", True)
    assert finding.remedy == f"rm -r {built.parent}"
    assert found(FITS, inventory, "sm_86") == [("pass", False)]
    elsewhere = tmp_path / "fused_adam.so"
    elsewhere.write_bytes(built.read_bytes())
    assert judged(scan(elsewhere), "sm_120").verdict is Verdict.INCOMPATIBLE


def test_the_caches_of_a_job_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(tmp_path / "triton", CUDA90)
    kernel(tmp_path / "inductor" / "triton" / "0", CUDA90)
    built = tmp_path / "built" / "x" / "x.so"
    built.parent.mkdir(parents=True)
    built.write_bytes((OBJECTS / "nordc_s80.so").read_bytes())
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    caches = artefacts.of_job(cuda="13.0")
    assert [(c.kind, c.path) for c in caches] == [
        ("triton-cache", str(tmp_path / "triton")),
        ("triton-cache", str(tmp_path / "inductor" / "triton" / "0")),
        ("torch-extension", str(built)),
    ]
    # Without Triton and PyTorch nobody looks there.
    assert found(FITS, with_caches(caches), "sm_120") == [("skip", False)]
    used = with_caches(caches, torch=Torch(version="2.14.1", cuda="13.0"), triton=True)
    assert {f.status.value for f in ask(FITS, used, "sm_120")} == {"warn"}


def with_caches(
    caches: tuple[Artefact, ...], torch: Torch | None = None, *, triton: bool = False
) -> Inventory:
    from dataclasses import replace

    made = environment(torch=torch, triton=Triton(version="3.8.0") if triton else None)
    assert made.environment is not None
    return replace(made, environment=replace(made.environment, caches=caches))


def package(capability: str = "90", device: str = "cuda", **members: bytes) -> bytes:
    """Write an AOT package as torch._inductor.aoti_compile_and_package lays it out."""
    inner = "pkg/data/aotinductor/model"
    data = {"AOTI_DEVICE_KEY": device, "AOTI_COMPUTE_CAPABILITY": capability}
    files = {f"{inner}/a.wrapper_metadata.json": json.dumps(data).encode()}
    files |= {f"{inner}/{name.replace('_', '.')}": value for name, value in members.items()}
    return zipped({**files, "pkg/archive_format": b"pt2"})


# R27: an AOT package for another card (pytorch/pytorch#153697: the cubins are what counts).
@pytest.mark.parametrize(
    ("content", "sm", "expected"),
    [
        (package(k_cubin=CUBIN90), "sm_120", "fail"),
        (package(k_cubin=CUBIN90), "sm_90", "pass"),
        (package("120", k_cubin=CUBIN90), "sm_120", "fail"),  # it says so, its code does not
        (package(a_cubin=CUBIN90, b_cubin=CUBIN120), "sm_120", "fail"),  # each is a kernel
        (package(k_fatbin=SM90.read_bytes()), "sm_89", "fail"),
        (package("90"), "sm_120", "warn"),
        (package("90"), "sm_90", "pass"),
        (package(""), "sm_90", "warn"),
        (package("", device="cpu"), "sm_90", "skip"),
    ],
)
def test_r27_aot_packages(tmp_path: Path, content: bytes, sm: str, expected: str) -> None:
    (tmp_path / "model.pt2").write_bytes(content)
    finding = only(FITS, scan(tmp_path), sm)
    assert finding.status.value == expected, finding.message
    if expected == "fail":
        assert judged(scan(tmp_path), sm).verdict is Verdict.INCOMPATIBLE


def test_r27_kernels_that_lie_in_the_library_as_data(tmp_path: Path) -> None:

    plain = b"\x7fELF" + bytes(60)
    (tmp_path / "m.pt2").write_bytes(package(w_so=plain + bytes(12) + CUBIN90))
    (one,) = scan(tmp_path).artefacts
    assert [c.sm for part in one.parts for c in part.code] == ["sm_90"]


def test_a_zip_with_a_member_without_a_name_is_a_problem(tmp_path: Path) -> None:
    name = b"nameless.so"
    content = zipped({name.decode(): b"x"})
    # The directory at the end says that the name has no length.
    at = content.rindex(b"PK\1\2") + 28
    broken = content[:at] + bytes(2) + content[at + 2 : at + 18] + content[at + 18 + len(name) :]
    size = struct.pack("<I", 46)
    end = broken.rindex(b"PK\5\6")
    broken = broken[: end + 12] + size + broken[end + 16 :]
    (tmp_path / "m.pt2").write_bytes(broken)
    (file,) = scan(tmp_path).files
    assert file.problem == "archive: a member without a name"


def engine(version: tuple[int, int, int] = (10, 3, 0), rest: bytes = b"") -> bytes:
    return b"ftrt" + bytes(20) + struct.pack("<4B", *version, 26) + bytes(36) + rest


# R27: the card does not stand in the part of an engine's header that is known.
@pytest.mark.parametrize(
    ("content", "sm", "expected"),
    [
        (engine(), "sm_90", "warn"),
        (engine(rest=CUBIN90), "sm_90", "pass"),
        (engine(rest=CUBIN90), "sm_89", "fail"),
        (b"ptrt" + engine()[4:], "sm_90", "warn"),
    ],
)
def test_r27_engines(tmp_path: Path, content: bytes, sm: str, expected: str) -> None:
    (tmp_path / "rank0.engine").write_bytes(content)
    inventory = scan(tmp_path)
    finding = only(FITS, inventory, sm)
    assert finding.status.value == expected
    assert "engine of TensorRT 10.3.0" in finding.message
    assert codec.loads(Inventory, codec.dumps(inventory), name="x") == inventory


def test_what_merely_begins_like_an_engine_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ftrt")
    assert scan(tmp_path).artefacts == ()


def test_no_fifo_is_opened_and_no_link_to_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "adapter_model.safetensors")
    (tmp_path / "k.json").symlink_to("nowhere")
    (tmp_path / "k.cubin").symlink_to("nowhere")
    inventory = scan(tmp_path)
    assert (inventory.adapters, inventory.artefacts) == ((), ())


def test_where_there_is_nothing_of_the_kind_it_is_said(tmp_path: Path) -> None:
    for check in (FITS, LOADS):
        assert found(check, scan(tmp_path), "sm_90") == [("skip", False)]


def test_embedded_cubins_are_bounded_by_what_they_are() -> None:
    noise = b"\x7fELF\x02\x01\x01" * 1000
    assert [c.sm for c in artefacts.embedded(noise + CUBIN120)] == ["sm_120"]
    assert artefacts.of_extension("/nowhere/x.so", inflate).problem is not None
