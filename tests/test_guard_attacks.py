"""Thousands of tampered envelopes in front of the gate: none is accepted, none ends in a traceback.

Every one is made from real manifests by a seeded generator, at every layer: bytes of the file,
its JSON, the base64, what is in the payload, and what belongs to another manifest.
"""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from building import venv, wheel
from guarding import CODE, Signed, sign_environment
from running import envcheck

from envcheck import gate, guard, same
from envcheck.core.present import Present, PresentRequest
from envcheck.engine.present import Looking
from envcheck.errors import EnvcheckError, SignatureInvalid
from envcheck.policy import Policy

Json = Any
SEED = 20
ROUNDS = 260
"""Of each kind below."""


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return sign_environment(tmp_path_factory.mktemp("attacked"))


@pytest.fixture(scope="module")
def here(signed: Signed) -> Present:
    looking = Looking(str(signed.python))
    try:
        return looking.answer(PresentRequest(since=4e9))
    finally:
        looking.end()


@pytest.fixture(scope="module")
def others(signed: Signed, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Return good manifests, of another key for this environment, and of this key for another."""
    folder = tmp_path_factory.mktemp("others")
    stranger = sign_environment(folder / "stranger").manifest
    place = venv(folder / "venv", wheel(folder, "gpu-package", "2.0", CODE))
    words = ("check", "-q", "--python", place, "--arch", "hopper", "--sign", signed.key)
    assert envcheck(*words, "-o", folder / "other.json").returncode == 0
    return [stranger.read_bytes(), (folder / "other.json").read_bytes()]


def admitted(path: Path, signed: Signed, here: Present) -> EnvcheckError | None:
    """Ask the gate in this process; return why it refuses, None where it does not."""
    policy = Policy(keys=(("ours", signed.public),), max_age=86400.0)
    try:
        manifest, arrived = guard.opened(path, policy)
        gate.require(manifest, policy, now=arrived, arrived=arrived)
        same.require(manifest, here)
    except EnvcheckError as error:
        return error
    return None


def encoded(payload: Json) -> str:
    return base64.b64encode(json.dumps(payload).encode()).decode()


def places(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value below one."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))


def twisted(value: Json, chance: random.Random) -> Json:
    """Return another value than this one."""
    if isinstance(value, bool) or value is None:
        return chance.choice([0, "x", not value])
    if isinstance(value, (int, float)):
        return value + chance.choice([1, -1, 1 << 40])
    if isinstance(value, str):
        lies = ["", value + "0", value.upper() + "\u202e", "compatible!", "\0"]
        return chance.choice([lie for lie in lies if lie != value])
    return chance.choice([None, 7, "x", [[]]])


def edit(document: Json, chance: random.Random) -> None:
    """Change, remove or add one member somewhere below a JSON value."""
    *way, last = chance.choice(list(places(document)))
    for step in way:
        document = document[step]
    if isinstance(document, dict) and chance.random() < 0.3:
        if chance.random() < 0.5:
            del document[last]
        else:
            document[f"{last}2"] = document.pop(last)
    else:
        document[last] = twisted(document[last], chance)


def some_bytes(good: bytes, _: list[bytes], chance: random.Random) -> bytes:
    data = bytearray(good)
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    return bytes(data)


def cut(good: bytes, _: list[bytes], chance: random.Random) -> bytes:
    where = chance.randrange(len(good) - 3)
    return chance.choice([good[:where], good[where + 1 :], good[:where] + good[where + 40 :]])


def base64_bytes(good: bytes, _: list[bytes], chance: random.Random) -> bytes:
    document = json.loads(good)
    at = chance.choice([document, document["signatures"][0]])
    name = "payload" if at is document else "sig"
    data = bytearray(base64.b64decode(at[name]))
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    at[name] = base64.b64encode(bytes(data[: chance.choice([None, -1, None])])).decode()
    return json.dumps(document).encode()


def structure(good: bytes, _: list[bytes], chance: random.Random) -> bytes:
    """Edit the envelope; what is added beside the members that are known is no change."""
    document = json.loads(good)
    edit(document, chance)
    return json.dumps(document).encode()


def inside(good: bytes, _: list[bytes], chance: random.Random) -> bytes:
    document = json.loads(good)
    payload = json.loads(base64.b64decode(document["payload"]))
    edit(payload, chance)
    document["payload"] = encoded(payload)
    return json.dumps(document).encode()


def swapped(good: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Mix two manifests: payload, signatures, key id, type."""
    document, other = json.loads(good), json.loads(chance.choice(others))
    kind = chance.randrange(5)
    if kind == 0:
        document["payload"] = other["payload"]
    elif kind == 1:
        document["signatures"][0]["sig"] = other["signatures"][0]["sig"]
    elif kind == 2:
        document["signatures"][0]["keyid"] = f"{chance.getrandbits(256):064x}"
    elif kind == 3:
        document["payloadType"] = chance.choice(
            [
                "application/json",
                "application/vnd.in-toto+json ",
                "",
                "Application/vnd.in-toto+json",
            ]
        )
    else:
        document = {**other, "signatures": other["signatures"] + document["signatures"]}
        document["payload"] = chance.choice([document["payload"], document["payload"][:-4]])
    return json.dumps(document, indent=chance.choice([None, 1])).encode()


def repeated(good: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Give one member twice, in either order."""
    name = chance.choice(["payload", "payloadType", "signatures"])
    value = json.loads(chance.choice([good, *others]))[name]
    pair = f"{json.dumps(name)}: {json.dumps(value)}".encode()
    text = good.strip()
    at_the_start = b"{" + pair + b"," + text[1:]
    return chance.choice([at_the_start, text[:-1] + b"," + pair + b"}"])


def unsigned(good: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Sign with nothing, with garbage, or with a key that nobody allowed."""
    document = json.loads(good)
    first = document["signatures"][0]
    stranger = json.loads(others[0])["signatures"][0]
    random_sig = base64.b64encode(chance.randbytes(64)).decode()
    document["signatures"] = chance.choice(
        [
            [],
            [{**first, "sig": random_sig}],
            [{**stranger, "sig": first["sig"]}],
            [stranger],
            [first, {**first, "sig": random_sig}],
            [stranger, {**first, "sig": random_sig}],
            [{**first, "keyid": ""}],
            first,
        ]
    )
    if chance.random() < 0.3:
        document["payload"] = json.loads(others[0])["payload"]
    return json.dumps(document).encode()


KINDS = (some_bytes, cut, base64_bytes, structure, inside, swapped, repeated, unsigned)


def once(pairs: list[tuple[str, Json]]) -> Json:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def meaning(text: bytes) -> Json:
    """Return what decides in an envelope: two with the same meaning are one envelope."""
    try:
        document = json.loads(text, object_pairs_hook=once)
        decoded = base64.b64decode(document["payload"], validate=True)
        signatures = {s["keyid"]: s["sig"] for s in document["signatures"]}
        assert len(signatures) == len(document["signatures"])
        return document["payloadType"], decoded, signatures
    except (ValueError, KeyError, TypeError, AssertionError):
        return text


def test_none_of_the_tampered_envelopes_is_accepted(
    signed: Signed, here: Present, others: list[bytes], tmp_path: Path
) -> None:
    good = signed.manifest.read_bytes()
    path = tmp_path / "manifest.json"
    path.write_bytes(good)
    assert admitted(path, signed, here) is None, "or all refusals below would say nothing"
    chance, seen, codes = random.Random(SEED), {good}, {10: 0, 11: 0, 12: 0}
    for kind in KINDS:
        for number in range(ROUNDS):
            text = kind(good, copy.copy(others), chance)
            while text in seen or meaning(text) == meaning(good):
                text = some_bytes(good, others, chance)  # what is no new attack gives way to one
            seen.add(text)
            path.write_bytes(text)
            error = admitted(path, signed, here)
            assert error is not None, f"{kind.__name__} {number} of seed {SEED} is accepted"
            assert error.exit_code in codes, f"{kind.__name__} {number}: {error.message}"
            assert "\n" not in error.message
            assert len(error.message) < 1000
            codes[error.exit_code] += 1
    assert sum(codes.values()) >= 2000
    assert len(seen) >= 2000
    assert codes[12] > 1900


def test_a_sample_of_them_before_the_command_starts_nothing(
    signed: Signed, others: list[bytes], tmp_path: Path
) -> None:
    good, chance, path = signed.manifest.read_bytes(), random.Random(SEED + 1), tmp_path / "m.json"
    job = (signed.python, "-c", "print('started')")
    for kind in (*KINDS, *KINDS):
        text = kind(good, others, chance)
        if meaning(text) == meaning(good):
            continue
        path.write_bytes(text)
        words = ("guard", "--manifest", path, "--key", signed.public, "--", *job)
        done = envcheck(*words)  # which looks for tracebacks
        assert (done.returncode, done.stdout) == (12, ""), (kind.__name__, done.stderr)


def test_an_unknown_signature_beside_a_good_one_changes_nothing(
    signed: Signed, here: Present, others: list[bytes], tmp_path: Path
) -> None:
    """DSSE's rule with a threshold of one: who signs in addition takes nothing away."""
    document = json.loads(signed.manifest.read_bytes())
    stranger = json.loads(others[0])["signatures"][0]
    path = tmp_path / "both.json"
    for signatures in ([stranger, *document["signatures"]], [*document["signatures"], stranger]):
        path.write_text(json.dumps({**document, "signatures": signatures}))
        assert admitted(path, signed, here) is None


def test_a_good_manifest_of_another_environment_or_key_is_refused(
    signed: Signed, here: Present, others: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "other.json"
    for text, said in zip(
        others, ("is of no key given", "gpu-package is 1.0, and was 2.0"), strict=True
    ):
        path.write_bytes(text)
        error = admitted(path, signed, here)
        assert isinstance(error, SignatureInvalid)
        assert error.exit_code == 12
        assert said in error.message
