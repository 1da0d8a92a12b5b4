"""TORCH_CUDA_ARCH_LIST against PyTorch's own reading of it, where PyTorch is installed."""

from __future__ import annotations

import pytest

from envcheck.core.arch_list import parse, serves
from envcheck.core.sm import Sm

TAKEN = [
    "8.9", "8.0;8.6", "8.0 8.6", "9.0a", "9.0+PTX", "12.0a+PTX", "Ada", "Blackwell",
    "Ampere;9.0", "Kepler+Tesla", "Volta+Tegra 7.5", "10.3a;12.1+PTX", "6.2",
]  # fmt: skip
REFUSED = [
    "8.0,8.6", "8.0;", ";8.0", "8.0  8.6", "sm_80", "80", "8.0+ptx", "12.9", "ampere", "8",
    "9.0a+", " 8.0", "8.0\n",
]  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_lists_that_pytorch_takes(text: str) -> None:
    assert parse(text)


@pytest.mark.parametrize("text", REFUSED)
def test_lists_that_pytorch_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@pytest.mark.parametrize("text", [*TAKEN, *REFUSED])
def test_pytorch_says_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extension = pytest.importorskip("torch.utils.cpp_extension")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", text)
    if text in REFUSED:
        with pytest.raises(ValueError, match="CUDA arch"):
            extension._get_cuda_arch_flags()
        return
    flags = extension._get_cuda_arch_flags()
    archs = parse(text)
    assert archs is not None
    expected = {f"-gencode=arch={a.sm.virtual},code={a.sm}" for a in archs}
    expected |= {f"-gencode=arch={a.sm.virtual},code={a.sm.virtual}" for a in archs if a.ptx}
    assert set(flags) == expected


def test_a_list_may_ask_for_the_card_that_is_there() -> None:
    assert parse("native") is None
    assert parse("") is None


@pytest.mark.parametrize(
    ("text", "sm", "expected"),
    [
        ("8.0;8.6", "sm_89", True),  # the same major
        ("8.0;8.6", "sm_120", False),
        ("8.0;9.0+PTX", "sm_120", True),
        ("9.0a", "sm_120", False),
        ("12.0", "sm_121", True),
    ],
)
def test_which_cards_are_served(text: str, sm: str, expected: bool) -> None:
    archs = parse(text)
    assert archs is not None
    assert serves(archs, Sm.parse(sm)) is expected
