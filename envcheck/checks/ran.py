"""What the checks of things that ran have in common: how a run is named, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from envcheck.checks.check import Check, Question
from envcheck.core.executed import Executed, Measured, Run
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.torch_releases import install_command

_SHOWN = 20
_MEMORY = re.compile(r"out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)
_NO_CODE = re.compile(r"no kernel image|no CUDA-capable device|invalid device function")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one run."""

    run: Run
    what: str
    domain: Domain

    @property
    def is_of_host(self) -> bool:
        """Whether it says nothing about the environment: the card had no memory left."""
        return self.domain is Domain.HOST


def label(run: Run) -> str:
    """Name a run below its operation: `bf16 M=301 N=517 K=1111 backward`."""
    direction = run.direction if run.direction != "forward" else ""
    return " ".join(part for part in (run.dtype, run.case, direction) if part)


def domain(run: Run) -> Domain:
    """Say whose fault it is when a run goes wrong."""
    return Domain.KERNEL if run.part in ("triton", "cuda") else Domain.PACKAGE


def fault(run: Run) -> Fault | None:
    """Return what is wrong with a run, None where nothing is or it was not run."""
    if run.outcome.status == "not-applicable" or run.holds:
        return None
    if not run.outcome.ok:
        what = run.message or run.outcome.status
        where = Domain.HOST if _MEMORY.search(what) else domain(run)
        return Fault(run, what, where)
    if not run.outputs:
        return Fault(run, "returned nothing to compare", domain(run))
    return Fault(run, _wrong(next(o for o in run.outputs if not o.holds)), domain(run))


def _wrong(output: Measured) -> str:
    name = "" if output.output == "out" else f"{output.output} "
    if not output.finite:
        return f"{name}holds NaN or infinity where float64 has numbers"
    size = f" (relative error {output.relative:.2g})" if output.relative is not None else ""
    if output.exact is False:
        return f"{name}is not what it must be to the last bit{size}"
    return f"{name}is {output.worst:.3g} times as far off as rounding explains{size}"


def of_part(executed: Executed, part: str) -> Iterator[tuple[str, list[Run]]]:
    """Yield the runs of a part, by operation, in their order."""
    runs = sorted((r for r in executed.runs if r.part == part), key=lambda r: r.op)
    order = {op: n for n, op in enumerate(dict.fromkeys(r.op for r in executed.runs))}
    groups = [(op, list(group)) for op, group in groupby(runs, key=lambda r: r.op)]
    yield from sorted(groups, key=lambda pair: order[pair[0]])


def judge(check: Check, question: Question, subject: str, runs: list[Run]) -> Finding:
    """Return one finding about all runs of one subject."""
    whose = domain(runs[0])
    faults = [f for f in map(fault, runs) if f is not None]
    left_out = [r for r in runs if r.was_left_out]
    done = [r for r in runs if r.outcome.status != "not-applicable"]
    evidence = {**figures(runs, question), **of_faults(faults)}
    if left_out:
        evidence["left_out"] = len(left_out)
    decisive = [f for f in faults if not f.is_of_host] or faults
    if decisive:
        first = decisive[0]
        more = f" (and {len(faults) - 1} more of {len(done)} runs)" if len(faults) > 1 else ""
        return check.finding(
            subject,
            Status.ERROR if first.is_of_host else Status.FAIL,
            f"{label(first.run)}: {first.what}{more}",
            remedy=_remedy(first, question),
            domain=first.domain,
            evidence=evidence,
        )
    if not done:
        finding = check.skip(subject, runs[0].message or "was not run")
        return check.finding(subject, Status.SKIP, finding.message, required=False,
                             evidence=evidence)  # fmt: skip
    tail = f"; {len(left_out)} {left_out[0].message}" if left_out else ""
    message = f"{_praise(done, evidence['share'])}{tail}"
    return check.finding(subject, Status.PASS, message, domain=whose, evidence=evidence)


def _praise(done: list[Run], share: Json) -> str:
    worsts = [o.worst for r in done for o in r.outputs if o.worst is not None]
    exact = sum(o.exact is True for r in done for o in r.outputs)
    seconds = sum(r.outcome.milliseconds for r in done) / 1000
    part = f" ({share:.1%} of all)" if isinstance(share, float) else ""
    parts = [f"{len(done)} runs in {seconds:.1f} s{part}"]
    parts += [f"at most {max(worsts):.2g} of the bound"] if worsts else []
    parts += [f"{exact} outputs exact to the last bit"] if exact else []
    return ", ".join(parts)


def figures(runs: list[Run], question: Question) -> dict[str, Json]:
    """Return the numbers of some runs, for the evidence."""
    executed = question.executed
    total = sum(r.outcome.milliseconds for r in executed.runs) if executed is not None else 0
    spent = sum(r.outcome.milliseconds for r in runs)
    worsts = [o.worst for r in runs for o in r.outputs if o.worst is not None]
    not_for = sorted({r.message for r in runs if r.outcome.status == "not-applicable"})
    return {
        "runs": sum(r.outcome.status != "not-applicable" for r in runs),
        "seconds": round(spent / 1000, 3),
        "share": round(spent / total, 4) if total else None,
        "worst": max(worsts, default=None),
        "sources": tuple(sorted({r.source for r in runs if r.source})),
        "not_run": tuple(not_for),
        "kernels": tuple(sorted({k for r in runs for k in r.kernels}))[:_SHOWN],
    }


def of_faults(faults: Iterable[Fault]) -> dict[str, Json]:
    """Return the evidence of what is wrong."""
    rows = tuple(
        {"run": label(f.run), "seed": f.run.seed, "what": f.what, "status": f.run.outcome.status}
        for f in faults
    )
    return {"faults": rows[:_SHOWN]} if rows else {}


def _remedy(first: Fault, question: Question) -> str:
    if first.is_of_host:
        return "nvidia-smi names what holds the card's memory; end it, or use another card"
    if _NO_CODE.search(first.what):
        return install_command(question.sm)
    if first.run.part in ("triton", "cuda"):
        return f"correct {first.run.op}, or leave it out for {question.sm}"
    if first.run.part == "extensions":
        return f"pip install --upgrade a build of {first.run.family} for this torch and card"
    return "try it on another card of this kind: fails it there too, install another torch"
