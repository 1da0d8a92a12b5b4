"""Write `ptxas_targets.json`: which `.target` an assembler takes for which card, and since when.

    python ask_ptxas.py PTXAS > ptxas_targets.json

PTXAS is NVIDIA's assembler, for example of the wheel nvidia-cuda-nvcc. Every pair of target and
card is assembled once from an empty kernel, and every target with every PTX ISA version.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

TARGETS = [
    *("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_70", "sm_72"),
    *("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a"),
    *(f"sm_{n}{s}" for n in (100, 101, 103, 107, 110, 120, 121) for s in ("", "a", "f")),
]
CARDS = [75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121]
VERSIONS = [
    *("6.0", "6.1", "6.2", "6.3", "6.4", "6.5"),
    *(f"7.{n}" for n in range(9)),
    *(f"8.{n}" for n in range(9)),
    *(f"9.{n}" for n in range(6)),
]
PTX = ".version {}\n.target {}\n.address_size 64\n.visible .entry probe()\n{{\nret;\n}}\n"


def takes(ptxas: str, version: str, target: str, card: str) -> bool:
    command = [ptxas, "-arch", card, "-", "-o", "/dev/null"]
    text = PTX.format(version, target).encode()
    return subprocess.run(command, input=text, capture_output=True, check=False).returncode == 0


def own_card(target: str) -> str:
    """Name the card whose code the target is; sm_101 is an old name for sm_110."""
    number = max(75, int(re.sub(r"\D", "", target)))
    return f"sm_{110 if number == 101 else number}"


def main(ptxas: str) -> None:
    release = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True)
    newest = VERSIONS[-1]
    pairs = [(t, c) for t in TARGETS for c in CARDS]
    versions = [(v, t) for t in TARGETS for v in VERSIONS]

    def pair(item: tuple[str, int]) -> bool:
        # A card runs code for its own `a` target, which is the most that it can be asked for.
        name = f"sm_{item[1]}" + ("a" if item[1] >= 90 else "")
        return takes(ptxas, newest, item[0], name)

    def since(item: tuple[str, str]) -> bool:
        suffix = item[1][-1] if item[1][-1] in "af" else ""
        return takes(ptxas, item[0], item[1], own_card(item[1].rstrip("af")) + suffix)

    with ThreadPoolExecutor(4) as pool:
        fits = dict(zip(pairs, pool.map(pair, pairs), strict=True))
        known = dict(zip(versions, pool.map(since, versions), strict=True))
    document = {
        "ptxas": re.search(r"V([\d.]+)", release.stdout)[1],
        "runs_on": {t: [c for c in CARDS if fits[t, c]] for t in TARGETS},
        "least_isa": {t: next(v for v in VERSIONS if known[v, t]) for t in TARGETS},
        "takes_isa": [v for v in VERSIONS if known[v, "sm_75"]],
    }
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


main(sys.argv[1])
