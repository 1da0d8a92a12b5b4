"""Which cards a variable selects, by the documented rules of the CUDA driver and the container runtime.

CUDA_VISIBLE_DEVICES (CUDA Programming Guide, "CUDA Environment Variables"): unset shows all
cards, empty none; a list of indices, or of UUIDs that may be cut short (`GPU-8932f937`), or MIG
devices (`MIG-<uuid>`, `MIG-GPU-<uuid>/<gi>/<ci>`). An invalid entry ends the list: only what stands
before it is visible. A card that is named twice makes none visible, indices and UUIDs do not mix,
and of `0;1` the leading number counts: so PyTorch reads it (torch/cuda/__init__.py of 2.14.1,
`_parse_visible_devices`, which follows the driver). NVIDIA_VISIBLE_DEVICES (NVIDIA Container Toolkit, "GPU Enumeration"): a list of
indices or UUIDs, `all`, `none`, `void`; empty is as if it were not set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from envcheck.core.redacted import PREFIX

_INDEX = re.compile(r"[0-9]{1,4}")
_LEADING = re.compile(r"\+?([0-9]{1,9})")
# Where names were replaced by hashes, the form must still be that of a UUID.
_CUT = rf"(?:{PREFIX})?[0-9a-f][0-9a-f-]{{0,35}}"
_GPU = re.compile(rf"GPU-{_CUT}", re.IGNORECASE)
_WHOLE = rf"[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}|{PREFIX}[0-9a-f]+"
_MIG = re.compile(rf"MIG-(?:{_CUT}|GPU-(?:{_WHOLE})/[0-9]+/[0-9]+)", re.IGNORECASE)
_SLICE = re.compile(r"[0-9]+:[0-9]+")
_CDI = re.compile(r"[a-z0-9.]+\.com/[a-z]+=[\w.:-]+", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Selection:
    """What one value selects."""

    shown: tuple[str, ...] | None
    """Entries that select a card, in order; None for all cards."""
    form: str
    """`all`, `none`, `index`, `uuid`, `mig` or `name`."""
    problems: tuple[str, ...] = ()

    @property
    def hides_all(self) -> bool:
        """Whether no card at all is left."""
        return self.shown == ()


def form(entry: str) -> str | None:
    """Return `index`, `uuid` or `mig`, None for what is none of them."""
    if _INDEX.fullmatch(entry):
        return "index"
    if _GPU.fullmatch(entry):
        return "uuid"
    return "mig" if _MIG.fullmatch(entry) else None


def cuda_visible(value: str | None) -> Selection:
    """Read CUDA_VISIBLE_DEVICES as the driver does."""
    if value is None:
        return Selection(None, "all")
    if not value.strip():
        return Selection((), "none", ("it is set and empty, which hides every card",))
    shown: list[str] = []
    problems: list[str] = []
    first: str | None = None
    for entry in (part.strip() for part in value.split(",")):
        kind, number = form(entry), _LEADING.match(entry)
        if kind is None and number is not None:
            kind = "index"
            problems.append(f"{entry!r} is read as the index {int(number[1])}")
            entry = number[1]  # noqa: PLW2901
        if kind is None or (first is not None and kind != first):
            problems.append(_ending(entry, kind, first, len(shown)))
            break
        first = first or kind
        if _same(entry, kind) in {_same(s, kind) for s in shown}:
            return Selection((), first, (f"{entry} is named twice, which hides every card",))
        shown.append(entry)
    if first == "mig" and len(shown) > 1:
        problems.append("a process uses one MIG device: of several only the first is enumerated")
    return Selection(tuple(shown), first or "none", tuple(problems))


def _same(entry: str, kind: str) -> str:
    return str(int(entry)) if kind == "index" else entry.lower()


def _ending(entry: str, kind: str | None, first: str | None, before: int) -> str:
    left = f"only the {before} before it are visible" if before else "no card is visible"
    if kind is not None:
        return f"{entry!r} is of another form ({kind}) than what stands before it ({first}): {left}"
    if re.fullmatch(r"-[0-9]+", entry):
        return f"{entry} ends the list: {left}"
    if entry.lower() in ("all", "none", "void", "nodevfiles"):
        return f"{entry!r} is a word of NVIDIA_VISIBLE_DEVICES, not of this variable: {left}"
    if not entry:
        return f"an empty entry ends the list: {left}"
    return f"{entry!r} is neither an index nor the UUID of a card or MIG device: {left}"


def nvidia_visible(value: str | None) -> Selection:
    """Read NVIDIA_VISIBLE_DEVICES as the container runtime does."""
    word = (value or "").strip()
    if word.lower() == "all":
        return Selection(None, "all")
    if word.lower() in ("", "none", "void"):
        said = f"{word!r} gives the container no card" if word else "empty is as not set"
        return Selection((), "none", (said,) if value is not None else ())
    shown, problems = [], []
    for entry in (part.strip() for part in word.split(",")):
        # `0:1` is a MIG device by index; a CDI name is another runtime mode's.
        known = form(entry) is not None or _SLICE.fullmatch(entry) or _CDI.fullmatch(entry)
        volume = entry.startswith("/var/run/nvidia-container-devices")
        if known or volume:
            shown.append(entry)
        else:
            problems.append(f"{entry!r} is neither an index nor a UUID: the runtime refuses it")
    return Selection(tuple(shown), "name", tuple(problems))
