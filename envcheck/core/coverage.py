"""Can this file's device code run on that card: one pure rule for every caller.

A file is covered by the union of its containers; in each of them the driver chooses one
entry and has no second choice. What stands in `__nv_relfatbin` of a linked library counts
too: the driver links it when the linked image has no match, PTX as well as machine code for
that very SM (measured on an H200; whether a lower minor links is not known and not assumed).
In a bare fatbin only the first container is ever read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from envcheck.core import cuda
from envcheck.core.cuda import Version
from envcheck.core.device_file import Code, Container, DeviceFile
from envcheck.core.sm import KNOWN, TEGRA, Sm, ptx_fits, sass_runs_on

NATIVE, JIT, NONE = "native", "jit", "none"

RELOCATABLE = "relocatable-sass"
"""Machine code that a driver must link before it runs: kind of an entry within a linked file."""
UNREAD = "file-rest"
"""Section name of containers after the first of a bare fatbin, which no driver reads."""

_REASONS = {
    "exact": "machine code for {code}",
    "same-major": "machine code for {code}, which runs on {target} (same major, minor not above)",
    "family": "machine code for {code}, which runs on {target} (same family)",
    "ptx-jit": "JIT-only: {code} PTX, compiled by the driver at first use",
    "ptx-newer-than-driver": "only PTX fits {target}, and its ISA {isa} is newer than {driver}",
    "ptx-older-than-its-target": "PTX for {code} with ISA {isa}, which does not know {code}",
    "arch-specific": "{code} code runs on that SM alone, not on {target}",
    "family-specific": "{code} code runs on its own family, not on {target}",
    "desktop-and-tegra": "{code} code does not run on {target} (desktop and Tegra do not mix)",
    "lto-ir-only": "only LTO-IR, which must be linked before it can run",
    "no-code-for-target": "no code for {target}, only {holds}",
}

_ORDER = {NATIVE: 0, JIT: 1, NONE: 2}
_REASON_ORDER = tuple(_REASONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How one file's device code meets one card."""

    mode: str
    """`native`, `jit` or `none`."""
    reason: str
    """A stable word, a key of the table above."""
    message: str
    least_driver: Version | None = None
    """The least driver that compiles the PTX which fits, None when none is needed or known."""


def loadable(file: DeviceFile, container: Container) -> tuple[Code, ...]:
    """Return the entries of a container that a driver could use."""
    if not container.has_code:
        return ()
    return usable_code(file.format, container.section, container.code)


def usable_code(form: str, section: str, code: tuple[Code, ...]) -> tuple[Code, ...]:
    """Return those of a container's entries that a driver could use, in a file of that format."""
    if section == UNREAD:
        return ()
    usable = (c for c in code if c.kind in ("sass", "ptx"))
    if not _is_linked(form, section):
        return tuple(usable)
    return tuple(Code(kind=RELOCATABLE, sm=c.sm) if c.kind == "sass" else c for c in usable)


def _is_linked(form: str, section: str) -> bool:
    return form in ("shared-object", "executable") and section == "__nv_relfatbin"


def _links_on(code: Sm, target: Sm) -> bool:
    return code.silicon == target.silicon and sass_runs_on(code, target)


@lru_cache(maxsize=4096)
def reach(usable: tuple[Code, ...]) -> frozenset[tuple[int, str]]:
    """Return the known SMs that portable code of a container reaches, and how.

    "" stands for machine code, otherwise it is the ISA of the PTX that a driver would compile.
    Code for one SM or family only is left out: it is specific by design.
    """
    portable = tuple(c for c in usable if c.sm[-1] not in "af")
    ways = {number: _way(portable, Sm(number)) for number in KNOWN}
    return frozenset((number, way) for number, way in ways.items() if way is not None)


def _way(usable: tuple[Code, ...], target: Sm) -> str | None:
    if _native(usable, target):
        return ""
    nearest = nearest_ptx(usable, target)
    return None if nearest is None else nearest.isa


def codes(file: DeviceFile, kind: str) -> tuple[Sm, ...]:
    """Return the SMs of all usable entries of one kind, sorted, each once."""
    kinds = (kind, RELOCATABLE) if kind == "sass" else (kind,)
    return tuple(_sms((c for part in file.containers for c in loadable(file, part)), *kinds))


def of_file(file: DeviceFile, target: Sm, driver: Version | None) -> Coverage:
    """Judge the union of a file's containers for one card."""
    parts = [codes for part in file.containers if (codes := loadable(file, part))]
    found = [of_codes(codes, target, driver) for codes in parts]
    if found:
        first = min(found, key=_rank)
        # Of PTX, the file as a whole needs the driver that takes all of it.
        same = [c for c in found if _rank(c) == _rank(first)]
        best = max(same, key=lambda c: c.least_driver or ())
        if best.reason != "no-code-for-target":
            return best
        return _missing(tuple(c for codes in parts for c in codes), target)
    kinds = {c.kind for part in file.containers for c in part.code}
    return _none("lto-ir-only", target) if "lto-ir" in kinds else _missing((), target)


