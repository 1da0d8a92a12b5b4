"""What a user wants built and compiled: `envcheck.toml`, or `[tool.envcheck]` of a pyproject.

Looked for in one folder, never above it, so that the same command means the same there for
everybody. Where both files have settings, `envcheck.toml` wins as a whole and nothing is
merged, as ruff and uv do it; `Config.passed_over` then names the other.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from envcheck import job_sizes, targets
from envcheck.core.model import Assurance
from envcheck.core.request import Sizes
from envcheck.errors import UsageError
from envcheck.toml_table import Table, read

OWN, PYPROJECT = "envcheck.toml", "pyproject.toml"
_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_REFERENCE = re.compile(
    r"(?P<name>(?:(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::\w[\w.-]{0,127})?)(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_HASHES = re.compile(r"(?: +--hash=sha256:[0-9a-f]{64})+\Z")
_NETWORKS = ("default", "host", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One compiled package; without `source` and `requirement` the lock installs it."""

    name: str
    """As it is imported: `flash_attn` or `mine.ops`."""
    source: Path | None = None
    """Absolute: a folder with pyproject.toml or setup.py, built for each architecture."""
    requirement: str | None = None
    """A release that is built here: `flash-attn==2.8.3`, with or without ` --hash=sha256:...`."""
    smoke: str | None = None
    """`module:callable`, or `/absolute/path.py:callable`, to be called on a card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one file; every path in it was there when it was read."""

    file: Path | None = None
    """Where they stand; None where there is no file."""
    passed_over: Path | None = None
    """A pyproject.toml whose settings `file` has replaced."""
    base: str | None = None
    """`name:tag@sha256:...`, or without the digest."""
    lock: Path | None = None
    """Requirements with hashes, as pip takes them."""
    builder_lock: Path | None = None
    requirements: Path | None = None
    """Requirements to resolve and lock; never beside `lock`."""
    extensions: tuple[Extension, ...] = ()
    kernels: tuple[Path, ...] = ()
    """Folders that hold kernel folders."""
    architectures: tuple[str, ...] = ()
    """Names that `targets.resolve` knows."""
    require: Assurance = Assurance.SCANNED
    sizes: tuple[Sizes, ...] = ()
    """Of the job, for operations of the catalogue."""
    pip_config: Path | None = None
    ca_file: Path | None = None
    network: str | None = None

    @property
    def base_name(self) -> str | None:
        """The base without its digest."""
        return None if self.base is None else self.base.partition("@")[0]

    @property
    def base_digest(self) -> str | None:
        """`sha256:...` of the base, None where none is given."""
        return None if self.base is None else self.base.partition("@")[2] or None


_GIVEN = frozenset({"file", "passed_over"})  # by where the settings are, not by them
_KEYS = (*(f.name for f in dataclasses.fields(Config) if f.name not in _GIVEN), "guard")


def load(path: Path | None, folder: Path) -> Config:
    """Read `path` (`--config`), or what `folder` has; an empty Config where it has nothing.

    Raises UsageError that names file, key, reason and remedy, FileUnavailable without `path`.
    """
    table, passed_over = find(path, folder)
    return Config() if table is None else replace(_config(table), passed_over=passed_over)


def find(path: Path | None, folder: Path) -> tuple[Table | None, Path | None]:
    """Return the settings of `path`, or those in `folder`, and the file they are taken instead of.

    Every key at the top is known. Raises UsageError, FileUnavailable without `path`.
    """
    if path is not None:
        table = _table(path)
        if table is None:
            message = f"{path}: has no [tool.envcheck]"
            raise UsageError(message, remedy=f"add the table, or name an {OWN}")
        return _known(table), None
    own, pyproject = folder / OWN, folder / PYPROJECT
    # A link to nothing is no absence: reading it says what is wrong.
    other = _table(pyproject) if pyproject.is_file() or pyproject.is_symlink() else None
    if not own.is_file() and not own.is_symlink():
        return None if other is None else _known(other), None
    table = _known(Table(file=own, path="", data=read(own)))
    return table, None if other is None else pyproject


def _known(table: Table) -> Table:
    table.require_known(_KEYS)
    return table


def _table(file: Path) -> Table | None:
    """Return the settings in a file, None for a pyproject.toml without any."""
    whole = Table(file=file, path="", data=read(file))
    if file.name != PYPROJECT:
        return whole
    tool = whole.table("tool")
    return None if tool is None else tool.table("envcheck")


def _config(table: Table) -> Config:
    if "lock" in table.data and "requirements" in table.data:
        remedy = "keep lock, or keep requirements and let envcheck make the lock"
        table.refuse("requirements", "there is a lock already", remedy=remedy)
    return Config(
        file=table.file,
        base=_base(table),
        lock=_lock(table, "lock"),
        builder_lock=_lock(table, "builder_lock"),
        requirements=table.existing_file("requirements"),
        extensions=_extensions(table),
        kernels=table.existing_folders("kernels"),
        architectures=_architectures(table),
        require=assurance(table),
        sizes=tuple(job_sizes.sizes(row) for row in table.tables("sizes")),
        pip_config=table.existing_file("pip_config"),
        ca_file=table.existing_file("ca_file"),
        network=_network(table),
    )


