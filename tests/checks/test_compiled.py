"""What was compiled for a card: assemblers, Triton and CUDA kernels, shared memory, extensions.

Bytes of shared memory are those of Triton 3.8 for the configurations of `kernels/`, the limits
those of the CUDA C++ Programming Guide (table of technical specifications): 99 KiB for 8.9
and 12.x, 227 KiB for 9.0 and 10.0. What assemblers say was said by those of the wheels.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import ask, container, device_file, distribution, environment, question

from envcheck import remembered
from envcheck.checks import CHECKS
from envcheck.core.compiled import (
    AssemblerProbe,
    Compilation,
    Compiled,
    CompiledKernels,
    CudaKernel,
    CudaKernels,
    Extension,
    MachineCode,
    Outcome,
)
from envcheck.core.model import Assurance, Finding, Inventory, Status, Target, Triton, Verdict
from envcheck.judge import judge, reached

OK = Outcome(status="ok")
EXITED = Outcome(status="exited", code=255)
BLACKWELL = Target(name="blackwell", sm="sm_120", shared_memory_per_block=101376)
ASSEMBLER, KERNELS = "assembler-accepts-target", "triton-kernels-compile-for-target"
SHARED, CUDA = "triton-kernels-fit-shared-memory", "cuda-kernels-hold-target-code"
EXTENSIONS = "extensions-import"
REFUSAL = "ptxas fatal : Value 'sm_120a' is not defined for option 'gpu-name'"


def probe(
    name: str, target: str, *, accepted: bool = True, origin: str = "triton", version: str = "12.8"
) -> AssemblerProbe:
    folder = {"triton": "triton/backends/nvidia/bin", "toolkit": "nvidia/cu13/bin"}
    return AssemblerProbe(
        name=name,
        origin=origin,
        path=f"{folder.get(origin, '/usr/local/bin')}/{name}",
        version=version,
        target=target,
        accepted=accepted,
        message="" if accepted else REFUSAL.replace("sm_120a", target),
        outcome=OK if accepted else EXITED,
    )


def compilation(
    config: str,
    shared: int = 0,
    *,
    kernel: str = "matmul",
    function: str = "matmul_kernel",
    dtype: str = "fp16",
    outcome: Outcome = OK,
    message: str = "",
    static: int = 0,
    problem: str = "",
) -> Compilation:
    code = MachineCode(
        target="sm_120a",
        ptx_isa="8.7",
        registers=255,
        stack_bytes=0,
        static_shared=static,
        dynamic_shared=shared,
        num_warps=8,
        num_stages=4,
    )
    return Compilation(
        kernel=kernel,
        function=function,
        dtype=dtype,
        config=config,
        problem=problem,
        outcome=outcome,
        message=message,
        code=code if outcome.ok else None,
    )


def triton(*made: Compilation, outcome: Outcome = OK, message: str = "") -> CompiledKernels:
    return CompiledKernels(
        target="sm_120",
        triton="3.8.0",
        outcome=outcome,
        message=message,
        variables={},
        compilations=made,
    )


def compiled(inventory: Inventory | None = None, target: str = "sm_120", **facts) -> Inventory:
    inventory = inventory or environment(triton=Triton(version="3.8.0"))
    return replace(inventory, compiled=Compiled(target=target, outcome=OK, **facts))


def asked(check: str, inventory: Inventory, target: Target = BLACKWELL) -> list[Finding]:
    (found,) = (c for c in CHECKS if c.id == check)
    return list(found.run(replace(question(inventory, target.sm), target=target)))


@pytest.mark.parametrize("check", [ASSEMBLER, KERNELS, SHARED, CUDA, EXTENSIONS])
def test_without_compiling_each_says_that_there_is_nothing(check: str) -> None:
    (finding,) = asked(check, environment())
    assert (finding.status, finding.required) == (Status.SKIP, False)
    assert finding.message == "nothing was compiled: `envcheck build` does that"


@pytest.mark.parametrize("check", [ASSEMBLER, KERNELS, SHARED, CUDA, EXTENSIONS])
def test_what_was_compiled_for_another_card_counts_for_nothing(check: str) -> None:
    facts = {"triton": triton(compilation("A", 1)), "assemblers": (probe("ptxas", "sm_89"),)}
    (finding,) = asked(check, compiled(target="sm_89", **facts))
    assert (finding.status, finding.required) == (Status.SKIP, False)
    assert finding.message == "compiled for sm_89, which says nothing about sm_120"


def test_only_the_assembler_that_triton_runs_decides() -> None:
    """Triton 3.3 ships a ptxas of CUDA 12.4, which no Blackwell card is compiled with."""
    probes = (
        *(probe("ptxas", t, accepted=False, version="12.4") for t in ("sm_120", "sm_120a")),
        *(probe("ptxas-blackwell", t) for t in ("sm_120", "sm_120a")),
    )
    inventory = environment(triton=Triton(version="3.3.0"))
    first, second = asked(ASSEMBLER, compiled(inventory, assemblers=probes))
    assert (first.status, first.required) == (Status.WARN, False)
    assert (second.status, second.required) == (Status.PASS, True)
    assert second.message == "takes sm_120, sm_120a"


def test_an_assembler_that_knows_the_card_but_not_what_triton_asks_for_fails() -> None:
    probes = (probe("ptxas", "sm_120"), probe("ptxas", "sm_120a", accepted=False))
    inventory = environment(triton=Triton(version="3.5.1"))
    (finding,) = asked(ASSEMBLER, compiled(inventory, assemblers=probes))
    assert (finding.status, finding.message) == (Status.FAIL, REFUSAL)
    assert finding.remedy == "pip install --upgrade 'torch>=2.8.0'"


def test_an_assembler_that_a_variable_names_goes_before_the_bundled_one() -> None:
    mine = {"origin": "TRITON_PTXAS_PATH", "version": "12.4"}
    probes = (
        *(probe("ptxas", t, accepted=False, **mine) for t in ("sm_120", "sm_120a")),
        *(probe("ptxas", t) for t in ("sm_120", "sm_120a")),
    )
    inventory = environment(triton=Triton(version="3.5.1"))
    first, second = asked(ASSEMBLER, compiled(inventory, assemblers=probes))
    assert (first.status, first.remedy) == (Status.FAIL, "unset TRITON_PTXAS_PATH")
    assert (second.status, second.required) == (Status.PASS, False)


def test_an_old_nvrtc_is_told_and_does_not_decide() -> None:
    old = probe("nvrtc", "sm_120", accepted=False, origin="toolkit", version="12.4")
    (finding,) = asked(ASSEMBLER, compiled(assemblers=(old,)))
    assert (finding.status, finding.required) == (Status.WARN, False)


def test_kernels_that_all_compile_pass_with_what_was_emitted() -> None:
    made = (compilation("A"), compilation("B"))
    (finding,) = asked(KERNELS, compiled(triton=triton(*made)))
    assert (finding.status, finding.message) == (Status.PASS, "2 of 2 compiled, for sm_120a")


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome(status="raised", error="triton.runtime.errors.PTXASError: no"), Status.WARN),
        (Outcome(status="raised", error="OutOfResources: shared memory"), Status.WARN),
        (Outcome(status="raised", error="CompilationError: at 1:2"), Status.FAIL),
        (Outcome(status="crashed", signal="SIGABRT"), Status.FAIL),
        (Outcome(status="timed-out"), Status.FAIL),
        (Outcome(status="exited", code=1), Status.FAIL),
    ],
)
def test_a_failing_configuration_costs_what_it_costs_an_autotuner(
    outcome: Outcome, status: Status
) -> None:
    bad = compilation("B", outcome=outcome, message="LLVM ERROR: Cannot select")
    (finding,) = asked(KERNELS, compiled(triton=triton(compilation("A"), bad)))
    assert finding.status is status
    assert finding.message.startswith(
        "1 of 2 do not compile: matmul_kernel fp16 B: LLVM ERROR: Cannot select"
    )


def test_where_no_configuration_compiles_nothing_can_be_passed_over() -> None:
    error = Outcome(status="raised", error="PTXASError: Value 'sm_120' is not defined")
    bad = tuple(compilation(c, outcome=error, message=REFUSAL) for c in "AB")
    (finding,) = asked(KERNELS, compiled(triton=triton(*bad)))
    assert finding.status is Status.FAIL
    assert finding.message == f"2 of 2 do not compile: matmul_kernel fp16 A: {REFUSAL}"


def test_a_dtype_that_the_card_lacks_is_no_failure() -> None:
    lacking = Outcome(status="not-applicable", error="fp8e4nv needs sm_89")
    made = (compilation("A"), compilation("A", dtype="fp8e4nv", outcome=lacking))
    (finding,) = asked(KERNELS, compiled(triton=triton(*made)))
    assert finding.status is Status.PASS
    (only,) = asked(KERNELS, compiled(triton=triton(made[1])))
    assert (only.status, only.required) == (Status.SKIP, False)


def test_a_triton_that_cannot_be_imported_fails_and_a_guest_that_ends_early_is_an_error() -> None:
    dead = triton(outcome=Outcome(status="raised"), message="ImportError: libcuda.so.1")
    (finding,) = asked(KERNELS, compiled(triton=dead))
    assert finding.status is Status.FAIL
    assert finding.message == "Triton itself fails: ImportError: libcuda.so.1"
    late = Compiled(target="sm_120", outcome=Outcome(status="timed-out"), message="3600 s")
    (finding,) = asked(KERNELS, replace(environment(), compiled=late))
    assert (finding.status, finding.required) == (Status.ERROR, True)


LARGE = "BLOCK_M=128 BLOCK_N=256 BLOCK_K=64 GROUP_M=8 num_warps=8 num_stages=4"
SMALL = "BLOCK_M=64 BLOCK_N=64 BLOCK_K=32 GROUP_M=8 num_warps=4 num_stages=3"


def test_a_configuration_over_the_limit_is_named_with_what_remains() -> None:
    made = triton(compilation(LARGE, 147456), compilation(SMALL, 24576))
    (finding,) = asked(SHARED, compiled(triton=made))
    assert finding.status is Status.WARN
    assert finding.message == (
        "dies with OutOfResources above 101376 bytes of shared memory: "
        f"{LARGE} needs 147456 bytes; remain: {SMALL}"
    )


def test_where_none_remains_it_fails_and_on_a_larger_card_it_passes() -> None:
    made = triton(compilation(LARGE, 147456))
    (finding,) = asked(SHARED, compiled(triton=made))
    assert finding.status is Status.FAIL
    assert finding.message.endswith("; no configuration remains")
    hopper = Target(name="hopper", sm="sm_90", shared_memory_per_block=232448)
    (finding,) = asked(SHARED, compiled(target="sm_90", triton=made), hopper)
    assert (finding.status, finding.message) == (Status.PASS, "at most 147456 of 232448 bytes")


@pytest.mark.parametrize(("static", "status"), [(0, Status.PASS), (1, Status.FAIL)])
def test_static_shared_memory_counts_and_the_limit_itself_fits(static: int, status: Status) -> None:
    made = triton(compilation(LARGE, 101376, static=static))
    (finding,) = asked(SHARED, compiled(triton=made))
    assert finding.status is status


def test_all_functions_of_a_configuration_must_fit() -> None:
    both = [compilation("A", n, function=f) for f, n in (("forward", 1), ("backward", 107520))]
    (finding,) = asked(SHARED, compiled(triton=triton(*both)))
    assert finding.status is Status.FAIL


def test_a_configuration_for_another_problem_stands_in_for_none() -> None:
    """A head of 64 is no answer to one of 128."""
    made = [compilation(f"HEAD={n}", s, problem=f"HEAD={n}") for n, s in ((64, 1), (128, 107520))]
    small, large = asked(SHARED, compiled(triton=triton(*made)))
    assert (small.subject, small.status) == ("matmul fp16 HEAD=64", Status.PASS)
    assert (large.subject, large.status) == ("matmul fp16 HEAD=128", Status.FAIL)


def test_a_card_whose_limit_is_not_known_is_said_to_be_so() -> None:
    unknown = Target(name="sm_107", sm="sm_107")
    made = triton(compilation(LARGE, 1))
    (finding,) = asked(SHARED, compiled(target="sm_107", triton=made), unknown)
    assert (finding.status, finding.message) == (
        Status.SKIP,
        "the shared memory of sm_107 is not known here",
    )


def cuda_kernels(held: str | None, outcome: Outcome = OK, message: str = "") -> CudaKernels:
    file = None if held is None else device_file("envcheck_mma.so", container(held))
    one = CudaKernel(kernel="mma_matmul", asked="12.0", outcome=outcome, message=message, file=file)
    return CudaKernels(torch="2.14.1", nvcc="13.0", outcome=OK, kernels=(one,))


def test_triton_code_for_another_card_is_no_success() -> None:
    """An assembler of TRITON_PTXAS_PATH may take one target and write code for another."""
    good = compilation(SMALL, 24576)
    assert good.code is not None
    lied = replace(good, code=replace(good.code, target="sm_80"))
    (finding,) = asked(KERNELS, compiled(triton=triton(good, lied)))
    assert finding.status is Status.FAIL
    assert "sm_80 code does not run on sm_120" in finding.message


def test_a_kernel_that_cannot_be_loaded_is_no_reason_for_another_torch() -> None:
    raised = Outcome(status="raised", error="SyntaxError: invalid syntax (kernel.py, line 55)")
    lost = compilation("", function="", dtype="", outcome=raised, message=raised.error or "")
    (finding,) = asked(KERNELS, compiled(triton=triton(lost)))
    assert finding.status is Status.FAIL
    assert finding.message == f"kernel.py cannot be loaded: {raised.error}"
    assert finding.remedy == "correct kernel.py of matmul"


def test_a_cuda_kernel_must_hold_what_was_asked_for() -> None:
    (good,) = asked(CUDA, compiled(cuda=cuda_kernels("s120")))
    assert good.status is Status.PASS
    (dropped,) = asked(CUDA, compiled(cuda=cuda_kernels("s89 p89")))
    assert dropped.status is Status.FAIL
    assert dropped.message == (
        "built for 12.0 without an error, but holds sm_89 and nothing for sm_120"
    )
    (only_ptx,) = asked(CUDA, compiled(cuda=cuda_kernels("p120")))
    assert only_ptx.status is Status.FAIL


def test_a_cuda_kernel_that_is_not_built_says_why() -> None:
    failing = cuda_kernels(None, EXITED, "kernel.cu(7): error: identifier undefined")
    (finding,) = asked(CUDA, compiled(cuda=failing))
    assert (finding.status, finding.message) == (
        Status.FAIL,
        "is not built: kernel.cu(7): error: identifier undefined",
    )
    none = CudaKernels(
        torch="2.6.0", nvcc=None, outcome=Outcome(status="not-applicable"), message="no nvcc"
    )
    (finding,) = asked(CUDA, compiled(cuda=none))
    assert (finding.status, finding.required, finding.message) == (Status.SKIP, False, "no nvcc")


def test_a_cuda_kernel_that_is_for_newer_cards_is_no_failure() -> None:
    newer = Outcome(status="not-applicable", error="needs sm_80")
    (finding,) = asked(CUDA, compiled(cuda=cuda_kernels(None, newer, "needs sm_80")))
    assert (finding.status, finding.required) == (Status.SKIP, False)
    assert finding.message == "needs sm_80"


def extension(**facts) -> Inventory:
    one = Extension(**{"name": "mine", "origin": "mine", "built": True, "imported": OK, **facts})
    files = (device_file("mine/_C.so", "s120"), device_file("other/_C.so", "s89"))
    inventory = environment(*files, distributions=(distribution("mine-ops", "1.0", "mine/_C.so"),))
    return compiled(inventory, extensions=(one,))


def test_an_extension_is_judged_by_build_files_and_import() -> None:
    (good,) = asked(EXTENSIONS, extension())
    assert (good.status, good.message) == (
        Status.PASS,
        "built and imported, not run; holds sm_120",
    )
    (bad,) = asked(EXTENSIONS, extension(built=False, imported=None, said=("a", "boom.cu: error")))
    assert (bad.status, bad.message) == (
        Status.FAIL,
        "its build from mine fails: a | boom.cu: error",
    )
    died = Outcome(status="crashed", signal="SIGSEGV")
    (bad,) = asked(EXTENSIONS, extension(imported=died, message="SIGSEGV"))
    assert (bad.status, bad.message) == (Status.FAIL, "import mine fails: SIGSEGV")
    (bad,) = asked(EXTENSIONS, extension(imported=None))
    assert (bad.status, bad.required) == (Status.SKIP, True)


# What pip 23.0 said; setuptools and others put as much around it.
SAID = """\
  error: subprocess-exited-with-error
  ╰─> [19 lines of output]
      bad.c: In function 'f':
      bad.c:1:22: error: 'nothing_of_that_name' undeclared (first use in this function)
          1 | int f(void) { return nothing_of_that_name; }
      subprocess.CalledProcessError: Command '['cc']' returned non-zero exit status 1.
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
error: metadata-generation-failed

