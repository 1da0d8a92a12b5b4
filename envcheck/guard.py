"""The gate in front of a job: a manifest must be valid, fresh, and about what is here.

    import envcheck.guard
    envcheck.guard.require(manifest="manifest.json", key="ci.pub", max_age="24h")

as the first lines of a training script, before torch is imported, does what `envcheck guard`
does, for the interpreter that it runs in; nothing is started.
"""

from __future__ import annotations

import stat
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck import attest, document, gate, same, sign
from envcheck import policy as policies
from envcheck.attest import Manifest
from envcheck.core.model import Assurance
from envcheck.core.present import PresentRequest
from envcheck.engine.present import Looking
from envcheck.errors import FileUnavailable, JobRefused, UsageError
from envcheck.policy import Policy

if TYPE_CHECKING:
    from envcheck.core.model import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A manifest that lets a job start, and what could not be compared."""

    manifest: Manifest
    notes: tuple[str, ...]


def require(
    manifest: str | Path,
    key: str | Path | Sequence[str | Path] = (),
    *,
    max_age: str | None = None,
    assurance: str | None = None,
    deep: bool = False,
    config: str | Path | None = None,
) -> Manifest:
    """Return what was signed, if it is about this interpreter's environment and its card.

    Without a value of its own each argument is that of `[guard]` in `config`, or in the
    settings of the current folder. Raises JobRefused with the exit code 10, 11 or 12,
    SignatureInvalid, and for a mistake UsageError or FileUnavailable.
    """
    keys = [key] if isinstance(key, (str, Path)) else list(key)
    try:
        policy = override(
            policies.load(None if config is None else Path(config), Path()),
            keys=[Path(each) for each in keys],
            max_age=None if max_age is None else policies.age(max_age),
            assurance=None if assurance is None else Assurance(assurance),
        )
    except ValueError as error:
        raise UsageError(str(error), remedy='max_age="24h", assurance="executed"') from None
    looking = Looking(sys.executable)
    try:
        admitted = admit(Path(manifest), policy, looking, deep=deep)
    finally:
        looking.end()
    for note in (*key_warnings(policy), *admitted.notes):
        warnings.warn(f"envcheck: {note}", RuntimeWarning, stacklevel=2)
    return admitted.manifest


def override(
    policy: Policy,
    *,
    keys: Sequence[Path],
    max_age: float | None = None,
    assurance: Assurance | None = None,
    target: Target | None = None,
) -> Policy:
    """Put what was said at the call over what the settings say."""
    return replace(
        policy,
        keys=tuple((str(path), path) for path in keys) or policy.keys,
        max_age=policy.max_age if max_age is None else max_age,
        require=assurance or policy.require,
        target=target or policy.target,
    )


def admit(path: Path, policy: Policy, looking: Looking, *, deep: bool = False) -> Admitted:
    """Compare a manifest with what is looked at; raises JobRefused, SignatureInvalid."""
    manifest, arrived = opened(path, policy)
    gate.require(manifest, policy, now=time.time(), arrived=arrived)
    here = looking.answer(
        PresentRequest(
            since=gate.seconds(manifest.started),
            deep=deep,
            files=tuple(file.path for file in manifest.inventory.files),
        )
    )
    return Admitted(manifest=manifest, notes=same.require(manifest, here))


def key_warnings(policy: Policy) -> list[str]:
    """Return what is wrong with key files that can be used all the same."""
    said = []
    for path in (path for _, path in policy.keys if path.exists()):
        if path.stat().st_mode & stat.S_IWOTH:
            said.append(f"{path}: anybody may write to this key; chmod o-w {path}")
        folder = path.absolute().parent
        # In a sticky folder such as /tmp files of others can neither be removed nor renamed.
        if folder.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            said.append(f"{path}: anybody may replace this key; chmod o-w {folder}")
    return said


def opened(path: Path, policy: Policy) -> tuple[Manifest, float]:
    """Return a verified manifest, and when its file was last changed."""
    if not policy.keys:
        message = "nothing says whose signature a job may start on"
        raise UsageError(message, remedy="--key K.pub, or keys in [guard] of envcheck.toml")
    try:
        seen = path.stat()
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        raise FileUnavailable(message, remedy="check the path") from None
    if seen.st_size > sign.ENVELOPE_CAP:
        message = f"{path}: {seen.st_size} bytes, and {sign.ENVELOPE_CAP} are read of a manifest"
        raise JobRefused(message, remedy="use the manifest that envcheck wrote")
    payload = sign.open_envelope(document.read(path), [key for _, key in policy.keys])
    return attest.read_statement(payload), seen.st_ctime
