"""Make envcheck/guest/ptx/memory.ptx of memory.cu: `python tests/data/build_memory_ptx.py`.

The file must load on cards and drivers that are years older than the compiler: nvcc 13.0 makes PTX
for sm_75 at the least, of an ISA that only drivers of its own time take. What it writes here has
been in PTX since sm_60 and ISA 5.0, so both lines are lowered by hand. ptxas of CUDA 11.8 (sm_60 to
sm_90) and of CUDA 13.0 (sm_75 to sm_120) assembles it so; tests/guest/test_memory_ptx.py asks those
that are there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "envcheck" / "guest" / "ptx"
ISA, TARGET = "6.0", "sm_60"


def release(nvcc: str) -> str:
    """Return the CUDA release of an nvcc: `13.0`."""
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release (\d+\.\d+)", said)[1]


def build(nvcc: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "memory.ptx"
        source = FOLDER / "memory.cu"
        words = [nvcc, "-ptx", "-arch=compute_75", "-O3", str(source), "-o", str(made)]
        subprocess.run(words, check=True)
        text = made.read_text()
    text = re.sub(r"^//.*\n|^\t// \.globl.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\.version .*$", f".version {ISA}", text, count=1, flags=re.MULTILINE)
    text = re.sub(r"^\.target .*$", f".target {TARGET}", text, count=1, flags=re.MULTILINE)
    head = f"// Made by nvcc {release(nvcc)} of memory.cu; see tests/data/build_memory_ptx.py.\n"
    return head + re.sub(r"\n{2,}", "\n", text).lstrip("\n")


if __name__ == "__main__":
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        sys.exit("no nvcc is on the PATH")
    (FOLDER / "memory.ptx").write_text(build(nvcc))
