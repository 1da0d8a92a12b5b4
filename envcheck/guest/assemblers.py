"""Each assembler that the environment would use, tried on three lines of PTX for the target.

Triton ships one or two, a variable may name another, PyTorch builds extensions with the one
beside nvcc, and compiles some kernels through NVRTC. All of them are asked, since probing
only the first of two raises a false alarm (Triton 3.3: `ptxas` is of CUDA 12.4 and knows no
Blackwell card, the `ptxas-blackwell` beside it does).
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from envcheck.core.compiled import AssemblerProbe
from envcheck.core.cuda import LEAST_ISA
from envcheck.core.sm import Sm
from envcheck.guest import trial, words
from envcheck.guest.forked import Work
from envcheck.guest.trial import Trial

_VARIABLES = {
    "TRITON_PTXAS_PATH": "ptxas",
    "TRITON_PTXAS_BLACKWELL_PATH": "ptxas-blackwell",
    "TRITON_PTXAS-BLACKWELL_PATH": "ptxas-blackwell",  # so in Triton 3.3, and in no other
}
_SECONDS = 30
PATIENCE = 600
"""Seconds after which all of them must have come to an end; they answer in a fraction of one."""
_RELEASE = re.compile(r"release (\d+\.\d+)")
_FIRST_SPECIFIC = 90
"""From this SM on compilers also ask for `sm_NNa`, and Triton for nothing else."""


@dataclass(frozen=True, slots=True)
class Assembler:
    """One assembler that was found."""

    name: str
    origin: str
    path: str


def probe(target: str, sites: Sequence[str]) -> tuple[AssemblerProbe, ...]:
    """Try every assembler of the environment whose packages lie in `sites`."""
    sm = Sm.parse(target)
    names = [sm, replace(sm, suffix="a")] if sm.number >= _FIRST_SPECIFIC else [sm]
    found = tuple(find(sites))
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        works = [work for n, a in enumerate(found) for work in _works(a, names, f"{folder}/{n}")]
        trials = iter(
            trial.run_all(works, deadline=_SECONDS, parallel=len(os.sched_getaffinity(0)))
        )
        probes = [p for assembler in found for p in _probes(assembler, names, trials)]
    return tuple(replace(p, path=_relative(p.path, sites)) for p in probes)


def find(sites: Sequence[str]) -> Iterator[Assembler]:
    """Yield the assemblers of an environment; a file that several would use is named once."""
    seen: set[str] = set()
    for assembler in _candidates(sites):
        real = os.path.realpath(assembler.path)
        if real not in seen:
            seen.add(real)
            yield assembler


def _candidates(sites: Sequence[str]) -> Iterator[Assembler]:
    for variable, name in _VARIABLES.items():
        if path := os.environ.get(variable):
            yield Assembler(name, variable, path)
    for site in sites:
        inner = glob.escape(site)
        for path in sorted(glob.glob(f"{inner}/triton/backends/nvidia/bin/ptxas*")):
            yield Assembler(os.path.basename(path), "triton", path)
        for path in sorted(glob.glob(f"{inner}/nvidia/*/bin/ptxas")):
            yield Assembler("ptxas", "toolkit", path)
        for pattern in ("nvidia/*/lib/libnvrtc.so.*", "torch/lib/libnvrtc[.-]*so*"):
            for path in sorted(glob.glob(f"{inner}/{pattern}")):
                if "builtins" not in path and ".alt." not in path:
                    yield Assembler("nvrtc", "toolkit", path)
    home = glob.escape(_toolkit())
    for path in glob.glob(f"{home}/bin/ptxas"):
        yield Assembler("ptxas", "toolkit", path)
    for path in sorted(glob.glob(f"{home}/lib64/libnvrtc.so.*")):
        yield Assembler("nvrtc", "toolkit", path)


def _toolkit() -> str:
    """Return the folder in which torch.utils.cpp_extension looks for nvcc."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = shutil.which("nvcc")
    return named or (os.path.dirname(os.path.dirname(nvcc)) if nvcc else "/usr/local/cuda")


def _works(assembler: Assembler, targets: Sequence[Sm], stem: str) -> Iterator[Work]:
    """Yield what to run for one assembler: what `_probes` reads, in that order."""
    if assembler.name == "nvrtc":
        yield partial(_ask_nvrtc, assembler.path)
        return
    yield trial.program([assembler.path, "--version"])
    for target in targets:
        source = f"{stem}-{target}.ptx"
        with open(source, "w", encoding="ascii") as handle:
            handle.write(three_lines(target))
        # Never /dev/null: an assembler that fails removes its output.
        output = f"{stem}-{target}.cubin"
        yield trial.program([assembler.path, f"--gpu-name={target}", source, "-o", output])


def three_lines(target: Sm) -> str:
    """Return PTX for a target, of the least ISA that knows it."""
    major, minor = LEAST_ISA.get(str(target), max(LEAST_ISA.values()))
    return f".version {major}.{minor}\n.target {target}\n.address_size 64\n"


def _ask_nvrtc(path: str) -> dict[str, Any]:
    """Return version and SM numbers of an NVRTC; needs no card and no driver."""
    library = ctypes.CDLL(path)

    def call(function: Callable[..., int], *arguments: Any) -> None:
        if code := function(*arguments):
            message = f"{function.__name__} returned {code}"
            raise OSError(message)

    major, minor, count = (ctypes.c_int() for _ in range(3))
    call(library.nvrtcVersion, ctypes.byref(major), ctypes.byref(minor))
    call(library.nvrtcGetNumSupportedArchs, ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    call(library.nvrtcGetSupportedArchs, numbers)
    return {"version": f"{major.value}.{minor.value}", "numbers": list(numbers)}


def _probes(
    assembler: Assembler, targets: Sequence[Sm], trials: Iterator[Trial]
) -> Iterator[AssemblerProbe]:
    if assembler.name == "nvrtc":
        yield _nvrtc_probe(assembler, targets[0], next(trials))
        return
    said = next(trials).outcome
    match = _RELEASE.search("\n".join(said.stdout))
    for target in targets:
        outcome = next(trials).outcome
        accepted = outcome.status == "exited" and outcome.code == 0
        yield AssemblerProbe(
            name=assembler.name,
            origin=assembler.origin,
            path=assembler.path,
            version=match[1] if match is not None else None,
            target=str(target),
            accepted=accepted,
            message="" if accepted else words.reason(outcome),
            outcome=outcome,
        )


def _nvrtc_probe(assembler: Assembler, target: Sm, ended: Trial) -> AssemblerProbe:
    facts: dict[str, Any] = ended.value if isinstance(ended.value, dict) else {}
    known = facts.get("numbers", [])
    message = words.reason(ended.outcome)
    if known and target.number not in known:
        message = f"does not know {target}, only {', '.join(str(Sm(n)) for n in known)}"
    return AssemblerProbe(
        name=assembler.name,
        origin=assembler.origin,
        path=assembler.path,
        version=facts.get("version"),
        target=str(target),
        accepted=target.number in known,
        message=message,
        outcome=ended.outcome,
    )


def _relative(path: str, sites: Sequence[str]) -> str:
    for site in sites:
        if path.startswith(site + os.sep):
            return os.path.relpath(path, site)
    return path
