"""Signing and verifying, held against openssl, which shares no code with the library used."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envcheck import sign
from envcheck.errors import EnvcheckError, FileUnavailable, SignatureInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not ASCII, not canonical JSON and not even UTF-8 at the end: sealing must not touch it.
PAYLOAD = '{ "b": 1,\r\n"a": "schnörkel" }\n'.encode() + b"\x00\xff"


def openssl(*arguments: str | Path) -> bytes:
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True).stdout


def pae(payload_type: bytes, body: bytes) -> bytes:
    """Build what is signed, by the formula in the DSSE specification."""
    return b" ".join([b"DSSEv1", b"%d" % len(payload_type), payload_type, b"%d" % len(body), body])


def test_pae_of_the_specification() -> None:
    signed = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae(b"http://example.com/HelloWorld", b"hello world") == signed


def ed25519_keyid(public: Path) -> str:
    """Derive the key id anew: SHA-256 of the canonical JSON of the raw key."""
    raw = openssl("pkey", "-pubin", "-in", public, "-outform", "DER")[-32:].hex()
    text = '{"keytype":"ed25519","keyval":{"public":"' + raw + '"},"scheme":"ed25519"}'
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Pair:
    private: Path
    public: Path
    keyid: str

    def seal(self, payload: bytes = PAYLOAD) -> bytes:
        return sign.seal(payload, sign.load_signer(self.private, passphrase=None))


def new_pair(directory: Path, name: str) -> Pair:
    private, public = directory / f"{name}.key", directory / f"{name}.pub"
    keyid = sign.generate_key(private, public, passphrase=None)
    return Pair(private=private, public=public, keyid=keyid)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return new_pair(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return new_pair(tmp_path_factory.mktemp("keys"), "stranger")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def one_line(error: EnvcheckError) -> str:
    """Return the message, which must be fit for one line of a terminal, with a remedy."""
    assert error.message.isprintable()
    assert len(error.message) < 400
    assert error.remedy
    return error.message


# Making keys


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_key_file_modes_do_not_depend_on_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        made = new_pair(tmp_path, "new")
    assert mode_of(made.private) == 0o600
    assert mode_of(made.public) == 0o644


def test_private_key_is_private_while_still_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: dict[str, int] = {}
    real_open = os.open

    def open_and_look(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = real_open(path, flags, mode)
        status = os.fstat(descriptor)
        assert status.st_size == 0
        modes[path.name] = stat.S_IMODE(status.st_mode)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_look)
    with umask(0):
        new_pair(tmp_path, "new")
    assert modes["new.key"] == 0o600


def test_key_files_are_what_openssl_reads(pair: Pair) -> None:
    assert b"ED25519" in openssl("pkey", "-in", pair.private, "-noout", "-text")
    assert openssl("pkey", "-in", pair.private, "-pubout") == pair.public.read_bytes()
    assert pair.private.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert pair.keyid == ed25519_keyid(pair.public)


def test_two_keys_differ(pair: Pair, stranger: Pair) -> None:
    assert pair.keyid != stranger.keyid
    assert pair.private.read_bytes() != stranger.private.read_bytes()


@pytest.mark.parametrize("taken", ["private", "public"])
def test_generate_never_overwrites(tmp_path: Path, taken: str) -> None:
    files = {"private": tmp_path / "private", "public": tmp_path / "public"}
    files[taken].write_bytes(b"precious")
    with pytest.raises(UsageError) as caught:
        sign.generate_key(files["private"], files["public"], passphrase=None)
    assert str(files[taken]) in one_line(caught.value)
    assert files[taken].read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [files[taken]]


def test_generate_does_not_write_through_a_link(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    with pytest.raises(UsageError):
        sign.generate_key(link, tmp_path / "public", passphrase=None)
    assert not target.exists()


def test_generate_to_one_file_for_both_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        sign.generate_key(tmp_path / "key", tmp_path / "key", passphrase=None)
    assert not list(tmp_path.iterdir())


def test_public_key_without_directory_removes_the_private_one(tmp_path: Path) -> None:
    public = tmp_path / "missing" / "public"
    with pytest.raises(FileUnavailable) as caught:
        sign.generate_key(tmp_path / "private", public, passphrase=None)
    assert str(public) in one_line(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("failing", ["private", "public"])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "disk full"), KeyboardInterrupt()])
def test_failed_write_leaves_neither_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, failure: BaseException
) -> None:
    real_fchmod = os.fchmod

    def fail(descriptor: int, mode: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == failing:
            raise failure
        real_fchmod(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", fail)
    expected = FileUnavailable if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        sign.generate_key(tmp_path / "private", tmp_path / "public", passphrase=None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("passphrase", [b"", b"x" * 1024], ids=["empty", "too-long"])
def test_unusable_passphrase_writes_nothing(tmp_path: Path, passphrase: bytes) -> None:
    with pytest.raises(UsageError, match="passphrase") as caught:
        sign.generate_key(tmp_path / "private", tmp_path / "public", passphrase=passphrase)
    one_line(caught.value)
    assert not list(tmp_path.iterdir())


# Loading a signer


def never_asked() -> bytes:
    pytest.fail("asked for the passphrase of a key that has none")


def test_encrypted_key_round_trip(tmp_path: Path) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    keyid = sign.generate_key(private, public, passphrase=b"open sesame")
    assert private.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    signer = sign.load_signer(private, passphrase=lambda: b"open sesame")
    assert signer.keyid == keyid
    assert sign.open_envelope(sign.seal(PAYLOAD, signer), [public]) == PAYLOAD
    plain = openssl("pkey", "-in", private, "-passin", "pass:open sesame", "-pubout")
    assert plain == public.read_bytes()


def test_plain_key_asks_for_no_passphrase(pair: Pair) -> None:
    assert sign.load_signer(pair.private, passphrase=never_asked).keyid == pair.keyid


def test_key_encrypted_in_the_older_pem_form(tmp_path: Path) -> None:
    path = tmp_path / "old.pem"
    openssl("genrsa", "-traditional", "-aes128", "-passout", "pass:old", "-out", path, "2048")
    assert b"Proc-Type: 4,ENCRYPTED" in path.read_bytes()
    assert sign.load_signer(path, passphrase=lambda: b"old").keyid


@pytest.mark.parametrize("passphrase", [b"wrong", b""])
def test_wrong_passphrase(tmp_path: Path, passphrase: bytes) -> None:
    private = tmp_path / "private"
    sign.generate_key(private, tmp_path / "public", passphrase=b"right")
    with pytest.raises(UsageError, match="passphrase is wrong") as caught:
        sign.load_signer(private, passphrase=lambda: passphrase)
    assert str(private) in one_line(caught.value)


def test_encrypted_key_and_nobody_to_ask(tmp_path: Path) -> None:
    private = tmp_path / "private"
    sign.generate_key(private, tmp_path / "public", passphrase=b"right")
    with pytest.raises(UsageError, match="encrypted") as caught:
        sign.load_signer(private, passphrase=None)
    assert str(private) in one_line(caught.value)


def test_public_key_given_to_sign_with(pair: Pair) -> None:
    with pytest.raises(UsageError, match="holds a public key") as caught:
        sign.load_signer(pair.public, passphrase=never_asked)
    assert str(pair.public) in one_line(caught.value)


UNFIT_KEYS: dict[str, bytes] = {
    "empty": b"",
    "text": b"not a key\n",
    "der": bytes.fromhex("302e020100300506032b657004220420") + bytes(32),
    "larger-than-a-key": b"-----BEGIN " * 100_000,
    "pem-of-garbage": b"-----BEGIN {} KEY-----\nAAAA\n-----END {} KEY-----\n",
    "pem-cut-short": b"-----BEGIN {} KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n",
}


@pytest.mark.parametrize("content", UNFIT_KEYS.values(), ids=UNFIT_KEYS)
def test_unfit_key_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content.replace(b"{}", b"PRIVATE"))
    with pytest.raises(UsageError, match="not a private key") as caught:
        sign.load_signer(path, passphrase=never_asked)
    assert str(path) in one_line(caught.value)
    path.write_bytes(content.replace(b"{}", b"PUBLIC"))
    with pytest.raises(UsageError, match="not a public key") as caught:
        sign.open_envelope(b"", [path])
    assert str(path) in one_line(caught.value)


def test_key_is_looked_for_only_at_the_start_of_a_file(tmp_path: Path, pair: Pair) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"#\n" * 1000 + pair.private.read_bytes())
    assert sign.load_signer(path, passphrase=never_asked).keyid == pair.keyid
    path.write_bytes(b"#\n" * 100_000 + pair.private.read_bytes())
    with pytest.raises(UsageError, match="not a private key"):
        sign.load_signer(path, passphrase=never_asked)


@pytest.mark.parametrize(
    "kind",
    [
        ("X25519",),
        ("ED448",),
        ("EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"),
        ("EC", "-pkeyopt", "ec_paramgen_curve:SM2"),
    ],
    ids=lambda kind: kind[-1].rpartition(":")[2],
)
def test_key_of_a_kind_that_is_not_supported(tmp_path: Path, kind: tuple[str, ...]) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    openssl("genpkey", "-algorithm", *kind, "-out", private)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    with pytest.raises(UsageError, match="not a private key that can sign"):
        sign.load_signer(private, passphrase=None)
    with pytest.raises(UsageError, match="not a public key that can verify"):
        sign.open_envelope(b"", [public])


@pytest.mark.parametrize("make", [lambda _: None, Path.mkdir], ids=["missing", "directory"])
def test_key_file_that_cannot_be_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "key"
    make(path)
    with pytest.raises(FileUnavailable) as caught:
        sign.load_signer(path, passphrase=None)
    assert str(path) in one_line(caught.value)
    with pytest.raises(FileUnavailable) as caught:
        sign.open_envelope(b"", [path])
    assert str(path) in one_line(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644], ids=oct)
def test_key_file_open_to_others_is_a_warning(tmp_path: Path, mode: int) -> None:
    made = new_pair(tmp_path, "new")
    made.private.chmod(mode)
    warning = sign.load_signer(made.private, passphrase=None).warning
    assert warning is not None
    assert f"{mode:04o}" in warning
    assert str(made.private) in warning


@pytest.mark.parametrize("mode", [0o600, 0o400], ids=oct)
def test_key_file_of_its_owner_alone_is_no_warning(tmp_path: Path, mode: int) -> None:
    made = new_pair(tmp_path, "new")
    made.private.chmod(mode)
    assert sign.load_signer(made.private, passphrase=None).warning is None


def test_signing_key_does_not_show_its_secret(pair: Pair) -> None:
    shown = repr(sign.load_signer(pair.private, passphrase=None))
    assert pair.keyid in shown
    assert "signer" not in shown


# Sealing, held against openssl

ALGORITHMS = {
    "ed25519": (["ED25519"], ["-rawin"]),
    "ecdsa-p256": (
        ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        ["-rawin", "-digest", "sha256"],
    ),
    "rsa": (
        ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
        ["-rawin", "-digest", "sha256", "-pkeyopt", "rsa_padding_mode:pss"],
    ),
}


def test_seal_writes_a_dsse_envelope(pair: Pair) -> None:
    envelope = json.loads(pair.seal())
    assert envelope.keys() == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == "application/vnd.in-toto+json" == sign.PAYLOAD_TYPE
    assert base64.b64decode(envelope["payload"], validate=True) == PAYLOAD
    [signature] = envelope["signatures"]
    assert signature.keys() == {"keyid", "sig"}
    assert signature["keyid"] == ed25519_keyid(pair.public)


@pytest.mark.parametrize("payload", [PAYLOAD, b""], ids=["bytes", "empty"])
@pytest.mark.parametrize(("kind", "options"), ALGORITHMS.values(), ids=ALGORITHMS)
def test_openssl_verifies_what_seal_signed(
    tmp_path: Path, kind: list[str], options: list[str], payload: bytes
) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    openssl("genpkey", "-algorithm", *kind, "-out", private)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    envelope = sign.seal(payload, sign.load_signer(private, passphrase=None))
    [signature] = json.loads(envelope)["signatures"]
    (tmp_path / "sig").write_bytes(base64.b64decode(signature["sig"]))
    (tmp_path / "pae").write_bytes(pae(b"application/vnd.in-toto+json", payload))
    verify: list[str | Path] = ["pkeyutl", "-verify", "-pubin", "-inkey", public, *options]
    verify += ["-sigfile", tmp_path / "sig", "-in", tmp_path / "pae"]
    assert b"Verified Successfully" in openssl(*verify)
    assert sign.open_envelope(envelope, [public]) == payload
    # The same command must be able to say no.
    (tmp_path / "pae").write_bytes(pae(b"application/vnd.in-toto+json", payload + b" "))
    with pytest.raises(subprocess.CalledProcessError):
        openssl(*verify)


def test_open_accepts_what_openssl_signed(tmp_path: Path) -> None:
    private, public, signed = (tmp_path / name for name in ("private", "public", "pae"))
    openssl("genpkey", "-algorithm", "ED25519", "-out", private)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    signed.write_bytes(pae(b"application/vnd.in-toto+json", PAYLOAD))
    sig = openssl("pkeyutl", "-sign", "-inkey", private, "-rawin", "-in", signed)
    envelope = {
        "payloadType": "application/vnd.in-toto+json",
        "payload": base64.b64encode(PAYLOAD).decode(),
        "signatures": [{"keyid": ed25519_keyid(public), "sig": base64.b64encode(sig).decode()}],
    }
    assert sign.open_envelope(json.dumps(envelope).encode(), [public]) == PAYLOAD
    envelope["payload"] = base64.b64encode(PAYLOAD + b"!").decode()
    with pytest.raises(SignatureInvalid, match="does not verify"):
        sign.open_envelope(json.dumps(envelope).encode(), [public])


def test_seal_refuses_what_could_not_be_opened(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign, "ENVELOPE_CAP", 1000)
    with pytest.raises(UsageError, match="1000") as caught:
        pair.seal(b"x" * 1000)
    one_line(caught.value)
    assert sign.open_envelope(pair.seal(b"x" * 100), [pair.public]) == b"x" * 100


# Envelopes that open


def test_largest_envelope_opens(pair: Pair) -> None:
    payload = bytes(47 * 1024 * 1024)
    envelope = pair.seal(payload)
    assert 62 * 1024 * 1024 < len(envelope) <= sign.ENVELOPE_CAP == 64 * 1024 * 1024
    assert sign.open_envelope(envelope, [pair.public]) == payload


def test_one_of_several_keys_is_enough(pair: Pair, stranger: Pair) -> None:
    keys = [stranger.public, pair.public, pair.public]
    assert sign.open_envelope(pair.seal(), keys) == PAYLOAD


def test_one_of_several_signatures_is_enough(pair: Pair, stranger: Pair) -> None:
    envelope = json.loads(stranger.seal())
    envelope["signatures"] += json.loads(pair.seal())["signatures"]
    text = json.dumps(envelope).encode()
    assert sign.open_envelope(text, [pair.public]) == PAYLOAD
    assert sign.open_envelope(text, [stranger.public]) == PAYLOAD


def test_url_safe_base64_is_accepted(pair: Pair) -> None:
    envelope = json.loads(pair.seal(b"\xfb\xff\xfe"))
    assert envelope["payload"] == "+//+"
    envelope["payload"] = "-__-"
    assert sign.open_envelope(json.dumps(envelope).encode(), [pair.public]) == b"\xfb\xff\xfe"


def test_members_of_later_versions_are_ignored(pair: Pair) -> None:
    envelope = json.loads(pair.seal())
    envelope["later"] = {"number": 1.5}
    envelope["signatures"][0]["cert"] = "später"
    text = json.dumps(envelope, ensure_ascii=False).encode()
    assert sign.open_envelope(text, [pair.public]) == PAYLOAD


# Envelopes that are refused. Each case is named for its defect, with what the user is told.

Change = Callable[[dict[str, Any]], object]


def _set(name: str, value: object) -> Change:
    return lambda envelope: envelope.update({name: value})


def _set_signature(name: str, value: object) -> Change:
    return lambda envelope: envelope["signatures"][0].update({name: value})


def _repeat_signature(envelope: dict[str, Any]) -> None:
    envelope["signatures"] *= 2


def _repeat_key_with_other_signature(envelope: dict[str, Any]) -> None:
    keyid = envelope["signatures"][0]["keyid"]
    envelope["signatures"].append({"keyid": keyid, "sig": "AAAA"})


def _nest(envelope: dict[str, Any]) -> None:
    inner = dict(envelope)
    envelope.clear()
    envelope["dsseEnvelope"] = inner


CHANGED_MEMBERS: dict[str, tuple[Change, str]] = {
    "no-payload": (lambda e: e.pop("payload"), "payload is missing"),
    "no-payload-type": (lambda e: e.pop("payloadType"), "payloadType is missing"),
    "no-signatures": (lambda e: e.pop("signatures"), "signatures is missing or empty"),
    "no-keyid": (lambda e: e["signatures"][0].pop("keyid"), r"signatures\[0\].keyid is missing"),
    "no-sig": (lambda e: e["signatures"][0].pop("sig"), r"signatures\[0\].sig is missing"),
    "empty-signatures": (_set("signatures", []), "signatures is missing or empty"),
    "signatures-not-a-list": (_set("signatures", {"keyid": "a"}), "signatures is .* not a list"),
    "signature-not-an-object": (_set("signatures", ["x"]), r"signatures\[0\] is not an object"),
    "payload-not-text": (_set("payload", 7), "payload is .* not text"),
    "payload-null": (_set("payload", None), "payload is .* not text"),
    "payload-an-object": (_set("payload", {"a": 1}), "payload is .* not text"),
    "payload-type-not-text": (_set("payloadType", [sign.PAYLOAD_TYPE]), "payloadType .* not text"),
    "keyid-not-text": (_set_signature("keyid", ["a"]), r"signatures\[0\].keyid is .* not text"),
    "sig-not-text": (_set_signature("sig", 1), r"signatures\[0\].sig is .* not text"),
    "other-payload-type": (_set("payloadType", "application/json"), "payloadType is 'applic"),
    "payload-type-of-other-case": (
        _set("payloadType", "application/vnd.in-toto+JSON"),
        "payloadType is",
    ),
    "payload-type-with-escapes": (_set("payloadType", "\x1b[2J\n"), r"payloadType is '\\x1b"),
    "payload-type-without-end": (_set("payloadType", "a" * 10_000), "payloadType is 'aaa"),
    "empty-payload-swapped-in": (_set("payload", ""), "does not verify"),
    "other-payload": (_set("payload", "AAAA"), "does not verify"),
    "payload-bad-base64": (_set("payload", "AAA!"), "payload is not base64"),
    "payload-no-padding": (_set("payload", "AA"), "payload is not base64"),
    "payload-stray-bits": (_set("payload", "AB=="), "payload is not base64"),
    "payload-with-newline": (_set("payload", "AAAA\n"), "payload is not base64"),
    "payload-both-alphabets": (_set("payload", "+/-_"), "payload is not base64"),
    "payload-not-ascii": (_set("payload", "ÄÄÄÄ"), "payload is not base64"),
    "payload-lone-surrogate": (_set("payload", "\ud800"), "payload is not base64"),
    "payload-all-padding": (_set("payload", "===="), "payload is not base64"),
    "sig-bad-base64": (_set_signature("sig", "?"), r"signatures\[0\].sig is not base64"),
    "sig-empty": (_set_signature("sig", ""), "does not verify"),
    "sig-too-short": (_set_signature("sig", "AAAA"), "does not verify"),
    "sig-too-long": (_set_signature("sig", "AAAA" * 1000), "does not verify"),
    "sig-of-zeros": (_set_signature("sig", base64.b64encode(bytes(64)).decode()), "not verify"),
    "keyid-empty": (_set_signature("keyid", ""), "keyid '' is of no key given"),
    "keyid-unknown": (_set_signature("keyid", "0" * 64), "keyid '000.* is of no key given"),
    "keyid-with-escapes": (_set_signature("keyid", "\x1b[31m"), r"keyid '\\x1b.* is of no key"),
    "keyid-without-end": (_set_signature("keyid", "a" * 10_000), "keyid 'aaa.* is of no key"),
    "same-signature-twice": (_repeat_signature, r"signatures\[1\].keyid is that of an earlier"),
    "two-signatures-of-one-key": (_repeat_key_with_other_signature, r"signatures\[1\].keyid"),
    "envelope-inside-a-bundle": (_nest, "payloadType is missing"),
}


@pytest.mark.parametrize(("change", "told"), CHANGED_MEMBERS.values(), ids=CHANGED_MEMBERS)
def test_changed_member_is_refused(pair: Pair, change: Change, told: str) -> None:
    envelope = json.loads(pair.seal())
    change(envelope)
    with pytest.raises(SignatureInvalid, match=told) as caught:
        sign.open_envelope(json.dumps(envelope).encode(), [pair.public])
    one_line(caught.value)


OTHER_TEXTS: dict[str, tuple[bytes, str]] = {
    "empty-file": (b"", "not JSON"),
    "not-json": (b"hello", "not JSON"),
    "cut-short": (b'{"payload": "', "not JSON"),
    "two-documents": (b"{}{}", "not JSON"),
    "byte-order-mark": (b"\xef\xbb\xbf{}", "not JSON"),
    "not-utf-8": (b'{"payload": "\xff"}', "not JSON"),
    "utf-16": ('{"payload": ""}'.encode("utf-16"), "not JSON"),
    "nan": (b'{"payload": NaN}', "NaN"),
    "infinity": (b'{"payload": -Infinity}', "-Infinity"),
    "member-twice": (b'{"payload": "AAAA", "payload": "AAAB"}', "'payload' is there twice"),
    "inner-member-twice": (b'{"later": [{"a": 1, "a": 1}]}', "'a' is there twice"),
    "nested-too-deep": (b"[" * 9_999, "not JSON"),
    "null": (b"null", "not a JSON object"),
    "list": (b"[]", "not a JSON object"),
    "string": (b'"payload"', "not a JSON object"),
    "empty-object": (b"{}", "payloadType is missing"),
    "unsigned-statement": (
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": []}',
        "payloadType is missing",
    ),
    "elf-file": (b"\x7fELF\x02\x01\x01" + bytes(57), "not JSON"),
    # Costs seconds where numbers are computed, and an error of its own in newer Pythons.
    "number-of-a-million-digits": (b'{"n": ' + b"9" * 1_000_000 + b"}", "payloadType is missing"),
    "too-many-values": (b"[" + b"{}," * 10_000 + b"{}]", "10000 JSON values"),
    "oversize": (b" " * (64 * 1024 * 1024 + 1), "67108865 bytes"),
}


@pytest.mark.parametrize(("text", "told"), OTHER_TEXTS.values(), ids=OTHER_TEXTS)
def test_other_text_is_refused(pair: Pair, text: bytes, told: str) -> None:
    with pytest.raises(SignatureInvalid, match=told) as caught:
        sign.open_envelope(text, [pair.public])
    one_line(caught.value)


def test_oversize_is_refused_though_the_signature_is_good(pair: Pair) -> None:
    envelope = pair.seal()
    padding = b" " * (sign.ENVELOPE_CAP - len(envelope))
    assert sign.open_envelope(envelope + padding, [pair.public]) == PAYLOAD
    with pytest.raises(SignatureInvalid, match="67108865 bytes"):
        sign.open_envelope(envelope + padding + b" ", [pair.public])


def test_repeated_member_is_refused_though_the_last_one_is_good(pair: Pair) -> None:
    envelope = pair.seal()
    assert envelope.startswith(b"{")
    with pytest.raises(SignatureInvalid, match="'payload' is there twice"):
        sign.open_envelope(b'{"payload": "AAAA",' + envelope[1:], [pair.public])


def test_number_that_spells_the_payload_is_refused(pair: Pair) -> None:
    envelope = pair.seal(base64.b64decode("1234"))
    assert envelope.count(b'"1234"') == 1
    with pytest.raises(SignatureInvalid, match="payload is missing or not text"):
        sign.open_envelope(envelope.replace(b'"1234"', b"1234"), [pair.public])


def test_signature_by_another_key_is_refused(pair: Pair, stranger: Pair) -> None:
    with pytest.raises(SignatureInvalid, match=f"{stranger.keyid}.* is of no key given"):
        sign.open_envelope(stranger.seal(), [pair.public])


def test_signature_by_another_key_under_the_trusted_keyid_is_refused(
    pair: Pair, stranger: Pair
) -> None:
    envelope = json.loads(stranger.seal())
    envelope["signatures"][0]["keyid"] = pair.keyid
    with pytest.raises(SignatureInvalid, match=f"sig of key {pair.keyid} does not verify"):
        sign.open_envelope(json.dumps(envelope).encode(), [pair.public])


def test_signature_moved_to_another_payload_is_refused(pair: Pair) -> None:
    envelope, other = json.loads(pair.seal(b"compatible")), json.loads(pair.seal(b"incompatible"))
    envelope["signatures"] = other["signatures"]
    with pytest.raises(SignatureInvalid, match="does not verify"):
        sign.open_envelope(json.dumps(envelope).encode(), [pair.public])


def test_signature_made_for_another_type_is_refused(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "pae").write_bytes(pae(b"application/json", PAYLOAD))
    sig = openssl("pkeyutl", "-sign", "-inkey", pair.private, "-rawin", "-in", tmp_path / "pae")
    envelope = json.loads(pair.seal())
    envelope["signatures"][0]["sig"] = base64.b64encode(sig).decode()
    with pytest.raises(SignatureInvalid, match="does not verify"):
        sign.open_envelope(json.dumps(envelope).encode(), [pair.public])
    # With its own type the signature is good, and the type is what is refused.
    envelope["payloadType"] = "application/json"
    with pytest.raises(SignatureInvalid, match="payloadType is 'application/json'"):
        sign.open_envelope(json.dumps(envelope).encode(), [pair.public])


def test_no_keys_is_a_mistake_and_not_a_pass(pair: Pair) -> None:
    with pytest.raises(UsageError, match="no public key") as caught:
        sign.open_envelope(pair.seal(), [])
    one_line(caught.value)


def test_private_key_given_to_verify_with(pair: Pair, tmp_path: Path) -> None:
    encrypted = tmp_path / "encrypted"
    sign.generate_key(encrypted, tmp_path / "public", passphrase=b"secret")
    both = tmp_path / "both"
    both.write_bytes(pair.public.read_bytes() + pair.private.read_bytes())
    for path in (pair.private, encrypted, both):
        with pytest.raises(UsageError, match="holds a private key") as caught:
            sign.open_envelope(pair.seal(), [pair.public, path])
        assert str(path) in one_line(caught.value)


def test_every_key_must_load_even_if_another_one_verifies(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(FileUnavailable, match="missing"):
        sign.open_envelope(pair.seal(), [pair.public, tmp_path / "missing"])


def test_values_are_counted_before_any_is_made(pair: Pair) -> None:
    bomb = b"[" + b"{}," * 1_000_000 + b"{}]"
    sign.open_envelope(pair.seal(), [pair.public])  # so that no import is counted
    tracemalloc.start()
    try:
        with pytest.raises(SignatureInvalid):
            sign.open_envelope(bomb, [pair.public])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(bomb)


# Hostile bytes: whatever goes in, the payload that was signed comes out, or a refusal.

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_"


@pytest.mark.parametrize("payload", [b"x", b"xy", b"xyz"], ids=len)
def test_any_other_character_in_a_signed_member_is_refused(pair: Pair, payload: bytes) -> None:
    envelope = pair.seal(payload)
    members = json.loads(envelope)
    [signature] = members["signatures"]
    for text in (members["payload"], members["payloadType"], *signature.values()):
        start = envelope.index(b'"' + text.encode() + b'"') + 1
        for place, old in enumerate(text):
            tail = place >= len(text) - 4  # where base64 has stray bits and padding
            for new in ALPHABET if tail else "A0":
                if new == old:
                    continue
                at = start + place
                forged = envelope[:at] + new.encode() + envelope[at + 1 :]
                with pytest.raises(SignatureInvalid):
                    sign.open_envelope(forged, [pair.public])


def opens_or_is_refused(envelope: bytes, pair: Pair) -> None:
    try:
        payload = sign.open_envelope(envelope, [pair.public])
    except SignatureInvalid as error:
        one_line(error)
    else:
        assert payload == PAYLOAD


@given(data=st.data())
@settings(deadline=None, max_examples=500)
def test_spliced_envelope_opens_to_its_payload_or_is_refused(
    pair: Pair, data: st.DataObject
) -> None:
    envelope = pair.seal()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(envelope)))
        end = data.draw(st.integers(start, min(start + 40, len(envelope))))
        inserted = data.draw(
            st.binary(max_size=8)
            | st.sampled_from([b'"', b"{", b"}", b"]", b",", b"\\u0000", b"NaN", b"1e9", b"null"])
            | st.just(envelope[end : end + 60])
        )
        envelope = envelope[:start] + inserted + envelope[end:]
    opens_or_is_refused(envelope, pair)


@given(envelope=st.binary(max_size=200))
@example(b"\xff\xfe{\x00}\x00")
@settings(deadline=None)
def test_arbitrary_bytes_are_refused(pair: Pair, envelope: bytes) -> None:
    with pytest.raises(SignatureInvalid) as caught:
        sign.open_envelope(envelope, [pair.public])
    one_line(caught.value)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([sign.PAYLOAD_TYPE, "AAAA"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["payload", "keyid", "sig", ""]), inner)
    ),
    max_leaves=6,
)


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_envelope_of_other_values_opens_to_its_payload_or_is_refused(
    pair: Pair, data: st.DataObject
) -> None:
    envelope = json.loads(pair.seal())
    target = data.draw(st.sampled_from([envelope, envelope["signatures"][0]]))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JSON_VALUES)
    opens_or_is_refused(json.dumps(envelope).encode(), pair)


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_spliced_key_file_never_leaves_with_a_traceback(
    pair: Pair, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "spliced.pem"
    envelope = pair.seal()
    for source in (pair.private, pair.public):
        content = source.read_bytes()
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(start + 20, len(content))))
        path.write_bytes(content[:start] + data.draw(st.binary(max_size=8)) + content[end:])
        try:
            sign.load_signer(path, passphrase=lambda: b"guess")
        except UsageError as error:
            one_line(error)
        try:
            assert sign.open_envelope(envelope, [path]) == PAYLOAD
        except (UsageError, SignatureInvalid) as error:
            one_line(error)


# The process around it

IN_A_CHILD = """
import sys
from pathlib import Path

