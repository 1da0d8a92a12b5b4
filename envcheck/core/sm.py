"""SM versions, and which device code runs on which of them.

Sources: CUDA C Programming Guide, "Binary Compatibility" (same major, equal or higher
minor; not across desktop and Tegra); NVIDIA's family-specific feature description for
CUDA 12.9 (suffix `f`); `torch.cuda.DEVICE_REQUIREMENT` of PyTorch 2.13 for the Tegra
pairs; the PTX rules were measured with ptxas 13.5 over every pair of targets, and all of
it was compared with what an H200 loads (tests/data/truth).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN = re.compile(r"(?:sm_|compute_)([0-9]{2,3})([af]?)")

# Tegra parts run only their own cubins, and nobody else's. sm_101 is Thor's first name.
TEGRA = frozenset({53, 62, 72, 87, 88, 110})
# GB10: a card on the processor's own chip, as those of Tegra are (DGX Spark user guide).
_ON_CHIP = TEGRA | {121}

# Which SMs one `f` target serves, from the pairs that ptxas 13.5 accepts.
FAMILIES = (frozenset({100, 103, 107}), frozenset({110}), frozenset({120, 121}))

# Every SM number that a released toolkit knows, from sm_50 on (ptxas 11.7 to 13.5).
KNOWN = (
    *(50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90),
    *(100, 103, 107, 110, 120, 121),
)

# Thor's sm_101 was renamed sm_110 in CUDA 13.0; both names mean the same silicon.
_RENAMED = {101: 110}


@dataclass(frozen=True, slots=True, order=True)
class Sm:
    """One SM version such as `sm_90a`: a number and a suffix."""

    number: int
    """Major and minor in one number: 120 for compute capability 12.0."""
    suffix: str = ""
    """Empty for portable code, `a` for one SM only, `f` for one family."""

    @classmethod
    def parse(cls, text: str) -> Sm:
        """Read `sm_90a` or `compute_90a`; raises ValueError for anything else."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            message = f"not an SM version: {text!r} (expected a form such as sm_90 or sm_90a)"
            raise ValueError(message)
        return cls(int(match[1]), match[2])

    @property
    def major(self) -> int:
        """The compute capability's major version, with renamed parts under their new name."""
        return self.silicon // 10

    @property
    def silicon(self) -> int:
        """The number under which this part is known today."""
        return _RENAMED.get(self.number, self.number)

    @property
    def family(self) -> frozenset[int]:
        """The SM numbers that one `f` target of this part serves; none before sm_100.

        The suffix came with CUDA 12.9: an H200 refuses a cubin that is marked sm_90f.
        """
        alone = frozenset({self.silicon}) if self.silicon >= 100 else frozenset()
        return next((f for f in FAMILIES if self.silicon in f), alone)

    @property
    def is_on_chip(self) -> bool:
        """Whether the card shares the processor's memory, and hangs at no link of its own."""
        return self.silicon in _ON_CHIP

    @property
    def plain(self) -> Sm:
        """The same SM without its suffix."""
        return Sm(self.number)

    @property
    def virtual(self) -> str:
        """The name as a PTX target: `compute_90a`."""
        return f"compute_{self.number}{self.suffix}"

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"


def sass_runs_on(code: Sm, target: Sm) -> bool:
    """Say whether a cubin built for `code` runs on the card `target`."""
    if code.suffix == "a":
        return code.silicon == target.silicon
    if code.suffix == "f":
        return target.silicon in code.family and code.silicon <= target.silicon
    if code.silicon in TEGRA or target.silicon in TEGRA:
        return code.silicon == target.silicon
    return code.major == target.major and code.silicon <= target.silicon


def ptx_fits(code: Sm, target: Sm) -> bool:
    """Say whether PTX with `.target code` may be compiled for the card `target`.

    Whether the driver takes the PTX's ISA version is another question: see `cuda`.
    """
    if code.suffix == "a":
        return code.silicon == target.silicon
    if code.suffix == "f":
        return target.silicon in code.family and code.silicon <= target.silicon
    # An old name counts as it is written: ptxas 13.5 takes `.target sm_101` for sm_103.
    return code.number <= target.silicon
