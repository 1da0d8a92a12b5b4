"""Kernel folders: what ships is sound, and each mistake is named with its file and key."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from envcheck import catalog
from envcheck.core import codec
from envcheck.core.kernels import FORMATS, Config, Kernel, growth
from envcheck.errors import DocumentInvalid, FileUnavailable

GOOD = """\
kind = "triton"
purpose = "Something."
[dtypes.fp16]
min_sm = "sm_75"
tolerance = { accumulate = "fp32", source = "a book" }
[[configs]]
constants = { BLOCK = 1024 }
num_warps = 4
num_stages = 2
[[shapes]]
N = 5
"""
CUDA = """\
kind = "cuda"
purpose = "Something."
sources = ["kernel.cu"]
[dtypes.fp32]
min_sm = "sm_80"
tolerance = { accumulate = "fp32", source = "a book" }
[[shapes]]
N = 5
"""


def folder(tmp_path: Path, text: str, name: str = "some_kernel") -> Path:
    path = tmp_path / name
    path.mkdir()
    (path / "kernel.toml").write_text(text, encoding="utf-8")
    (path / "kernel.py").write_text("")
    (path / "kernel.cu").write_text("")
    return path


def test_the_shipped_kernels_are_all_there():
    shipped = {k.name: k for k in catalog.load_all([catalog.shipped()])}
    triton = {name for name, kernel in shipped.items() if kernel.kind == "triton"}
    assert triton == {
        *("vector_add", "fused_softmax", "layer_norm", "matmul", "flash_attention"),
        *("cross_entropy", "scan", "int4_matmul"),
    }
    assert {n for n, k in shipped.items() if k.kind == "cuda"} == {
        "fused_elementwise",
        "mma_matmul",
    }
    assert set(shipped["matmul"].dtypes) == {"fp16", "bf16", "fp8e4nv", "int8"}
    for kernel in shipped.values():
        assert dict.fromkeys(kernel.shapes[0], 1) in kernel.shapes or kernel.name == "int4_matmul"
        assert any(size % 2 and size > 1 for shape in kernel.shapes for size in shape.values())


def test_a_kernel_travels_as_plain_json(tmp_path):
    kernel = catalog.load(folder(tmp_path, GOOD))
    (plain,) = catalog.to_json([kernel])
    again = json.loads(json.dumps(plain))
    assert again["configs"][0]["constants"] == {"BLOCK": 1024}
    assert codec.from_json(Kernel, again, "kernel") == kernel


def test_a_configuration_is_named_by_its_values(tmp_path):
    (config,) = catalog.load(folder(tmp_path, GOOD)).configs
    assert config.label == "BLOCK=1024 num_warps=4 num_stages=2"
    assert config.values == {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}


def test_pairs_leave_out_what_a_configuration_is_not_for():
    kernel = catalog.load(catalog.shipped() / "matmul")
    for dtype, config in kernel.pairs():
        assert not config.dtypes or dtype in config.dtypes
    small = Config(constants={"BLOCK": 1}, num_warps=1, num_stages=1, dtypes=("int8",))
    assert "int8" in small.dtypes
    assert {dtype for dtype, _ in kernel.pairs()} == set(kernel.dtypes)


def test_the_digest_is_over_names_and_bytes(tmp_path):
    path = folder(tmp_path, GOOD)
    lines = "".join(
        f"{hashlib.sha256((path / name).read_bytes()).hexdigest()} {name}\n"
        for name in ("kernel.cu", "kernel.py", "kernel.toml")
    )
    expected = f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    assert catalog.load(path).digest == expected
    (path / "__pycache__").mkdir()
    (path / "__pycache__" / "kernel.pyc").write_bytes(b"junk")
    assert catalog.load(path).digest == expected
    (path / "kernel.py").write_text("# changed")
    assert catalog.load(path).digest != expected


def test_a_cuda_kernel_has_sources_and_no_configurations(tmp_path):
    assert catalog.load(folder(tmp_path, CUDA)).sources == ("kernel.cu",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "triton"', 'kind = "cutlass"', "kind: 'cutlass' is none of triton, cuda"),
        ('kind = "triton"', "", "kind: missing"),
        ('purpose = "Something."', 'purpose = " "', "purpose: empty"),
        ('purpose = "Something."', "purpose = 5", "purpose: expected str, got int"),
        ('kind = "triton"', 'kind = "triton"\nspeed = 9', "speed: no such field"),
        ('kind = "triton"', 'kind = "triton"\nname = "x"', "name: no such field"),
        ('kind = "triton"', 'kind = "triton"\ndigest = "x"', "digest: no such field"),
        ("dtypes.fp16", "dtypes.half", "dtypes.half: 'half' is none of fp32, fp16,"),
        ('min_sm = "sm_75"', "", "dtypes.fp16.min_sm: missing"),
        ('"sm_75"', '"sm_90a"', "dtypes.fp16.min_sm: 'sm_90a' has not the form sm_80"),
        ('"sm_75"', '"ampere"', "dtypes.fp16.min_sm: 'ampere' has not the form sm_80"),
        ('"sm_75"', "75", "dtypes.fp16.min_sm: expected str, got int"),
        ('"fp32"', '"fp33"', "dtypes.fp16.tolerance.accumulate: 'fp33' is none of exact,"),
        ('"a book"', '""', "dtypes.fp16.tolerance.source: empty"),
        ('"a book" }', '"a book", atol = 1 }', "dtypes.fp16.tolerance.atol: no such field"),
        ("num_warps = 4", "num_warps = 6", "configs[0].num_warps: 6 is no power of two"),
        ("num_warps = 4", "num_warps = 0", "configs[0].num_warps: 0 is no power of two"),
        ("num_warps = 4", "num_warps = true", "configs[0].num_warps: expected int, got bool"),
        ("num_stages = 2", "num_stages = 99", "configs[0].num_stages: 99 is not between 1 and"),
        ("num_stages = 2", "num_ctas = 2", "configs[0].num_ctas: no such field"),
        ("BLOCK = 1024", 'BLOCK = "1024"', "configs[0].constants.BLOCK: expected int, got str"),
        ("BLOCK = 1024", "num_warps = 4", "configs[0].constants.num_warps: no name of"),
        ("BLOCK = 1024", '"a b" = 4', "configs[0].constants.a b: no name of"),
        ("num_stages = 2", 'num_stages = 2\ndtypes = ["int8"]', "configs[0].dtypes: 'int8' is"),
        ("N = 5", "N = -5", "shapes[0].N: -5 is no size"),
        ("N = 5", "N = 1\n[[shapes]]\nM = 1", "shapes[1]: each shape needs the same dimensions"),
        ("[[shapes]]\nN = 5", "", "shapes: missing"),
        ("[[shapes]]\nN = 5", "[[shapes]]", "shapes[0]: each shape needs"),
        ('kind = "triton"', 'kind = "triton"\nsources = ["kernel.cu"]', "sources: a CUDA kernel"),
        ("N = 5", "N = ", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path, old, new, message):
    assert old in GOOD
    path = folder(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(DocumentInvalid, match=re.escape(f"{path / 'kernel.toml'}: {message}")):
        catalog.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD[: GOOD.index("[[configs]]")] + "[[shapes]]\nN = 5\n", "configs: empty"),
        (GOOD + GOOD[GOOD.index("[[configs]]") : GOOD.index("[[shapes]]")], "configs[1]: the same"),
        (CUDA.replace('sources = ["kernel.cu"]', ""), "sources: a CUDA kernel needs them"),
        (CUDA.replace("kernel.cu", "gone.cu"), "sources: gone.cu: no such file"),
        (CUDA.replace("kernel.cu", "../x.cu"), "sources: ../x.cu: no such file"),
        (
            GOOD.replace("num_stages = 2", 'num_stages = 2\ndtypes = ["fp16"]').replace(
                "[[configs]]",
                '[dtypes.bf16]\nmin_sm = "sm_80"\n'
                'tolerance = { accumulate = "fp32", source = "b" }\n[[configs]]',
            ),
            "dtypes.bf16: no configuration is for it",
        ),
    ],
)
def test_what_does_not_fit_together_is_named_too(tmp_path, text, message):
    with pytest.raises(DocumentInvalid, match=re.escape(message)):
        catalog.load(folder(tmp_path, text))


def test_a_folder_needs_a_name_a_description_and_code(tmp_path):
    with pytest.raises(DocumentInvalid, match="folder: 'Some-Kernel' is no name"):
        catalog.load(folder(tmp_path, GOOD, "Some-Kernel"))
    path = folder(tmp_path, GOOD)
    (path / "kernel.py").unlink()
    with pytest.raises(DocumentInvalid, match=r"kernel\.py: no such file"):
        catalog.load(path)
    (path / "kernel.toml").write_bytes(b"\xff")
    with pytest.raises(DocumentInvalid, match="not valid TOML"):
        catalog.load(path)
    (path / "kernel.toml").unlink()
    with pytest.raises(FileUnavailable, match=r"kernel\.toml"):
        catalog.load(path)


def test_twins_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(FileUnavailable, match="holds no kernel"):
        catalog.load_all([tmp_path])
    own = tmp_path / "own"
    shutil.copytree(catalog.shipped() / "scan", own / "scan")
    with pytest.raises(DocumentInvalid, match="two kernels named scan"):
        catalog.load_all([catalog.shipped(), own])


def test_what_is_staged_is_what_the_digest_covers(tmp_path):
    own, target = tmp_path / "own", tmp_path / "staged"
    own.mkdir()
    path = folder(own, CUDA)
    (path / "deep").mkdir(mode=0o700)
    (path / "deep" / "more.h").write_text("")
    (path / "kernel.cu").chmod(0o600)
    os.utime(path / "kernel.cu", (1e9, 1e9))
    (path / "__pycache__").mkdir()
    (path / "__pycache__" / "kernel.pyc").write_bytes(b"junk")
    (own / "unrelated").mkdir()
    (own / "other").symlink_to(folder(tmp_path, GOOD, "linked"))
    before = os.umask(0o077)
    try:
        catalog.stage([catalog.shipped(), own], target)
    finally:
        os.umask(before)
    expected = catalog.load_all([catalog.shipped(), own])
    assert {k.name: k for k in catalog.load_all([target])} == {k.name: k for k in expected}
    assert {"linked", "some_kernel"} < {k.name for k in expected}
    staged = target / "some_kernel"
    files = {str(p.relative_to(staged)) for p in staged.rglob("*") if p.is_file()}
    assert files == {"kernel.toml", "kernel.py", "kernel.cu", "deep/more.h"}
    assert (staged / "kernel.cu").stat().st_mtime == 1e9
    modes = {(p.is_dir(), p.stat().st_mode & 0o777) for p in (target, *target.rglob("*"))}
    assert modes == {(True, 0o755), (False, 0o644)}


def test_the_growth_of_errors_is_linear_and_then_as_the_root():
    assert [growth(n) for n in (0, 1, 64)] == [0, 1, 64]
    assert growth(4096) == 512
    assert FORMATS["fp16"].roundoff == 0.5 * 2**-10  # half of the last of 10 bits of mantissa
    assert FORMATS["bf16"].roundoff == 0.5 * 2**-7
    assert FORMATS["fp32"].roundoff == 0.5 * 2**-23
    assert FORMATS["fp16"].least == 0.5 * 2**-24  # half of the least subnormal number
