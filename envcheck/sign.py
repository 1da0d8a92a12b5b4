"""Seal a payload in a signed DSSE envelope, and open one only by verifying it.

No other module knows a crypto library, and this one imports it inside functions: that
takes a tenth of a second, which a command that signs nothing should not pay. The ignores
are there because securesystemslib.signer re-exports its classes without saying so.
The format: https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md
"""
# ruff: noqa: PLC0415  # see above

from __future__ import annotations

import base64
import json
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from envcheck.errors import FileUnavailable, SignatureInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from securesystemslib.signer import Key, Signature, Signer  # type: ignore[attr-defined]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
ENVELOPE_CAP = 64 * 1024 * 1024
"""The size in bytes of the largest envelope that is sealed or opened."""

_KEY_CAP = 64 * 1024
# Base64 holds none of the characters that open or part JSON values, so an envelope has few
# of them. Counting them first bounds what the parser makes: 64 MiB of "{}," are 1.6 GB of
# objects.
_VALUES_CAP = 10_000
_KINDS = "a PEM file with an Ed25519, ECDSA P-256 or RSA key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A private key, ready to sign."""

    signer: Signer = field(repr=False)
    keyid: str
    warning: str | None
    """What is wrong with the key's file although the key works, or None."""


def generate_key(private: Path, public: Path, *, passphrase: bytes | None) -> str:
    """Write a new Ed25519 key pair to two new PEM files and return its key id.

    The private key is PKCS8, encrypted if there is a passphrase; the public one is
    SubjectPublicKeyInfo. Either both files are made or neither is.

    Raises UsageError when a file exists or the passphrase cannot be used, and
    FileUnavailable when a file cannot be written.
    """
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

    key = Ed25519PrivateKey.generate()
    encryption: pem.KeySerializationEncryption = pem.NoEncryption()
    try:
        # An empty passphrase is refused as well: whoever gave one meant to encrypt.
        if passphrase is not None:
            encryption = pem.BestAvailableEncryption(passphrase)
        secret = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, encryption)
    except ValueError as error:
        message = "the passphrase is empty or too long"
        raise UsageError(message, remedy="give one of 1 to 1023 bytes, or none") from error
    shared = key.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
    _create(private, secret, mode=0o600)
    try:
        _create(public, shared, mode=0o644)
    except BaseException:
        private.unlink(missing_ok=True)
        raise
    return SSlibKey.from_crypto(key.public_key()).keyid


def load_signer(path: Path, *, passphrase: Callable[[], bytes] | None) -> SigningKey:
    """Load a PEM private key, asking for the passphrase only if the key is encrypted.

    Raises FileUnavailable when the file cannot be read, and UsageError when it holds no
    private key that can sign, or its passphrase is missing or wrong.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

    data, mode = _read(path, half="private")
    secret = None
    if b"ENCRYPTED" in data:  # Both PEM forms of an encrypted key say so in a header.
        if passphrase is None:
            message = f"{path}: the key is encrypted, and no passphrase was given"
            raise UsageError(message, remedy="give the passphrase of the key")
        secret = passphrase()
    try:
        signer = CryptoSigner(load_pem_private_key(data, secret))
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        message, remedy = f"{path}: not a private key that can sign", f"give {_KINDS}"
        if secret is not None:
            message = f"{path}: the passphrase is wrong, or the key cannot sign"
            remedy = "give the passphrase that the key was made with"
        raise UsageError(message, remedy=remedy) from error
    warning = None
    if mode & 0o077:
        warning = f"{path}: open to group or others (mode {mode:04o}); chmod 600 closes it"
    return SigningKey(signer=signer, keyid=signer.public_key.keyid, warning=warning)


def seal(payload: bytes, signer: SigningKey) -> bytes:
    """Sign the payload as it is and return the envelope as JSON.

    Raises UsageError when the envelope is larger than what open_envelope accepts.
    """
    from securesystemslib.dsse import Envelope

    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(signer.signer)
    sealed = json.dumps(envelope.to_dict(), allow_nan=False, indent=1).encode() + b"\n"
    if len(sealed) > ENVELOPE_CAP:
        message = f"the envelope has {len(sealed)} bytes, and {ENVELOPE_CAP} are accepted"
        raise UsageError(message, remedy="seal a smaller payload")
    return sealed


def open_envelope(envelope: bytes, keys: Sequence[Path]) -> bytes:
    """Verify an envelope with public key files and return the payload that was signed.

    One good signature by one of the keys is enough. It says who sealed the payload, not
    that what the payload says is true, or still is: judging that is up to the caller.

    Raises UsageError when there is no key or a key file holds no public key,
    FileUnavailable when a key file cannot be read, and SignatureInvalid for whatever is
    wrong with the envelope.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    # Each step refuses the envelope or goes on, and none looks into the payload:
    #
    # (1) There are keys, and all of them load. Verifying with none is a mistake, not a pass.
    # (2) The envelope is small enough to read: its bytes, then the number of its values.
    # (3) It is a JSON object that every reader reads alike: no name twice, no NaN.
    # (4) payloadType is ours: what a key signed for another purpose is no manifest.
    # (5) The payload is base64, in the one spelling of its bytes.
    # (6) There are signatures, and no two of one key, so that none counts twice.
    # (7) One of them is by one of the keys, over the type and the payload together.
    # (8) The payload that step 7 verified is returned, not a second decoding of it.
    if not keys:  # step 1
        message = "no public key to verify with"
        raise UsageError(message, remedy="give the public key of the signer you trust")
    trusted = [_load_public(path) for path in keys]
    members = _parse(envelope)  # steps 2 and 3
    payload_type = _text(members, "payloadType")  # step 4
    if payload_type != PAYLOAD_TYPE:
        _refuse(f"payloadType is {payload_type[:80]!a}, not {PAYLOAD_TYPE!r}")
    payload = _decode(members, "payload")  # step 5
    signatures = _signatures(members)  # step 6
    opened = Envelope(payload, PAYLOAD_TYPE, signatures)
    try:
        opened.verify(trusted, threshold=1)  # step 7
    except VerificationError:
        known = [key.keyid for key in trusted if key.keyid in signatures]
        if not known:
            _refuse(f"signatures: keyid {next(iter(signatures))[:80]!a} is of no key given")
        _refuse(f"sig of key {known[0]} does not verify: it or the payload was changed")
    return opened.payload  # step 8


