"""Every file that holds device code holds code that this card can run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import remedies
from envcheck.checks.check import Check, Question
from envcheck.core import coverage, cuda
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.roles import Role
from envcheck.core.selection import choices
from envcheck.core.sm import Sm

# What to do about a file that could not be read, by what its problem says; the first counts.
_UNREADABLE = (
    (remedies.REFUSED, remedies.AS_A_READER),
    (
        r"not a regular file|neither a file nor a directory",
        "put a regular file in its place, or leave it out",
    ),
    (
        r"archive: encrypted|password|compression method|archives nested",
        "unpack it first and scan the folder",
    ),
    (r"no space|bytes free|disk quota", "set TMPDIR to a folder with room"),
    ("", "fetch the file again; if it stays so, report it to its maintainer"),
)


def _run(question: Question) -> Iterator[Finding]:
    known = question.roles
    for file in question.inventory.files:
        if file.problem is not None:
            yield CHECK.finding(
                file.path,
                Status.ERROR,
                f"cannot be judged: {file.problem}",
                remedy=_remedy(file.problem),
                evidence={"mode": "none", "reason": "unreadable"},
            )
        elif file.skipped is not None:
            yield CHECK.skip(file.path, file.skipped)
        else:
            yield _judge(file, known[file.path], question)
    yield from _nothing_loaded(question)
    inventory = question.inventory
    judged = any(f.skipped is None for f in inventory.files)
    if not judged and (inventory.artefacts or inventory.adapters):
        # What was given is judged, by the checks for it.
        reason = "only artefacts were given, other checks judge them"
        evidence: dict[str, Json] = {"judged_by": ("caches-fit-target", "adapter-will-load")}
        yield CHECK.finding("(files)", Status.SKIP, reason, required=False, evidence=evidence)
    elif question.inventory.passed_over:
        count = question.inventory.passed_over
        yield CHECK.skip("(other files)", f"{count} of no format that holds device code")
    elif not question.inventory.files:
        yield CHECK.skip("(no files)", _why_none(question))


def _why_none(question: Question) -> str:
    if question.machine is not None and question.inventory.environment is None:
        return "the environment was not looked at"
    return "there was no file to look at"


def _remedy(problem: str) -> str:
    return next(fix for told, fix in _UNREADABLE if re.search(told, problem, re.IGNORECASE))


def _judge(file: DeviceFile, role: Role, question: Question) -> Finding:
    result = coverage.of_file(file, question.sm, question.driver)
    status, message = Status.PASS, result.message
    if result.mode == coverage.NONE:
        status = Status.FAIL
    if role.why:
        message = f"{message} ({role.why})"
        if question.inventory.source == "environment":
            status = Status.SKIP if not role.loaded else Status.WARN
    return CHECK.finding(
        file.path,
        status,
        message,
        remedy=remedies.for_file(file, result, question) if status is Status.FAIL else "",
        required=role.required,
        domain=Domain.HOST if result.reason == "ptx-newer-than-driver" else Domain.PACKAGE,
        evidence=_evidence(file, result),
    )


def _evidence(file: DeviceFile, result: coverage.Coverage) -> dict[str, Json]:
    least = result.least_driver
    codes = [c for part in file.containers for c in part.code]
    usable = [c for part in file.containers for c in coverage.loadable(file, part)]
    return {
        "mode": result.mode,
        "reason": result.reason,
        "sass": tuple(map(str, coverage.codes(file, "sass"))),
        "ptx": tuple(s.virtual for s in coverage.codes(file, "ptx")),
        "ptx_isa": {Sm.parse(c.sm).virtual: c.isa for c in usable if c.kind == "ptx"},
        "other": tuple(sorted({c.kind for c in codes} - {"sass", "ptx"})),
        "least_driver": None if least is None else cuda.driver_text(least),
    }


def _nothing_loaded(question: Question) -> Iterator[Finding]:
    """Fail a package of variants none of which its loader would take."""
    environment = question.inventory.environment
    if environment is None or environment.torch is None:
        return
    picked = choices(
        (f.path for f in question.inventory.files),
        question.sm,
        environment.torch.cuda,
        environment.variables or {},
    )
    for package in sorted({c.package for c in picked.values()}):
        mine = [c for c in picked.values() if c.package == package]
        if all(c.loaded is False for c in mine):
            yield CHECK.finding(
                package,
                Status.FAIL,
                f"none of its {len(mine)} variants would be loaded: {mine[0].why}",
                remedy=f"pip install --upgrade {package}",
                evidence={"mode": "none", "reason": "no-variant-loaded"},
            )


CHECK = Check(
    id="device-code-runs-on-target",
    claim="Every file that holds device code holds code that the card can run.",
    how=(
        "Reads the headers of all fatbin containers (.nv_fatbin, __nv_relfatbin), cubins and PTX "
        "texts. A cubin runs on the same major with equal or higher minor, `a` code on its own SM "
        "only, `f` code on its family; PTX is compiled by the driver for any equal or newer SM if "
        "the driver takes its ISA version. A file is covered by the union of its containers; "
        "stubs without kernels and LTO-IR do not count. Of packages that ship one library per "
        "CUDA version, only the one that would be loaded decides."
    ),
    classes=("A1", "A2", "A4", "D3", "E2", "M"),
    remedy="Install a build of the package with code for the card, or rebuild it for that SM.",
    required=True,
    run=_run,
)
