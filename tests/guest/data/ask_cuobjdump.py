"""Write `cuobjdump.json`: what NVIDIA's own tool finds in the samples.

    python ask_cuobjdump.py CUOBJDUMP > cuobjdump.json

For each object of `tests/data/truth` and `truth-extra`: how many cubins and PTX texts there are
for each SM, and which kernels each cubin has (symbols marked ENTRY). The tool ships in the wheel
nvidia-cuda-cuobjdump. It names cubins by their ELF, in which `f` does not stand.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DATA = Path(__file__).parents[2] / "data"
LISTED = re.compile(r"^(?:ELF|PTX) file +\d+: .*\.(sm_\d+[af]?)\.(?:cubin|ptx)$", re.MULTILINE)
ENTRY = re.compile(r"^FUNC +\w+ +\w+ +ENTRY +(\S+)$", re.MULTILINE)


def run(tool: str, path: Path, *options: str) -> str | None:
    done = subprocess.run(
        [tool, "-all", *options, path], capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def ask(tool: str, path: Path) -> dict | None:
    elf, ptx, symbols = (run(tool, path, o) for o in ("-lelf", "-lptx", "-symbols"))
    if elf is None or ptx is None or symbols is None:
        return None
    return {
        "elf": dict(sorted(Counter(LISTED.findall(elf)).items())),
        "ptx": dict(sorted(Counter(LISTED.findall(ptx)).items())),
        "kernels": sorted(ENTRY.findall(symbols)),
    }


def main(tool: str) -> None:
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True)
    paths = [
        p
        for folder in ("truth", "truth-extra")
        for p in sorted((DATA / folder / "objects").iterdir())
        if p.suffix != ".ptx"
    ]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda path: ask(tool, path), paths)
    document = {
        "cuobjdump": re.search(r"V([\d.]+)", version.stdout)[1],
        "files": {
            f"{p.parts[-3]}/{p.name}": answer for p, answer in zip(paths, found, strict=True)
        },
    }
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


main(sys.argv[1])
