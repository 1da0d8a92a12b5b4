"""Inputs that once failed, and whatever can be made of the samples, end in an answer."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_device_code import check, samples
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
CORPUS = samples()
SMALL = [s for s in CORPUS if 0 < len(s) <= 1 << 15]
REGRESSIONS = sorted((HERE / "regressions").iterdir())
NAMES = st.sampled_from(["a.so", "a.o", "a.a", "a.ptx", "a.fatbin", "a.cubin"])


@pytest.mark.parametrize("path", REGRESSIONS, ids=[p.name for p in REGRESSIONS])
def test_what_once_failed_is_answered(path: Path) -> None:
    assert check(path.read_bytes(), path.name).problem


@settings(max_examples=150)
@given(data=st.data(), name=NAMES)
def test_changed_samples_are_answered(data: st.DataObject, name: str) -> None:
    image = bytearray(data.draw(st.sampled_from(SMALL)))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, max(0, len(image) - 1)))
        match data.draw(st.sampled_from(["flip", "cut", "drop", "splice", "number"])):
            case "flip":
                image[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
            case "cut":
                del image[at:]
            case "drop":
                del image[at : at + data.draw(st.integers(1, 64))]
            case "splice":
                other = data.draw(st.sampled_from(SMALL))
                begin = data.draw(st.integers(0, len(other)))
                image[at:at] = other[begin : begin + 600]
            case "number":
                value = data.draw(
                    st.sampled_from([0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1, len(image)])
                    | st.integers(0, (1 << 64) - 1)
                )
                image[at : at + 8] = struct.pack("<Q", value)
    check(bytes(image), name)


@given(name=NAMES, cut=st.integers(0, 1 << 15), index=st.integers(0, len(SMALL) - 1))
def test_samples_cut_anywhere_are_answered(name: str, cut: int, index: int) -> None:
    sample = SMALL[index]
    file = check(sample[: cut % (len(sample) + 1)], name)
    assert file.size == cut % (len(sample) + 1)


@given(data=st.binary(max_size=400), name=NAMES)
def test_any_bytes_are_answered(data: bytes, name: str) -> None:
    check(data, name)


def test_the_fuzz_target_ends_within_its_budget() -> None:
    command = [sys.executable, HERE / "fuzz_device_code.py", "--seconds", "2", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "inputs read" in done.stdout
