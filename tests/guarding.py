"""Manifests for the gate: of a small environment, signed, and changed and signed anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from building import SM80_PTX80, venv, wheel
from running import envcheck

from envcheck import attest, sign
from envcheck.core.model import Inventory, Report

# What the tests' small environment holds; no other test of it counts on the numbers.
CODE = {
    "gpu/__init__.py": b"x = 1\n",
    "gpu/_C.so": SM80_PTX80.read_bytes(),
}
Change = Callable[[Inventory, Report], tuple[Inventory, Report]]


def wheels(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return [
        wheel(folder, "gpu-package", "1.0", CODE),
        wheel(folder, "plain", "2.0", {"plain.py": b"y = 2\n"}),
    ]


@dataclass(frozen=True, kw_only=True)
class Signed:
    """An environment, a key pair, and a manifest of the one signed with the other."""

    folder: Path
    python: Path
    key: Path
    manifest: Path

    @property
    def public(self) -> Path:
        return self.key.with_suffix(".pub")

    def read(self, manifest: Path | None = None) -> attest.Manifest:
        """Return what a manifest says, verified."""
        envelope = (manifest or self.manifest).read_bytes()
        return attest.read_statement(sign.open_envelope(envelope, [self.public]))

    def changed(
        self, name: str, change: Change | None = None, *, age: timedelta = timedelta()
    ) -> Path:
        """Write a manifest of changed facts, made `age` ago and signed with the same key."""
        read = self.read()
        inventory, report = read.inventory, read.report
        if change is not None:
            inventory, report = change(inventory, report)
        made = (datetime.now(timezone.utc) - age).strftime("%Y-%m-%dT%H:%M:%SZ")
        origin = attest.Origin(
            version="0.1.0", targets_digest="0" * 64, started=made, finished=made
        )
        signer = sign.load_signer(self.key, passphrase=None)
        path = self.folder / f"{name}.json"
        path.write_bytes(sign.seal(attest.attest(inventory, report, origin), signer))
        return path


def sign_environment(folder: Path, arch: str = "hopper") -> Signed:
    """Make an environment and the manifest of it, as a user would."""
    python = venv(folder / "venv", *wheels(folder / "wheels")) / "bin" / "python"
    key, manifest = folder / "key.pem", folder / "manifest.json"
    assert envcheck("keygen", "-q", "-o", key).returncode == 0
    words = ("check", "-q", "--python", python, "--arch", arch, "--sign", key, "-o", manifest)
    done = envcheck(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return Signed(folder=folder, python=python, key=key, manifest=manifest)


def with_report(**fields: object) -> Change:
    return lambda inventory, report: (inventory, replace(report, **fields))
