"""Each assembler that would be run for the card was run, and took the target."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import remedies
from envcheck.checks.check import Check, Question
from envcheck.core import triton_tools
from envcheck.core.compiled import AssemblerProbe
from envcheck.core.model import Assurance, Domain, Finding, Status

_OTHERS = ("triton", "toolkit")


def _run(question: Question) -> Iterator[Finding]:
    compiled = question.compiled
    if compiled is None:
        yield CHECK.skip("assemblers", question.why_not_compiled)
        return
    if not compiled.assemblers:
        yield CHECK.skip("assemblers", "the environment brings no ptxas and no NVRTC")
        return
    by_path: dict[str, list[AssemblerProbe]] = {}
    for probe in compiled.assemblers:
        by_path.setdefault(probe.path, []).append(probe)
    asked = _asked(question)
    for path, probes in by_path.items():
        yield _judge(question, path, probes, decides=path in asked)


def _asked(question: Question) -> set[str]:
    """Return the paths of the assemblers that Triton would run for the card.

    A variable that names one goes before the bundled ones, which is how some are replaced by
    one that does not know the card.
    """
    environment, compiled = question.inventory.environment, question.compiled
    triton = environment.triton if environment is not None else None
    if triton is None or compiled is None:
        return set()
    bundled = {p.name: p.path for p in compiled.assemblers if p.origin == "triton"}
    named = {p.name: p.path for p in compiled.assemblers if p.origin not in _OTHERS}
    name = triton_tools.chosen(triton.version, {**bundled, **named}, question.sm)
    path = named.get(name, bundled.get(name))
    return {path} if path is not None else set()


def _judge(
    question: Question, path: str, probes: list[AssemblerProbe], *, decides: bool
) -> Finding:
    one = probes[0]
    wanted = str(triton_tools.emitted(question.sm)) if decides else str(question.sm)
    version = f" {one.version}" if one.version else ""
    subject = f"{one.name}{version} ({path})"
    refused = [p for p in probes if not p.accepted]
    evidence = {
        "path": path,
        "origin": one.origin,
        "version": one.version,
        "accepted": tuple(p.target for p in probes if p.accepted),
        "refused": tuple(p.target for p in refused),
    }
    cause = next((p for p in refused if p.target == wanted), None)
    if cause is None:
        accepted = ", ".join(p.target for p in probes if p.accepted)
        return CHECK.finding(
            subject,
            Status.PASS,
            f"takes {accepted}",
            domain=Domain.PACKAGE,
            required=decides,
            evidence=evidence,
        )
    return CHECK.finding(
        subject,
        Status.FAIL if decides else Status.WARN,
        cause.message if decides else f"{cause.message} (Triton does not run it for this card)",
        remedy=_remedy(question, one) if decides else "",
        required=decides,
        evidence=evidence,
    )


def _remedy(question: Question, probe: AssemblerProbe) -> str:
    if probe.origin not in _OTHERS:
        return f"unset {probe.origin}"
    return remedies.for_triton(question.sm)


CHECK = Check(
    id="assembler-accepts-target",
    claim="The assembler that Triton runs for the card accepted the card's target when tried.",
    how=(
        "Runs every ptxas of Triton, those that variables name, nvcc's, and asks every NVRTC, with "
        "three lines of PTX for the target and its arch-specific form. The one that Triton would "
        "run for the card decides; the others are told, for a Triton may ship one that does not "
        "know the card beside one that does."
    ),
    classes=("B1",),
    remedy="Install the Triton that belongs to a PyTorch made for the card.",
    assurance=Assurance.COMPILED,
    run=_run,
)
