"""The assembler that Triton would run for this card knows the card."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import commands, remedies
from envcheck.checks.check import Check, Question
from envcheck.core import cuda, triton_tools
from envcheck.core.model import Domain, Finding, Status


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
    assembler = by_name.get(name or "")
    if assembler is None or assembler.version is None:
        yield CHECK.finding(
            subject,
            Status.WARN,
            "its bundled ptxas is missing or unknown",
            remedy=commands.again_as("triton", triton.version),
            evidence={"target": str(code)},
        )
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


CHECK = Check(
    id="triton-assembler-knows-target",
    claim="The PTX assembler that Triton would run for the card knows the card.",
    how=(
        "Reads the release of every ptxas that ships in Triton from its bytes, chooses the one "
        "that Triton's own rule takes for the card (ptxas-blackwell beside ptxas from 3.3 on), "
        "and compares it with the first CUDA release whose tools know the target."
    ),
    classes=("B1",),
    remedy="Install the Triton that belongs to a PyTorch made for the card.",
    run=_run,
)
