"""Of each Triton kernel a configuration remains that fits into the card's shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.compiled import Compilation
from envcheck.core.model import Assurance, Domain, Finding, Json, Status


def _run(question: Question) -> Iterator[Finding]:
    compiled, limit = question.compiled, question.target.shared_memory_per_block
    if compiled is None:
        yield CHECK.skip("kernels", question.why_not_compiled)
        return
    if limit is None:
        yield CHECK.skip("kernels", f"the shared memory of {question.sm} is not known here")
        return
    made = compiled.triton.compilations if compiled.triton is not None else ()
    whole = [c for c in made if c.code is not None]
    if not whole:
        yield CHECK.skip("kernels", "no Triton kernel was compiled")
    # What a problem sets (a head's size) cannot be exchanged for what fits better.
    groups: dict[tuple[str, ...], list[Compilation]] = {}
    for each in whole:
        groups.setdefault((each.kernel, each.dtype, each.problem), []).append(each)
    for names, group in groups.items():
        yield _judge(" ".join(filter(None, names)), group, limit)


def _judge(subject: str, made: list[Compilation], limit: int) -> Finding:
    """Judge one kernel in one dtype: all functions of a configuration must fit."""
    needs: dict[str, int] = {}
    for each in made:
        assert each.code is not None
        needed = each.code.static_shared + each.code.dynamic_shared
        needs[each.config] = max(needed, needs.get(each.config, 0))
    over = {config: needed for config, needed in needs.items() if needed > limit}
    remain = tuple(config for config in needs if config not in over)
    evidence: dict[str, Json] = {"limit": limit, "over": over, "remain": remain}
    if not over:
        message = f"at most {max(needs.values())} of {limit} bytes"
        return CHECK.finding(subject, Status.PASS, message, domain=Domain.KERNEL, evidence=evidence)
    named = "; ".join(f"{config} needs {needed} bytes" for config, needed in over.items())
    left = f"; remain: {'; '.join(remain)}" if remain else "; no configuration remains"
    return CHECK.finding(
        subject,
        Status.WARN if remain else Status.FAIL,
        f"dies with OutOfResources above {limit} bytes of shared memory: {named}{left}",
        remedy="" if remain else "add a configuration with smaller blocks or fewer num_stages",
        domain=Domain.KERNEL,
        evidence=evidence,
    )


CHECK = Check(
    id="triton-kernels-fit-shared-memory",
    claim="Of each Triton kernel a configuration remains that fits into the card's shared memory.",
    how=(
        "Adds what a block takes by its cubin and what its launch asks for, for each compiled "
        "configuration, and compares it with the most that one block may have on the card."
    ),
    classes=("G1",),
    remedy="Give the kernel a configuration with smaller blocks or fewer stages.",
    assurance=Assurance.COMPILED,
    run=_run,
)
