"""What became of each extension: its build, told by the builder, and its import, by the guest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from envcheck.config import Extension as Wanted
from envcheck.core import codec
from envcheck.core.compiled import Extension
from envcheck.core.names import normalise


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row of `extensions.json`, which `images/steps/extensions.py` writes."""

    name: str
    """The import name for a source folder, the distribution's for a release."""
    ok: bool
    seconds: float
    tail: tuple[str, ...] = ()
    """What the compiler called an error, and the last lines; empty when it worked."""


def read(document: bytes, name: str) -> tuple[Result, ...]:
    """Read `extensions.json`; raises DocumentInvalid."""
    rows = codec.parse(document, name=name)
    return codec.from_json(tuple[Result, ...], rows, name)


def join(
    wanted: Iterable[Wanted], built: Iterable[Result], tried: Iterable[Extension]
) -> tuple[Extension, ...]:
    """Return one fact for each extension that the user named."""
    results = {normalise(result.name): result for result in built}
    imports = {one.name: one for one in tried}
    return tuple(_join(each, results, imports.get(each.name)) for each in wanted)


def _join(wanted: Wanted, results: dict[str, Result], tried: Extension | None) -> Extension:
    named = wanted.requirement.partition("==")[0].strip() if wanted.requirement else wanted.name
    here = wanted.requirement is not None or wanted.source is not None
    result = results.get(normalise(named)) if here else None
    # What was not built cannot be imported: its build says why.
    imported = None if result is not None and not result.ok else tried
    return Extension(
        name=wanted.name,
        origin=wanted.requirement or (wanted.source.name if wanted.source else "the lock"),
        built=None if result is None else result.ok,
        seconds=None if result is None else result.seconds,
        said=result.tail if result is not None else (),
        imported=imported.imported if imported is not None else None,
        message=imported.message if imported is not None else "",
        cuda_sources=wanted.source is not None and any(wanted.source.rglob("*.cu")),
        smoke=wanted.smoke,
    )
