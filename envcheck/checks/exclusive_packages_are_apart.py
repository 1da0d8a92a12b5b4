"""Of packages that are one thing under several names, one is installed."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import owners, pins
from envcheck.checks.check import Check, Question
from envcheck.core.exclusive import EXCLUSIVE, Exclusive
from envcheck.core.installed import Installed, Package
from envcheck.core.model import Finding, Status


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.installed is None or not environment.installed.packages:
        yield CHECK.skip("packages", "no installed packages were looked at")
        return
    installed = environment.installed
    there = pins.active(installed)
    compiled = {d.name: d.files for d in environment.distributions}
    seen, found = 0, []
    for row in EXCLUSIVE:
        group = [
            same[0]
            for name, same in sorted(there.items())
            if row.names.fullmatch(name) and not _elsewhere(row, compiled.get(name, ()))
        ]
        seen += bool(group)
        if len(group) > 1 and not _shim(group):
            found.append(_of_group(row, group, installed))
    yield from found
    if not found:
        message = (
            f"of {len(EXCLUSIVE)} groups of which one package is to be installed, none has two"
        )
        yield CHECK.finding("packages", Status.PASS, message, evidence={"present": seen})


def _elsewhere(row: Exclusive, files: tuple[str, ...]) -> bool:
    """Say whether compiled files are known, and none of them is where the others of the row are."""
    return bool(files) and not any(path.startswith(f"{row.what}/") for path in files)


def _shim(group: list[Package]) -> bool:
    """Say whether all but one of them only require the one, and hold nothing themselves."""
    names = {package.name for package in group}
    shims = [p for p in group if not p.tags or all(t.endswith("-none-any") for t in p.tags)]
    real = names - {package.name for package in shims}
    return len(real) == 1 and all(
        any(
            line.partition(";")[0].replace("_", "-").startswith(next(iter(real)))
            for line in p.requires
        )
        for p in shims
    )


def _of_group(row: Exclusive, group: list[Package], installed: Installed) -> Finding:
    names = {f"{package.name} {package.version}" for package in group}
    held: dict[str, int] = {}
    for overlap in installed.overlaps:
        if names.issuperset(overlap.owners) and overlap.compiled:
            for owner, count in overlap.held.items():
                held[owner] = held.get(owner, 0) + count
    lost = sorted(names - set(held)) if held else []
    needers = {n for o in lost for n in owners.needed(installed, owners.name(o))}
    every = ", ".join(sorted(names))
    message = f"{every}: all of them install {row.what}, and one of it is loaded"
    if held:
        message = f"{every}: the files of {row.what} are those of {', '.join(sorted(held))}"
    # The build for a card is installed for the card: without its files that is silently lost.
    card = [o for o in lost if _for_card(o)] if not any(map(_for_card, held)) else []
    needs = owners.decides(row.what, needers)
    broken = bool(lost) and not row.interchangeable and bool(needs or card)
    if broken or needers:
        message += f"; those of {', '.join(lost)} are lost"
        if needers:
            message += f", which {', '.join(sorted(needers))} needs"
    keep = tuple(card or lost or _preferred(names, installed))[:1]
    drop = tuple(sorted(names - set(keep)))
    return CHECK.finding(
        row.what,
        Status.FAIL if broken else Status.WARN,
        message,
        remedy=owners.reinstall(keep, drop),
        evidence={"installed": tuple(sorted(names)), "source": row.source, "held": held},
    )


def _preferred(names: set[str], installed: Installed) -> list[str]:
    """Return the packages, first the one to keep: for a card, needed by others, of a newer CUDA."""

    def place(owner: str) -> tuple[bool, bool, int, str]:
        name = owners.name(owner)
        cuda = int("".join(filter(str.isdecimal, name)) or 0)
        return not _for_card(owner), not owners.needed(installed, name), -cuda, owner

    return sorted(names, key=place)


def _for_card(owner: str) -> bool:
    return any(word in owners.name(owner) for word in ("gpu", "cuda", "rocm"))


CHECK = Check(
    id="exclusive-packages-are-apart",
    claim="Of packages that are one thing under several names, only one is installed.",
    how=(
        "Holds the installed names against a table with a source for each row: onnxruntime and "
        "onnxruntime-gpu, the variants of opencv, CuPy, faiss and TensorFlow, cuDNN, NCCL, "
        "cuSPARSELt and NVSHMEM for two CUDA majors. They overwrite each other's files. It fails "
        "where the build for the card, or one that an installed package needs, has lost its own, "
        "as far as RECORD tells; else it warns. Classes I2 and C3: only the CPU provider is left, "
        "and nothing says so."
    ),
    classes=("C3", "D2"),
    remedy="Uninstall all of them and install the one that is needed.",
    run=_run,
)
