"""Environments of small installed packages, read by the guest and judged by the checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import inventories

from envcheck.core import codec
from envcheck.core.model import Finding, Inventory, Torch
from envcheck.guest import distributions, installed


def inventory(
    *sites: Path,
    torch: Torch | None = None,
    python: str = "3.11.7",
    machine: str = "x86_64",
    libc: str = "glibc 2.36",
    variables: dict[str, str] | None = None,
) -> Inventory:
    """Read site directories as an environment of another Python and machine."""
    folders = [str(site) for site in sites]
    found = installed.read(folders)
    version = ".".join(python.split(".")[:2])
    markers = {
        **found.interpreter.markers,
        "python_version": version,
        "python_full_version": python,
        "platform_machine": machine,
    }
    tag = "cpython-" + version.replace(".", "")
    suffixes = (f".{tag}-{machine}-linux-gnu.so", ".abi3.so", ".so")
    interpreter = replace(found.interpreter, markers=markers, suffixes=suffixes)
    made = inventories.environment(
        distributions=distributions.read_all(folders), torch=torch, variables=variables
    )
    assert made.environment is not None
    environment = replace(
        made.environment,
        installed=replace(found, interpreter=interpreter),
        python=python,
        libc=libc,
    )
    made = replace(made, environment=environment)
    assert codec.loads(Inventory, codec.dumps(made), name="inventory") == made
    return made


def ask(check: str, *sites: Path, **facts: object) -> list[Finding]:
    """Judge site directories by one check."""
    return inventories.ask(check, inventory(*sites, **facts), "sm_120")  # type: ignore[arg-type]


def told(findings: list[Finding]) -> list[tuple[str, str, str]]:
    """Return status, subject and message of each finding."""
    return [(f.status.value, f.subject, f.message) for f in findings]
