"""What an image says of itself is what is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Image, Status, Torch

_TORCH = re.compile(r"(?P<prefix>(?:.*[._-])?)(?:py)?torch(?:[._-]version)?", re.IGNORECASE)
_CUDA = "{prefix}cuda", "{prefix}cuda-version", "{prefix}cuda_version", "{prefix}cuda.version"
_RELEASE = re.compile(r"v?(\d+)\.(\d+)")
_TAG = re.compile(
    r"torch[^/@]*?[:_-]v?(\d+\.\d+(?:\.\d+)?)|torch(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Claim:
    """One thing that an image says of its content."""

    where: str
    what: str
    """`torch` or `cuda`."""
    says: str
    decides: bool
    """False for names and variables, which images inherit from each other."""


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    image = environment.image if environment is not None else None
    if environment is None or image is None:
        yield CHECK.skip("image", "what was looked at is no image")
        return
    claims = list(_claims(image))
    if not claims:
        yield CHECK.skip(image.reference, "neither a label nor its name says what is in it")
    elif environment.torch is None:
        names = ", ".join(f"{claim.where} says {claim.says}" for claim in claims)
        status = Status.FAIL if any(claim.decides for claim in claims) else Status.WARN
        yield _finding(image, status, f"{names}, but no torch is installed", claims)
    else:
        yield _compare(image, environment.torch, claims)


def _compare(image: Image, torch: Torch, claims: list[_Claim]) -> Finding:
    holds = {"torch": torch.version, "cuda": torch.cuda or "none (a CPU-only build)"}
    wrong = [claim for claim in claims if _release(claim.says) != _release(holds[claim.what])]
    if not wrong:
        names = ", ".join(f"{claim.where} {claim.says}" for claim in claims)
        return _finding(image, Status.PASS, f"holds what it says: {names}", claims)
    said = "; ".join(
        f"{claim.where} says {claim.what} {claim.says}, it holds {holds[claim.what]}"
        for claim in wrong
    )
    status = Status.FAIL if any(claim.decides for claim in wrong) else Status.WARN
    return _finding(image, status, said, claims)


def _finding(image: Image, status: Status, message: str, claims: list[_Claim]) -> Finding:
    remedy = ""
    if status in (Status.FAIL, Status.WARN):
        remedy = "pin an image by digest whose content is what the job needs, or mend its labels"
    evidence = {"claims": tuple({"where": c.where, c.what: c.says} for c in claims)}
    return CHECK.finding(
        image.reference, status, message, remedy=remedy, domain=Domain.IMAGE, evidence=evidence
    )


def _claims(image: Image) -> Iterator[_Claim]:
    for key, value in sorted(image.labels.items()):
        match = _TORCH.fullmatch(key)
        if match is None or not _RELEASE.match(value):
            continue
        yield _Claim(where=f"label {key}", what="torch", says=value, decides=True)
        # A CUDA label alone may be the base image's, and speak of another CUDA than torch's.
        for form in _CUDA:
            name = form.format(prefix=match["prefix"])
            if _RELEASE.match(image.labels.get(name, "")):
                says = image.labels[name]
                yield _Claim(where=f"label {name}", what="cuda", says=says, decides=True)
    for name in ("PYTORCH_VERSION", "TORCH_VERSION"):
        if _RELEASE.match(image.variables.get(name, "")):
            says = image.variables[name]
            yield _Claim(where=f"variable {name}", what="torch", says=says, decides=False)
    match = _TAG.search(image.reference.partition("@")[0])
    if match is not None:
        says = match[1] or match[2]
        yield _Claim(where="its name", what="torch", says=says, decides=False)


def _release(version: str) -> tuple[int, int] | None:
    match = _RELEASE.match(version)
    return (int(match[1]), int(match[2])) if match is not None else None


CHECK = Check(
    id="image-labels-match-content",
    claim="The PyTorch and CUDA in an image are those that its labels and its name say.",
    how=(
        "Compares labels that name a torch version, with a CUDA label beside them, the variables "
        "PYTORCH_VERSION and TORCH_VERSION, and a torch version in the image's name with the "
        "version that is installed, by major and minor. A label that is wrong decides; names and "
        "variables, which images inherit, warn."
    ),
    remedy="Pin an image by digest, and judge what is in it.",
    run=_run,
)
