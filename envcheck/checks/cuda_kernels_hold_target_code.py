"""Each CUDA C++ kernel was built, and its file holds the machine code that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envcheck.checks.check import Check, Question
from envcheck.core import coverage
from envcheck.core.compiled import CudaKernel, CudaKernels
from envcheck.core.model import Assurance, Domain, Finding, Json, Status
from envcheck.core.sm import Sm

_NO_TORCH = "No module named 'torch'"


def _run(question: Question) -> Iterator[Finding]:
    compiled = question.compiled
    if compiled is None:
        yield CHECK.skip("kernels", question.why_not_compiled)
        return
    cuda = compiled.cuda
    if cuda is None:
        yield CHECK.skip("kernels", "no CUDA C++ kernel was asked for")
    elif cuda.outcome.status == "not-applicable":
        yield CHECK.skip("kernels", cuda.message or "they cannot be built here")
    elif _NO_TORCH in cuda.message:
        yield CHECK.skip("kernels", "no PyTorch is in the environment, which builds them")
    elif not cuda.outcome.ok:
        message = f"nothing was built: {cuda.message or cuda.outcome.status}"
        found = CHECK.finding("kernels", Status.FAIL, message, domain=Domain.PACKAGE)
        yield found if cuda.own else _of_machine(found)
    else:
        for kernel in cuda.kernels:
            found = _judge(question.sm, kernel, cuda)
            yield found if cuda.own else _of_machine(found)


def _of_machine(found: Finding) -> Finding:
    """A compiler that only happens to be on the machine decides nothing: jobs may need none."""
    if found.status is not Status.FAIL:
        return found
    message = f"{found.message} (what a job would compile here fails, too)"
    return replace(found, status=Status.WARN, message=message)


def _judge(sm: Sm, kernel: CudaKernel, cuda: CudaKernels) -> Finding:
    held = coverage.codes(kernel.file, "sass") if kernel.file is not None else ()
    evidence: dict[str, Json] = {
        "asked": kernel.asked,
        "sass": tuple(map(str, held)),
        "nvcc": cuda.nvcc,
        "torch": cuda.torch,
        "said": kernel.outcome.stderr or kernel.outcome.stdout,
    }
    if kernel.outcome.status == "not-applicable":
        return CHECK.skip(kernel.kernel, kernel.message or f"is not for {sm}")
    if not kernel.outcome.ok or kernel.file is None:
        message = f"is not built: {kernel.message or kernel.outcome.status}"
        return CHECK.finding(
            kernel.kernel, Status.FAIL, message, domain=Domain.KERNEL, evidence=evidence
        )
    if any(code.number == sm.number for code in held):
        names = ", ".join(map(str, held))
        message = f"built with nvcc {cuda.nvcc} for {kernel.asked}, holds {names}"
        return CHECK.finding(
            kernel.kernel, Status.PASS, message, domain=Domain.KERNEL, evidence=evidence
        )
    holds = ", ".join(map(str, held)) or "no machine code"
    return CHECK.finding(
        kernel.kernel,
        Status.FAIL,
        f"built for {kernel.asked} without an error, but holds {holds} and nothing for {sm}",
        remedy=f"use an nvcc that knows {sm}, and TORCH_CUDA_ARCH_LIST={kernel.asked}",
        domain=Domain.PACKAGE,
        evidence=evidence,
    )


CHECK = Check(
    id="cuda-kernels-hold-target-code",
    claim="Each CUDA C++ kernel builds as a PyTorch extension and holds machine code for the card.",
    how=(
        "Builds each kernel with torch.utils.cpp_extension and the toolchain's nvcc for exactly "
        "the target, loads it, and reads the built file: some setups drop an architecture that "
        "they do not know without an error."
    ),
    classes=("A2", "A4"),
    remedy="Give the toolchain an nvcc of the CUDA release that PyTorch was made with.",
    assurance=Assurance.COMPILED,
    run=_run,
)