def _rank(found: Coverage) -> tuple[int, int]:
    return _ORDER[found.mode], _REASON_ORDER.index(found.reason)


def of_codes(usable: Iterable[Code], target: Sm, driver: Version | None) -> Coverage:
    """Judge one container: machine code before PTX, then the nearest architecture."""
    usable = tuple(usable)
    best = machine_code(usable, target)
    if best is not None:
        reason = (
            "exact"
            if best.silicon == target.silicon
            else "family"
            if best.suffix == "f"
            else "same-major"
        )
        return Coverage(mode=NATIVE, reason=reason, message=_say(reason, best, target))
    nearest = nearest_ptx(usable, target)
    if nearest is not None:
        return _of_ptx(nearest, target, driver)
    return _missing(usable, target)


def machine_code(usable: tuple[Code, ...], target: Sm) -> Sm | None:
    """Return the machine code of a container that a driver takes, None where it takes PTX or none."""
    native = _native(usable, target)
    return max(native, key=lambda sm: (sm.number == target.number, sm), default=None)


def _native(usable: tuple[Code, ...], target: Sm) -> list[Sm]:
    """Return the machine code that runs on the card as it is, or once the driver linked it."""
    found = [sm for sm in _sms(usable, "sass") if sass_runs_on(sm, target)]
    return found + [sm for sm in _sms(usable, RELOCATABLE) if _links_on(sm, target)]


def nearest_ptx(usable: tuple[Code, ...], target: Sm) -> Code | None:
    """Return the PTX that a driver chooses: the nearest SM, and of several the first."""
    fitting = [c for c in usable if c.kind == "ptx" and ptx_fits(Sm.parse(c.sm), target)]
    return max(fitting, key=lambda c: (Sm.parse(c.sm).silicon, c.sm), default=None)


def _of_ptx(nearest: Code, target: Sm, driver: Version | None) -> Coverage:
    """Judge the chosen PTX: the driver's compiler must take its ISA."""
    code, isa = Sm.parse(nearest.sm), cuda.parse_version(nearest.isa or "0")
    if isa < (cuda.isa_of_target(code) or isa):
        return _none("ptx-older-than-its-target", target, code, isa=nearest.isa or "")
    least = cuda.driver_of_ptx(isa)
    last = cuda.LAST_BRANCH_BELOW_SM_75 if target.silicon < 75 else None
    if driver is not None and not cuda.driver_takes_ptx(driver, isa):
        newest = f"driver {cuda.driver_text(driver)}"
    elif least is None:
        newest = "any driver known here"
    elif last is not None and least[0] > last:
        newest = f"the last driver branch for {target}, {last}"
    else:
        message = _REASONS["ptx-jit"].format(code=code.virtual, target=target)
        return Coverage(mode=JIT, reason="ptx-jit", message=message, least_driver=least)
    message = _REASONS["ptx-newer-than-driver"].format(
        target=target, isa=nearest.isa, driver=newest
    )
    return Coverage(mode=NONE, reason="ptx-newer-than-driver", message=message, least_driver=least)


def _missing(usable: tuple[Code, ...], target: Sm) -> Coverage:
    """Say why nothing runs: what would have fitted without its suffix comes first."""
    for suffix, reason in (("a", "arch-specific"), ("f", "family-specific")):
        for kind, fits in (("sass", sass_runs_on), ("ptx", ptx_fits)):
            near = [s for s in _sms(usable, kind) if s.suffix == suffix and fits(s.plain, target)]
            if near:
                return _none(reason, target, max(near))
    same = [
        s
        for s in _sms(usable, "sass")
        if s.major == target.major and not s.suffix and s.silicon <= target.silicon
    ]
    if same and ({s.silicon for s in same} | {target.silicon}) & TEGRA:
        return _none("desktop-and-tegra", target, max(same))
    holds = [
        *map(str, _sms(usable, "sass", RELOCATABLE)),
        *(s.virtual for s in _sms(usable, "ptx")),
    ]
    return _none("no-code-for-target", target, holds=", ".join(holds) or "code of another kind")


def _none(
    reason: str, target: Sm, code: Sm | None = None, *, holds: str = "", isa: str = ""
) -> Coverage:
    message = _REASONS[reason].format(code=code, target=target, holds=holds, isa=isa)
    return Coverage(mode=NONE, reason=reason, message=message)


def _say(reason: str, code: Sm, target: Sm) -> str:
    return _REASONS[reason].format(code=code, target=target)


def _sms(usable: Iterable[Code], *kinds: str) -> list[Sm]:
    return sorted({Sm.parse(c.sm) for c in usable if c.kind in kinds})
