"""Caches, AOT packages and engines that a job would find were made for this card."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial

from envcheck.checks.check import Check, Question
from envcheck.core import artefacts, coverage
from envcheck.core.artefacts import Artefact
from envcheck.core.device_file import Code
from envcheck.core.model import Environment, Finding, Json, Status
from envcheck.core.sm import Sm

_PATIENCE = (
    "nothing to mend: give the first start time, or bring a cache that was filled on this card"
)


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    found = question.inventory.artefacts
    if environment is not None:
        found += tuple(filter(partial(_used, environment), environment.caches or ()))
    if not found:
        yield CHECK.skip("caches", "no cache, AOT package or engine is in what was looked at")
    judges = {artefacts.TRITON: _triton, artefacts.EXTENSION: _extension}
    for one in found:
        judge = judges.get(one.kind, _loaded)
        yield judge(one, question)


def _used(environment: Environment, one: Artefact) -> bool:
    """Say whether anything that is installed would look into a cache."""
    user = environment.triton if one.kind == artefacts.TRITON else environment.torch
    return user is not None


def _codes(one: Artefact) -> tuple[Code, ...]:
    return tuple(dict.fromkeys(code for part in one.parts for code in part.code))


def _evidence(one: Artefact) -> dict[str, Json]:
    return {
        "kind": one.kind,
        "entries": one.entries,
        "made_for": (*(c.sm for c in _codes(one)), *one.others),
        "says": dict(one.says),
    }


def _names(one: Artefact) -> str:
    names = [*dict.fromkeys(c.sm for c in _codes(one)), *one.others]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _triton(one: Artefact, question: Question) -> Finding:
    """Judge a cache of Triton's: each kernel is for one SM, of which its key depends."""
    mine = sum(
        part.count
        for part in one.parts
        if any(Sm.parse(code.sm).silicon == question.sm.silicon for code in part.code)
    )
    evidence = _evidence(one)
    if one.damaged is not None:
        return _damaged(
            one, "an entry of Triton's cache", one.path, unused=bool(_codes(one)) and not mine
        )
    if mine:
        message = f"Triton's cache: {mine} of {one.entries} kernel(s) are for {question.sm}"
        return CHECK.finding(one.path, Status.PASS, message, required=False, evidence=evidence)
    if not _names(one):
        return CHECK.skip(one.path, "Triton's cache: its metadata does not say for which card")
    old = "untold" in one.says
    tail = (
        "a Triton this old does not have the card in its key, and would load them"
        if old
        else "they are compiled anew at first use"
    )
    return CHECK.finding(
        one.path,
        Status.FAIL if old else Status.WARN,
        f"Triton's cache: {one.entries} kernel(s) for {_names(one)}, none for {question.sm}: {tail}",
        remedy=_removal(one.path) if old else _PATIENCE,
        evidence=evidence,
    )


def _removal(folder: str) -> str:
    """Return how a folder is removed, be it a member of an archive."""
    archive, inside, member = folder.rpartition("!/")
    return f"make {archive} again without {member}" if inside else f"rm -r {shlex.quote(folder)}"


def _damaged(one: Artefact, what: str, folder: str, *, unused: bool = False) -> Finding:
    """Judge what is loaded as it lies there: neither Triton nor ninja looks whether it is whole."""
    tail = "it is of another card" if unused else "a job that uses it dies, and it is not made anew"
    return CHECK.finding(
        one.path,
        Status.WARN if unused else Status.FAIL,
        f"{what} is damaged: {one.damaged}; {tail}",
        remedy=_removal(folder),
        evidence=_evidence(one),
    )


