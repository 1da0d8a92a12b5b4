"""What the installed packages compile with while a job runs is there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import jit_needs
from envcheck.core.jit_needs import Need
from envcheck.core.model import Domain, Environment, Finding, Status
from envcheck.core.tools import Compiler, Tools

_ORDER = (
    *(jit_needs.C, jit_needs.CXX, jit_needs.HEADER, jit_needs.LDCONFIG, jit_needs.LINK),
    *(jit_needs.NVCC, jit_needs.NINJA),
)


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.tools is None:
        yield CHECK.skip("compilers", "only files were looked at, not where a job would run")
        return
    needs = jit_needs.needs(environment)
    if not needs:
        yield CHECK.skip("compilers", "nothing that is installed compiles while a job runs")
        return
    for tool in _ORDER:
        users = jit_needs.who_needs(needs, tool)
        if users:
            yield _judge(tool, users, environment, environment.tools)


def _judge(tool: str, users: tuple[Need, ...], environment: Environment, tools: Tools) -> Finding:
    if tool == jit_needs.LINK and not tools.libcuda:
        return CHECK.skip(tool, "no libcuda.so.1 is here: a driver brings both")
    there, where, remedy = _look(tool, environment, tools)
    first = users[0]
    evidence = {
        "needed_by": tuple({"who": n.who, "for": n.why, "always": n.always} for n in users),
        "found": there,
    }
    if there is not None:
        message = f"{there}; needed by {_names(users)}"
        return CHECK.finding(tool, Status.PASS, message, domain=Domain.IMAGE, evidence=evidence)
    more = f" (and {_names(users[1:])})" if users[1:] else ""
    verb = "needs it for" if first.always else "would need it for"
    return CHECK.finding(
        tool,
        Status.FAIL if first.always else Status.WARN,
        f"absent{where}: {first.who} {verb} {first.why}{more}",
        remedy=remedy,
        domain=Domain.IMAGE,
        evidence=evidence,
    )


def _names(users: tuple[Need, ...]) -> str:
    names = [need.who for need in users]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _look(tool: str, environment: Environment, tools: Tools) -> tuple[str | None, str, str]:
    """Return what is there (None for nothing), where it was looked for, and how to get it."""
    if tool in (jit_needs.C, jit_needs.CXX):
        return _compiler(tool, tools)
    if tool == jit_needs.HEADER:
        return _header(environment, tools)
    if tool == jit_needs.LDCONFIG:
        named = any(n.variable == "TRITON_LIBCUDA_PATH" for n in tools.named)
        found = "/sbin/ldconfig" if tools.ldconfig else None
        there = found or ("TRITON_LIBCUDA_PATH stands for it" if named else None)
        return there, " (/sbin/ldconfig)", "apt-get install libc-bin, or set TRITON_LIBCUDA_PATH"
    if tool == jit_needs.LINK:
        folder = tools.libcuda[0]
        there = f"{tools.libcuda_link[0]}/libcuda.so" if tools.libcuda_link else None
        remedy = f"ln -s libcuda.so.1 {shlex.quote(folder)}/libcuda.so"
        return there, f", only {folder}/libcuda.so.1 is there", remedy
    if tool == jit_needs.NVCC:
        return _nvcc(environment, tools)
    return tools.ninja, "", "pip install ninja"


def _compiler(tool: str, tools: Tools) -> tuple[str | None, str, str]:
    language, package = ("c", "gcc") if tool == jit_needs.C else ("c++", "g++")
    remedy = f"apt-get install {package}"
    found = next((c for c in tools.compilers if c.language == language), None)
    if found is None:
        names = "gcc, clang and CC" if language == "c" else "g++, clang++ and CXX"
        return None, f" (looked for {names})", remedy
    if found.path is None:
        where = f": {found.origin}={found.named} names no program"
        return None, where, f"unset {found.origin}, or {remedy}"
    return _said(found), "", ""


def _said(compiler: Compiler) -> str:
    version = f"{compiler.family} {compiler.version} at " if compiler.version else ""
    return f"{version}{compiler.path}"


def _header(environment: Environment, tools: Tools) -> tuple[str | None, str, str]:
    path = tools.python_header
    if tools.python_header_exists:
        return path, "", ""
    version = ".".join(environment.python.split(".")[:2])
    where = "" if path is None else f" ({path})"
    if path is None or path.startswith("/usr/include/"):
        return None, where, f"apt-get install python{version}-dev"
    return None, where, f"install the headers of this Python {version} (they come with its source)"


def _nvcc(environment: Environment, tools: Tools) -> tuple[str | None, str, str]:
    torch = environment.torch
    release = torch.cuda if torch is not None and torch.cuda else "the CUDA of torch"
    remedy = f"apt-get install cuda-nvcc-{release.replace('.', '-')}"
    if torch is None or not torch.cuda:
        remedy = "install the CUDA toolkit of torch's release"
    nvcc = tools.nvcc
    if nvcc is None:
        return None, " (looked for CUDA_HOME, PATH and /usr/local/cuda)", remedy
    if nvcc.path is None:
        return None, f" from {nvcc.home}/bin, where {nvcc.origin} points", remedy
    return f"{nvcc.release or 'of unknown release'} at {nvcc.path}", "", ""


CHECK = Check(
    id="jit-tools-are-there",
    claim="Compilers and headers that installed packages need while a job runs are there.",
    how=(
        "Looks for a C compiler, a C++ compiler, `Python.h` of the base interpreter, ldconfig, "
        "the link name `libcuda.so`, nvcc and ninja, where Triton and torch.utils.cpp_extension "
        "look, without running any of them. Each is judged only where an installed package "
        "compiles with it (just-in-time compilation): it fails where the package does nothing "
        "without it, and warns where the package merely can compile. Triton compiles its "
        "launcher in every release up to 3.9; up to 3.5 it also needs `libcuda.so`."
    ),
    classes=("B2", "B3"),
    remedy="Install what is missing, or start from an image for development.",
    run=_run,
)
