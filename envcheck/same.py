"""Whether an environment and its machine are those that a manifest is about: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from envcheck.attest import Manifest
from envcheck.core import cuda, unusable
from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverCard
from envcheck.core.executed import Card
from envcheck.core.installed import Differing
from envcheck.core.model import Assurance, Environment, Report
from envcheck.core.present import OnlyCard, Present, PresentDifference
from envcheck.core.redacted import is_redacted
from envcheck.errors import JobRefused
from envcheck.gate import NEW_ONE

_SHOWN = 3
# In what other words an inventory says the same of a file (`envcheck.core.installed.Differing`).
_KINDS = {"form": "missing", "empty": "size", "syntax": "size"}
_HOWS = {
    "missing": "is gone",
    "size": "has another size than its RECORD says",
    "hash": "has other content than its RECORD says",
    "unreadable": "cannot be read",
}


def require(manifest: Manifest, here: Present) -> tuple[str, ...]:
    """Raise JobRefused that names the difference; returns what could not be compared."""
    environment = manifest.inventory.environment
    assert environment is not None, "a manifest has one"
    _require_environment(environment, here)
    _require_files(manifest, environment, here)
    notes = []
    if environment.image is not None:
        said = f"the manifest is about image {environment.image.reference}, whose digest cannot be"
        notes.append(f"{said} known from within: the environment's digest decides")
    executed, machine = manifest.inventory.executed, manifest.inventory.machine
    looked_at = _shown(machine.cards) if machine is not None else ()
    ran_on = executed.card if executed is not None else None
    if ran_on is not None:
        notes += _compare_card(ran_on, manifest.report, here)
    elif machine is not None and looked_at:
        notes += _compare_driver(looked_at[0].name, machine.cards.module, here)
    if looked_at:
        notes += _compare_cards(looked_at, _cards(here))
    elif ran_on is None:
        notes += _compare_target(manifest.report, here)
    return tuple(dict.fromkeys(notes))


def _refuse(message: str, remedy: str = NEW_ONE) -> NoReturn:
    raise JobRefused(message, remedy=remedy)


def _require_environment(there: Environment, here: Present) -> None:
    for what, old, new in (
        ("Python", there.python, here.python),
        ("implementation of Python", there.implementation, here.implementation),
        ("platform", there.platform, here.platform),
        ("C library", there.libc, here.libc),
    ):
        if old != new:
            _refuse(f"the manifest is about another environment: {what} {old} there, {new} here")
    if there.digest != here.digest:
        _refuse(f"the environment is not the manifest's: {_changes(there, here)}")


def _changes(there: Environment, here: Present) -> str:
    """Return which distributions differ: the first ones, and how many more."""
    old = {(d.name, d.version, d.record_digest) for d in there.distributions}
    new = {(d.name, d.version, d.record_digest) for d in here.distributions}
    gone, come = sorted(old - new, key=str), sorted(new - old, key=str)
    versions = {name: version for name, version, _ in come}
    before = {name for name, _, _ in gone}
    words = []
    for name, version, _ in gone:
        if name not in versions:
            words.append(f"{name} {version} is gone")
        elif versions[name] == version:
            words.append(f"{name} {version} has other files in its RECORD")
        else:
            words.append(f"{name} is {versions[name]}, and was {version}")
    words += [f"{name} {version} is new" for name, version, _ in come if name not in before]
    return _first(words) or "its digest is another one"


def _first(words: Sequence[str]) -> str:
    more = f" (and {len(words) - _SHOWN} more)" if len(words) > _SHOWN else ""
    return "; ".join(words[:_SHOWN]) + more


def _require_files(manifest: Manifest, there: Environment, here: Present) -> None:
    known = there.installed.records.differing if there.installed is not None else ()
    changed = [d for d in here.differing if not _was_so(d, known, here.differing)]
    named = {d.path for d in changed}
    words = [f"{d.path} of {d.owner} {_HOWS[d.how]}" for d in changed]
    # Of what was not opened the inventory has no size.
    for file in (f for f in manifest.inventory.files if f.size):
        now = here.sizes.get(file.path, file.size)
        if now != file.size and file.path not in named:
            said = "is gone" if now is None else f"has {now} bytes, and had {file.size}"
            words.append(f"{file.path} {said}")
    if words:
        remedy = "pip install --force-reinstall --no-deps PACKAGE"
        if changed:
            from envcheck.checks import commands  # not for a job that may start

            name, _, version = changed[0].owner.partition(" ")
            remedy = commands.again_as(name, version)
        _refuse(f"files are not the manifest's: {_first(words)}", remedy)


def _was_so(
    one: PresentDifference, known: Sequence[Differing], now: Sequence[PresentDifference]
) -> bool:
    """Say whether a file differed from RECORD when the manifest was made, as far as it says.

    A manifest names the first files of a package that differ in one way, and counts all of them.
    """
    for group in known:
        if group.owner == one.owner and _KINDS.get(group.how, group.how) == one.how:
            alike = sum(d.owner == one.owner and d.how == one.how for d in now)
            if one.path in group.paths or len(group.paths) < group.count >= alike:
                return True
    return False


def _shown(cards: Cards) -> tuple[DriverCard, ...]:
    return cards.driver.cards if cards.driver is not None else ()


def _cards(here: Present) -> tuple[OnlyCard | DriverCard, ...]:
    """Return the cards that a job would see, the first one first."""
    if here.only is not None:
        return (here.only,)
    return _shown(here.cards) if here.cards is not None else ()


def _compare_driver(name: str, driver: str | None, present: Present) -> Iterator[str]:
    """Compare the driver of a card, which must be usable here; yields what is not told."""
    cause = unusable.unusable(present.cards) if present.cards is not None else None
    module = _module(present)
    if cause is not None:
        message = f"the manifest's card is {name}, and here is none to use: {cause.message}"
        _refuse(message, cause.remedy)
    if driver is None:
        yield "the manifest does not say with which driver it was made, so none was compared"
    elif module != driver:
        now = module or "none that is told"
        _refuse(f"another driver: {driver} in the manifest, {now} here")


def _compare_cards(
    there: Sequence[DriverCard], here: Sequence[OnlyCard | DriverCard]
) -> Iterator[str]:
    """Compare each card of here with those that `preflight` looked at; yields what is not told.

    A job may be shown fewer of them, and none that was not looked at.
    """
    for card in here:
        alike = [c.uuid for c in there if (c.name, c.sm) == (card.name, card.sm)]
        if not alike:
            old, new = (f"{c.name} ({c.sm})" for c in (there[0], card))
            _refuse(f"another card: {old} in the manifest, {new} here")
        if not card.uuid or not all(alike) or any(map(is_redacted, alike)):
            yield f"which {card.name} it is was not compared: its UUID is not told"
        elif card.uuid not in alike:
            _refuse(f"another {card.name}: {', '.join(alike)} in the manifest, {card.uuid} here")


def _module(here: Present) -> str | None:
    if here.only is not None:
        return here.only.module
    return here.cards.module if here.cards is not None else None


def _compare_card(there: Card, report: Report, present: Present) -> Iterator[str]:
    """Compare the card and the driver that everything ran on; yields what is not told."""
    yield from _compare_driver(there.name, there.driver, present)
    here = next(iter(_cards(present)), None)
    assert here is not None, "there is one that is usable"
    if (here.name, here.sm) != (there.name, there.sm):
        old, new = (f"{c.name} ({c.sm})" for c in (there, here))
        _refuse(f"another card: {old} in the manifest, {new} here")
    if not there.uuid or not here.uuid or is_redacted(there.uuid):
        yield f"which {there.name} it is was not compared: its UUID is not told"
    elif here.uuid != there.uuid and report.assurance is Assurance.EXECUTED:
        _refuse(f"another {there.name}: {there.uuid} in the manifest, {here.uuid} here")


def _compare_target(report: Report, present: Present) -> Iterator[str]:
    """Compare what a manifest is about where nothing was run: a target, perhaps a driver."""
    here, module = next(iter(_cards(present)), None), _module(present)
    if report.driver is not None:
        if module is None:
            _refuse(f"the manifest is about driver {report.driver}, and here is none")
        if cuda.parse_version(module) < cuda.parse_version(report.driver):
            _refuse(f"an older driver: {report.driver} in the manifest, {module} here")
    if here is None:
        yield f"no card is seen here, so none was compared with {report.target.name}"
    elif here.sm != report.target.sm:
        wanted = f"{report.target.name} ({report.target.sm})"
        _refuse(f"another card: the manifest is about {wanted}, here is {here.name} ({here.sm})")
