"""What a driver can take: CUDA versions, PTX ISA versions and least drivers (Linux).

Every table names its source. A version that a table does not hold is answered with
`None`, never with a guess.
"""

from __future__ import annotations

import re

from envcheck.core.sm import Sm

Version = tuple[int, ...]


class Written(tuple[int, ...]):  # noqa: SLOT001 - a tuple takes no slots of its own
    """A version that is written again as it was read; it compares as its numbers do."""

    text: str


# PTX ISA -> first CUDA version whose driver takes it. Source: NVIDIA cuda-bindings 13.5.0,
# cuda/bindings/utils/_ptx_utils.py; the highest of each release was measured with ptxas.
# ISA 8.5 came with 12.5 and stayed in 12.6.
PTX_ISA_CUDA: dict[Version, Version] = {
    (7, 0): (11, 0), (7, 1): (11, 1), (7, 2): (11, 2), (7, 3): (11, 3), (7, 4): (11, 4),
    (7, 5): (11, 5), (7, 6): (11, 6), (7, 7): (11, 7), (7, 8): (11, 8),
    (8, 0): (12, 0), (8, 1): (12, 1), (8, 2): (12, 2), (8, 3): (12, 3), (8, 4): (12, 4),
    (8, 5): (12, 5), (8, 6): (12, 7), (8, 7): (12, 8), (8, 8): (12, 9),
    (9, 0): (13, 0), (9, 1): (13, 1), (9, 2): (13, 2), (9, 3): (13, 3), (9, 4): (13, 4),
    (9, 5): (13, 5),
}  # fmt: skip

# CUDA version -> driver that shipped with it. Source: CUDA toolkit release notes 13.2 and
# 13.3, table 3. 13.4 and 13.5 no longer bundle a driver on Linux: the branches (615, 616)
# that name them are all that is known.
CUDA_DRIVER: dict[Version, Version] = {
    (11, 0): (450, 51, 5), (11, 1): (455, 23), (11, 2): (460, 27, 3), (11, 3): (465, 19, 1),
    (11, 4): (470, 42, 1), (11, 5): (495, 29, 5), (11, 6): (510, 39, 1), (11, 7): (515, 43, 4),
    (11, 8): (520, 61, 5), (12, 0): (525, 60, 13), (12, 1): (530, 30, 2), (12, 2): (535, 54, 3),
    (12, 3): (545, 23, 6), (12, 4): (550, 54, 14), (12, 5): (555, 42, 2), (12, 6): (560, 28, 3),
    (12, 8): (570, 26), (12, 9): (575, 51, 3), (13, 0): (580, 65, 6), (13, 1): (590, 44, 1),
    (13, 2): (595, 45, 4), (13, 3): (610, 43, 2), (13, 4): (615,), (13, 5): (616,),
}  # fmt: skip

# CUDA major -> least driver by minor-version compatibility. Source: CUDA compatibility
# guide, "Minor Version Compatibility", and release notes table 2.
MAJOR_DRIVER: dict[int, Version] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}

# SM -> first CUDA version whose tools know it. Source: ptxas and NVRTC of 17 releases,
# asked for their targets; below sm_86 the least PTX ISA of each target.
FIRST_CUDA: dict[str, Version] = {
    "sm_75": (10, 0), "sm_80": (11, 0), "sm_86": (11, 1), "sm_87": (11, 4), "sm_89": (11, 8),
    "sm_90": (11, 8), "sm_90a": (12, 0), "sm_100": (12, 8), "sm_100a": (12, 8),
    "sm_100f": (12, 9), "sm_101": (12, 8), "sm_101a": (12, 8), "sm_103": (12, 9),
    "sm_103a": (12, 9), "sm_103f": (12, 9), "sm_120": (12, 8), "sm_120a": (12, 8),
    "sm_120f": (12, 9), "sm_121": (12, 9), "sm_121a": (12, 9), "sm_121f": (12, 9),
    "sm_88": (13, 0), "sm_110": (13, 0), "sm_110a": (13, 0), "sm_110f": (13, 0),
    "sm_107": (13, 4), "sm_107a": (13, 4), "sm_107f": (13, 4),
}  # fmt: skip