def _base(table: Table) -> str | None:
    base = table.text("base")
    if base is not None and not _REFERENCE.fullmatch(base):
        remedy = 'base = "python:3.12-slim-bookworm@sha256:..." (64 hex digits, or no digest)'
        table.refuse("base", f"{base!r} is no image reference", remedy=remedy)
    return base


def require_reference(base: str) -> str:
    """Return what --base names; raises UsageError for what no engine could read."""
    if not _REFERENCE.fullmatch(base):
        message = f"--base: {base!r} is no image reference"
        raise UsageError(message, remedy="--base NAME:TAG, or NAME:TAG@sha256:... (64 hex digits)")
    return base


def _lock(table: Table, key: str) -> Path | None:
    path = table.existing_file(key)
    if path is not None and b"--hash=" not in path.read_bytes():
        remedy = "requirements = ... resolves such a file and makes the lock"
        table.refuse(key, f"{table.data[key]}: has no hashes", remedy=remedy)
    return path


def _extensions(table: Table) -> tuple[Extension, ...]:
    made: list[Extension] = []
    for row in table.tables("extensions"):
        extension = _extension(row)
        if extension.name in {known.name for known in made}:
            reason = f"{extension.name} stands there twice"
            row.refuse("name", reason, remedy="name each extension once")
        made.append(extension)
    return tuple(made)


def _extension(row: Table) -> Extension:
    row.require_known(f.name for f in dataclasses.fields(Extension))
    name = row.text("name")
    if name is None:
        row.refuse("name", "missing", remedy='name = "..." (as the extension is imported)')
    if not re.fullmatch(_DOTTED, name):
        row.refuse("name", f"{name!r} is no import name", remedy='such as "flash_attn"')
    if "source" in row.data and "requirement" in row.data:
        remedy = "keep source for a folder, requirement for a release"
        row.refuse("requirement", "there is a source already", remedy=remedy)
    return Extension(
        name=name, source=_source(row), requirement=_requirement(row), smoke=_smoke(row, name)
    )


def _smoke(row: Table, name: str) -> str | None:
    smoke = row.text("smoke")
    if smoke is None:
        return None
    place, _, function = smoke.rpartition(":")
    if not re.fullmatch(_DOTTED, function) or not (
        place.endswith(".py") or re.fullmatch(_DOTTED, place)
    ):
        reason = f"{smoke!r} is neither module:callable nor path.py:callable"
        row.refuse("smoke", reason, remedy=f'smoke = "smoke_{name.rpartition(".")[2]}.py:check"')
    if not place.endswith(".py"):
        return smoke
    file = replace(row, data={"smoke": place}).existing_file("smoke")
    assert file is not None
    return f"{file.resolve()}:{function}"


def _source(row: Table) -> Path | None:
    folder = row.existing_folder("source")
    if folder is None:
        return None
    if not any((folder / name).is_file() for name in (PYPROJECT, "setup.py")):
        reason = f"{row.data['source']}: has neither {PYPROJECT} nor setup.py"
        row.refuse("source", reason, remedy="name the folder that pip would build")
    return folder.resolve()  # its name counts, and `.` has none


def _requirement(row: Table) -> str | None:
    line = row.text("requirement")
    if line is None:
        return None
    try:
        wanted = Requirement(_HASHES.sub("", line))
        pins = [s for s in wanted.specifier if s.operator == "==" and "*" not in s.version]
    except InvalidRequirement:
        pins = []
    if len(pins) != 1:
        remedy = 'such as "flash-attn==2.8.3", with or without --hash=sha256:...'
        row.refuse("requirement", f"{line!r} pins no release", remedy=remedy)
    return line


def _architectures(table: Table) -> tuple[str, ...]:
    written = table.data.get("architectures")
    for number, item in enumerate(written if isinstance(written, list) else ()):
        if type(item) is int:
            reason = "expected a string, got an integer"
            remedy = f'architectures = ["sm_{item}"]'
            table.refuse(f"architectures[{number}]", reason, remedy=remedy)
    names = table.texts("architectures")
    for number, name in enumerate(names):
        _require_architecture(table, f"architectures[{number}]", name)
    return names


def _require_architecture(table: Table, key: str, name: str) -> None:
    if name.strip().lower() == "native":
        reason = "native is the card that is here, which no settings can name for everybody"
        table.refuse(key, reason, remedy="--arch native on the command line, or name the card")
    try:
        targets.resolve(name)
    except UsageError as error:
        table.refuse(key, error.message, remedy=error.remedy.removeprefix("--arch "))


def assurance(table: Table) -> Assurance:
    """Return what `require` names; raises UsageError."""
    word = table.text("require") or Assurance.SCANNED.value
    try:
        return Assurance(word)
    except ValueError:
        known = ", ".join(level.value for level in Assurance)
        table.refuse("require", f"{word!r} is none of {known}", remedy=f"one of {known}")


def _network(table: Table) -> str | None:
    word = table.text("network")
    if word is not None and word not in _NETWORKS:
        known = ", ".join(_NETWORKS)
        table.refuse("network", f"{word!r} is none of {known}", remedy="host reaches a local index")
    return word
