"""What a request to execute comes to: which operations, in which order, from which folders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envcheck import catalog
from envcheck.core.kernels import Config
from envcheck.core.request import PARTS, ExecuteRequest, Sizes, SmokeCall
from envcheck.guest import kernel_ops, wanted
from envcheck.guest.ops import catalogue, matmul
from envcheck.guest.ops.op import Case
from envcheck.guest.smokes import named

KERNELS = catalog.load_all([catalog.shipped()])
WHOLE = ExecuteRequest(parts=PARTS, root=str(catalog.shipped()), kernels=KERNELS)
MINE = SmokeCall(module="mine.ops", place="mine.smoke", function="check")


def test_what_the_user_named_comes_first_and_what_is_built_last():
    ops = wanted.ops(replace(WHOLE, smokes=(MINE,)))
    assert (ops[0].name, ops[0].family) == ("mine.smoke:check", "mine.ops")
    parts = list(dict.fromkeys(op.part for op in ops))
    assert [p for p in parts if p != "extensions"] == ["ops", "triton", "cuda"]
    assert parts[0] == "extensions"


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_not_asked_for_does_not_run(part):
    request = replace(WHOLE, parts=(part,), smokes=(MINE,))
    assert {op.part for op in wanted.ops(request)} == {part}
    assert bool(wanted.smoked(request)) is (part == "extensions")


def test_the_sizes_of_a_job_come_before_those_of_the_catalogue():
    sizes = Sizes(op="mm", sizes={"M": 4096, "N": 8, "K": 16}, dtypes=("bf16",))
    mm = next(op for op in wanted.ops(replace(WHOLE, sizes=(sizes,))) if op.name == "mm")
    assert mm.cases[0] == Case(sizes={"M": 4096, "N": 8, "K": 16}, only=("bf16",))
    assert mm.cases[1:] == matmul.MM.cases
    assert [op.name for op in catalogue.OPS].count("mm") == 1


def test_every_kernel_runs_in_every_configuration_with_its_last_shape():
    by_name = {op.name: op for op in kernel_ops.ops(WHOLE)}
    assert set(by_name) == {k.name for k in KERNELS}
    for kernel in KERNELS:
        op = by_name[kernel.name]
        assert op.part == kernel.kind
        for dtype, config in kernel.pairs():
            cases = [c for c in op.pairs(dtype) if c.config == config]
            assert dict(kernel.shapes[-1]) in [dict(c.sizes) for c in cases]
        # Every shape is run in each dtype by some configuration.
        for dtype in kernel.dtypes:
            shapes = [dict(c.sizes) for c in op.pairs(dtype)]
            assert [s for s in kernel.shapes if dict(s) not in shapes] == []


def test_the_label_of_a_case_ends_with_its_configuration():
    """By it compiling and running are brought together, so it must be that of compiling."""
    config = Config(constants={"BLOCK": 64}, num_warps=4, num_stages=2)
    case = Case(sizes={"M": 3}, config=config)
    assert case.label == "M=3 BLOCK=64 num_warps=4 num_stages=2"
    assert case.label.endswith(f" {config.label}")


def test_a_library_is_found_only_for_the_torch_that_it_was_built_for(tmp_path, monkeypatch):
    class Torch:
        __version__ = "2.11.0+cu130"

    monkeypatch.setattr(kernel_ops, "torch", lambda: Torch)
    kernel = next(k for k in KERNELS if k.kind == "cuda")
    request = ExecuteRequest(cache=str(tmp_path), arch_list="9.0")
    assert kernel_ops.built(kernel, request) is None
    digest = kernel.digest.removeprefix("sha256:")[:16]
    for torch in ("2.10.0-cu130", "2.11.0+cu130"):
        folder = tmp_path / "cuda" / f"{kernel.name}-9.0-torch{torch}-cuda13.0-{digest}"
        folder.mkdir(parents=True)
        (folder / f"envcheck_{kernel.name}.so").write_text("")
    assert kernel_ops.built(kernel, request) == str(folder / f"envcheck_{kernel.name}.so")
    assert kernel_ops.built(kernel, replace(request, arch_list="12.0")) is None


def test_a_function_in_a_file_is_found_by_its_path(tmp_path):
    file = tmp_path / "my-smoke.py"
    file.write_text("class Checks:\n    @staticmethod\n    def forward():\n        return 5\n")
    smoke = SmokeCall(module="x", place=str(file), function="Checks.forward")
    assert named.op(smoke).name == "my-smoke.py:Checks.forward"
    assert named._function(smoke)() == 5


def test_what_cannot_be_called_is_refused(tmp_path):
    file = tmp_path / "smoke.py"
    file.write_text("check = 5\n")
    with pytest.raises(TypeError, match=r"check of .*smoke\.py cannot be called"):
        named._function(SmokeCall(module="x", place=str(file), function="check"))


@pytest.mark.parametrize(
    ("module", "of_the_card"),
    [("onnxruntime", "onnxruntime_gpu-1.31.1"), ("jax", "jax_cuda13_plugin-0.11.2")],
)
def test_a_build_for_the_cpu_is_not_asked_to_compute_on_the_card(
    tmp_path, monkeypatch, module, of_the_card
):
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").write_text("")
    (tmp_path / f"{module}-1.0.dist-info").mkdir()
    (tmp_path / f"{module}-1.0.dist-info" / "METADATA").write_text(f"Name: {module}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert module not in {s.module for s in wanted.installed()}
    folder = tmp_path / f"{of_the_card}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: {of_the_card.rpartition('-')[0]}\n")
    assert module in {s.module for s in wanted.installed()}
