"""What the installed packages compile with while a job runs is there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from envcheck.checks.check import Check, Question
from envcheck.core import compiler_use, jit_needs
from envcheck.core.compiler_use import Fault
from envcheck.core.jit_needs import Need
from envcheck.core.model import Domain, Environment, Finding, Status
from envcheck.core.tools import Compiler, Tools

_ORDER = (
    *(jit_needs.C, jit_needs.CXX, jit_needs.EXTENSION_CXX, jit_needs.HEADER, jit_needs.LDCONFIG),
    *(jit_needs.LINK, jit_needs.NVCC, jit_needs.HOST, jit_needs.NINJA),
)

# Of each: the package of Debian that brings it, and what is looked for.
_PACKAGES = {
    jit_needs.C: ("gcc", "gcc, clang and CC"),
    jit_needs.CXX: ("g++", "g++ and CXX"),
    jit_needs.EXTENSION_CXX: ("g++", "c++ and CXX"),
    jit_needs.HOST: ("g++", "gcc, CC and NVCC_CCBIN"),
}
_FAULTS = {
    Fault.ABSENT: "names no program",
    Fault.ONE_NAME: "is taken whole, as the name of one program, and there is none",
    Fault.WORDS: "is split into words, of which the first is no program",
    Fault.MORE: "is split into words, and nvcc takes the second for a file to compile",
    Fault.NO_COMPILER: "is no compiler",
    Fault.UNKNOWN: "is a script that names no compiler: what it does shows when it is run",
}


class _Seen(NamedTuple):
    """What is there for a tool, or what is wrong and what to do."""

    there: str | None
    wrong: str = ""
    remedy: str = ""
    certain: bool = True


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
    seen = _look(tool, environment, tools)
    first = users[0]
    evidence = {
        "needed_by": tuple({"who": n.who, "for": n.why, "always": n.always} for n in users),
        "found": seen.there,
    }
    if seen.there is not None:
        message = f"{seen.there}; needed by {_names(users)}"
        return CHECK.finding(tool, Status.PASS, message, domain=Domain.IMAGE, evidence=evidence)
    more = f" (and {_names(users[1:])})" if users[1:] else ""
    verb = "needs it for" if first.always else "would need it for"
    return CHECK.finding(
        tool,
        Status.FAIL if first.always and seen.certain else Status.WARN,
        f"{seen.wrong}: {first.who} {verb} {first.why}{more}",
        remedy=seen.remedy,
        domain=Domain.IMAGE,
        evidence=evidence,
    )


def _names(users: tuple[Need, ...]) -> str:
    names = [need.who for need in users]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _look(tool: str, environment: Environment, tools: Tools) -> _Seen:
    """Return what is there, None for nothing that can be used."""
    if tool in _PACKAGES:
        return _compiler(tool, environment, tools)
    if tool == jit_needs.HEADER:
        return _header(environment, tools)
    if tool == jit_needs.LDCONFIG:
        named = any(n.variable == "TRITON_LIBCUDA_PATH" for n in tools.named)
        found = "/sbin/ldconfig" if tools.ldconfig else None
        there = found or ("TRITON_LIBCUDA_PATH stands for it" if named else None)
        return _Seen(
            there, "absent (/sbin/ldconfig)", "apt-get install libc-bin, or set TRITON_LIBCUDA_PATH"
        )
    if tool == jit_needs.LINK:
        folder = tools.libcuda[0]
        there = f"{tools.libcuda_link[0]}/libcuda.so" if tools.libcuda_link else None
        remedy = f"ln -s libcuda.so.1 {shlex.quote(folder)}/libcuda.so"
        return _Seen(there, f"absent, only {folder}/libcuda.so.1 is there", remedy)
    if tool == jit_needs.NVCC:
        return _nvcc(environment, tools)
    return _Seen(tools.ninja, "absent", "pip install ninja")


def _compiler(tool: str, environment: Environment, tools: Tools) -> _Seen:
    torch = environment.torch.version if environment.torch is not None else ""
    package, names = _PACKAGES[tool]
    found = compiler_use.chosen(tool, tools)
    if found is None:
        return _Seen(None, f"absent (looked for {names})", f"apt-get install {package}")
    fault = compiler_use.fault(tool, found, jit_needs.release(torch))
    if fault is None:
        return _Seen(_said(found))
    wrong = f"{found.origin}={shlex.quote(found.named)} {_FAULTS[fault]}"
    remedy = f"unset {found.origin}, or apt-get install {package}"
    if fault in (Fault.ONE_NAME, Fault.WORDS, Fault.MORE):
        remedy = f"export {found.origin}={shlex.quote(found.path or package)}"
    return _Seen(None, wrong, remedy, certain=fault is not Fault.UNKNOWN)


def _said(compiler: Compiler) -> str:
    version = f"{compiler.family} {compiler.version} at " if compiler.version else ""
    return f"{version}{compiler.path}"


def _header(environment: Environment, tools: Tools) -> _Seen:
    path = tools.python_header
    if tools.python_header_exists:
        return _Seen(path)
    version = ".".join(environment.python.split(".")[:2])
    wrong = "absent" if path is None else f"absent ({path})"
    if path is None or path.startswith("/usr/include/"):
        return _Seen(None, wrong, f"apt-get install python{version}-dev")
    return _Seen(
        None, wrong, f"install the headers of this Python {version} (they come with its source)"
    )


def _nvcc(environment: Environment, tools: Tools) -> _Seen:
    torch = environment.torch
    release = torch.cuda if torch is not None and torch.cuda else "the CUDA of torch"
    remedy = f"apt-get install cuda-nvcc-{release.replace('.', '-')}"
    if torch is None or not torch.cuda:
        remedy = "install the CUDA toolkit of torch's release"
    nvcc = tools.nvcc
    if nvcc is None:
        return _Seen(None, "absent (looked for CUDA_HOME, PATH and /usr/local/cuda)", remedy)
    if nvcc.path is None:
        return _Seen(None, f"absent from {nvcc.home}/bin, where {nvcc.origin} points", remedy)
    return _Seen(f"{nvcc.release or 'of unknown release'} at {nvcc.path}", "", "")


CHECK = Check(
    id="jit-tools-are-there",
    claim="Compilers and headers that installed packages need while a job runs are there.",
    how=(
        "Looks for a C compiler, C++ compilers, `Python.h` of the base interpreter, ldconfig, "
        "the link name `libcuda.so`, nvcc, its host compiler and ninja, where Triton, Inductor and "
        "torch.utils.cpp_extension look, without running any of them. CC, CXX and NVCC_CCBIN are "
        "taken as each of them takes them, as one name or as words, and what they name must be a "
        "compiler, as far as its name and its bytes tell. Each is judged only where an installed package "
        "compiles with it (just-in-time compilation): it fails where the package does nothing "
        "without it, and warns where the package merely can compile. Triton compiles its "
        "launcher in every release up to 3.9; up to 3.5 it also needs `libcuda.so`."
    ),
    classes=("B2", "B3"),
    remedy="Install what is missing, or start from an image for development.",
    run=_run,
)
