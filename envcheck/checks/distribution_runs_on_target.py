"""Each installed distribution with device code runs on the card: native, JIT or not at all."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from envcheck.checks import remedies
from envcheck.checks.check import Check, Question
from envcheck.core import coverage
from envcheck.core.device_file import DeviceFile
from envcheck.core.distribution import Distribution
from envcheck.core.model import Finding, Status


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None:
        yield CHECK.skip("(no environment)", "files were scanned, not an environment")
        return
    for distribution in environment.distributions:
        if distribution.problem is not None:
            yield _broken(distribution, distribution.problem)
    known = question.roles
    files = {f.path: f for f in question.inventory.files if f.path in known}
    mine = {p: d for d in environment.distributions for p in d.files if p in files}
    decisive = {p: f for p, f in files.items() if known[p].required}
    for distribution in environment.distributions:
        owned = [decisive[p] for p in distribution.files if p in decisive]
        if owned:
            yield _judge(f"{distribution.name} {distribution.version}", owned, question)
    loose = [f for p, f in decisive.items() if p not in mine]
    if loose:
        yield _judge("(files of no distribution)", loose, question)
    elif not mine:
        yield CHECK.skip("(no distribution)", "none of them holds device code")
    elif not decisive:
        reason = f"none of {len(mine)} file(s) with device code decides alone"
        yield CHECK.skip("(no distribution)", reason)


def _broken(distribution: Distribution, problem: str) -> Finding:
    """Say that nobody knows which files belong to a distribution."""
    name = f"{distribution.name}=={distribution.version}"
    return CHECK.finding(
        f"{distribution.name} {distribution.version}",
        Status.WARN,
        f"which files belong to it is not known: {problem}",
        evidence={"reason": "malformed-record"},
        remedy=f"pip install --force-reinstall {shlex.quote(name)}",
    )


def _judge(subject: str, files: list[DeviceFile], question: Question) -> Finding:
    modes: dict[str, list[str]] = {coverage.NATIVE: [], coverage.JIT: [], coverage.NONE: []}
    for file in files:
        modes[coverage.of_file(file, question.sm, question.driver).mode].append(file.path)
    counts = f"{len(files)} file(s)"
    files_by_mode = {mode: tuple(paths) for mode, paths in modes.items() if paths}
    if modes[coverage.NONE]:
        bad = modes[coverage.NONE]
        worst = next(f for f in files if f.path == bad[0])
        result = coverage.of_file(worst, question.sm, question.driver)
        fix = remedies.for_file(worst, result, question)
        message = f"missing: {len(bad)} of {counts} without code for {question.sm}"
        return CHECK.finding(
            subject,
            Status.FAIL,
            message,
            evidence={"mode": "none", "files": files_by_mode},
            remedy=fix,
        )
    if modes[coverage.JIT]:
        jit = modes[coverage.JIT]
        message = f"JIT-only: {len(jit)} of {counts} compiled by the driver at first use"
        return CHECK.finding(
            subject,
            Status.WARN,
            message,
            evidence={"mode": "jit", "files": files_by_mode},
            remedy="expect a slow first start, or install a native build",
        )
    return CHECK.finding(
        subject,
        Status.PASS,
        f"native: {counts}",
        evidence={"mode": "native", "files": files_by_mode},
    )


CHECK = Check(
    id="distribution-runs-on-target",
    claim="Each installed distribution with device code has code for the card.",
    how=(
        "Takes the findings of a distribution's files together: native when all files that it "
        "would load have machine code for the card, JIT-only when some have only PTX that the "
        "driver compiles at first use, missing when one has neither. A RECORD that cannot be "
        "parsed is named: the files of that distribution are judged as files of none."
    ),
    classes=("A2",),
    remedy="Install a build of the distribution for the card.",
    run=_run,
)
