"""What packages say of themselves beside their name, and whether their files agree.

Every dist-info directory of every site directory is read, those too that an earlier one hides.
Nothing is imported; a file that cannot be read is a fact of its own or nothing at all.
"""

from __future__ import annotations

import importlib.machinery
import os
import platform
import re
import sys
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from importlib import metadata

from envcheck.core.installed import Installed, Interpreter, Package
from envcheck.core.names import visible
from envcheck.guest import distributions, in_place, numpy_use, records, shadows, site_paths
from envcheck.guest.records import Owned, Row

_WITH_CUDA = re.compile(r"""\bextra\s*==\s*["']with[-_]cuda["']""")


def read(folders: list[str]) -> Installed:
    """Read the packages of site directories, in the order of `sys.path`."""
    packages, owned = [], []
    for place, folder in enumerate(folders):
        here = [
            _read(entry, place, folder)
            for entry in sorted(metadata.distributions(path=[folder]), key=distributions.info)
        ]
        packages += [package for package, _ in here]
        owned.append([Owned(f"{p.name} {p.version}", folder, rows) for p, rows in here])
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    every = [one for here in owned for one in here]
    hidden = _shadowed(packages)
    use, unread = numpy_use.read(every, hidden) if _has_numpy(packages) else ((), 0)
    unused = {id(every[index]) for index in hidden}
    # What an earlier folder hides is not imported, whatever became of its files.
    used = [[one for one in here if id(one) not in unused] for here in owned]
    return Installed(
        interpreter=Interpreter(
            markers=markers(), suffixes=suffixes, undecodable=tuple(site_paths.undecodable())
        ),
        packages=tuple(packages),
        overlaps=tuple(o for here in owned for o in records.overlaps(here)),
        records=records.compare(used),
        foreign=tuple(records.foreign(every, suffixes)),
        shadows=tuple(shadows.shadows(folders, owned)),
        numpy=use,
        numpy_unread=unread,
    )


def markers() -> dict[str, str]:
    """Return the variables of environment markers, without the kernel's release and build."""
    version = sys.implementation.version
    release = f"{version.major}.{version.minor}.{version.micro}"
    if version.releaselevel != "final":
        release += f"{version.releaselevel[0]}{version.serial}"
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": release,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_system": platform.system(),
        "python_full_version": platform.python_version().rstrip("+"),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }


def _has_numpy(packages: list[Package]) -> bool:
    return any(package.name == "numpy" for package in packages)


def _shadowed(packages: list[Package]) -> set[int]:
    """Return the indices of packages that an earlier site directory has too."""
    first: dict[str, int] = {}
    for package in packages:
        first.setdefault(package.name, package.place)
    return {i for i, p in enumerate(packages) if p.place != first[p.name]}


def _read(entry: metadata.Distribution, place: int, folder: str) -> tuple[Package, list[Row]]:
    said = distributions.headers(entry)
    wheel = HeaderParser().parsestr(distributions.head(entry, "WHEEL"))
    python = said["Requires-Python"]
    installer = distributions.head(entry, "INSTALLER").strip()
    rows = distributions.record_rows(entry)
    name, version = distributions.identity(entry, said)
    package = Package(
        name=name,
        version=version,
        info=visible(distributions.info(entry)),
        place=place,
        installer=visible(installer)[:40] or None,
        gone=in_place.gone(entry, folder, (row[0] for row in rows)),
        has_record=distributions.raw(entry, "RECORD") is not None,
        requires_python=None if python is None else visible(str(python)),
        tags=tuple(visible(str(tag)) for tag in wheel.get_all("Tag") or ()),
        problem=_problem(entry, said),
        requires=tuple(_requires(entry, said.get_all("Requires-Dist") or [])),
        with_cuda=tuple(_with_cuda(said.get_all("Requires-Dist") or [])),
    )
    return package, [row for row in rows if not row[0].endswith(".pyc")]


def _problem(entry: metadata.Distribution, said: Message) -> str | None:
    """Return why the metadata of a package tells nothing, None where it does."""
    file = "METADATA" if distributions.info(entry).endswith(".dist-info") else "PKG-INFO"
    lacking = [] if distributions.is_name(said["Name"]) else ["Name"]
    lacking += [] if said["Version"] else ["Version"]
    if not lacking:
        return None
    if said.keys() or distributions.raw(entry, file) is not None:
        return f"{file} does not say its {' and '.join(lacking)}"
    return f"{file} is missing"


def _with_cuda(lines: list[str]) -> Iterator[str]:
    """Yield what the extra `with-cuda` asks for; markers are left in."""
    for line in map(str, lines):
        if _WITH_CUDA.search(line.partition(";")[2]) is not None:
            yield visible(" ".join(line.split()))


def _requires(entry: metadata.Distribution, lines: list[str]) -> Iterator[str]:
    if not lines and distributions.info(entry).endswith((".egg-info", "EGG-INFO")):
        try:
            lines = list(entry.requires or ())
        except (OSError, ValueError):
            lines = []
    for line in map(str, lines):
        marker = line.partition(";")[2]
        # What an `or` may switch on without the extra is left to the host, which evaluates it.
        if re.search(r"\bextra\b", marker) is None or re.search(r"\bor\b", marker) is not None:
            yield visible(" ".join(line.split()))
