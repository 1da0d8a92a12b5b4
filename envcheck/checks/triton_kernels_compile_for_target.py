"""Every Triton kernel compiled for the card, in each dtype that the card has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from envcheck.checks import remedies
from envcheck.checks.check import Check, Question
from envcheck.core.compiled import Compilation, CompiledKernels
from envcheck.core.model import Assurance, Domain, Finding, Json, Status
from envcheck.core.sm import Sm, sass_runs_on

# What an autotuner passes over when another configuration remains
# (triton/runtime/autotuner.py, Autotuner._bench).
_PRUNED = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError")
_MANY = 6


def _run(question: Question) -> Iterator[Finding]:
    compiled = question.compiled
    if compiled is None:
        yield CHECK.skip("kernels", question.why_not_compiled)
        return
    if not compiled.outcome.ok:
        message = f"compiling ended early: {compiled.message or compiled.outcome.status}"
        yield CHECK.finding("kernels", Status.ERROR, message, domain=Domain.ENVCHECK)
        return
    triton = compiled.triton
    if triton is None:
        yield CHECK.skip("kernels", "no Triton in what was looked at, or no kernels to compile")
    elif not triton.outcome.ok:
        message = f"Triton itself fails: {triton.message or triton.outcome.status}"
        remedy = remedies.for_triton(question.sm)
        yield CHECK.finding("triton", Status.FAIL, message, remedy=remedy)
    elif not triton.compilations:
        yield CHECK.skip("kernels", "no Triton kernel was asked for")
    else:
        yield from _of_kernels(question, triton)


def _of_kernels(question: Question, triton: CompiledKernels) -> Iterator[Finding]:
    for name, group in groupby(triton.compilations, lambda c: c.kernel):
        made = [c for c in group if c.outcome.status != "not-applicable"]
        if made:
            yield _judge(question, name, made)
        else:
            yield CHECK.skip(name, f"none of its dtypes exists on {question.sm}")


def _judge(question: Question, name: str, made: list[Compilation]) -> Finding:
    failed = [c for c in made if not c.outcome.ok]
    evidence: dict[str, Json] = {
        "compiled": len(made) - len(failed),
        "targets": tuple(sorted({c.code.target for c in made if c.code is not None})),
        "registers": max((c.code.registers for c in made if c.code is not None), default=0),
        "spilling": tuple(_label(c) for c in made if c.code is not None and c.code.stack_bytes),
        "failed": tuple(
            {"what": _label(c), "status": c.outcome.status, "message": c.message} for c in failed
        ),
    }
    foreign = [c for c in made if c.code and not sass_runs_on(Sm.parse(c.code.target), question.sm)]
    if foreign:
        code = foreign[0].code
        assert code is not None
        message = (
            f"{len(foreign)} of {len(made)} compiled without an error, but for another card: "
            f"{_label(foreign[0])}: {code.target} code does not run on {question.sm}"
        )
        remedy = "unset TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH, or reinstall triton"
        return CHECK.finding(
            name, Status.FAIL, message, remedy=remedy, domain=Domain.PACKAGE, evidence=evidence
        )
    if not failed:
        targets = ", ".join(str(t) for t in sorted({c.code.target for c in made if c.code}))
        message = f"{len(made)} of {len(made)} compiled, for {targets}"
        return CHECK.finding(name, Status.PASS, message, domain=Domain.KERNEL, evidence=evidence)
    lost = [c for c in failed if not _is_passed_over(c, made)]
    cause = (lost or failed)[0]
    if not cause.function:
        # Not even what there is to compile is known: that is the kernel's fault, not Triton's.
        message = f"kernel.py cannot be loaded: {cause.message or cause.outcome.status}"
        remedy = f"correct kernel.py of {name}"
        return CHECK.finding(
            name, Status.FAIL, message, remedy=remedy, domain=Domain.KERNEL, evidence=evidence
        )
    count = f"{len(failed)} of {len(made)} do not compile"
    message = f"{count}: {_label(cause)}: {cause.message or cause.outcome.status}"
    return CHECK.finding(
        name,
        Status.FAIL if lost else Status.WARN,
        message if lost else f"{message}; an autotuner takes the others",
        remedy=remedies.for_triton(question.sm) if lost else "",
        domain=Domain.KERNEL,
        evidence=evidence,
    )


def _is_passed_over(failed: Compilation, made: list[Compilation]) -> bool:
    """Say whether an autotuner would pass over a failure and find another configuration."""
    raised = (failed.outcome.error or "").partition(":")[0].rpartition(".")[2]
    others = any(
        c.outcome.ok
        and (c.function, c.dtype, c.problem) == (failed.function, failed.dtype, failed.problem)
        for c in made
    )
    return failed.outcome.status == "raised" and raised in _PRUNED and others


def _label(one: Compilation) -> str:
    return " ".join(part for part in (one.function, one.dtype, one.config) if part) or one.kernel


CHECK = Check(
    id="triton-kernels-compile-for-target",
    claim="Every Triton kernel compiles for the card, in each dtype that the card has.",
    how=(
        "Compiles each function of each kernel for each dtype and configuration with the "
        "environment's own Triton, without a GPU, each in a process of its own with a deadline. "
        "What a configuration's failure costs follows Triton's autotuner: it passes over those "
        "that run out of resources, and nothing else."
    ),
    classes=("B1",),
    remedy="Install the Triton that belongs to a PyTorch made for the card.",
    assurance=Assurance.COMPILED,
    run=_run,
)
