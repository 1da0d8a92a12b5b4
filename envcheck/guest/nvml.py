"""NVML by way of `nvidia-ml-py`, asked so that each question costs its own answer alone.

The library of a driver may hang or crash, so this is for a trial's child. A driver's NVML may
be older than the binding, and lack functions: that is a reason like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# What Python raises for an answer that no text or number can be made of.
_MALFORMED = (UnicodeDecodeError, ValueError, TypeError)
_ABSENT = "NVMLError_FunctionNotFound"
"""A function that the driver's NVML, or the binding, does not have."""


def binding() -> Any:
    """Return the module `pynvml`, which envcheck brings along."""
    import pynvml  # noqa: PLC0415 - only in a child, and only where NVML is asked

    return pynvml


def error_name(error: Exception) -> str:
    """Name an error of NVML as its binding does; numbers that it has no name for stay numbers."""
    name = type(error).__name__
    if name == "NVMLLibraryMismatchError":  # the binding's own word for the same
        return _ABSENT
    return f"NVMLError {error.value}" if name == "NVMLError" and hasattr(error, "value") else name


def text(value: Any) -> str:
    """Return a text that the binding may leave as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class Asked:
    """Something that NVML can be asked about, and why some questions have no answer."""

    def __init__(self, *subject: Any) -> None:
        self._subject = subject
        self.unread: dict[str, str] = {}

    @property
    def handle(self) -> Any:
        """What NVML knows it by."""
        return self._subject[0]

    def ask(self, field: str, *functions: str, arguments: tuple[Any, ...] = ()) -> Any:
        """Return what the first function says that can say it; None, and a reason, where none."""
        module, reasons = binding(), []
        for name in functions:
            function = getattr(module, f"nvml{name}", None)
            if function is None:
                reasons.append(_ABSENT)
                continue
            try:
                answer = function(*self._subject, *arguments)
            except (module.NVMLError, module.NVMLLibraryMismatchError, *_MALFORMED) as error:
                reasons.append(error_name(error))
                continue
            self.unread.pop(field, None)
            return answer
        # That one of them is not there says less than what another one said.
        self.unread[field] = next((r for r in reasons if r != _ABSENT), _ABSENT)
        return None

    def number(self, field: str, *functions: str, arguments: tuple[Any, ...] = ()) -> int | None:
        """Return a whole number."""
        answer = self.ask(field, *functions, arguments=arguments)
        return None if answer is None else int(answer)

    def flag(self, field: str, *functions: str) -> bool | None:
        """Return whether something is on; of a pair, what it is now."""
        answer = self.ask(field, *functions)
        first = answer[0] if isinstance(answer, (list, tuple)) else answer
        return None if first is None else bool(first)

    def word(self, field: str, *functions: str) -> str | None:
        """Return a text."""
        answer = self.ask(field, *functions)
        return None if answer is None else text(answer)

    def watts(self, field: str, *functions: str) -> float | None:
        """Return power, which NVML tells in thousandths."""
        answer = self.ask(field, *functions)
        return None if answer is None else round(answer / 1000, 1)


def handles() -> Iterator[tuple[int, Asked | None, str]]:
    """Yield (index, card, why it cannot be opened) of each card that NVML lists."""
    module = binding()
    for index in range(module.nvmlDeviceGetCount()):
        try:
            handle = module.nvmlDeviceGetHandleByIndex(index)
        except module.NVMLError as error:
            yield index, None, error_name(error)
            continue
        yield index, Asked(handle), ""
