"""Names that tell one machine or card from another, replaced by salted hashes.

What compares equal before compares equal after, within all documents that were given one salt:
two manifests of one fleet still tell whether they are about the same card.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from envcheck.core import codec
from envcheck.core.model import Inventory, Json
from envcheck.core.redacted import PREFIX

SALT = "ENVCHECK_REDACT_SALT"
"""The variable that gives several machines one salt."""
_DIGITS = 12
_UUID = re.compile(
    r"\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE
)


def salt(given: str | None) -> bytes:
    """Return the salt that was given, or one that nobody knows."""
    return given.encode() if given else secrets.token_bytes(16)


def inventory(facts: Inventory, key: bytes) -> Inventory:
    """Return an inventory without what names this machine: to be made on the machine itself."""
    document = codec.to_json(facts)
    serials = set(_under(document, ("serial", "board_id", "hostname")))
    names = sorted({*serials, *_of_host()} - {""}, key=len, reverse=True)
    hidden = partial(_hidden, key)
    whole = re.compile("|".join(rf"(?<![\w.-]){re.escape(n)}(?![\w-])" for n in names) or r"(?!)")

    def text(said: str) -> str:
        said = _UUID.sub(lambda match: hidden(match[0].lower()), said)
        return whole.sub(lambda match: hidden(match[0]), said)

    return codec.from_json(Inventory, _walked(document, text), "inventory")


def _hidden(key: bytes, name: str) -> str:
    return PREFIX + hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:_DIGITS]


def _under(document: Json, names: Iterable[str]) -> Iterable[str]:
    """Yield the texts that stand under any of these names, wherever they are."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name in names and isinstance(value, str) and len(value) > 3:
                yield value
            yield from _under(value, names)
    elif isinstance(document, (list, tuple)):
        for value in document:
            yield from _under(value, names)


def _walked(document: Json, text: Callable[[str], str]) -> Json:
    if isinstance(document, str):
        return text(document)
    if isinstance(document, dict):
        return {text(name): _walked(value, text) for name, value in document.items()}
    if isinstance(document, (list, tuple)):
        return [_walked(value, text) for value in document]
    return document


def _of_host() -> Iterable[str]:
    """Yield the names and addresses of this machine, except those that every machine has."""
    host = socket.gethostname()
    for name in {host, host.partition(".")[0]}:
        if len(name) > 3 and name != "localhost":
            yield name
    for address in _addresses():
        if not (address.is_loopback or address.is_unspecified or address.is_link_local):
            yield str(address)


def _addresses() -> Iterable[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Yield the addresses of all interfaces, as the kernel lists them."""
    for file, pattern, parse in (
        ("/proc/net/fib_trie", r"\|-- (\S+)\n\s+/32 host LOCAL", ipaddress.IPv4Address),
        ("/proc/net/if_inet6", r"^([0-9a-f]{32}) ", _six),
    ):
        try:
            found = Path(file).read_text(encoding="ascii")
        except OSError:
            continue
        for match in re.finditer(pattern, found, re.MULTILINE):
            yield parse(match[1])


def _six(digits: str) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(int(digits, 16))
