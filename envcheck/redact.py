"""Names that tell one machine or card from another, replaced by salted hashes.

What compares equal before compares equal after, within all documents that were given one salt:
two manifests of one fleet still tell whether they are about the same card. What is judged is not
touched: a field that is one word, and a word that packages and their files have for a name, stay.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from envcheck.core.model import Inventory
from envcheck.core.redacted import PREFIX

SALT = "ENVCHECK_REDACT_SALT"
"""The variable that gives several machines one salt."""
_DIGITS = 12
_SHORTEST = 4
"""Characters of a name: what is shorter is a part of anything."""
_HEX = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Of a card or slice also where it is cut short, as CUDA_VISIBLE_DEVICES may have it.
_UUID = re.compile(rf"\b(?:(GPU-|MIG-)([0-9a-f]{{4}}[0-9a-f-]*)|({_HEX}))(?!\w)", re.IGNORECASE)
_MAC = re.compile(r"(?<!\w)(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE)
# Global, unique local and link-local ones (2000::/3, fc00::/7, fe80::/10), of whatever machine.
_SIX = re.compile(
    r"(?<!\w)(?:[23][0-9a-f]{3}|f[cd][0-9a-f]{2}|fe[89ab][0-9a-f])(?::[0-9a-f]{0,4}){2,7}(?![\w:])",
    re.IGNORECASE,
)
# Of other machines only with a port (NCCL writes `10.0.0.5<1234>`) or in a URL: versions look alike.
_FOUR = re.compile(
    r"(?<![\w.])(?:(?<=://)(?:\d{1,3}\.){3}\d{1,3}|(?:\d{1,3}\.){3}\d{1,3}(?=<\d|:\d))(?![\w.])"
)
_T = TypeVar("_T")
_Hide = Callable[[str], str]


def salt(given: str | None) -> bytes:
    """Return the salt that was given, or one that nobody knows."""
    return given.encode() if given else secrets.token_bytes(16)


def inventory(facts: Inventory, key: bytes) -> Inventory:
    """Return an inventory without what names this machine: to be made on the machine itself."""
    hide = partial(_hidden, key)
    machine = facts.machine
    devices = machine.managed.devices if machine is not None and machine.managed else ()
    serials = [d.serial for d in devices if d.serial is not None and len(d.serial) >= _SHORTEST]
    known = _known(facts)
    texts: list[_Hide] = [partial(_UUID.sub, partial(_uuid, hide, _whole_uuids(facts)))]
    texts.append(partial(_MAC.sub, lambda match: hide(match[0].lower())))
    texts += [partial(pattern.sub, partial(_address, hide)) for pattern in (_SIX, _FOUR)]
    texts += [_named(name, hide(name)) for name in (*serials, *_of_kernel())]
    host = socket.gethostname().lower()
    short = host.partition(".")[0]
    words = [_named(short, hide(host), domain=True)]
    if len(short) < _SHORTEST or short == "localhost" or short in known:
        words = []

    def text(said: str, *, one_word: bool) -> str:
        for change in (*texts, *(() if one_word and said.lower() == short else words)):
            said = change(said)
        return said

    return _walked(facts, text, one_word=True)


def _hidden(key: bytes, name: str) -> str:
    return PREFIX + hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:_DIGITS]


def _known(facts: Inventory) -> set[str]:
    """Return the words of which cards, packages and their files are named."""
    environment, machine = facts.environment, facts.machine
    names = [file.path for file in facts.files]
    for distribution in environment.distributions if environment is not None else ():
        names += [distribution.name, *distribution.files]
    if machine is not None and machine.cards.driver is not None:
        names += [card.name for card in machine.cards.driver.cards]
    if machine is not None and machine.managed is not None:
        names += [device.name or "" for device in machine.managed.devices]
    return {word for name in names for word in re.split(r"[/. -]", name.lower())}


def _whole_uuids(facts: Inventory) -> list[str]:
    """Return the UUIDs of the cards that are here, without their kind, in lower case."""
    machine, executed = facts.machine, facts.executed
    told = machine.cards.driver if machine is not None else None
    managed = machine.managed if machine is not None else None
    names = [card.uuid for card in told.cards] if told is not None else []
    names += [device.uuid or "" for device in managed.devices] if managed is not None else []
    names += [executed.card.uuid] if executed is not None and executed.card is not None else []
    return [name.lower().partition("-")[2] for name in names]


def _uuid(hide: _Hide, whole: Iterable[str], match: re.Match[str]) -> str:
    """Hide a UUID and leave what it is of: a slice is judged otherwise than a card."""
    body = (match[2] or match[3]).lower()
    return (match[1] or "") + hide(next((each for each in whole if each.startswith(body)), body))


def _address(hide: _Hide, match: re.Match[str]) -> str:
    try:
        address = ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return match[0] if address.is_loopback or address.is_unspecified else hide(str(address))


def _named(name: str, by: str, *, domain: bool = False) -> _Hide:
    """Return what puts `by` in the place of a name, wherever it stands as a word."""
    more = r"(?:\.[a-z0-9-]+)*" if domain else ""
    pattern = re.compile(rf"(?<![\w.-]){re.escape(name)}{more}(?![\w-])", re.IGNORECASE)
    return partial(pattern.sub, by)


def _walked(value: _T, text: Callable[..., str], *, one_word: bool) -> _T:
    """Return a value with other texts; `one_word` where a text alone may be one of a few words."""
    changed: Any = value
    if isinstance(value, str) and not isinstance(value, Enum):
        changed = text(value, one_word=one_word)
    elif isinstance(value, Mapping):
        changed = {
            text(name, one_word=one_word): _walked(each, text, one_word=False)
            for name, each in value.items()
        }
    elif isinstance(value, (list, tuple)):
        changed = type(value)(_walked(each, text, one_word=one_word) for each in value)
    elif is_dataclass(value) and not isinstance(value, type):
        changed = type(value)(
            **{f.name: _walked(getattr(value, f.name), text, one_word=True) for f in fields(value)}
        )
    return changed  # type: ignore[no-any-return]


def _of_kernel() -> Iterable[str]:
    """Yield this machine's addresses of four numbers, as the kernel lists them."""
    try:
        found = Path("/proc/net/fib_trie").read_text(encoding="ascii")
    except OSError:
        return
    for told in sorted(set(re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", found))):
        if not ipaddress.ip_address(told).is_loopback:
            yield told
