"""Each Triton kernel, launched on the card, gives what float64 gives, or does not fit as predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envcheck.checks import ran
from envcheck.checks.check import Check, Question
from envcheck.core.executed import Executed, Run
from envcheck.core.model import Domain, Finding, Json, Status

_TOO_MUCH = "OutOfResources"
"""Name of what Triton raises for a launch that the card has no room for."""


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    if executed is None:
        yield CHECK.skip("kernels", question.why_not_executed)
        return
    groups = list(ran.of_part(executed, "triton"))
    if not groups:
        yield CHECK.skip("kernels", "no Triton kernel was asked for")
        return
    needs = _needs(question)
    for name, runs in groups:
        yield _judge(question, executed, name, runs, needs)


def _needs(question: Question) -> dict[tuple[str, str, str], int]:
    """Return the bytes of shared memory that compiling said, by kernel, dtype and configuration."""
    triton = question.compiled.triton if question.compiled is not None else None
    found: dict[tuple[str, str, str], int] = {}
    for each in triton.compilations if triton is not None else ():
        if each.code is not None:
            key = (each.kernel, each.dtype, each.config)
            needed = each.code.static_shared + each.code.dynamic_shared
            found[key] = max(needed, found.get(key, 0))
    return found


def _judge(
    question: Question,
    executed: Executed,
    name: str,
    runs: list[Run],
    needs: dict[tuple[str, str, str], int],
) -> Finding:
    card = executed.card
    limit = question.target.shared_memory_per_block
    limit = limit if card is None or card.shared_memory_per_block is None else (
        card.shared_memory_per_block
    )  # fmt: skip
    refused = [r for r in runs if _did_not_fit(r)]
    other = [r for r in runs if not _did_not_fit(r)]
    rows: list[Json] = []
    surprises: list[str] = []
    for (dtype, config), bytes_ in _configurations(name, runs, needs).items():
        own = [r for r in runs if r.dtype == dtype and _has(r, config)]
        fits = None if limit is None else bytes_ <= limit
        failed = [r for r in own if _did_not_fit(r)]
        ran_well = any(r.outcome.ok for r in own)
        outcome = "did not fit" if failed else "ran" if ran_well else "was not run"
        rows.append({"dtype": dtype, "config": config, "bytes": bytes_, "limit": limit,
                     "predicted": _word(fits), "outcome": outcome})  # fmt: skip
        if fits and failed:
            surprises.append(
                f"{dtype} {config} was predicted to fit ({bytes_} of {limit} bytes) and did not:"
                f" {failed[0].message}"
            )
    if surprises:
        finding = CHECK.finding(name, Status.FAIL, surprises[0], domain=Domain.KERNEL,
                                remedy=f"correct {name}: what it asks for differs from what it was"
                                " compiled for")  # fmt: skip
    elif refused and not other:
        message = f"no configuration fits into the card: {refused[0].message}"
        remedy = "add a configuration with smaller blocks or fewer num_stages"
        finding = CHECK.finding(name, Status.FAIL, message, remedy=remedy, domain=Domain.KERNEL)
    else:
        finding = ran.judge(CHECK, question, name, other)
        if refused:
            tail = f"; {len(refused)} did not fit into {limit} bytes of shared memory, as predicted"
            finding = replace(finding, message=finding.message + tail)
    return replace(finding, evidence={**finding.evidence, "configurations": tuple(rows)})


def _did_not_fit(run: Run) -> bool:
    return _TOO_MUCH in (run.outcome.error or "")


def _has(run: Run, config: str) -> bool:
    return f" {run.case}".endswith(f" {config}")


def _word(fits: bool | None) -> str:  # noqa: FBT001 - it is what is put into words
    return "unknown" if fits is None else "fits" if fits else "does not fit"


def _configurations(
    name: str, runs: list[Run], needs: dict[tuple[str, str, str], int]
) -> dict[tuple[str, str], int]:
    dtypes = {r.dtype for r in runs}
    return {(d, c): n for (kernel, d, c), n in needs.items() if kernel == name and d in dtypes}


CHECK = Check(
    id="triton-kernels-match-reference",
    claim="Each Triton kernel gives on the card what float64 gives, in each configuration that fits.",
    how=(
        "Launches each kernel in each dtype and configuration at sizes with tails, and compares "
        "as for operations. A configuration that compiling found too large for the card's shared "
        "memory must be refused by it, and one that was found to fit must run: prediction and "
        "outcome stand beside each other in the evidence."
    ),
    classes=("H2", "I1"),
    remedy="Correct the kernel, or leave out the configurations that the finding names.",
    runs=("triton",),
    run=_run,
)
