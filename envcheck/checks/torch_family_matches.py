"""Packages that are released beside PyTorch are those for the PyTorch that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.checks import commands, pins, torch_family_commands
from envcheck.checks.check import Check, Question
from envcheck.checks.pins import FAMILY
from envcheck.core.installed import Installed, Package
from envcheck.core.model import Environment, Finding, Status, Torch
from envcheck.core.torch_family import TORCHAO, TORCHAO_LEAST, Local, local


@dataclass(frozen=True, slots=True)
class _Fault:
    status: Status
    message: str
    remedy: str


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.installed is None:
        yield CHECK.skip("torch", "no installed packages were looked at")
        return
    there = pins.active(environment.installed)
    if "torch" not in there:
        yield CHECK.skip("torch", "PyTorch is not installed in what was looked at")
        return
    torch = there["torch"][0]
    any_member = False
    for name, packages in sorted(there.items()):
        label = local(packages[0].version)
        if name != "torch" and (name in FAMILY or label.torch is not None):
            any_member = True
            yield _of_member(packages[0], torch, environment, environment.installed)
    if not any_member:
        yield CHECK.skip("torch", f"nothing of its family is installed beside {torch.version}")


def _of_member(
    package: Package, torch: Package, environment: Environment, installed: Installed
) -> Finding:
    faults = [
        *_by_pin(package, torch, environment, installed),
        *_by_table(package, torch, environment),
        *_by_label(package, torch, environment),
    ]
    subject = f"{package.name} {package.version}"
    fails = [fault for fault in faults if fault.status is Status.FAIL]
    fault = next(iter([*fails, *faults]), None)
    if fault is None:
        return CHECK.finding(subject, Status.PASS, f"fits torch {torch.version}, as far as it says")
    evidence = {"torch": torch.version, "faults": tuple(f.message for f in faults)}
    return CHECK.finding(
        subject, fault.status, fault.message, remedy=fault.remedy, evidence=evidence
    )


def _by_pin(
    package: Package, torch: Package, environment: Environment, installed: Installed
) -> Iterator[_Fault]:
    compiled = any(d.name == package.name and d.files for d in environment.distributions)
    for line in package.requires:
        requirement = pins.applying(line, installed)
        if (
            requirement is not None
            and requirement.name.lower() == "torch"
            and not pins.fits(requirement, torch.version)
        ):
            wanted = f"torch{requirement.specifier}"
            yield _Fault(
                Status.FAIL if compiled else Status.WARN,
                f"made for {wanted}, but torch {torch.version} is installed",
                f"pip install '{wanted}', or the {package.name} of torch {_plain(torch.version)}:"
                f" {torch_family_commands.of_torch(package.name, environment)}",
            )


def _by_table(package: Package, torch: Package, environment: Environment) -> Iterator[_Fault]:
    if package.name != "torchao":
        return
    have, mine = _plain(torch.version), _plain(package.version)
    compiled, python = TORCHAO.get(mine, ((), ()))
    least = TORCHAO_LEAST.get(mine)
    remedy = torch_family_commands.of_torch("torchao", environment)
    if compiled and have not in compiled and _minor(have) not in map(_minor, compiled):
        message = f"its C++ kernels are made for torch {', '.join(compiled)}, this is {have}"
        if have in python:
            message += ": only its Python part works"
        yield _Fault(Status.WARN, message, remedy)
    if least is not None and _numbers(have) < _numbers(least):
        message = f"takes its C++ kernels with torch {least} and newer only, this is {have}"
        yield _Fault(Status.WARN, message, remedy)


def _by_label(package: Package, torch: Package, environment: Environment) -> Iterator[_Fault]:
    said, facts = local(package.version), environment.torch
    remedy = f"install the {package.name} that is made for torch {torch.version}"
    if said.torch is not None and said.torch != _minor(torch.version):
        message = f"compiled for torch {said.torch}, but torch {torch.version} is installed"
        yield _Fault(Status.FAIL, message, remedy)
    abi = facts.cxx11_abi if facts is not None else None
    if None not in (said.cxx11_abi, abi) and said.cxx11_abi is not abi:
        words = {True: "the C++11 ABI", False: "the old C++ ABI"}
        message = f"compiled for {words[bool(said.cxx11_abi)]}, torch has {words[bool(abi)]}"
        yield _Fault(Status.FAIL, message, remedy)
    for_cuda = commands.of_cuda(package.name, package.version, facts.cuda if facts else None)
    yield from _by_cuda(said, torch, facts, for_cuda or remedy)


def _by_cuda(said: Local, torch: Package, facts: Torch | None, remedy: str) -> Iterator[_Fault]:
    if said.cuda is None or said.cuda == "rocm" or facts is None or facts.hip is not None:
        return
    have = facts.cuda
    if said.cuda == "cpu":
        if have is not None:
            message = f"a CPU-only build, but torch {torch.version} is built for CUDA {have}"
            yield _Fault(Status.WARN, f"{message}: its operators do not run on the card", remedy)
    elif have is None:
        message = f"built for CUDA {said.cuda}, but torch {torch.version} is a CPU-only build"
        yield _Fault(Status.FAIL, message, remedy)
    elif said.cuda.partition(".")[0] != have.partition(".")[0]:
        message = f"built for CUDA {said.cuda}, but torch {torch.version} for CUDA {have}"
        yield _Fault(Status.FAIL, message, remedy)


def _plain(version: str) -> str:
    return version.partition("+")[0]


def _minor(version: str) -> str:
    return ".".join(_plain(version).split(".")[:2])


def _numbers(version: str) -> tuple[int, ...]:
    """Return major and minor; what follows may be `0a0` of a build from source."""
    return tuple(int(part) for part in _minor(version).split(".") if part.isdecimal())


CHECK = Check(
    id="torch-family-matches",
    claim="Packages released beside PyTorch are made for the PyTorch that is installed.",
    how=(
        "Compares what torchvision, torchaudio, xformers and the like pin of torch with the "
        "torch that is installed; for torchao, which pins nothing, a table of its releases. "
        "Local version labels are read of every package: `+cu128` and `+cpu` against the CUDA of "
        "torch by major, `+cu12torch2.5cxx11abiFALSE` and `+pt25cu124` against its release and "
        "C++ ABI. An extension has no ABI promise across PyTorch releases: it fails to load, or "
        "`operator torchvision::nms does not exist`. Class C3."
    ),
    classes=("C3",),
    remedy="Install the releases that belong together, in one command and from one index.",
    run=_run,
)
