"""The kernels that ship with envcheck, and those of a user: folders with a `kernel.toml`."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envcheck.core import codec
from envcheck.core.kernels import DTYPES, FORMATS, KINDS, Config, Dtype, Kernel
from envcheck.core.sm import Sm
from envcheck.errors import DocumentInvalid, FileUnavailable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GIVEN = frozenset({"name", "digest"})  # by the folder, not by the file
_MAX_WARPS, _MAX_STAGES = 32, 16
_JUNK = frozenset({"__pycache__", ".DS_Store"})


def shipped() -> Path:
    """Return where the shipped kernels lie: in the installed package, or in the checkout."""
    here = Path(__file__).parent
    packaged = here / "kernels"
    return packaged if packaged.is_dir() else here.parent / "kernels"


def load_all(folders: Iterable[Path]) -> tuple[Kernel, ...]:
    """Read every kernel folder right below these; raises what `load` raises, also for twins."""
    found: dict[str, Kernel] = {}
    for folder in folders:
        for file in _kernel_files(folder):
            kernel = load(file.parent)
            if kernel.name in found:
                message = f"{file}: there are two kernels named {kernel.name}"
                raise DocumentInvalid(message)
            found[kernel.name] = kernel
    return tuple(found.values())


def _kernel_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*/kernel.toml")) if folder.is_dir() else []
    if not files:
        message = f"{folder}: holds no kernel (a folder with a kernel.toml)"
        raise FileUnavailable(message, remedy="name the folder above the kernels' own")
    return files


def load(folder: Path) -> Kernel:
    """Read one kernel's folder; raises DocumentInvalid that names file, key and reason."""
    file = folder / "kernel.toml"
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{file}: {error.strerror}"
        raise FileUnavailable(message) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{file}: not valid TOML: {error}"
        raise DocumentInvalid(message) from None
    try:
        kernel = _build(data, folder)
        for path, reason in _mistakes(kernel, folder):
            message = f"{path}: {reason}"
            raise DocumentInvalid(message)  # noqa: TRY301 - all get the file's name below
    except DocumentInvalid as error:
        message = f"{file}: {error.message}"
        raise DocumentInvalid(message) from None
    return kernel


def stage(folders: Iterable[Path], target: Path) -> None:
    """Copy the folders of all kernels below these into one, which a guest can be given.

    With their times, by which a second build sees that nothing has changed, and readable for
    whatever user the guest is.
    """
    for folder in folders:
        for described in _kernel_files(folder):
            source = described.parent
            for file, name in _files(source):
                copy = target / source.resolve().name / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, copy)
                copy.chmod(0o644)
    for inner in (target, *target.rglob("*")):
        if inner.is_dir():
            inner.chmod(0o755)


def to_json(kernels: Iterable[Kernel]) -> list[Any]:
    """Return what a request carries to the guest, which may not know TOML."""
    return [codec.to_json(kernel) for kernel in kernels]


def _build(data: Mapping[str, Any], folder: Path) -> Kernel:
    if taken := sorted(_GIVEN & set(data)):
        message = f"{taken[0]}: no such field"
        raise DocumentInvalid(message)
    whole = {**data, "name": folder.resolve().name, "digest": _digest(folder)}
    try:
        return codec.from_json(Kernel, whole, "kernel")
    except DocumentInvalid as error:
        message = error.message.removeprefix("kernel").lstrip(".")
        raise DocumentInvalid(message) from None


