"""The installed Triton is the one that the installed PyTorch pins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from envcheck.checks.check import Check, Question
from envcheck.core.distribution import Distribution
from envcheck.core.model import Finding, Status

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    installed = {d.name: d for d in environment.distributions} if environment is not None else {}
    torch = installed.get("torch")
    if torch is None:
        yield CHECK.skip("triton", "PyTorch is not installed in what was looked at")
        return
    pin = _pin(torch, environment.python if environment is not None else "3")
    if pin is None:
        yield CHECK.skip("triton", f"torch {torch.version} pins no Triton")
        return
    triton = installed.get(pin.name.lower())
    evidence = {"pin": str(pin.specifier)}
    fix = f"pip install '{pin.name}{pin.specifier}'"
    if triton is None:
        yield CHECK.finding(
            "triton",
            Status.WARN,
            f"absent, though torch {torch.version} needs "
            f"{pin.name}{pin.specifier}: torch.compile will not work",
            remedy=fix,
            evidence=evidence,
        )
        return
    subject = f"triton {triton.version}"
    from packaging.version import InvalidVersion

    try:
        fits = pin.specifier.contains(triton.version, prereleases=True)
    except InvalidVersion:
        fits = False
    if fits:
        yield CHECK.finding(
            subject, Status.PASS, f"what torch {torch.version} pins", evidence=evidence
        )
    else:
        message = f"torch {torch.version} pins {pin.name}{pin.specifier}"
        yield CHECK.finding(subject, Status.FAIL, message, remedy=fix, evidence=evidence)


def _pin(torch: Distribution, python: str) -> Requirement | None:
    """Return torch's requirement on Triton for Linux, None when it has none."""
    from packaging.requirements import InvalidRequirement, Requirement

    for line in torch.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        applies = marker is None or marker.evaluate(
            {
                "platform_system": "Linux",
                "extra": "",
                "python_full_version": python,
                "python_version": ".".join(python.split(".")[:2]),
            }
        )
        if requirement.name.lower() in ("triton", "pytorch-triton") and applies:
            return requirement
    return None


CHECK = Check(
    id="triton-matches-torch-pin",
    claim="The installed Triton satisfies what the installed PyTorch pins.",
    how=(
        "Compares the version of triton with the Requires-Dist line of torch. Another Triton "
        "breaks torch.compile, often only at its first use."
    ),
    classes=("C3",),
    remedy="Install the pinned Triton.",
    run=_run,
)
