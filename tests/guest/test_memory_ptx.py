"""The PTX that is committed is what its source gives, and assemblers take it for every card."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from inventories import DATA

import envcheck
from envcheck.guest.patterns import KEPT, Report

FOLDER = Path(envcheck.__file__).parent / "guest" / "ptx"
PTX = (FOLDER / "memory.ptx").read_text()


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build", DATA / "build_memory_ptx.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assemblers() -> Iterator[str]:
    """Yield the assemblers that are here: the toolkit's, and those that Triton brings."""
    if (found := shutil.which("ptxas")) is not None:
        yield found
    spec = importlib.util.find_spec("triton")
    for place in spec.submodule_search_locations or () if spec is not None else ():
        yield from map(str, Path(place).glob("backends/nvidia/bin/ptxas*"))


def test_what_is_committed_is_what_the_script_makes() -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    build = script()
    made_by = re.match(r"// Made by nvcc (\S+) ", PTX)
    assert made_by is not None
    if build.release(nvcc) != made_by[1]:
        pytest.skip(f"nvcc {build.release(nvcc)}, and it was made by {made_by[1]}")
    assert build.build(nvcc) == PTX


def test_it_asks_for_no_new_driver_and_no_new_card() -> None:
    assert ".version 6.0\n.target sm_60\n.address_size 64\n" in PTX
    assert re.findall(r"\.visible \.entry (\w+)\(", PTX) == ["nothing", "fill", "verify", "copy"]


@pytest.mark.parametrize("sm", ["75", "80", "86", "89", "90", "100", "120"])
def test_assemblers_take_it(tmp_path: Path, sm: str) -> None:
    tried = 0
    for assembler in assemblers():
        words = [assembler, f"-arch=sm_{sm}", str(FOLDER / "memory.ptx"), "-o", tmp_path / "cubin"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if "is not defined for option 'gpu-name'" not in done.stderr:
            assert (done.returncode, done.stderr) == (0, ""), assembler
            tried += 1
    if not tried:
        pytest.skip(f"no assembler that knows sm_{sm}")


def test_the_report_is_laid_out_as_in_the_source() -> None:
    # Two words, then three for each mismatch that is kept.
    source = (FOLDER / "memory.cu").read_text()
    assert f"enum {{ KEPT = {KEPT} }};" in source
    assert ctypes.sizeof(Report) == 8 * (2 + 3 * KEPT)
