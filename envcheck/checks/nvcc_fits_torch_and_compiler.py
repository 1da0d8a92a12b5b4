"""The nvcc that extensions would be built with fits PyTorch, the host compiler and the card."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import compiler_use, cuda, jit_needs
from envcheck.core.model import Domain, Environment, Finding, Status
from envcheck.core.tools import Compiler, Nvcc, Tools


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    tools = environment.tools if environment is not None else None
    if environment is None or tools is None:
        yield CHECK.skip("nvcc", "only files were looked at, not where a job would run")
        return
    nvcc = tools.nvcc
    if nvcc is None or nvcc.path is None:
        yield CHECK.skip("nvcc", "there is none, so nothing can be built with a wrong one")
        return
    if nvcc.release is None:
        yield CHECK.skip("nvcc", f"the files beside {nvcc.path} do not tell its release")
        return
    needs = jit_needs.who_needs(jit_needs.needs(environment), jit_needs.NVCC)
    builder = next((n.who for n in needs if n.always), None)
    users = ", ".join(n.who for n in needs)
    wrong = list(_wrong(question, environment, tools, nvcc, nvcc.release))
    subject = f"nvcc {nvcc.release}"
    for message, remedy, reason in wrong:
        tail = f"; {builder} builds its kernels with it" if builder else "; extensions built here"
        yield CHECK.finding(
            subject,
            Status.FAIL if builder else Status.WARN,
            message + (tail if builder else f"{tail} ({users})" if users else tail),
            remedy=remedy,
            domain=Domain.IMAGE,
            required=bool(needs),
            evidence={"path": nvcc.path, "release": nvcc.release, "reason": reason},
        )
    if not wrong:
        limit = "" if nvcc.newest_gcc is None else f", takes gcc up to {nvcc.newest_gcc}"
        yield CHECK.finding(
            subject,
            Status.PASS,
            f"fits what is installed and knows {question.sm}{limit}",
            domain=Domain.IMAGE,
            required=bool(needs),
            evidence={"path": nvcc.path, "release": nvcc.release},
        )


def _wrong(
    question: Question, environment: Environment, tools: Tools, nvcc: Nvcc, release: str
) -> Iterator[tuple[str, str, str]]:
    """Yield message, remedy and a stable word for everything that does not fit."""
    version = cuda.parse_version(release)
    torch = environment.torch.cuda if environment.torch is not None else None
    other = f"apt-get install cuda-nvcc-{(torch or '').replace('.', '-')}" if torch else ""
    if torch is not None and torch.partition(".")[0] != release.partition(".")[0]:
        message = f"CUDA {release} where torch was built with {torch}: its builder refuses"
        yield message, f"{other}; export CUDA_HOME=/usr/local/cuda-{torch}", "cuda-major"
    compiler = _host_compiler(tools)
    limit = nvcc.newest_gcc
    if compiler is not None and limit is not None and (compiler.version or 0) > limit:
        message = f"takes gcc up to {limit}, and {compiler.named} is gcc {compiler.version}"
        fix = f"apt-get install g++-{limit}; export CC=gcc-{limit} CXX=g++-{limit}"
        yield message, fix, "gcc-too-new"
    least = cuda.FIRST_CUDA.get(str(question.sm.plain))
    if least is not None and version < least:
        first = ".".join(map(str, least))
        message = f"knows no {question.sm}, CUDA {first} is the first that does"
        remedy = f"apt-get install cuda-nvcc-{first.replace('.', '-')}"
        yield message, remedy, "target-too-new"
    last = cuda.LAST_TOOLKIT_BELOW_SM_75
    if question.sm.silicon < 75 and version[0] > last[0]:
        text = ".".join(map(str, last))
        message = f"no longer knows {question.sm}, CUDA {text} is the last that does"
        yield message, f"apt-get install cuda-nvcc-{text.replace('.', '-')}", "target-too-old"


def _host_compiler(tools: Tools) -> Compiler | None:
    """Return the gcc that nvcc would run, None where it is none or its version is not known."""
    found = compiler_use.chosen(jit_needs.HOST, tools)
    if found is None or found.family != "gcc" or found.version is None:
        return None
    return found


CHECK = Check(
    id="nvcc-fits-torch-and-compiler",
    claim="The nvcc that is there fits PyTorch's CUDA, the host compiler and the card.",
    how=(
        "Reads the release of nvcc from its files and compares its CUDA major with the one that "
        "PyTorch was built with, gcc with the limit in nvcc's `crt/host_config.h`, and the SM "
        "with the releases that know it: what makes a build from source refuse. It fails where "
        "an installed package builds its kernels at first use, and warns otherwise."
    ),
    classes=("B2",),
    remedy="Install nvcc of PyTorch's CUDA release, and a gcc that it takes.",
    run=_run,
)
