"""The catalogue of smokes is well-formed, and can be read where none of its packages is."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import subprocess
import sys

import pytest

from envcheck.core.kernels import DTYPES, FORMATS
from envcheck.core.sm import Sm
from envcheck.guest import smokes
from envcheck.guest.distributions import normalise
from envcheck.guest.operands import PATTERNS
from envcheck.guest.ops.layouts import LAYOUTS
from envcheck.guest.smokes.catalogue import SMOKES

MODULES = [module.name for module in pkgutil.iter_modules(smokes.__path__)]
WANTED = {
    *("torchvision", "torchaudio", "bitsandbytes", "xformers", "flash_attn", "torchao", "triton"),
    *("flash_attn_interface", "flashinfer", "sageattention", "causal_conv1d", "mamba_ssm"),
    *("apex", "deepspeed", "transformer_engine", "gsplat", "nvdiffrast", "cupy", "onnxruntime"),
    *("jax", "vllm", "peft"),
}


def test_every_package_that_is_promised_is_there():
    assert {smoke.module for smoke in SMOKES} >= WANTED


def test_every_file_with_a_smoke_is_listed_once_and_named_like_its_package():
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"envcheck.guest.smokes.{name}")
        if hasattr(module, "SMOKE"):
            found[name] = module.SMOKE
    assert len(SMOKES) == len(found)
    for name, smoke in found.items():
        assert smoke.module == name
        assert sum(each is smoke for each in SMOKES) == 1


def test_no_package_and_no_operation_is_named_twice():
    assert len({smoke.module for smoke in SMOKES}) == len(SMOKES)
    covered = [name for smoke in SMOKES for name in smoke.distributions]
    assert len(set(covered)) == len(covered)
    assert covered == [normalise(name) for name in covered]
    ops = [op.name for smoke in SMOKES for op in smoke.ops]
    assert len(set(ops)) == len(ops)


@pytest.mark.parametrize("smoke", SMOKES, ids=lambda smoke: smoke.module)
def test_operations_are_made_of_what_there_is(smoke):
    assert smoke.ops
    assert smoke.distributions
    for op in smoke.ops:
        assert op.family == smoke.module
        assert op.name.startswith(f"{smoke.module}.")
        assert op.watched
        assert set(op.exact) <= set(PATTERNS)
        assert len({case.label for case in op.cases}) == len(op.cases)
        for case in op.cases:
            assert case.pattern in PATTERNS
            assert case.layout in LAYOUTS
        for name, rule in op.dtypes.items():
            assert name in DTYPES
            assert op.pairs(name)
            assert Sm.parse(rule.min_sm) >= Sm.parse("sm_50")
            assert len(rule.tolerance.source) > 10
            assert {rule.tolerance.accumulate, rule.tolerance.operand} <= set(FORMATS)


def test_the_catalogue_imports_no_package():
    """A smoke that imports one at its top would cost every run, and fail where it is not."""
    script = (
        "import sys\n"
        "import envcheck.guest.smokes.catalogue\n"
        f"there = {sorted(WANTED | {'torch', 'numpy'})!r}\n"
        "print([name for name in there if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_steps_of_formats_are_those_of_their_codes():
    """Written down from the papers; a code of the 8-bit map is the middle of a 64th of [0.1, 1]."""
    nf4 = [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ]
    upper = [0.1 + 0.9 * (2 * n + 1) / 128 for n in range(64)]
    dynamic = [-c for c in reversed(upper)], [*upper, 1.0]
    fp8 = [1 + n / 8 for n in range(9)]  # from 1 to 2
    for name, codes in (("nf4-codes", nf4), ("dynamic8-codes", dynamic[1]), ("fp8e4nv", fp8)):
        gaps = [after - before for before, after in itertools.pairwise(codes)]
        assert FORMATS[name].roundoff == pytest.approx(max(gaps) / 2), name
    # No code is -1: the largest negative number is half a gap off, and no more.
    assert 1 + dynamic[0][0] == pytest.approx(FORMATS["dynamic8-codes"].roundoff)
    assert FORMATS["int8-codes"].roundoff == pytest.approx(1 / 254)
    assert FORMATS["int4-codes"].roundoff == pytest.approx(1 / 30)
