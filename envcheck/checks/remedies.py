"""What to do about a file without code for the card, as a command where there is one."""

from __future__ import annotations

import re

from envcheck.checks import pins, torch_family_commands
from envcheck.checks.check import Question
from envcheck.core import cuda
from envcheck.core.coverage import Coverage
from envcheck.core.device_file import DeviceFile
from envcheck.core.installed import Shadow
from envcheck.core.sm import Sm
from envcheck.core.torch_releases import RELEASES, install_command

REFUSED = r"permission|not permitted|folder cannot be read"
"""What the system says of a file that this user may not read, as a regular expression."""
AS_A_READER = "run as a user who may read it"


def is_refused(problem: str) -> bool:
    """Say whether a file could not be read for want of the right to."""
    return re.search(REFUSED, problem, re.IGNORECASE) is not None


def for_file(file: DeviceFile, result: Coverage, question: Question) -> str:
    """Return the command that is most likely to help with this file."""
    sm = question.sm
    if result.reason == "ptx-newer-than-driver" and result.least_driver is not None:
        if sm.silicon < 75 and result.least_driver[0] > cuda.LAST_BRANCH_BELOW_SM_75:
            return "use a package built with an older CUDA: no driver for this card is newer"
        return f"use a host with driver {cuda.driver_text(result.least_driver)} or newer"
    if file.path.rpartition("!/")[2].startswith("torch/"):
        return install_command(sm) or f"build PyTorch from source for {sm}"
    package = owner(file.path, question)
    if package.startswith("nvidia-"):
        return f"pip install --upgrade {package}"
    if any(name.startswith(("libtorch", "libc10")) for name in file.needed):
        arch = f"TORCH_CUDA_ARCH_LIST={sm.number // 10}.{sm.number % 10}"
        if not package:
            return f"rebuild with {arch}"
        environment = question.inventory.environment
        if package in pins.FAMILY and environment is not None:
            command = torch_family_commands.of_torch(package, environment)
            return command if "--no-binary" not in command else f"{arch} {command}"
        return f"{arch} {torch_family_commands.build(package)}"
    if package:
        return f"pip install --upgrade {package}, or build it from source for {sm}"
    return f"rebuild with nvcc -gencode arch=compute_{sm.number},code=sm_{sm.number}"


def for_triton(sm: Sm) -> str:
    """Name a PyTorch whose Triton knows the card; Triton follows its pin."""
    least = "2.11.0" if sm.number in (103, 121) else "2.8.0"
    known = {r.version for r in RELEASES}
    return f"pip install --upgrade 'torch>={least}'" if least in known else ""


def unshadow(shadow: Shadow) -> str:
    """Say how the installed package is imported again."""
    inside = shadow.path.rpartition("/")[0].removesuffix(f"/{shadow.module}")
    return f"take {inside} off PYTHONPATH, or off the .pth file that names it"


def owner(path: str, question: Question) -> str:
    """Return the distribution that owns a file, empty when that is not known."""
    environment = question.inventory.environment
    installed = environment.installed if environment is not None else None
    shadows = installed.shadows if installed is not None else ()
    if any(shadow.module == path.partition("/")[0] for shadow in shadows):
        return ""
    for distribution in environment.distributions if environment is not None else ():
        if path in distribution.files:
            return distribution.name
    wheel = next((part for part in path.split("!/") if part.endswith(".whl")), "")
    return wheel.rpartition("/")[2].partition("-")[0].replace("_", "-").lower()