def open_unverified(envelope: bytes) -> bytes:
    """Return the payload of an envelope of which nobody has verified anything."""
    return _decode(_parse(envelope), "payload")


def _create(path: Path, data: bytes, *, mode: int) -> None:
    try:
        # O_EXCL neither overwrites a file nor follows a link. The file is private from its
        # first byte whatever the umask; a public key is opened to others afterwards.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except FileExistsError as error:
        message = f"{path}: exists, and a key is never overwritten"
        raise UsageError(message, remedy="choose another name, or move the file away") from error
    except OSError as error:
        message = f"{path}: cannot be written: {error.strerror}"
        raise FileUnavailable(message, remedy="check the directory and its free space") from error


def _read(path: Path, *, half: str) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            # The mode of the file that is read, not of what its name means a moment later.
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(_KEY_CAP)
    except OSError as error:
        message = f"{path}: the {half} key cannot be read: {error.strerror}"
        raise FileUnavailable(message, remedy="check the name and the permissions") from error
    # The public half of a private key could be derived, but a private key has no business
    # where others verify: using it silently would hide that it got there.
    found = "private" if b"PRIVATE KEY-----" in data else "public"
    if found != half and b" KEY-----" in data:
        message = f"{path}: holds a {found} key where the {half} one is needed"
        raise UsageError(message, remedy=f"give the {half} key of the pair")
    return data, mode


def _load_public(path: Path) -> Key:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

    data, _ = _read(path, half="public")
    try:
        return SSlibKey.from_crypto(load_pem_public_key(data))
    except (ValueError, UnsupportedAlgorithm) as error:
        message = f"{path}: not a public key that can verify"
        raise UsageError(message, remedy=f"give {_KINDS}") from error


def _parse(envelope: bytes) -> dict[str, object]:
    if len(envelope) > ENVELOPE_CAP:
        _refuse(f"{len(envelope)} bytes, and {ENVELOPE_CAP} are accepted")
    if sum(map(envelope.count, (b"{", b"[", b","))) > _VALUES_CAP:
        _refuse(f"not a DSSE envelope: more than {_VALUES_CAP} JSON values")
    try:
        document = json.loads(
            envelope.decode(),
            object_pairs_hook=_members,
            parse_constant=lambda name: _refuse(f"not JSON: {name} is no value of it"),
            # No number matters here. Unread, one of a million digits costs nothing.
            parse_int=lambda _: 0,
        )
    except (ValueError, RecursionError) as error:
        _refuse(f"not JSON: {error}")
    if not isinstance(document, dict):
        _refuse("not a DSSE envelope: not a JSON object")
    return document


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            _refuse(f"member {name[:80]!a} is there twice")
        members[name] = value
    return members


def _signatures(members: dict[str, object]) -> dict[str, Signature]:
    from securesystemslib.signer import Signature  # type: ignore[attr-defined]

    entries = members.get("signatures")
    if not isinstance(entries, list) or not entries:
        _refuse("signatures is missing or empty, or not a list")
    signatures: dict[str, Signature] = {}
    for place, entry in enumerate(entries):
        where = f"signatures[{place}]"
        if not isinstance(entry, dict):
            _refuse(f"{where} is not an object")
        keyid = _text(entry, "keyid", f"{where}.")
        if keyid in signatures:
            _refuse(f"{where}.keyid is that of an earlier signature")
        signatures[keyid] = Signature(keyid, _decode(entry, "sig", f"{where}.").hex())
    return signatures


def _text(members: dict[str, object], name: str, where: str = "") -> str:
    text = members.get(name)
    if not isinstance(text, str):
        _refuse(f"{where}{name} is missing or not text: is this a DSSE envelope?")
    return text


def _decode(members: dict[str, object], name: str, where: str = "") -> bytes:
    text = _text(members, name, where)
    alphabet = b"-_" if "-" in text or "_" in text else b"+/"  # DSSE allows either.
    try:
        data = base64.b64decode(text, altchars=alphabet, validate=True)
    except ValueError:
        data = b""
    # Python decodes more than one spelling, for it ignores stray bits before the padding.
    if base64.b64encode(data, altchars=alphabet).decode() != text:
        _refuse(f"{where}{name} is not base64")
    return data


def _refuse(message: str) -> NoReturn:
    remedy = "use only an envelope that verifies with the key of the signer you trust"
    raise SignatureInvalid(message, remedy=remedy)