import envcheck.sign

heavy = {"cryptography", "securesystemslib"} & sys.modules.keys()
assert not heavy, heavy

def refuse(event, arguments):
    if event.split(".")[0] in ("socket", "subprocess") or event in ("os.system", "os.exec"):
        raise RuntimeError(event)

sys.addaudithook(refuse)
try:
    __import__("socket").socket()
except RuntimeError:
    pass
else:
    raise AssertionError("the hook does not see sockets")
envelope, public, private = map(Path, sys.argv[1:])
payload = envcheck.sign.open_envelope(envelope.read_bytes(), [public])
again = envcheck.sign.seal(payload, envcheck.sign.load_signer(private, passphrase=None))
sys.stdout.buffer.write(again)
"""


def test_import_is_cheap_and_nothing_reaches_out(pair: Pair, tmp_path: Path) -> None:
    envelope = pair.seal()
    (tmp_path / "envelope").write_bytes(envelope)
    arguments = [tmp_path / "envelope", pair.public, pair.private]
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", IN_A_CHILD, *arguments],
        check=False,
        capture_output=True,
        cwd=Path(sign.__file__).parents[1],
    )
    assert ran.stderr == b""
    # Ed25519 is deterministic, so sealing again what was opened gives the same file.
    assert ran.stdout == envelope
