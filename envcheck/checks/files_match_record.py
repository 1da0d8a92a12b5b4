"""Installed files are as they were installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import commands, pins
from envcheck.checks.check import Check, Question
from envcheck.core.installed import Differing, End, Installed, Records, is_aside, is_vital
from envcheck.core.model import Finding, Json, Status

_WORDS = {
    "missing": "missing",
    "empty": "empty, as after a full disk",
    "size": "of another size",
    "syntax": "of another size, and no Python",
    "hash": "of another content",
    "unreadable": "not to be read",
}


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    installed = environment.installed if environment is not None else None
    if installed is not None:
        yield from _not_compared(installed)
    if installed is None or not installed.records.sized:
        yield CHECK.skip("files", "no RECORD with sizes was found")
        return
    exact = {f"{p.name} {p.version}" for p in installed.packages if p.is_exact}
    ends = {(end.owner, end.how): end for end in installed.records.ends}
    found = [
        f
        for d in installed.records.differing
        if (f := _of(d, ends.get((d.owner, d.how)))) is not None
        and (d.owner in exact or d.how not in ("size", "hash"))
    ]
    yield from found
    if not found:
        message, minor = f"{_looked(installed.records)}", _minor(installed.records)
        yield CHECK.finding("files", Status.PASS, f"as installed: {message}{minor}")


def _not_compared(installed: Installed) -> Iterator[Finding]:
    """Name what an installer that leaves a RECORD has left none for; Debian leaves none.

    What has no other metadata either is judged by requirements-are-installed.
    """
    active = (p for same in pins.active(installed).values() for p in same)
    found = [p for p in active if not p.has_record and p.is_exact and p.problem is None]
    if found:
        first = next((p for p in found if p.name == "torch"), found[0])
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        yield CHECK.finding(
            f"{first.name} {first.version}{more}",
            Status.WARN,
            f"installed by {first.installer} and without RECORD: files were not compared",
            remedy=commands.again_as(first.name, first.version),
            evidence={"packages": tuple(f"{p.name} {p.version}" for p in found)},
        )


def _looked(records: Records) -> str:
    rest = records.sized - records.hashed
    return f"{records.sized} files by size, {records.hashed} by hash too ({rest} were not hashed)"


def _minor(records: Records) -> str:
    other = sum(d.count for d in records.differing)
    return f"; {other} more differ: data, or changed by who packs them" if other else ""


def _of(differing: Differing, end: End | None) -> Finding | None:
    """Judge one package's files; data and notes that are gone are no fault: images are trimmed."""
    how, (name, _, version) = differing.how, differing.owner.partition(" ")
    code = differing.compiled or differing.code or how == "unreadable"
    vital = [path for path in _vital(differing) if path not in differing.optional]
    told = code or any(map(is_vital, differing.paths)) or _is_rewritten(differing)
    if how == "form" or not (told or vital):
        return None
    gone = how == "missing" and differing.count >= differing.of > 0
    broken = end is not None or bool(vital) or (bool(differing.compiled) and gone)
    others = f" and {differing.count - 1} more" if differing.count > 1 else ""
    path = end.path if end is not None else (vital or differing.paths)[0]
    message = f"{path}{others}: {_WORDS[how]}, against its RECORD"
    if end is not None and not gone:
        by = f" (imported by {end.by})" if end.by else ""
        message += f"; importing {end.path.partition('/')[0].removesuffix('.py')} ends there{by}"
    if differing.optional and not broken:
        message += f"; importing {name} goes on without"
    if _is_rewritten(differing):
        message += "; what it requires is read from METADATA as it is"
    if gone:
        message = f"its metadata is there, but {differing.count} of {differing.of} files are gone"
    evidence: dict[str, Json] = {
        "how": differing.how,
        "count": differing.count,
        "compiled": differing.compiled,
        "paths": differing.paths,
    }
    return CHECK.finding(
        differing.owner,
        Status.FAIL if broken else Status.WARN,
        message,
        remedy=commands.again_as(name, version),
        evidence=evidence,
    )


def _vital(differing: Differing) -> list[str]:
    """Return those of the first paths without which something of the package cannot work.

    Nobody empties modules or cuts them off in the middle; much is left out on purpose.
    """
    if differing.how == "size":  # a patch of source works, half of LLVM's code does not
        return [path for path in differing.paths if is_vital(path) and path.endswith(".bc")]
    if differing.how not in ("missing", "empty", "syntax"):
        return []
    found = [path for path in differing.paths if is_vital(path)]
    if differing.how != "missing":
        mine = [path for path in differing.paths if not is_aside(path)]
        found += [p for p in mine if p.endswith(".py") or re.search(r"\.so(\.\d+)*$", p)]
    return found


def _is_rewritten(differing: Differing) -> bool:
    """Say whether the requirements are not those that the package was made with."""
    changed = differing.how in ("size", "hash")
    return changed and any(path.endswith(".dist-info/METADATA") for path in differing.paths)


CHECK = Check(
    id="files-match-record",
    claim="Installed files are those that their packages' RECORD names, as far as compared.",
    how=(
        "Compares the size of every file with RECORD, and the hash of compiled files up to 1 MiB; "
        "how many were not hashed is said. An empty library or module, a module of another size that "
        "Python cannot read, a compiled package of which only the metadata is left, an extension "
        "module that is gone, unless importing the package goes on without, what `import torch` or "
        "Triton opens by its path fail, and so does what an import of the package comes to whatever "
        "happens, by the import statements outside of any block, and does not find. Other code "
        "that is missing, of another size or content "
        "warns: somebody trimmed, stripped or patched it, or an installation was cut short. So does a "
        "package that pip installed and that has no RECORD. Sizes "
        "of packages that the system or conda installed are changed on purpose; files "
        "that several packages own are judged by one-distribution-owns-each-file, and data "
        "that is gone is no fault."
    ),
    classes=("C3", "D4"),
    remedy="Install the package again.",
    run=_run,
)
