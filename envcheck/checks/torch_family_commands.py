"""Commands that bring the release of a package of PyTorch's family that was made for the PyTorch here."""

from __future__ import annotations

from envcheck.checks import commands, pins
from envcheck.core.jit_needs import release
from envcheck.core.model import Environment
from envcheck.core.torch_family import TORCHAO, TORCHAO_LEAST, local

# Built from source, against the PyTorch that is there. `--force-reinstall` alone would bring another one.
_BUILD = "pip install --force-reinstall --no-deps --no-build-isolation --no-binary"


def of_torch(name: str, environment: Environment) -> str:
    """Return the command for a member of the family, as pip resolves it for the PyTorch that is there.

    Tried with torch 2.14.1 (CUDA 13) from PyPI: torchvision 0.29.1, torchaudio 2.11.1, torchcodec 0.17.0
    and torchao 0.18.0 come of it, and nothing fails then.
    """
    # Its metadata says whether it came from PyTorch's own index; its files always name their CUDA.
    installed = environment.installed
    there = pins.active(installed).get("torch", ()) if installed is not None else ()
    torch = environment.torch
    version = there[0].version if there else torch.version if torch is not None else ""
    if not version:
        return f"pip install --upgrade {name}"
    plain = version.partition("+")[0]
    cuda = torch.cuda if torch is not None else None
    if name == "torchao":
        return _torchao(plain)
    if name == "torchtext":
        return "pip uninstall -y torchtext; its last release, 0.18.0, was made for torch 2.3"
    # All wheels of xformers on PyPI are built with CUDA 12: 0.0.35, the newest, needs libcudart.so.12.
    if name == "xformers" and cuda is not None and not cuda.startswith("12."):
        return build(name)
    labelled = local(version).cuda is not None and name in commands.ON_INDEX
    index = f" --index-url {commands.INDEX}/{version.partition('+')[2]}" if labelled else ""
    return f"pip install --upgrade {name} 'torch=={plain}'{index}"


def build(name: str) -> str:
    """Return the command that builds a package in this environment, and leaves the others as they are."""
    return f"{_BUILD} {name} {name}"


def _torchao(torch: str) -> str:
    """Return the command for a torchao whose C++ kernels are made for that release."""
    for version, (compiled, _) in TORCHAO.items():
        if torch in compiled:
            return f"pip install 'torchao=={version}'"
    for version, least in TORCHAO_LEAST.items():
        if release(torch)[:2] >= release(least)[:2]:
            return f"pip install 'torchao>={version}'"
    return f"use the torchao that is made for torch {torch}: pytorch/ao#2919 lists them"
