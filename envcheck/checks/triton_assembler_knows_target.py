"""The assembler that Triton would run for this card knows the card."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import cuda
from envcheck.core.model import Assembler, Domain, Finding, Status, Triton
from envcheck.core.sm import Sm
from envcheck.core.torch_releases import RELEASES

# triton/backends/nvidia/compiler.py, get_ptxas: ptxas-blackwell from capability 100 up
# (3.3 to 3.8), from 90 up in 3.9; releases without it know only ptxas.
_SECOND_FROM = ((3, 9), 90), ((0,), 100)


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    triton = environment.triton if environment is not None else None
    if triton is None:
        yield CHECK.skip("triton", "Triton is not installed in what was looked at")
        return
    subject = f"triton {triton.version}"
    # Triton compiles for the arch-specific target from Hopper on.
    code = Sm(question.sm.number, "a" if question.sm.number >= 90 else "")
    assembler = _choose(triton, question.sm)
    if assembler is None or assembler.version is None:
        yield CHECK.finding(
            subject,
            Status.WARN,
            "its bundled ptxas is missing or unknown",
            remedy="pip install --force-reinstall triton",
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
            remedy=_remedy(question.sm),
            domain=Domain.PACKAGE,
            evidence=evidence,
        )


def _choose(triton: Triton, sm: Sm) -> Assembler | None:
    """Return the assembler that this Triton would run for `sm`."""
    by_name = {a.name: a for a in triton.assemblers}
    try:
        version = cuda.parse_version(".".join(triton.version.split("+")[0].split(".")[:2]))
    except ValueError:
        version = (0,)
    second_from = next(number for least, number in _SECOND_FROM if version >= least)
    if sm.number >= second_from and "ptxas-blackwell" in by_name:
        return by_name["ptxas-blackwell"]
    return by_name.get("ptxas")


def _remedy(sm: Sm) -> str:
    """Name a PyTorch whose Triton knows the card; Triton follows its pin."""
    least = "2.11.0" if sm.number in (103, 121) else "2.8.0"
    known = {r.version for r in RELEASES}
    return f"pip install --upgrade 'torch>={least}'" if least in known else ""


CHECK = Check(
    id="triton-assembler-knows-target",
    claim="The PTX assembler that Triton would run for the card knows the card.",
    how=(
        "Reads the release of every ptxas that ships in Triton from its bytes, chooses the one "
        "that Triton's own rule takes for the card (ptxas-blackwell beside ptxas from 3.3 on), "
        "and compares it with the first CUDA release whose tools know the target."
    ),
    remedy="Install the Triton that belongs to a PyTorch made for the card.",
    run=_run,
)
