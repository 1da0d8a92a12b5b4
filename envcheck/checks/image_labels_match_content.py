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
# `cuda12.8`, `cu128`, `py3.11` and `python311` in a name, each at the start of a word.
_WORDS = {
    "cuda": re.compile(r"(?<![a-z])(?:cuda[-_:]?v?(\d{2}\.\d+)|cu(1\d)(\d)(?!\d))", re.IGNORECASE),
    "python": re.compile(
        r"(?<![a-z])(?:py|python)[-_:]?(?:(3\.\d+)|(3)(\d{1,2})(?!\d))", re.IGNORECASE
    ),
}


@dataclass(frozen=True, slots=True)
class _Claim:
    """One thing that an image says of its content."""

    where: str
    what: str
    """`torch`, `cuda` or `python`."""
    says: str
    decides: bool
    """False for names and variables, which images inherit from each other."""


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    image = environment.image if environment is not None else None
    if environment is None or image is None:
        yield CHECK.skip("image", "what was looked at is no image")
        return
    yield from _pinned(image)
    claims = list(_claims(image))
    if not claims:
        yield CHECK.skip(image.reference, "neither a label nor its name says what is in it")
    elif environment.torch is None:
        names = ", ".join(f"{claim.where} says {claim.says}" for claim in claims)
        status = Status.FAIL if any(claim.decides for claim in claims) else Status.WARN
        yield _finding(image, status, f"{names}, but no torch is installed", claims)
    else:
        yield _compare(image, environment.torch, environment.python, claims)


def _pinned(image: Image) -> Iterator[Finding]:
    """Say whether the name holds a digest: a tag names other bytes tomorrow."""
    name, _, digest = image.reference.partition("@")
    known = {d.partition("@")[2] for d in image.digests}
    if digest and known and digest not in known | {image.id}:
        message = f"pinned to {digest}, but what was looked at is {', '.join(sorted(known))}"
        yield CHECK.finding(image.reference, Status.FAIL, message, domain=Domain.IMAGE,
                            remedy=f"docker pull {image.reference}")  # fmt: skip
    elif digest and known:
        message = "pinned by digest: the name stands for these bytes alone"
        yield CHECK.finding(image.reference, Status.PASS, message, domain=Domain.IMAGE,
                            required=False)  # fmt: skip
    elif known and not digest:
        message = f"named by a tag, which may move: {image.digests[0]} is what was looked at"
        yield CHECK.finding(name, Status.PASS, message, domain=Domain.IMAGE, required=False,
                            evidence={"digests": image.digests})  # fmt: skip


def _compare(image: Image, torch: Torch, python: str, claims: list[_Claim]) -> Finding:
    holds = {
        "torch": torch.version,
        "cuda": torch.cuda or "none (a CPU-only build)",
        "python": python,
    }
    toolkit = _release(image.variables.get("CUDA_VERSION", ""))
    wrong = [
        claim
        for claim in claims
        if _release(claim.says) != _release(holds[claim.what])
        # A name that does not decide may speak of the base image's toolkit.
        and (claim.decides or claim.what != "cuda" or _release(claim.says) != toolkit)
    ]
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
    name = image.reference.partition("@")[0].rpartition("/")[2]
    match = _TAG.search(image.reference.partition("@")[0])
    if match is not None:
        says = match[1] or match[2]
        yield _Claim(where="its name", what="torch", says=says, decides=False)
    for what, pattern in _WORDS.items():
        match = pattern.search(name)
        if match is not None:
            says = match[1] or f"{match[2]}.{match[3]}"
            yield _Claim(where="its name", what=what, says=says, decides=False)


def _release(version: str) -> tuple[int, int] | None:
    match = _RELEASE.match(version)
    return (int(match[1]), int(match[2])) if match is not None else None


CHECK = Check(
    id="image-labels-match-content",
    claim="The PyTorch, CUDA and Python in an image are those that its labels and its name say.",
    how=(
        "Compares labels that name a torch version, with a CUDA label beside them, the variables "
        "PYTORCH_VERSION and TORCH_VERSION, and a torch version in the image's name with the "
        "version that is installed, by major and minor; CUDA and Python in the name too, where CUDA "
        "may be that of the base image. A label that is wrong decides; names and "
        "variables, which images inherit, warn. A name with a digest must be the image that was "
        "looked at; of a name without one the digest is told, because a tag moves. Class F1."
    ),
    classes=("F1",),
    remedy="Pin an image by digest, and judge what is in it.",
    run=_run,
)
