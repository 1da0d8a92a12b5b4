"""Variables that force or forbid the driver's compiler leave every package code that can run."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import linking_words as words
from envcheck.checks.check import Check, Question
from envcheck.checks.remedies import owner
from envcheck.core import coverage
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Domain, Finding, Status
from envcheck.core.variables import OF_THE_DRIVERS_COMPILER

# Source: CUDA Programming Guide, "CUDA Environment Variables", JIT compilation: 0 or 1, 0 where it is
# not set. Measured on an H200 (tests/data/truth-extra/h200.json): forbidden, PTX ends in 223,
# JIT_COMPILATION_DISABLED; forced, all that has no PTX ends in 209, NO_BINARY_FOR_GPU.
_FORBIDS, _FORCES = (
    ("CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_JIT"),
    ("CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"),
)
_CACHE = "CUDA_CACHE_DISABLE"
_BESIDE = ("nvidia-cufile",)
"""Packages that PyTorch loads, and whose kernels run for GPUDirect Storage alone."""
_END = {
    **dict.fromkeys(_FORBIDS, "ends with error 223"),
    **dict.fromkeys(
        _FORCES, "ends with error 209; so does each Triton kernel, which is machine code alone"
    ),
    _CACHE: "is compiled anew at each start",
}


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.variables is None:
        yield CHECK.skip("variables", "no environment was looked at")
        return
    there = {
        n: environment.variables[n] for n in OF_THE_DRIVERS_COMPILER if n in environment.variables
    }
    if not there:
        yield CHECK.skip("variables", "none of those that steer the driver's compiler is set")
    for name, value in there.items():
        if value not in ("0", "1"):
            message = "is neither 0 nor 1, and what the driver makes of it is not documented"
            yield _finding(name, value, Status.WARN, message)
        elif value == "1":
            yield _judge(name, question)
        else:
            yield _finding(name, value, Status.PASS, "changes nothing")


def _judge(name: str, question: Question) -> Finding:
    known = question.roles
    files = [f for f in question.inventory.files if f.path in known and known[f.path].required]
    if not files:
        return CHECK.skip(f"{name}=1", "there is no device code that it could take away")
    forced = name in _FORCES
    whole = [f for f in files if all(_hit(f, question, forced=forced))]
    hit = whole or [f for f in files if any(_hit(f, question, forced=forced))]
    what = "without PTX" if forced else "with nothing but PTX"
    if not hit:
        message = f"none of {len(files)} files is {what} for {question.sm}"
        return _finding(name, "1", Status.PASS, message)
    who = f"{words.whose(hit[0].path, question)}: {hit[0].path}"
    more = f" (and {len(hit) - 1} more)" if len(hit) > 1 else ""
    part = "" if whole else "in a part of its kernels "
    message = f"{who}{more}, {part}{what} for {question.sm}, {_END[name]}"
    needed = any(owner(f.path, question) not in _BESIDE for f in whole)
    fails = needed and name != _CACHE
    return _finding(name, "1", Status.FAIL if fails else Status.WARN, message)


def _hit(file: DeviceFile, question: Question, *, forced: bool) -> list[bool]:
    """Say of each container that has code for the card whether a variable takes that away."""
    found = []
    for part in file.containers:
        usable = coverage.loadable(file, part)
        ptx = tuple(code for code in usable if code.kind == "ptx")
        modes = [coverage.of_codes(c, question.sm, question.driver).mode for c in (usable, ptx)]
        if modes[0] != coverage.NONE:
            found.append(modes[1] != coverage.JIT if forced else modes[0] == coverage.JIT)
    return found or [False]


def _finding(name: str, value: str, status: Status, message: str) -> Finding:
    remedy = f"unset {name}" if status is not Status.PASS else ""
    subject = f"{name}={value[:80]}"
    return CHECK.finding(subject, status, message, remedy=remedy, domain=Domain.JOB)


CHECK = Check(
    id="jit-variables-leave-code",
    claim="Variables that force or forbid the driver's compiler leave every package code that runs.",
    how=(
        "Holds CUDA_DISABLE_PTX_JIT, CUDA_DISABLE_JIT, CUDA_FORCE_PTX_JIT and CUDA_FORCE_JIT, where one "
        "is 1, against the device code that is installed: forbidden, a library that has nothing but PTX "
        "for the card does not run; forced, neither does one without PTX. Where that is so of a part of its "
        "kernels alone it warns. With CUDA_CACHE_DISABLE "
        "PTX is compiled anew at each start, which warns."
    ),
    classes=("E2", "I2"),
    remedy="Unset the variable; where it is 0 it changes nothing.",
    run=_run,
)
