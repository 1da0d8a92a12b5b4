"""Small values for tests, in a notation that fits on a line.

`s90a` is machine code for sm_90a, `p80:8.4` is PTX for sm_80 of ISA 8.4, `l90` is LTO-IR.
"""

from __future__ import annotations

from pathlib import Path

import pip_commands

from envcheck.checks import CHECKS, Check, Question
from envcheck.core import cuda
from envcheck.core.device_file import Code, Container, DeviceFile
from envcheck.core.distribution import Distribution
from envcheck.core.model import (
    Environment,
    Finding,
    Inventory,
    Report,
    Target,
    Torch,
    Triton,
)
from envcheck.core.sm import Sm
from envcheck.guest import device_code
from envcheck.inflate import inflate
from envcheck.judge import judge

DATA = Path(__file__).parent / "data"
_KINDS = {"s": "sass", "p": "ptx", "l": "lto-ir"}


def code(text: str) -> Code:
    arch, _, isa = text[1:].partition(":")
    kind = _KINDS[text[0]]
    return Code(kind=kind, sm=f"sm_{arch}", isa=(isa or "8.0") if kind == "ptx" else None)


def container(
    codes: str,
    kernels: tuple[str, ...] | None = None,
    *,
    section: str = ".nv_fatbin",
    has_code: bool = True,
    count: int = 1,
) -> Container:
    return Container(
        section=section,
        code=tuple(map(code, codes.split())),
        kernels=kernels,
        has_code=has_code,
        count=count,
    )


def device_file(path: str, *parts: str | Container, form: str = "shared-object") -> DeviceFile:
    made = tuple(p if isinstance(p, Container) else container(p) for p in parts)
    return DeviceFile(path=path, format=form, size=1, containers=made)


def scanned(*files: DeviceFile, passed_over: int = 0) -> Inventory:
    return Inventory(source="files", files=files, passed_over=passed_over)


def distribution(name: str, version: str = "1.0", *files: str, requires: str = "") -> Distribution:
    return Distribution(
        name=name,
        version=version,
        record_digest=None,
        files=files,
        requires=tuple(filter(None, requires.split("\n"))),
    )


def environment(
    *files: DeviceFile,
    distributions: tuple[Distribution, ...] = (),
    torch: Torch | None = None,
    triton: Triton | None = None,
    variables: dict[str, str] | None = None,
) -> Inventory:
    return Inventory(
        source="environment",
        files=files,
        environment=Environment(
            python="3.11.7",
            implementation="cpython",
            platform="linux-x86_64",
            libc="glibc 2.36",
            digest="sha256:" + "0" * 64,
            distributions=distributions,
            torch=torch,
            triton=triton,
            variables=variables or {},
        ),
    )


def judged(inventory: Inventory, sm: str, driver: str | None = None) -> Report:
    version = None if driver is None else cuda.parse_version(driver)
    return judge(Target(name=sm, sm=sm), inventory, version)


def ask(check_id: str, inventory: Inventory, sm: str, driver: str | None = None) -> list[Finding]:
    (check,) = (c for c in CHECKS if c.id == check_id)
    findings = list(check.run(question(inventory, sm, driver)))
    for finding in findings:
        pip_commands.require_valid(finding.remedy, inventory)
    return findings


def question(inventory: Inventory, sm: str, driver: str | None = None) -> Question:
    return Question(
        target=Target(name=sm, sm=sm),
        sm=Sm.parse(sm),
        driver=None if driver is None else cuda.parse_version(driver),
        inventory=inventory,
    )


def named(check_id: str) -> Check:
    (check,) = (c for c in CHECKS if c.id == check_id)
    return check


def read(path: Path, name: str | None = None) -> DeviceFile:
    return device_code.read(path.read_bytes(), path=name or path.name, inflate=inflate)
