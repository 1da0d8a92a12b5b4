"""Inside a covered file, no kernel is left without code for the card."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import coverage
from envcheck.core.device_file import Container, DeviceFile
from envcheck.core.dispatching import dispatches
from envcheck.core.model import Domain, Finding, Status

# An architecture in a kernel's name is a variant of the same function for another card.
_ARCHITECTURE = re.compile(
    r"(?i)(sm_?|cutlass_?|compute_?)\d{2,3}[af]?|maxwell|pascal|volta|turing|ampere|ada|hopper"
    r"|blackwell"
)
_SHOWN = 3
_MAX_EVIDENCE = 100


def _run(question: Question) -> Iterator[Finding]:
    known = question.roles
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
    lacking, apart = _lacking(file, question), _left_out(file, question)
    if not lacking and not apart:
        return CHECK.finding(file.path, Status.PASS, "every kernel has code for the card")
    shown = ", ".join(lacking[:_SHOWN]) + (", ..." if len(lacking) > _SHOWN else "")
    message = f"{len(lacking)} kernel(s) without code for {question.sm}, though the file has some"
    if not lacking:
        message = (
            f"{apart} relocatable object(s) without code for {question.sm}: what calls into them "
            "cannot be linked"
        )
    arch = f"{question.sm.number // 10}.{question.sm.number % 10}"
    return CHECK.finding(
        file.path,
        Status.FAIL,
        f"{message}: {shown}" if shown else message,
        remedy=f"rebuild all of its sources with TORCH_CUDA_ARCH_LIST={arch}",
        domain=Domain.KERNEL,
        evidence={
            "kernels": tuple(lacking[:_MAX_EVIDENCE]),
            "count": len(lacking),
            "objects_left_out": apart,
        },
    )


def _runs(file: DeviceFile, part: Container, question: Question) -> bool:
    usable = coverage.loadable(file, part)
    return coverage.of_codes(usable, question.sm, question.driver).mode != coverage.NONE


def _portable(file: DeviceFile, part: Container) -> bool:
    return any(c.sm[-1] not in "af" for c in coverage.loadable(file, part))


def _is_object(file: DeviceFile, part: Container) -> bool:
    """Say whether a container was an input of the linker: an object that a driver links again."""
    return part.section == "__nv_relfatbin" and file.format not in ("object", "archive")


def _lacking(file: DeviceFile, question: Question) -> list[str]:
    """Return the functions that no container offers this card in any variant."""
    offered: set[str] = set()
    wanted: dict[str, str] = {}
    for part in file.containers:
        runs = _runs(file, part, question)
        portable = not _is_object(file, part) and _portable(file, part)
        for kernel in part.kernels or ():
            variant = _ARCHITECTURE.sub("*", kernel)
            if runs:
                offered.add(variant)
            elif portable:
                wanted.setdefault(variant, kernel)
    return sorted(kernel for variant, kernel in wanted.items() if variant not in offered)


def _left_out(file: DeviceFile, question: Question) -> int:
    """Count the relocatable objects that a driver leaves out when it has to link for this card.

    It links where the linked image has no match, object by object; a kernel that calls into an
    object without a match is then refused (measured on an H200: error 300).
    """
    objects = [p for p in file.containers if _is_object(file, p)]
    images = [p for p in file.containers if not _is_object(file, p) and _runs(file, p, question)]
    linked = {kernel for part in images for kernel in part.kernels or ()}
    again = {k for p in objects if _runs(file, p, question) for k in p.kernels or ()} - linked
    left = [p for p in objects if _portable(file, p) and not _runs(file, p, question)]
    return sum(part.count for part in left) if again else 0


CHECK = Check(
    id="every-kernel-runs-on-target",
    claim="Inside a file that has code for the card, no kernel is left without it.",
    how=(
        "Where the containers of a file are not all for the same SMs, reads the kernel names of "
        "each container and looks for functions that have code for other cards and none, in any "
        "variant, for this one. Code for one SM only (`a`, `f`) and NVIDIA's own libraries, which "
        "choose among single-SM kernels at run time, are by design and not counted."
    ),
    classes=("A3",),
    remedy="Rebuild every source file of the library with the same list of architectures.",
    run=_run,
)