\u00d7 Encountered error while generating package metadata.
╰─> See above for output.

note: This is an issue with the package mentioned above, not pip.
hint: See above for details.
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (SAID, "bad.c:1:22: error: 'nothing_of_that_name' undeclared (first use in this function)"),
        (
            "Traceback (most recent call last):\n  [end of output]\nRuntimeError: no nvcc\n",
            "Traceback (most recent call last): | RuntimeError: no nvcc",
        ),
        ("  note: This error originates from a subprocess, and so on\n", "it said nothing"),
    ],
)
def test_of_a_build_that_fails_its_cause_is_told_and_not_what_pip_says(said: str, why: str) -> None:
    lines = tuple(said.splitlines())
    (bad,) = asked(EXTENSIONS, extension(built=False, imported=None, said=lines))
    assert bad.message == f"its build from mine fails: {why}"
    assert bad.evidence["said"] == lines


def test_an_extension_whose_build_ignored_the_architecture_is_told() -> None:
    (finding,) = asked(EXTENSIONS, extension(name="other", origin="other"))
    assert finding.status is Status.WARN
    assert "other/_C.so holds sm_89" in finding.message


def everything() -> dict:
    return {
        "assemblers": tuple(probe("ptxas", t) for t in ("sm_120", "sm_120a")),
        "triton": triton(compilation(SMALL, 24576)),
        "cuda": cuda_kernels("s120"),
    }


