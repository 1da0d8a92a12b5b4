"""Inside a covered file, no kernel is left without code for the card."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import coverage
from envcheck.core.dispatching import dispatches
from envcheck.core.model import DeviceFile, Domain, Finding, Status
from envcheck.core.roles import roles

# An architecture in a kernel's name is a variant of the same function for another card.
_ARCHITECTURE = re.compile(
    r"(?i)(sm_?|cutlass_?|compute_?)\d{2,3}[af]?|maxwell|pascal|volta|turing|ampere|ada|hopper"
    r"|blackwell"
)
_SHOWN = 3
_MAX_EVIDENCE = 100


def _run(question: Question) -> Iterator[Finding]:
    known = roles(question.inventory, question.sm, question.driver)
    seen = False
    for file in question.inventory.files:
        role = known.get(file.path)
        if role is None or not role.required or not _differs(file):
            continue
        if coverage.of_file(file, question.sm, question.driver).mode != coverage.NONE:
            seen = True
            yield _judge(file, question)
    if not seen:
        yield CHECK.skip("(no files)", "no covered file has containers that differ")


def _differs(file: DeviceFile) -> bool:
    """Say whether the file's containers reach different cards with portable code."""
    reached = {coverage.reach(coverage.loadable(file, part)) for part in file.containers}
    return len(reached - {frozenset()}) > 1


def _judge(file: DeviceFile, question: Question) -> Finding:
    if dispatches(file.path):
        return CHECK.finding(
            file.path, Status.PASS, "chooses among kernels for single SMs by design"
        )
    if any(part.kernels is None for part in file.containers if part.has_code):
        return CHECK.skip(file.path, "too much code to name every kernel")
    lacking = _lacking(file, question)
    if not lacking:
        return CHECK.finding(file.path, Status.PASS, "every kernel has code for the card")
    shown = ", ".join(lacking[:_SHOWN]) + (", ..." if len(lacking) > _SHOWN else "")
    arch = f"{question.sm.number // 10}.{question.sm.number % 10}"
    return CHECK.finding(
        file.path,
        Status.FAIL,
        f"{len(lacking)} kernel(s) without code for {question.sm}, though the file has some: {shown}",
        remedy=f"rebuild all of its sources with TORCH_CUDA_ARCH_LIST={arch}",
        domain=Domain.KERNEL,
        evidence={"kernels": tuple(lacking[:_MAX_EVIDENCE]), "count": len(lacking)},
    )


def _lacking(file: DeviceFile, question: Question) -> list[str]:
    """Return the functions that no container offers this card in any variant."""
    offered: set[str] = set()
    wanted: dict[str, str] = {}
    for part in file.containers:
        usable = list(coverage.loadable(file, part))
        runs = coverage.of_codes(usable, question.sm, question.driver).mode != coverage.NONE
        # What stands in __nv_relfatbin of a linked file was input of the linker.
        image = part.section != "__nv_relfatbin" or file.format in ("object", "archive")
        portable = image and any(c.sm[-1] not in "af" for c in usable)
        for kernel in part.kernels or ():
            variant = _ARCHITECTURE.sub("*", kernel)
            if runs:
                offered.add(variant)
            elif portable:
                wanted.setdefault(variant, kernel)
    return sorted(kernel for variant, kernel in wanted.items() if variant not in offered)


CHECK = Check(
    id="every-kernel-runs-on-target",
    claim="Inside a file that has code for the card, no kernel is left without it.",
    how=(
        "Where the containers of a file are not all for the same SMs, reads the kernel names of "
        "each container and looks for functions that have code for other cards and none, in any "
        "variant, for this one. Code for one SM only (`a`, `f`) and NVIDIA's own libraries, which "
        "choose among single-SM kernels at run time, are by design and not counted."
    ),
    remedy="Rebuild every source file of the library with the same list of architectures.",
    run=_run,
)
