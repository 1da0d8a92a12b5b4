"""No two installed packages own one file with different content, and none is there twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import owners, remedies
from envcheck.checks.check import Check, Question
from envcheck.checks.pins import FAMILY
from envcheck.core.distribution import Distribution
from envcheck.core.exclusive import EXCLUSIVE
from envcheck.core.installed import Installed, Overlap, Package, Shadow
from envcheck.core.model import Finding, Json, Status

_NO_PART = re.compile(r"(^|/)(tests?|docs?|examples?|benchmarks?|scripts|tools)/|^[^/]*$")
"""Paths at the top that careless packages install beside themselves, and that no import needs."""


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.installed is None or not environment.installed.packages:
        yield CHECK.skip("packages", "no installed packages were looked at")
        return
    installed = environment.installed
    found = [
        *_twice(installed, environment.distributions),
        *map(_shadowed, installed.shadows),
        *(f for o in installed.overlaps if (f := _overlap(o, installed)) is not None),
    ]
    yield from found
    if not found:
        same = sum(overlap.identical for overlap in installed.overlaps)
        harmless = sum(overlap.differing for overlap in installed.overlaps)
        message = f"each file of {len(installed.packages)} packages has one owner"
        if same or harmless:
            message = (
                f"{same} file(s) have several owners and the same content, {harmless} more are"
                " no part of a package"
            )
        yield CHECK.finding("packages", Status.PASS, message)


def _twice(installed: Installed, distributions: tuple[Distribution, ...]) -> Iterator[Finding]:
    places: dict[tuple[str, int], list[Package]] = {}
    first: dict[str, Package] = {}
    for package in installed.packages:
        if package.info.startswith("~"):
            message = "left over by an installation that was interrupted; pip ignores it"
            remedy = f"delete {package.info} and what else begins with ~ beside it"
            yield CHECK.finding(package.info, Status.WARN, message, remedy=remedy)
            continue
        places.setdefault((package.name, package.place), []).append(package)
        first.setdefault(package.name, package)
    for (name, place), same in sorted(places.items()):
        if len(same) > 1:
            if not _is_told_twice(same):
                yield _duplicate(name, same, distributions)
        elif (
            name in ("torch", *FAMILY)
            and first[name].place != place
            and first[name].version != same[0].version
        ):
            message = (
                f"{name} {same[0].version} lies in a later folder of sys.path and is hidden by"
                f" {name} {first[name].version}: what was made for the other one breaks"
            )
            remedy = f"pip uninstall {name} in one of the two folders"
            yield CHECK.finding(
                f"{name} {first[name].version}", Status.WARN, message, remedy=remedy
            )


def _shadowed(shadow: Shadow) -> Finding:
    """Name what hides an installed package; sources that are worked on do so on purpose."""
    message = f"{shadow.path}, which no package owns, comes first on sys.path and is imported"
    return CHECK.finding(
        shadow.owner,
        Status.WARN,
        f"{message} instead of its {shadow.module}",
        remedy=remedies.unshadow(shadow),
        evidence={"module": shadow.module, "path": shadow.path},
    )


def _is_told_twice(same: list[Package]) -> bool:
    """Say whether one installation has metadata of both kinds, as some of Debian's have."""
    new = [p for p in same if p.info.endswith(".dist-info")]
    return len({p.version for p in same}) == 1 and len(new) == 1


def _duplicate(name: str, same: list[Package], distributions: tuple[Distribution, ...]) -> Finding:
    compiled = any(d.name == name and d.files for d in distributions)
    differ = len({package.version for package in same}) > 1
    infos = " and ".join(sorted(package.info for package in same))
    message = f"installed twice in one folder ({infos}): which files are there is not certain"
    return CHECK.finding(
        name,
        Status.FAIL if differ and (compiled or name in ("torch", *FAMILY)) else Status.WARN,
        message,
        remedy="; ".join([f"pip uninstall -y {name}"] * len(same)) + f"; pip install {name}",
        evidence={"versions": tuple(sorted(package.version for package in same))},
    )


def _overlap(overlap: Overlap, installed: Installed) -> Finding | None:
    paths = [path for path in overlap.paths if _NO_PART.search(path) is None]
    if not overlap.differing or not paths:
        return None
    lost = owners.losers(overlap)
    wanted = {o: owners.needed(installed, owners.name(o)) for o in lost}
    evidence: dict[str, Json] = {
        "owners": overlap.owners,
        "paths": overlap.paths,
        "differing": overlap.differing,
        "identical": overlap.identical,
        "held": dict(overlap.held),
    }
    names = " and ".join(overlap.owners)
    message = f"{overlap.differing} file(s) are owned with different content: {paths[0]}"
    if lost and overlap.held:
        message += f"; on disk is that of {', '.join(sorted(overlap.held))}"
    needers = sorted({n for by in wanted.values() for n in by})
    broken = (
        bool(overlap.compiled and lost)
        and owners.decides(paths[0], needers)
        and not _interchangeable(overlap)
    )
    if broken or needers:
        message += f", and {', '.join(needers)} needs {', '.join(map(owners.name, lost))}"
    keep = tuple(sorted(o for o in overlap.owners if not lost or o in lost))[:1]
    drop = tuple(sorted(set(overlap.owners) - set(keep)))
    return CHECK.finding(
        names,
        Status.FAIL if broken else Status.WARN,
        message,
        remedy=owners.reinstall(keep, drop),
        evidence=evidence,
    )


def _interchangeable(overlap: Overlap) -> bool:
    names = {owners.name(owner) for owner in overlap.owners}
    return any(
        row.interchangeable and all(row.names.fullmatch(name) for name in names)
        for row in EXCLUSIVE
    )


CHECK = Check(
    id="one-distribution-owns-each-file",
    claim="No two installed packages own one file with different content, and none is there twice.",
    how=(
        "Looks through the RECORD of every package for paths that others own too, and compares "
        "the hashes; which owner's content is on disk is told by size, or by hash for files up to "
        "1 MiB. Content of a compiled file that was overwritten fails where an installed package "
        "needs the one that lost it (cuDNN for CUDA 12 and 13 in one folder), else it warns. The "
        "same content is no fault, nor are tests and notes at the top of the folder. Two "
        "dist-info folders of one compiled package fail: an upgrade was cut short. A file of no "
        "package that is imported before an installed one warns. Classes D1, "
        "D3 and C3."
    ),
    classes=("C3", "D1", "D3"),
    remedy="Uninstall all owners and install again the one that is needed.",
    run=_run,
)