def whole(**changed) -> Inventory:
    inventory = environment(device_file("a.so", "s120"), triton=Triton(version="3.5.1"))
    return compiled(inventory, **{**everything(), **changed})


def test_assurance_is_compiled_when_everything_passed() -> None:
    report = judge(BLACKWELL, whole(), None)
    assert (report.verdict, report.assurance) == (Verdict.COMPATIBLE, Assurance.COMPILED)
    assert "kernels compiled for it, nothing run on a card" in str(report.summary["line"])


@pytest.mark.parametrize(
    "missing", [{"assemblers": ()}, {"triton": None}, {"cuda": None}, {"target": "sm_89"}]
)
def test_assurance_falls_back_when_a_part_was_not_looked_at(missing: dict) -> None:
    report = judge(BLACKWELL, whole(**missing), None)
    assert (report.verdict, report.assurance) == (Verdict.COMPATIBLE, Assurance.SCANNED)


def test_a_fault_in_what_was_compiled_is_incompatible_and_no_assurance() -> None:
    report = judge(BLACKWELL, whole(cuda=cuda_kernels("s89")), None)
    assert (report.verdict, report.assurance) == (Verdict.INCOMPATIBLE, Assurance.SCANNED)


def test_less_than_what_is_required_is_inconclusive() -> None:
    report = judge(BLACKWELL, whole(), None, require=Assurance.EXECUTED)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.summary["line"] == (
        "inconclusive with blackwell (sm_120): kernels compiled for it, nothing run on a card; "
        "assurance executed was asked for"
    )
    assert judge(BLACKWELL, whole(), None, require=Assurance.COMPILED).verdict is (
        Verdict.COMPATIBLE
    )
    bad = whole(cuda=cuda_kernels("s89"))
    assert judge(BLACKWELL, bad, None, require=Assurance.EXECUTED).verdict is (Verdict.INCOMPATIBLE)


