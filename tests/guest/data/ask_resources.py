#!/usr/bin/env python3
"""Compile resources.cu with several assemblers and keep what each says of its own output.

    ask_resources.py PTXAS ... (nvcc on the PATH makes the PTX)

Writes resources/NAME.cubin and resources.json: registers, stack and shared memory of each
kernel as `ptxas -v` states them. An assembler that does not know a target is passed over.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TARGETS = ("sm_75", "sm_89", "sm_90a", "sm_120a")


def main(assemblers: list[str]) -> None:
    """Ask each assembler for each target."""
    answers: dict[str, dict[str, dict[str, int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder) / "resources.ptx"
        command = ["nvcc", "-ptx", "-arch=compute_75", str(HERE / "resources.cu"), "-o", str(ptx)]
        subprocess.run(command, check=True)
        # Nothing here needs a newer ISA, and older assemblers refuse it.
        ptx.write_text(re.sub(r"\.version \S+", ".version 7.8", ptx.read_text()))
        for assembler in assemblers:
            said = subprocess.run([assembler, "--version"], check=True, capture_output=True)
            release = re.search(rb"release (\S+),", said.stdout)[1].decode()
            for target in TARGETS:
                name = f"{release}-{target}"
                output = HERE / "resources" / f"{name}.cubin"
                arguments = [assembler, "-v", f"--gpu-name={target}", str(ptx), "-o", str(output)]
                done = subprocess.run(arguments, check=False, capture_output=True, text=True)
                if done.returncode == 0:
                    answers[name] = dict(kernels(done.stderr))
    text = json.dumps(answers, indent=1, sort_keys=True)
    (HERE / "resources.json").write_text(text + "\n")


def kernels(text: str):
    """Yield name and numbers of each kernel in what `ptxas -v` printed."""
    for part in text.split("Compiling entry function '")[1:]:
        used = re.search(r"Used (\d+) registers(.*)", part)
        shared = re.search(r"(\d+) bytes smem", used[2])
        yield (
            part.partition("'")[0],
            {
                "registers": int(used[1]),
                "stack_bytes": int(re.search(r"(\d+) bytes stack frame", part)[1]),
                "spill_stores": int(re.search(r"(\d+) bytes spill stores", part)[1]),
                "static_shared": int(shared[1]) if shared else 0,
            },
        )


if __name__ == "__main__":
    main(sys.argv[1:])