def _mistakes(kernel: Kernel, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield key and reason of whatever has the right type and a wrong value."""
    if not _NAME.fullmatch(kernel.name):
        yield "folder", f"{kernel.name!r} is no name (lower case letters, digits and _)"
    if kernel.kind not in KINDS:
        yield "kind", f"{kernel.kind!r} is none of {', '.join(KINDS)}"
    if not kernel.purpose.strip():
        yield "purpose", "empty"
    if not kernel.dtypes:
        yield "dtypes", "empty"
    for name, dtype in kernel.dtypes.items():
        yield from _mistakes_of_dtype(f"dtypes.{name}", name, dtype)
    if kernel.kind == "triton" and not kernel.configs:
        yield "configs", "empty"
    if kernel.kind == "cuda" and kernel.configs:
        yield "configs", "only a Triton kernel has them"
    yield from _mistakes_of_sources(kernel, folder)
    yield from _mistakes_of_configs(kernel)
    yield from _mistakes_of_shapes(kernel)


def _mistakes_of_sources(kernel: Kernel, folder: Path) -> Iterator[tuple[str, str]]:
    if (kernel.kind == "cuda") != bool(kernel.sources):
        yield "sources", "a CUDA kernel needs them, a Triton kernel has none"
    for name in ("kernel.py", *kernel.sources):
        if "/" in name or not (folder / name).is_file():
            yield "sources", f"{name}: no such file in the folder"


def _mistakes_of_shapes(kernel: Kernel) -> Iterator[tuple[str, str]]:
    if not kernel.shapes:
        yield "shapes", "empty"
    for number, shape in enumerate(kernel.shapes):
        if shape.keys() != kernel.shapes[0].keys() or not shape:
            yield f"shapes[{number}]", "each shape needs the same dimensions"
        for name, size in shape.items():
            if size < 0:
                yield f"shapes[{number}].{name}", f"{size} is no size"


def _mistakes_of_dtype(path: str, name: str, dtype: Dtype) -> Iterator[tuple[str, str]]:
    if name not in DTYPES:
        yield path, f"{name!r} is none of {', '.join(DTYPES)}"
    try:
        plain = not Sm.parse(dtype.min_sm).suffix
    except ValueError:
        plain = False
    if not plain:
        yield f"{path}.min_sm", f"{dtype.min_sm!r} has not the form sm_80"
    for key in ("accumulate", "operand"):
        value = getattr(dtype.tolerance, key)
        if value not in FORMATS:
            yield f"{path}.tolerance.{key}", f"{value!r} is none of {', '.join(FORMATS)}"
    if not dtype.tolerance.source.strip():
        yield f"{path}.tolerance.source", "empty"


def _mistakes_of_configs(kernel: Kernel) -> Iterator[tuple[str, str]]:
    seen: set[tuple[str, str]] = set()
    for number, config in enumerate(kernel.configs):
        path = f"configs[{number}]"
        yield from ((f"{path}.{key}", reason) for key, reason in _mistakes_of_config(config))
        for name in kernel.problem:
            if name not in config.constants:
                yield f"{path}.constants", f"lacks {name}, which `problem` names"
        for name in config.dtypes:
            if name not in kernel.dtypes:
                yield f"{path}.dtypes", f"{name!r} is none of {', '.join(kernel.dtypes)}"
        twins = {(dtype, config.label) for dtype in config.dtypes or kernel.dtypes}
        if twins & seen:
            yield path, "the same as one before it"
        seen |= twins
    for name in kernel.dtypes if kernel.configs else ():
        if name not in {dtype for dtype, _ in kernel.pairs()}:
            yield f"dtypes.{name}", "no configuration is for it"


def _mistakes_of_config(config: Config) -> Iterator[tuple[str, str]]:
    if config.num_warps < 1 or config.num_warps > _MAX_WARPS or config.num_warps.bit_count() > 1:
        yield "num_warps", f"{config.num_warps} is no power of two up to {_MAX_WARPS}"
    if not 1 <= config.num_stages <= _MAX_STAGES:
        yield "num_stages", f"{config.num_stages} is not between 1 and {_MAX_STAGES}"
    for name in config.constants:
        if not _IDENTIFIER.fullmatch(name) or name in ("num_warps", "num_stages"):
            yield f"constants.{name}", "no name of a kernel's argument"


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file, name in _files(folder):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{content} {name}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files that make up a kernel, each with its name below the folder."""
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        if file.is_file() and not _JUNK & set(parts):
            yield file, "/".join(parts)
