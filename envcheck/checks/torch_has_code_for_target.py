"""The installed PyTorch was built for this card: neither too old nor too new."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import commands
from envcheck.checks.check import Check, Question
from envcheck.checks.remedies import unshadow
from envcheck.core import coverage
from envcheck.core.device_file import DeviceFile
from envcheck.core.installed import Shadow
from envcheck.core.model import Environment, Finding, Json, Status
from envcheck.core.sm import Sm, ptx_fits, sass_runs_on
from envcheck.core.torch_releases import install_command

_LIBRARY = "torch/lib/libtorch_cuda.so"


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    torch = environment.torch if environment is not None else None
    shadow = _shadow(environment)
    if torch is None:
        yield _unread(environment, shadow, question)
        return
    subject, sm = f"torch {torch.version}", question.sm
    facts: dict[str, Json] = {
        "cuda": torch.cuda,
        "arch_list": torch.arch_list,
        "cxx11_abi": torch.cxx11_abi,
    }
    fix = install_command(sm) or f"build PyTorch from source for {sm}"
    if torch.cuda is None:
        kind = f"for AMD (HIP {torch.hip})" if torch.hip else "CPU-only"
        yield CHECK.finding(
            subject,
            Status.FAIL,
            f"this build is {kind}: it has no CUDA code",
            # Its version may be new enough already, and --upgrade would keep it then.
            remedy=fix.replace(" --upgrade ", " --force-reinstall "),
            evidence={"mode": "none", "reason": "no-cuda-build", **facts},
        )
        return
    library = next((f for f in question.inventory.files if f.path.endswith(_LIBRARY)), None)
    broken = _broken(library)
    if library is None or broken:
        yield CHECK.finding(
            subject,
            Status.ERROR,
            f"{_LIBRARY} {broken}{_instead(shadow)}",
            remedy=unshadow(shadow) if shadow else commands.again("torch", question),
            evidence=facts,
        )
        return
    found = coverage.of_file(library, sm, question.driver)
    evidence = {"mode": found.mode, "reason": found.reason, **facts}
    held = (*coverage.codes(library, "sass"), *coverage.codes(library, "ptx"))
    if found.mode == coverage.NONE:
        portable = [s for s in held if not s.suffix]
        age = _age(portable, sm)
        message = f"{age}: {found.message}"
        yield CHECK.finding(subject, Status.FAIL, message, remedy=fix, evidence=evidence)
    elif torch.arch_list and not _listed(torch.arch_list, sm):
        message = "its libraries have code for the card, but its own list does not: it will warn"
        yield CHECK.finding(subject, Status.WARN, message, evidence=evidence)
    else:
        yield CHECK.finding(
            subject, Status.PASS, f"CUDA {torch.cuda}: {found.message}", evidence=evidence
        )


def _shadow(environment: Environment | None) -> Shadow | None:
    installed = environment.installed if environment is not None else None
    shadows = installed.shadows if installed is not None else ()
    return next((shadow for shadow in shadows if shadow.module == "torch"), None)


def _instead(shadow: Shadow | None) -> str:
    return f" where {shadow.path} is, which hides {shadow.owner}" if shadow is not None else ""


def _unread(environment: Environment | None, shadow: Shadow | None, question: Question) -> Finding:
    """Say why there is nothing to read of PyTorch: it is not there, hidden or damaged."""
    distributions = environment.distributions if environment is not None else ()
    torch = next((d for d in distributions if d.name == "torch"), None)
    if shadow is not None:
        message = f"`import torch` takes {shadow.path}, which is no PyTorch and hides it"
        return CHECK.finding(shadow.owner, Status.FAIL, message, remedy=unshadow(shadow))
    if torch is not None:
        return CHECK.finding(
            f"torch {torch.version}",
            Status.ERROR,
            "torch/__init__.py or torch/version.py is missing or damaged: nothing tells its CUDA",
            remedy=commands.again("torch", question),
        )
    return CHECK.skip("torch", "PyTorch is not installed in what was looked at")


def _broken(library: DeviceFile | None) -> str:
    """Say why the library tells nothing of the card, empty where it does."""
    if library is None:
        return "is missing"
    if library.problem is not None:
        return f"is damaged: {library.problem}"
    if library.format != "shared-object":
        return "is damaged: no ELF file"
    # Every build for CUDA has hundreds of kernels in it.
    return "" if any(part.code for part in library.containers) else "is damaged: no device code"


def _age(held: list[Sm], sm: Sm) -> str:
    if held and sm.silicon > max(s.silicon for s in held):
        return "the card is newer than this build"
    if held and sm.silicon < min(s.silicon for s in held):
        return "the card is older than what this build supports"
    return "this build leaves the card out"


def _listed(arch_list: tuple[str, ...], sm: Sm) -> bool:
    return any(
        ptx_fits(Sm.parse(a), sm) if a.startswith("compute_") else sass_runs_on(Sm.parse(a), sm)
        for a in arch_list
    )


CHECK = Check(
    id="torch-has-code-for-target",
    claim="The installed PyTorch has kernels for the card.",
    how=(
        "Walks the device code of libtorch_cuda.so, which is what runs, and reads the list that "
        "torch.cuda.get_arch_list() would give from libtorch_python.so, the CUDA version from "
        "torch/version.py and the C++ ABI from libc10.so, without importing PyTorch. What is judged is what "
        "`import torch` takes, be it installed or not. A card may "
        "be too new for a build, or too old for it."
    ),
    classes=("A1", "A5"),
    remedy="Install a PyTorch build whose wheels hold code for the card.",
    run=_run,
)