def test_assurance_without_any_check_of_it_is_none() -> None:
    assert reached((), ()) is Assurance.SCANNED
    assert ask(EXTENSIONS, environment(), "sm_120")[0].status is Status.SKIP


@pytest.mark.parametrize(
    ("outcome", "lasting"),
    [
        (OK, True),
        (EXITED, True),
        (Outcome(status="crashed", signal="SIGSEGV"), True),
        (Outcome(status="timed-out"), False),
        (Outcome(status="crashed", signal="SIGKILL"), False),
    ],
)
def test_what_a_busy_machine_may_have_caused_is_not_remembered(
    outcome: Outcome, lasting: bool
) -> None:
    assert remembered.is_lasting(extension(imported=outcome)) is lasting
    late = triton(compilation(SMALL, 1, outcome=outcome))
    assert remembered.is_lasting(compiled(triton=late)) is lasting


def test_an_extension_that_was_built_without_its_cuda_code_is_told() -> None:
    """`CUDAExtension if torch.cuda.is_available() else CppExtension`, built without a card."""
    one = Extension(name="mine", origin="mine", built=True, imported=OK, cuda_sources=True)
    plain = replace(device_file("mine/_C.so"), skipped="no device code")
    owner = distribution("mine", "1.0", "mine/_C.so", "mine/__init__.py")
    inventory = environment(plain, distributions=(owner,))
    (finding,) = asked(EXTENSIONS, compiled(inventory, extensions=(one,)))
    assert finding.status is Status.WARN
    assert "nothing of its .cu files is in it" in finding.message
    pure = replace(one, cuda_sources=False)
    assert asked(EXTENSIONS, compiled(inventory, extensions=(pure,)))[0].status is Status.PASS
