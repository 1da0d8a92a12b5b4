"""Strict JSON for the frozen values: what is written can be read back, byte for byte.

Reading builds the dataclass from its annotations and names the path of whatever does not
fit (`files[3].containers[0].code`). Numbers that JSON does not know (NaN, Infinity),
duplicate keys and unknown keys are refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from envcheck.errors import DocumentInvalid

T = TypeVar("T")
_MAX_DEPTH = 64
_SURROGATE = re.compile("[\ud800-\udfff]")


def dumps(value: object) -> str:
    """Write a value as indented JSON with a final newline; raises ValueError for NaN.

    The bytes of a file name that are no UTF-8 are surrogates in Python; escaped, they survive.
    """
    text = json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def to_json(value: object) -> Any:
    """Turn dataclasses, enums, tuples and mappings into plain JSON values."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def parse(text: str | bytes, *, name: str) -> Any:
    """Read JSON strictly; raises DocumentInvalid that names the document."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        message = f"{name}: not valid JSON: {error or 'nested too deeply'}"
        raise DocumentInvalid(message) from None


def loads(kind: type[T], text: str | bytes, *, name: str) -> T:
    """Read one value of `kind` from JSON; raises DocumentInvalid that names path and reason."""
    return from_json(kind, parse(text, name=name), name)


def from_json(kind: type[T], data: object, path: str) -> T:
    """Build a `kind` from plain JSON values; raises DocumentInvalid that names the path."""
    built: T = _build(kind, data, path, 0)
    return built


def _refuse_constant(word: str) -> None:
    message = f"{word} is not a JSON number"
    raise ValueError(message)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        message = f"{text[:20]} is too large a number"
        raise ValueError(message)
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        message = f"a key occurs twice among {[key for key, _ in pairs][:5]}"
        raise ValueError(message)
    return result


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@cache
def _needed(kind: type) -> tuple[str, ...]:
    """Return the fields of a dataclass that a document must have.

    Those with a default came later: documents from before them stay readable.
    """
    return tuple(
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    )


@cache
def _form(kind: Any) -> tuple[str, Any]:
    """Return what an annotation is, and of what: asked once, for a document has many values."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is object:
        return "free", None
    if origin in (types.UnionType, typing.Union):
        # `X | None`, the only union that the values use.
        (option,) = (each for each in arguments if each is not type(None))
        return "optional", option
    if origin is tuple:
        return "tuple", arguments[0]
    if origin is not None and issubclass(origin, Mapping):
        return "mapping", arguments[1]
    return "dataclass" if dataclasses.is_dataclass(kind) else "scalar", None


def _expected(path: str, what: str, data: object) -> DocumentInvalid:
    return DocumentInvalid(f"{path}: expected {what}, got {type(data).__name__}")


def _build(kind: Any, data: Any, path: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        message = f"{path}: nested too deeply"
        raise DocumentInvalid(message)
    form, item = _form(kind)
    if form == "optional":
        return None if data is None else _build(item, data, path, depth)
    if form == "scalar":
        return _build_scalar(kind, data, path)
    if form == "dataclass":
        return _build_dataclass(kind, data, path, depth)
    if form == "free":
        return _free(data, path, depth)
    if form == "tuple":
        if not isinstance(data, list):
            raise _expected(path, "a list", data)
        return tuple(_build(item, part, f"{path}[{i}]", depth + 1) for i, part in enumerate(data))
    if not isinstance(data, dict):
        raise _expected(path, "an object", data)
    return {k: _build(item, part, f"{path}.{k}", depth + 1) for k, part in data.items()}


def _free(data: Any, path: str, depth: int) -> Any:
    """Keep any JSON value, with lists as tuples."""
    if isinstance(data, list):
        return tuple(_build(object, part, f"{path}[{i}]", depth + 1) for i, part in enumerate(data))
    if isinstance(data, dict):
        return {k: _build(object, part, f"{path}.{k}", depth + 1) for k, part in data.items()}
    return data


def _build_scalar(kind: Any, data: Any, path: str) -> Any:
    if type(data) is kind:
        return data
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(data)
        except ValueError:
            known = ", ".join(str(member.value) for member in kind)
            message = f"{path}: {data!r} is none of {known}"
            raise DocumentInvalid(message) from None
    raise _expected(path, getattr(kind, "__name__", str(kind)), data)


def _build_dataclass(kind: Any, data: Any, path: str, depth: int) -> Any:
    if not isinstance(data, dict):
        raise _expected(path, "an object", data)
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        message = f"{path}.{unknown[0]}: no such field"
        raise DocumentInvalid(message)
    missing = [name for name in _needed(kind) if name not in data]
    if missing:
        message = f"{path}.{missing[0]}: missing"
        raise DocumentInvalid(message)
    return kind(**{n: _build(hints[n], v, f"{path}.{n}", depth + 1) for n, v in data.items()})
