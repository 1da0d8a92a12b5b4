"""What is wrong with loading one file: libraries, versions and symbols that are not there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES

from envcheck.core.linking import MissingLibrary, MissingVersion, Opened, Unresolved
from envcheck.core.names import visible
from envcheck.core.request import Place
from envcheck.guest import module_imports
from envcheck.guest.linked_files import LinkedFile
from envcheck.guest.loader import Loaded, Opening, Process
from envcheck.guest.symbols import Closure, Lacking, add_near, missing_versions

_MAX_SYMBOLS = 8
_MAX_LISTED = 8
# So many symbols that are missing have one cause.
_MAX_LOOKED_AT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One file, the process in which it was opened, and what is known around it."""

    path: str
    absolute: str
    file: LinkedFile
    process: Process
    opening: Opening
    torch: bool
    reach: list[Loaded]
    """Where a symbol of nearly that name is looked for."""
    folders: list[str]
    places: list[Place]
    named: Mapping[str, list[Place]]
    """The same by file name."""
    show: Callable[[str], str]


def fault(case: Case, closure: Closure) -> Opened | None:
    """Return what is wrong with opening a file, None for nothing."""
    opening = case.opening
    if opening.root is None:
        system, file = case.process.system, case.file
        reason = opening.reason
        if file.bits and (file.machine, file.bits) != (system.machine, system.bits):
            reason = f"made for another machine (e_machine {file.machine}, {file.bits} bit)"
        return Opened(path=visible(case.path), module=True, refused=visible(reason))
    versions = tuple(_versions(case))
    named = {(v.by, v.name) for v in versions}
    # Of a file that lacks libraries, only PyTorch's symbols can be told from theirs.
    unresolved = closure.unresolved(case.process, opening) if _decidable(case) else []
    lacking = [
        one for one in unresolved if (case.show(one.by.file.real), one.wanted.version) not in named
    ]
    if not opening.missed and not versions and not lacking:
        return None
    absent = {missed.name for missed in opening.missed}
    lacking = [one for one in lacking if one.wanted.file not in absent]
    lacking = add_near(_in_package(case, lacking), _small_first(case.reach))
    if opening.missed:
        # What the missing libraries would have brought is not known.
        lacking = [one for one in lacking if one.near is not None]
    if not opening.missed and not versions and not lacking:
        return None
    return Opened(
        path=visible(case.path),
        module=_is_module(case),
        torch=case.torch,
        imported=_imported(case),
        libraries=tuple(_libraries(case))[:_MAX_LISTED],
        versions=versions[:_MAX_LISTED],
        symbols=tuple(_unresolved(case, one) for one in lacking[:_MAX_SYMBOLS]),
        symbol_count=len(lacking),
    )


def _decidable(case: Case) -> bool:
    return case.torch or not case.opening.missed


def _is_module(case: Case) -> bool:
    """Say whether Python would import the file."""
    stem = os.path.basename(case.path).partition(".")[0].encode("utf-8", "surrogateescape")
    named = case.path.endswith(tuple(EXTENSION_SUFFIXES))
    return named and case.file.symbols.exports_any(b"PyInit_" + stem)


def _imported(case: Case) -> bool | None:
    """Say whether a module of its package imports the file whatever happens."""
    if not _is_module(case):
        return None
    folder = next((p.absolute for p in case.places if p.path == case.path), case.absolute)
    site = folder.removesuffix(case.path).rstrip(os.sep)
    stem = case.path.removesuffix(
        next(s for s in EXTENSION_SUFFIXES if case.path.endswith(s))
    ).replace(os.sep, ".")
    return module_imports.imports_at_top(site, stem)


def _in_package(case: Case, lacking: list[Lacking]) -> list[Lacking]:
    """Leave out what another file of the same package exports: it loads that one by itself.

    It does not where the process has another file under that name, such as one of LD_PRELOAD.
    """
    if not lacking:
        return lacking
    top = case.path.partition(os.sep)[0]
    lacking = lacking[:_MAX_LOOKED_AT]
    others = [
        file
        for place in case.places
        if place.path.partition(os.sep)[0] in (top, f"{top}.libs") and place.path != case.path
        if (file := case.process.files.read(place.absolute)) is not None and not file.problem
        if not _is_replaced(file, case.process)
    ]
    return [
        one for one in lacking if not any(f.symbols.exports_any(one.wanted.name) for f in others)
    ]


def _is_replaced(file: LinkedFile, process: Process) -> bool:
    held = process.names.get(file.dynamic.soname or "")
    return held is not None and held.file.identity != file.identity


def _small_first(reach: list[Loaded]) -> list[Loaded]:
    """Return libraries once each, those with little text first."""
    unique = {one.file.identity: one for one in reach}
    return sorted(
        unique.values(), key=lambda m: m.file.symbols.strings_end - m.file.symbols.strings
    )


def _unresolved(case: Case, one: Lacking) -> Unresolved:
    return Unresolved(
        name=_text(one.wanted.name),
        version=one.wanted.version,
        by=case.show(one.by.file.real),
        near=None if one.near is None else _text(one.near),
        near_in=None if one.near_in is None else case.show(one.near_in.file.real),
    )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _libraries(case: Case) -> Iterator[MissingLibrary]:
    names = {name for one in case.process.maps for name in one.names if os.sep not in name}
    for missed in case.opening.missed:
        family = _family(missed.name)
        others = sorted(n for n in names if _family(n) == family and n != missed.name)
        elsewhere = [place.path for place in case.named.get(missed.name, ())]
        end = missed.refusal
        yield MissingLibrary(
            name=visible(missed.name),
            by=case.show(missed.by.file.real),
            reason=visible(missed.reason),
            elsewhere=tuple(map(visible, elsewhere[:_MAX_LISTED])),
            others=tuple(map(visible, others[:_MAX_LISTED])),
            refused=case.show(os.path.realpath(end.path)) if end else "",
            behind=case.show(os.path.realpath(end.behind)) if end and end.behind else "",
        )


def _family(name: str) -> str:
    """Return a soname without its number: `libcudart.so`."""
    return re.sub(r"(\.so)[\d.]*$", r"\1", name)


def _versions(case: Case) -> Iterator[MissingVersion]:
    for need, by, found in missing_versions(case.process, case.opening):
        kind = re.split(r"[\d.]", need.name)[0]
        defined = [n for n in found.file.dynamic.definitions.values() if n.startswith(kind)]
        copies = (
            path
            for path, _ in case.process.candidates(need.file, by)
            if (file := case.process.files.read(path)) is not None
            and need.name in file.dynamic.definitions.values()
        )
        yield MissingVersion(
            name=need.name,
            library=need.file,
            by=case.show(by.file.real),
            found=case.show(found.file.real),
            newest=max(defined, key=_numbers, default=None),
            elsewhere=tuple(dict.fromkeys(copies))[:_MAX_LISTED],
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in re.findall(r"\d+", version))
