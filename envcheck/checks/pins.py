"""Requirements of installed packages against what is installed, as pip and packaging read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envcheck.core.enforced import SKIPS_CUDNN
from envcheck.core.installed import Installed, Package
from envcheck.core.model import Environment
from envcheck.core.names import normalise

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FAMILY = frozenset(
    {
        "fbgemm-gpu", "flash-attn", "torchao", "torchaudio", "torchcodec", "torchdata",
        "torchrec", "torchtext", "torchvision", "xformers",
    }
)  # fmt: skip
"""What is released beside PyTorch, for given releases of it."""

TRITONS = ("triton", "pytorch-triton")


@dataclass(frozen=True, slots=True)
class Pin:
    """One requirement of one installed package that applies to this environment."""

    package: Package
    requirement: Requirement
    name: str
    """Of what is required, normalised."""
    found: tuple[str, ...]
    """The versions of it that are installed."""

    @property
    def wanted(self) -> str:
        """`torch==2.4.1`, as one would ask pip for it; extras too, which may be all of it."""
        extras = ",".join(sorted(self.requirement.extras))
        return f"{self.name}{f'[{extras}]' if extras else ''}{self.requirement.specifier}"

    @property
    def met(self) -> bool:
        """Whether a version that is installed satisfies it; one that cannot be read does."""
        return any(fits(self.requirement, version) for version in self.found)

    @property
    def older(self) -> bool:
        """Whether all that is installed is older than the least release that it takes."""
        every = [s.version for s in self.requirement.specifier if s.operator in (">=", ">", "~=")]
        return any(not any(_reaches(least, one) for one in self.found) for least in every)

    @property
    def exact(self) -> bool:
        """Whether it names one release alone."""
        return any(s.operator in ("==", "===") for s in self.requirement.specifier)


def active(installed: Installed) -> dict[str, list[Package]]:
    """Return what is imported, by name: of the first folder that has it.

    Several in one folder are all there. What pip was interrupted in removing starts with `~`.
    """
    found: dict[str, list[Package]] = {}
    for package in installed.packages:
        same = found.setdefault(package.name, [])
        if not package.info.startswith("~") and (not same or same[0].place == package.place):
            same.append(package)
    return {name: same for name, same in found.items() if same}


def pins(installed: Installed) -> Iterator[Pin]:
    """Yield every requirement that applies to this Python, of everything that is imported."""
    there = active(installed)
    for packages in there.values():
        for package in packages:
            for line in package.requires:
                requirement = applying(line, installed)
                if requirement is not None:
                    name = normalise(requirement.name)
                    versions = tuple(p.version for p in there.get(name, ()))
                    yield Pin(package, requirement, name, versions)


def applying(line: str, installed: Installed, *, extra: str = "") -> Requirement | None:
    """Return a requirement, None where it cannot be read or its marker switches it off."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion

    try:
        requirement = Requirement(line)
        if requirement.marker is None:
            return requirement
        # Every variable is given, so that none of the host's own is taken.
        values = {"extra": extra, "platform_release": "", "platform_version": ""}
        applies = requirement.marker.evaluate({**values, **installed.interpreter.markers})
    except (InvalidRequirement, InvalidVersion, UndefinedComparison, UndefinedEnvironmentName):
        return None
    return requirement if applies else None


def compared_cudnn(environment: Environment) -> str:
    """Return the cuDNN that PyTorch pins, and compares with the one that is loaded.

    Empty where it pins none, or a variable keeps it from comparing.
    """
    installed = environment.installed
    if installed is None or (environment.variables or {}).get(SKIPS_CUDNN) == "1":
        return ""
    for package in active(installed).get("torch", ()):
        for line in package.requires:
            pin = applying(line, installed) if "cudnn" in line else None
            if pin is not None and re.fullmatch(r"nvidia-cudnn-cu\d+", normalise(pin.name)):
                return next((s.version for s in pin.specifier if s.operator == "=="), "")
    return ""


def _reaches(least: str, version: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version) >= Version(least)
    except InvalidVersion:
        return True


def fits(requirement: Requirement, version: str) -> bool:
    """Say whether a version satisfies a requirement; pre-releases do, as for pip check.

    A build from source says `2.6.0a0+ecf3bae40a.nv25.01`, as PyTorch in vendors' images does. It
    holds what the release has, though by its number it comes before it.
    """
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(version)
        if requirement.specifier.contains(parsed, prereleases=True):
            return True
        built = parsed.is_prerelease and parsed.local is not None
        return built and bool(requirement.specifier.contains(parsed.base_version))
    except InvalidVersion:
        return True
