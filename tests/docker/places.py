"""A folder with settings in which `envcheck build` is run as its users run it."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running import envcheck

from envcheck.engine import content_digest

KNOWS = ("index_url", "extra_index_url")


def network(folder: Path) -> list[str]:
    """Return what a build needs to reach the index that pip on this machine is set up for."""
    words = []
    authority = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
    if authority is not None:
        words += ["--ca-file", authority]
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    values = {}
    for section in ("global", "install", ":env:"):  # as pip ranks them
        pattern = rf"^{section}\.([\w-]+)='(.*)'$"
        values.update(re.findall(pattern, listed, re.MULTILINE))
    found = {key: values.get(key.replace("_", "-"), "") for key in KNOWS}
    # A folder of this machine is in no container.
    addresses = {key: value for key, value in found.items() if value.startswith("http")}
    if addresses:
        config = configparser.RawConfigParser()
        config["global"] = {key.replace("_", "-"): value for key, value in addresses.items()}
        with (folder / "pip.conf").open("w") as handle:
            config.write(handle)
        words += ["--pip-config", str(folder / "pip.conf")]
    if os.environ.get("ENVCHECK_TEST_NETWORK") == "host":
        words += ["--network", "host"]
    return words


@dataclass(frozen=True)
class Place:
    """A folder with an `envcheck.toml`, a cache of its own, and a key."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def write(self, **more: Any) -> None:
        """Write the settings, with more or other ones."""
        lines, tables = [], []
        for name, value in {**self.settings, **more}.items():
            if name == "extensions":
                for row in value:
                    pairs = (f"{k} = {json.dumps(str(v))}\n" for k, v in row.items())
                    tables.append(f"[[extensions]]\n{''.join(pairs)}")
            else:
                lines.append(f"{name} = {json.dumps(value, default=str)}\n")
        (self.folder / "envcheck.toml").write_text("".join(lines + tables))

    def environment(self, env: dict[str, str] | None = None) -> dict[str, str]:
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        ours = {"XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(temporary)}
        return {**ours, **(env or {})}

    def build(
        self, *words: str | Path, env: dict[str, str] | None = None, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run `envcheck build` here, which never says why in a traceback."""
        variables = self.environment(env)
        return envcheck("build", *words, cwd=self.folder, env=variables, timeout=timeout)

    def facts(self, *words: str | Path, **more: Any) -> dict[str, Any]:
        """Build, and return the facts that were gathered."""
        done = self.build(*words, "--save-inventory", "facts.json", **more)
        assert (self.folder / "facts.json").exists(), done.stderr
        return json.loads((self.folder / "facts.json").read_text())

    def content(self, *words: str | Path, **more: Any) -> str:
        """Build, and return the content digest."""
        return self.facts(*words, **more)["environment"]["content"]

    def logs(self) -> str:
        """Return all logs of builds here."""
        return "".join(p.read_text() for p in sorted(self.folder.glob("cache/envcheck/logs/*")))


def findings(report: dict[str, Any], check: str) -> dict[str, dict[str, Any]]:
    """Return what one check found, by its subjects."""
    found = [f for f in report["findings"] if f["check"] == check]
    by_subject = {f["subject"]: f for f in found}
    assert len(by_subject) == len(found) > 0, report["findings"]
    return by_subject


def differing(before: content_digest.Content, after: content_digest.Content) -> dict[str, str]:
    """Return why paths differ between two contents."""
    return {d.path: d.reason for d in content_digest.differences(before, after)}