def _extension(one: Artefact, question: Question) -> Finding:
    """Judge a library that ninja builds again where its commands have changed."""
    folder = one.path.rpartition("/")[0]
    if one.damaged is not None:
        return _damaged(one, "built extension", folder)
    if one.problem is not None:
        return CHECK.finding(
            one.path,
            Status.WARN,
            f"built extension: its device code cannot be judged: {one.problem}",
            remedy=_removal(folder),
            evidence=_evidence(one),
        )
    if not one.parts:
        return CHECK.skip(one.path, "built extension without device code")
    results = [coverage.of_codes(p.code, question.sm, question.driver) for p in one.parts]
    if any(result.mode != coverage.NONE for result in results):
        message = f"built extension: device code for {_names(one)}"
        return CHECK.finding(
            one.path, Status.PASS, message, required=False, evidence=_evidence(one)
        )
    return CHECK.finding(
        one.path,
        Status.WARN,
        f"built extension: device code for {_names(one)}, none for {question.sm}: it is built "
        "anew at first use where TORCH_CUDA_ARCH_LIST or the card changed, else loaded as it is",
        remedy=_removal(folder),
        evidence=_evidence(one),
    )


def _loaded(one: Artefact, question: Question) -> Finding:
    """Judge what is loaded as it is: nothing compiles it again."""
    package = one.kind == artefacts.AOT
    version = one.says.get("version")
    what = "AOT package" if package else f"engine of TensorRT {version or '(version not told)'}"
    remedy = f"make it again on {question.sm}"
    if package:
        remedy = f"torch._inductor.aoti_compile_and_package() on {question.sm}"
    evidence = _evidence(one)
    results = [(p, coverage.of_codes(p.code, question.sm, question.driver)) for p in one.parts]
    wrong = [p for p, result in results if result.mode == coverage.NONE]
    if wrong:
        # Each kernel is a cubin of its own: one that does not fit is enough.
        names = ", ".join(dict.fromkeys(c.sm for p in wrong for c in p.code))
        message = f"{what}: made for {names}, which does not run on {question.sm}"
        return CHECK.finding(one.path, Status.FAIL, message, remedy=remedy, evidence=evidence)
    if one.problem is not None:
        message = f"{what}: cannot be judged: {one.problem}"
        return CHECK.finding(
            one.path,
            Status.ERROR,
            message,
            remedy="fetch the file again; if it stays so, make it again",
            evidence=evidence,
        )
    if results:
        message = f"{what}: device code for {_names(one)} runs on {question.sm}"
        return CHECK.finding(one.path, Status.PASS, message, evidence=evidence)
    return _untold(one, what, remedy, question)


def _untold(one: Artefact, what: str, remedy: str, question: Question) -> Finding:
    """Judge by what the metadata says, where no device code was found."""
    evidence = _evidence(one)
    device, capability = one.says.get("device"), one.says.get("capability", "")
    if one.kind == artefacts.AOT and device == "cpu":
        return CHECK.skip(one.path, f"{what} for the CPU")
    if one.kind == artefacts.AOT and capability.isdecimal() and 20 <= int(capability) <= 999:
        made = Sm(int(capability))
        same = made.silicon == question.sm.silicon
        message = f"{what}: says that it was made on {made}, and holds no device code that is read"
        status = Status.PASS if same else Status.WARN
        return CHECK.finding(
            one.path,
            status,
            message,
            remedy="" if same else remedy,
            evidence=evidence,
        )
    return CHECK.finding(
        one.path,
        Status.WARN,
        f"{what}: nothing in it that can be read tells for which card it was made, and it runs on "
        "that kind of card alone unless it was built to be portable",
        remedy=remedy,
        evidence=evidence,
    )


CHECK = Check(
    id="caches-fit-target",
    claim="Caches, AOT packages and engines that a job would load were made for the card.",
    how=(
        "Reads the metadata of Triton's cache (also below torch.compile's), the device code of "
        "libraries that torch.utils.cpp_extension built, of AOT packages (.pt2) and of TensorRT "
        "engines. Artefacts for another card are stale: a cache is filled anew, which takes time "
        "at the first start and warns; what is damaged in one is loaded all the same, and fails; an AOT package or engine is loaded as it is, and fails."
    ),
    classes=("L",),
    remedy="Remove the cache, or make the package or engine on the card that runs it.",
    run=_run,
)
