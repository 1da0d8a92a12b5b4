"""The assembler that Triton would run for this card knows the card."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import commands, pins, remedies
from envcheck.checks.check import Check, Question
from envcheck.core import cuda, triton_tools
from envcheck.core.model import Domain, Finding, Status, Triton


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    triton = environment.triton if environment is not None else None
    if triton is None:
        yield CHECK.skip("triton", "Triton is not installed in what was looked at")
        return
    subject = f"triton {triton.version}"
    code = triton_tools.emitted(question.sm)
    by_name = {a.name: a for a in triton.assemblers}
    name = triton_tools.chosen(triton.version, by_name, question.sm)
    assembler = by_name.get(name)
    if assembler is None or assembler.version is None or assembler.problem is not None:
        yield _not_to_run(question, triton, name)
        return
    first = cuda.FIRST_CUDA.get(str(code))
    evidence = {"assembler": assembler.name, "version": assembler.version, "target": str(code)}
    if first is None:
        yield CHECK.skip(subject, f"which ptxas is the first to know {code} is not known here")
    elif cuda.parse_version(assembler.version) >= first:
        message = f"its {assembler.name} {assembler.version} knows {code}"
        yield CHECK.finding(subject, Status.PASS, message, evidence=evidence)
    else:
        need = ".".join(map(str, first))
        message = (
            f"its {assembler.name} {assembler.version} does not know {code} (first in CUDA "
            f"{need}): torch.compile and Triton kernels cannot be compiled"
        )
        yield CHECK.finding(
            subject,
            Status.FAIL,
            message,
            remedy=remedies.for_triton(question.sm),
            domain=Domain.PACKAGE,
            evidence=evidence,
        )


def _not_to_run(question: Question, triton: Triton, name: str) -> Finding:
    """Judge an assembler that is gone, cannot be run, or does not tell its release.

    Builds of one's own and conda's packages may leave it out and run another.
    """
    assembler = next((a for a in triton.assemblers if a.name == name), None)
    problem = "is missing" if assembler is None else assembler.problem
    environment = question.inventory.environment
    installed = environment.installed if environment is not None else None
    tools = environment.tools if environment is not None else None
    exact = installed is not None and any(
        p.name in pins.TRITONS and p.is_exact for p in installed.packages
    )
    shipped = assembler is not None or (exact and triton_tools.is_release(triton.version))
    variable = f"TRITON_{name.upper().replace('-', '_')}_PATH"
    named = tools.named if tools is not None else ()
    other = any(n.variable == variable and n.found in ("file", "program") for n in named)
    message = f"its {name} {problem or 'does not tell its release'}"
    broken = problem is not None and shipped and not other
    if broken:
        message += ": torch.compile and Triton kernels cannot be compiled"
    elif other:
        message += f"; {variable} names another, of which the release was not read"
    return CHECK.finding(
        f"triton {triton.version}",
        Status.FAIL if broken else Status.WARN,
        message,
        remedy=commands.again_as("triton", triton.version),
        evidence={"assembler": name, "target": str(triton_tools.emitted(question.sm))},
    )


CHECK = Check(
    id="triton-assembler-knows-target",
    claim="The PTX assembler that Triton would run for the card knows the card.",
    how=(
        "Reads the release of every ptxas that ships in Triton from its bytes, chooses the one "
        "that Triton's own rule takes for the card (ptxas-blackwell beside ptxas in 3.3 and from "
        "3.6 on), and compares it with the first CUDA release whose tools know the target. One "
        "that a release brings and that is gone, cut off or not executable fails: Triton takes no "
        "other in its place, but what a variable names."
    ),
    classes=("B1",),
    remedy="Install the Triton that belongs to a PyTorch made for the card.",
    run=_run,
)
