"""Triton kernels compiled for what they will be launched with, without a card."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="operands are torch's")
pytest.importorskip("triton", reason="kernels are Triton's")

from envcheck import catalog  # noqa: E402
from envcheck.core.request import ExecuteRequest  # noqa: E402
from envcheck.core.sm import Sm  # noqa: E402
from envcheck.guest import kernel_ops  # noqa: E402
from envcheck.guest.ops.op import Case  # noqa: E402


@pytest.mark.timeout(300)
def test_each_specialization_is_compiled_for_the_card(tmp_path, monkeypatch):
    """vector_add is launched with N = 1, 98432 (divides by 16) and odd sizes."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels = tuple(k for k in catalog.load_all([catalog.shipped()]) if k.name == "vector_add")
    request = ExecuteRequest(parts=("triton",), root=str(catalog.shipped()), kernels=kernels)
    kernel_ops.precompile(request, Sm.parse("sm_120"), 200)
    made = [json.loads(f.read_text()) for f in tmp_path.rglob("add_kernel.json")]
    assert {m["target"]["arch"] for m in made} == {120}
    (kernel,) = kernels
    # One for each dtype, configuration and kind of size that some case has.
    kinds = {
        (dtype, case.config.label, kernel_ops._kinds(case))
        for op in kernel_ops.ops(request)
        for dtype in kernel.dtypes
        for case in op.pairs(dtype)
    }
    assert len(made) == len(kinds) > len(kernel.dtypes)


@pytest.mark.parametrize(
    ("sizes", "kinds"), [({"M": 1, "N": 512}, ("1", "16")), ({"M": 17, "N": 24}, ("", ""))]
)
def test_what_triton_looks_at_in_a_size(sizes, kinds):
    assert kernel_ops._kinds(Case(sizes=sizes)) == kinds
