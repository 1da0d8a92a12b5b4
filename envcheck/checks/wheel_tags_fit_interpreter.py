"""Installed packages were built for this Python, this machine and this C library."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import commands, pins
from envcheck.checks.check import Check, Question
from envcheck.core.installed import Foreign, Installed, Package
from envcheck.core.model import Environment, Finding, Status

_MANYLINUX = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_LIBC = re.compile(r"(glibc|musl) (\d+)\.(\d+)")
_PLATFORM = re.compile(r"(?P<kind>manylinux|musllinux)_(?P<major>\d+)_(?P<minor>\d+)_(?P<cpu>.+)")


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.installed is None or not environment.installed.packages:
        yield CHECK.skip("packages", "no installed packages were looked at")
        return
    if environment.implementation != "cpython":
        yield CHECK.skip("packages", f"the tags of {environment.implementation} are not judged")
        return
    installed, judged = environment.installed, 0
    found: list[Finding] = []
    for packages in pins.active(installed).values():
        for package in packages:
            judged += bool(package.tags)
            found += _of_tags(package, environment, installed)
            found += _of_python(package, environment)
    named = {finding.subject for finding in found}
    found += (f for g in _of_suffix(installed, environment) if (f := g).subject not in named)
    yield from found
    if not found:
        message = f"{judged} packages were built for Python {environment.python} and this machine"
        yield CHECK.finding("packages", Status.PASS, message)


def _of_tags(package: Package, environment: Environment, installed: Installed) -> Iterator[Finding]:
    if not package.tags:
        return
    machine = installed.interpreter.markers.get("platform_machine", "")
    pairs = {pair for tag in package.tags for pair in _pairs(tag)}
    fitting = _fitting(environment, installed)
    python = {platform for code, platform in pairs if code in fitting}
    subject = f"{package.name} {package.version}"
    tags = ", ".join(package.tags[:2])
    modules = _modules(package.name, environment)
    if not modules:
        # Libraries that are opened by name ask for no Python, and a file's name may say what its
        # WHEEL does not: decord 0.6.0 is py3-none outside and cp36 inside. Pure Python runs.
        return
    foreign = any(f.owner == subject and not _others_load(f, installed, environment)
                  for f in installed.foreign)  # fmt: skip
    hard = Status.FAIL if foreign else Status.WARN
    remedy = commands.again_as(package.name, package.version)
    evidence = {"tags": package.tags, "python": environment.python, "libc": environment.libc}
    if not pairs:
        return  # tags that cannot be read say nothing
    if not python:
        message = f"built for {tags}, but this is Python {environment.python}"
        yield CHECK.finding(subject, hard, message, remedy=remedy, evidence=evidence)
        return
    fits = {_platform(p, machine, environment.libc) for p in python}
    if None in fits:
        return
    if "machine" in fits and "libc" not in fits:
        message = f"built for {tags}, but this machine is {machine} Linux"
        yield CHECK.finding(subject, hard, message, remedy=remedy, evidence=evidence)
    else:
        # The tag is an upper bound: what a file really needs stands in its symbol versions.
        message = f"built for {tags}, newer than this C library ({environment.libc})"
        yield CHECK.finding(subject, Status.WARN, message, evidence=evidence,
                            remedy="use an image with a newer C library, or an older wheel")  # fmt: skip


def _pairs(tag: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield ((interpreter, abi), platform) of one tag, which may be compressed."""
    parts = tag.split("-")
    if len(parts) == 3:
        for interpreter in parts[0].split("."):
            for abi in parts[1].split("."):
                yield from (((interpreter, abi), platform) for platform in parts[2].split("."))


def _fitting(environment: Environment, installed: Installed) -> set[tuple[str, str]]:
    """Return the interpreter and ABI tags that this Python takes, as packaging lists them."""
    from packaging import tags

    numbers = tuple(int(n) for n in re.findall(r"\d+", environment.python)[:2])
    threaded = any("t-" in s for s in installed.interpreter.suffixes if "cpython-" in s)
    name = "cp" + "".join(map(str, numbers))
    abis = [name + "t"] if threaded else [name]
    every = [
        *tags.cpython_tags(numbers, abis, ["any"]),
        *tags.compatible_tags(numbers, name, ["any"]),
    ]
    return {(tag.interpreter, tag.abi) for tag in every}


def _platform(platform: str, machine: str, libc: str) -> str | None:
    """Return what of a platform tag does not fit, `machine` or `libc`; None where all does."""
    if platform in ("any", f"linux_{machine}"):
        return None
    for old, (major, minor) in _MANYLINUX.items():
        if platform.startswith(old + "_"):
            platform = f"manylinux_{major}_{minor}_{platform[len(old) + 1 :]}"
    match, here = _PLATFORM.fullmatch(platform), _LIBC.match(libc)
    if match is None or match["cpu"] != machine:
        return "machine"
    if here is None:
        return None
    kind = {"glibc": "manylinux", "musl": "musllinux"}[here[1]]
    new_enough = (int(here[2]), int(here[3])) >= (int(match["major"]), int(match["minor"]))
    return None if match["kind"] == kind and new_enough else "libc"


def _of_python(package: Package, environment: Environment) -> Iterator[Finding]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        fits = SpecifierSet(package.requires_python or "").contains(
            environment.python.rstrip("+"), prereleases=True
        )
    except (InvalidSpecifier, InvalidVersion):
        return
    if not fits:
        message = f"is for Python {package.requires_python}, this is {environment.python}"
        remedy = f"pip install --upgrade {package.name}"
        subject = f"{package.name} {package.version}"
        yield CHECK.finding(subject, Status.WARN, message, remedy=remedy)


def _of_suffix(installed: Installed, environment: Environment) -> Iterator[Finding]:
    for foreign in installed.foreign:
        if not _others_load(foreign, installed, environment):
            name, _, version = foreign.owner.partition(" ")
            message = (
                f"{foreign.paths[0]}: no extension module of it has a suffix that Python "
                f"{environment.python} loads"
            )
            remedy = commands.again_as(name, version)
            yield CHECK.finding(foreign.owner, Status.FAIL, message, remedy=remedy,
                                evidence={"suffix": foreign.suffix, "paths": foreign.paths})  # fmt: skip


def _others_load(foreign: Foreign, installed: Installed, environment: Environment) -> bool:
    """Say whether some module of the package fits: a single other one is loaded by its path.

    torchao 0.18.0 has `_C_mxfp8.cpython-310-*.so` in a wheel for every Python, and hands it to
    `torch.ops.load_library`, which asks for no suffix.
    """
    modules = _modules(foreign.owner.partition(" ")[0], environment)
    suffixes = tuple(s for s in installed.interpreter.suffixes if s != ".so")
    return any(path.endswith(suffixes) for path in modules)


def _modules(name: str, environment: Environment) -> list[str]:
    """Return the files of a package that may be extension modules, by their names."""
    files = [p for d in environment.distributions if d.name == name for p in d.files]
    return [p for p in files if p.endswith(".so") and not p.rpartition("/")[2].startswith("lib")]


CHECK = Check(
    id="wheel-tags-fit-interpreter",
    claim="Installed packages were built for this Python, this machine and this C library.",
    how=(
        "Compares the suffixes of extension modules with those that the environment's interpreter "
        "loads: a package of which none fits fails. A tag in WHEEL for another Python or machine "
        "warns where there are extension modules that do not tell; so do a manylinux tag newer than "
        "the C library, which is an upper bound, and Requires-Python. Class C4: files of one image's Python were "
        "copied into another's."
    ),
    classes=("C4",),
    remedy="Install the packages with the Python that is to run them.",
    run=_run,
)
