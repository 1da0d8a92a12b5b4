"""What installed packages require is installed, in a version that they take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import commands, pins
from envcheck.checks.check import Check, Question
from envcheck.checks.pins import FAMILY, TRITONS, Pin
from envcheck.core.distribution import Distribution
from envcheck.core.enforced import ENFORCED, LEAST_ALONE, cudnn_is_refused
from envcheck.core.installed import Installed
from envcheck.core.model import Environment, Finding, Json, Status

_BINARY = frozenset({"torch", *FAMILY, *TRITONS})
"""What other packages are compiled against, release by release."""


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.installed is None or not environment.installed.packages:
        yield CHECK.skip("packages", "no installed packages were looked at")
        return
    unread = list(_unread(environment.installed, environment))
    yield from unread
    every = [pin for pin in pins.pins(environment.installed) if not _elsewhere(pin)]
    bad = [pin for pin in every if not pin.met]
    gone = list(_gone(environment.installed, every, from_image=environment.image is not None))
    yield from gone
    # What a package misses is told at once: installed with --no-deps it may be a dozen.
    groups: dict[tuple[str, bool], list[Pin]] = {}
    for pin in bad:
        alone = pin.name if pin.found or pin.name == "torch" else ""
        groups.setdefault((pin.package.info + alone, bool(pin.found)), []).append(pin)
    for same in groups.values():
        yield _of_pins(same, environment)
    if not bad and not any(f.status is Status.FAIL for f in gone) and (every or not unread):
        packages = len({pin.package.info for pin in every})
        message = f"all {len(every)} requirements of {packages} packages are met"
        yield CHECK.finding("packages", Status.PASS, message, evidence={"count": len(every)})


def _unread(installed: Installed, environment: Environment) -> Iterator[Finding]:
    """Name what says nothing of its requirements.

    Without a RECORD it is what a removal left behind, which installers pass over.
    """
    recorded = {(d.name, d.version) for d in environment.distributions if d.record_digest}
    for package in (p for same in pins.active(installed).values() for p in same if p.problem):
        rest = (package.name, package.version) not in recorded
        yield CHECK.finding(
            package.info,
            Status.WARN if rest else Status.ERROR,
            f"what {package.name} requires cannot be judged: {package.problem}",
            remedy=f"delete {package.info}, or install {package.name} again"
            if rest
            else commands.again_as(package.name, package.version),
            evidence={"reason": "unreadable-metadata"},
        )


def _gone(installed: Installed, every: list[Pin], *, from_image: bool) -> Iterator[Finding]:
    """Name what is installed in place, from a folder that is not there.

    An image's may be mounted when it runs. What nothing requires, a job may never import.
    """
    for package in (p for same in pins.active(installed).values() for p in same if p.gone):
        by = sorted({pin.package.name for pin in every if pin.name == package.name})
        again = f"install {package.name} again from the folder where it is now"
        needed = f"; {', '.join(by)} require{'s' if len(by) == 1 else ''} it" if by else ""
        yield CHECK.finding(
            f"{package.name} {package.version}",
            Status.FAIL if by and not from_image else Status.WARN,
            f"is installed in place from {', '.join(package.gone)}, which is not there{needed}",
            remedy=again if by else f"pip uninstall -y {package.name}, or {again}",
            evidence={"gone": package.gone, "required_by": tuple(by)},
        )


def _elsewhere(pin: Pin) -> bool:
    """Say whether another check judges it: torch's Triton, and PyTorch's own family."""
    by = pin.package.name
    return (by == "torch" and pin.name in TRITONS) or (by in FAMILY and pin.name == "torch")


def _of_pins(same: list[Pin], environment: Environment) -> Finding:
    pin = same[0]
    by = f"{pin.package.name} {pin.package.version}"
    compiled = _compiled(pin, environment.distributions)
    wanted = [one.wanted for one in same]
    evidence: dict[str, Json] = {
        "requirements": tuple(str(one.requirement) for one in same),
        "installed": pin.found,
        "compiled": compiled,
    }
    if not pin.found:
        broken = compiled and pin.name == "torch"
        verb = "which is" if len(same) == 1 else "which are"
        message = f"requires {', '.join(wanted)}, {verb} not installed"
    else:
        # A package without compiled files often works with another release than its author
        # tried; compiled code does so by luck alone.
        ends = _ends(pin, environment)
        broken = bool(ends) or (pin.name in _BINARY and (compiled or pin.exact))
        message = f"requires {pin.wanted}, but {pin.name} {', '.join(pin.found)} is installed{ends}"
    command = "pip install " + " ".join(f"'{one}'" for one in wanted)
    return CHECK.finding(
        by,
        Status.FAIL if broken else Status.WARN,
        message,
        remedy=command if not pin.found else f"{command}, or another release of {pin.package.name}",
        evidence=evidence,
    )


def _ends(pin: Pin, environment: Environment) -> str:
    """Say where a package refuses the release itself, nothing where it does not look."""
    by = pin.package.name
    if pin.name in ENFORCED.get(by, ()) and (pin.older or pin.name not in LEAST_ALONE.get(by, ())):
        return ": its import ends there"
    if pin.package.name == "torch" and re.fullmatch(r"nvidia-cudnn-cu\d+", pin.name):
        compiled = pins.compared_cudnn(environment)
        if any(cudnn_is_refused(compiled, found) for found in pin.found):
            return f": PyTorch was compiled with cuDNN {compiled}, and refuses it at the first RNN"
    return ""


def _compiled(pin: Pin, distributions: tuple[Distribution, ...]) -> bool:
    return any(d.name == pin.package.name and d.files for d in distributions)


CHECK = Check(
    id="requirements-are-installed",
    claim="What installed packages require is installed, in a version that they take.",
    how=(
        "Evaluates every Requires-Dist line, but those of extras, for the environment's own Python "
        "and machine, and compares it with what is installed, as `pip check` does. A version of "
        "PyTorch or of its family that compiled code or an exact pin does not take fails: the "
        "code was made for another release. So does compiled code for PyTorch without PyTorch, "
        "and a release that the package refuses itself: jax, transformers, pandas, numba and matplotlib "
        "when they are imported, PyTorch an older cuDNN. "
        "Metadata that is missing or says neither name nor version is an error: nobody knows what "
        "that package requires. What was installed in place from a folder that is gone warns, and fails "
        "where a package requires it, outside of images. Everything else warns, because it often works. What torch pins of Triton, and its "
        "family of torch, is judged by the checks of those names. Class C3: a package was "
        "replaced by another one's installation, or installed without its requirements."
    ),
    classes=("C3", "D1"),
    remedy="Install the versions that are required, or other releases of what requires them.",
    run=_run,
)