# PTX target -> least PTX ISA that knows it. Source: ptxas 13.5 and 13.0, asked for each pair; a
# driver answers an older `.version` with CUDA_ERROR_INVALID_PTX.
LEAST_ISA: dict[str, Version] = {
    "sm_75": (6, 3), "sm_80": (7, 0), "sm_86": (7, 1), "sm_87": (7, 4), "sm_88": (9, 0),
    "sm_89": (7, 8), "sm_90": (7, 8), "sm_90a": (8, 0), "sm_100": (8, 6), "sm_100a": (8, 6),
    "sm_100f": (8, 8), "sm_101": (8, 6), "sm_101a": (8, 6), "sm_101f": (8, 8), "sm_103": (8, 8),
    "sm_103a": (8, 8), "sm_103f": (8, 8), "sm_107": (9, 4), "sm_107a": (9, 4), "sm_107f": (9, 4),
    "sm_110": (9, 0), "sm_110a": (9, 0), "sm_110f": (9, 0), "sm_120": (8, 7), "sm_120a": (8, 7),
    "sm_120f": (8, 8), "sm_121": (8, 8), "sm_121a": (8, 8), "sm_121f": (8, 8),
}  # fmt: skip

# The last driver branch for cards below sm_75. Source: NVIDIA Unix deprecation schedule
# ("The release 580 series will be the last to support ... Maxwell, Pascal, and Volta").
LAST_BRANCH_BELOW_SM_75 = 580

# The last toolkit whose nvcc builds for SMs below sm_75. Source: nvcc 13.0.88, which answers
# compute_70 with "Unsupported gpu architecture"; ptxas 13.5 refuses `-arch` below sm_75.
LAST_TOOLKIT_BELOW_SM_75: Version = (12, 9)


def parse_version(text: str) -> Version:
    """Read `580.65.06` as (580, 65, 6), which keeps its text; raises ValueError when it is not dotted numbers."""
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}", text) is None:
        message = f"not a version of dotted numbers: {text!r}"
        raise ValueError(message)
    version = Written(int(part) for part in text.split("."))
    version.text = text
    return version


def driver_text(driver: Version) -> str:
    """Write a driver version as it was read, or as NVIDIA does: (450, 80, 2) is 450.80.02."""
    if isinstance(driver, Written):
        return driver.text
    return ".".join([str(driver[0]), *(f"{part:02d}" for part in driver[1:])])


def cuda_of_driver(driver: Version) -> Version | None:
    """Return the newest CUDA version that `driver` is known to support, None below the table."""
    known = [cuda for cuda, least in CUDA_DRIVER.items() if least <= driver]
    return max(known, default=None)


def driver_of_cuda(cuda: Version) -> Version | None:
    """Return the least driver that fully supports CUDA `cuda`, None above the table."""
    known = [driver for version, driver in CUDA_DRIVER.items() if version >= cuda]
    return min(known, default=None)


def driver_of_ptx(isa: Version) -> Version | None:
    """Return the least driver whose compiler takes PTX ISA `isa`, None when none is known."""
    if isa < min(PTX_ISA_CUDA):
        return CUDA_DRIVER[(11, 0)]
    cuda = PTX_ISA_CUDA.get(isa)
    return None if cuda is None else driver_of_cuda(cuda)


def isa_of_target(sm: Sm) -> Version | None:
    """Return the least PTX ISA that may name `sm` as its target, None when not known."""
    return LEAST_ISA.get(str(sm))


def driver_takes_ptx(driver: Version, isa: Version) -> bool:
    """Say whether `driver` compiles PTX of ISA `isa` (otherwise: CUDA error 222)."""
    if isa < min(PTX_ISA_CUDA):
        return True
    least = driver_of_ptx(isa)
    # A branch newer than the table takes everything that the table knows.
    return least is not None and driver >= least


def driver_of_sm(sm: Sm) -> Version | None:
    """Return the first driver branch that can know a card of `sm`, None when not known.

    A driver older than the first toolkit for an SM has neither a compiler nor kernels for
    it. Only the branch is compared: cards were sold with earlier drivers of that branch.
    """
    cuda = FIRST_CUDA.get(str(sm.plain))
    if cuda is None:
        return None
    if cuda < min(CUDA_DRIVER):
        return None
    least = driver_of_cuda(cuda)
    return None if least is None else least[:1]
