"""The one card of a machine by an NVML of our own, and where CUDA has to be asked instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.guest import driver, nodes, only_card
from envcheck.guest.only_card import look

NODES = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")


@pytest.fixture
def library(fake: Path, nvml: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an NVML that shows one H200, on a machine with all nodes and a libcuda."""
    monkeypatch.setattr(nodes, "nodes", lambda: NODES)
    monkeypatch.setattr(driver, "LIBRARY", str(fake / "libcuda.so.1"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return str(nvml / "libnvidia-ml.so.1")


def test_the_one_card_is_told_in_the_words_of_cuda(library: str) -> None:
    card = look(library)
    assert card is not None
    assert (card.name, card.sm) == ("NVIDIA H200", "sm_90")
    assert card.uuid.startswith("GPU-")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nvmlDeviceGetCount_v2", "2"),
        ("nvmlDeviceGetCount_v2", "0"),
        ("nvmlDeviceGetMigMode", "1,1"),
        ("nvmlDeviceGetUUID", "!999"),
        ("nvmlDeviceGetName", "!15"),
        ("nvmlInitWithFlags", "!9"),
        ("nvmlDeviceGetUUID", "crash"),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("CUDA_VISIBLE_DEVICES", "GPU-00000000-0000-0000-0000-000000000000"),
    ],
)
def test_where_there_is_a_doubt_nothing_is_said(
    library: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert look(library) is None


def test_a_card_named_by_the_variable_is_that_card(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = look(library)
    assert first is not None
    for named in ("0", first.uuid):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert look(library) == first


def test_a_card_without_slices_is_one_card(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("nvmlDeviceGetMigMode", "!3")
    assert look(library) is not None


def test_without_what_cuda_opens_nothing_is_said(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "nodes", lambda: NODES[1:])
    assert look(library) is None
    monkeypatch.setattr(nodes, "nodes", lambda: NODES)
    monkeypatch.setattr(driver, "LIBRARY", "libcuda.so.that-is-not-there")
    assert look(library) is None


def test_a_library_that_hangs_is_left(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(only_card, "_SECONDS", 0.3)
    monkeypatch.setenv("nvmlDeviceGetCount_v2", "hang")
    assert look(library) is None
