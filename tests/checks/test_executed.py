"""What ran on a card: faults are named, what was left out is no success, good runs are none.

Bytes of shared memory are the limits of the CUDA C++ Programming Guide: 227 KiB for 9.0.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import device_file, distribution, environment, named

from envcheck.checks import Question
from envcheck.core.cards import Cards
from envcheck.core.compiled import (
    Compilation,
    Compiled,
    CompiledKernels,
    CudaKernels,
    MachineCode,
    Outcome,
)
from envcheck.core.driver_facts import MANAGEMENT, PTX_COMPILER, DriverCard, DriverFacts
from envcheck.core.executed import Card, Executed, Group, Measured, Run, Smoked
from envcheck.core.model import Assurance, Domain, Finding, Inventory, Status, Target, Verdict
from envcheck.core.sm import Sm
from envcheck.judge import judge, reached

OK = Outcome(status="ok", milliseconds=20)
HOPPER = Target(name="hopper", sm="sm_90", shared_memory_per_block=232448)
CARD = Card(
    name="NVIDIA H200",
    sm="sm_90",
    uuid="GPU-0",
    total_memory=150_000_000_000,
    free_memory=149_400_000_000,
    driver="580.159.04",
    mig=False,
    shared_memory_per_block=232448,
    first_kernel=0.5,
)
VISIBLE = DriverCard(
    name="NVIDIA H200",
    sm="sm_90",
    uuid="GPU-0",
    total_memory=150_000_000_000,
    multiprocessors=132,
    shared_memory_per_block=232448,
)
DRIVER = DriverFacts(init=0, cuda="13.0", cards=(VISIBLE,))
CARDS = Cards(driver=DRIVER)
GOOD = Measured(
    output="out",
    dtype="float16",
    device="cuda",
    sha256="0",
    finite=True,
    relative=1e-4,
    worst=0.4,
    same_again=True,
)
OPS, TRITON = "core-ops-match-reference", "triton-kernels-match-reference"
CUDA, EXTENSIONS = "cuda-kernels-match-reference", "extensions-match-reference"
REPEAT, FALLBACK = "results-repeat", "nothing-falls-back"
MEMORY, USABLE, SOON = "device-memory-is-returned", "card-is-usable", "first-kernel-starts-soon"
ALL = (OPS, TRITON, CUDA, EXTENSIONS, REPEAT, FALLBACK, MEMORY, USABLE, SOON)


def run(op: str = "mm", *outputs: Measured, **facts: object) -> Run:
    values = {
        "op": op,
        "family": "matmul",
        "dtype": "fp16",
        "case": "M=3 N=5 K=7",
        "direction": "forward",
        "seed": 7,
        "outcome": OK,
        "outputs": outputs or (GOOD,),
        "retained": 0,
        **facts,
    }
    return Run(**values)


def raised(error: str, op: str = "mm", **facts: object) -> Run:
    outcome = Outcome(status="raised", error=error)
    return replace(run(op, **facts), outcome=outcome, message=error, outputs=())


def not_run(why: str, op: str = "mm", **facts: object) -> Run:
    outcome = Outcome(status="not-applicable", error=why)
    return replace(run(op, **facts), outcome=outcome, message=why, outputs=(), retained=None)


def executed(*runs: Run, **facts: object) -> Executed:
    parts = ("ops", "triton", "cuda", "extensions")
    values = {"outcome": OK, "parts": parts, "cards": CARDS, "card": CARD, "torch": "2.11.0",
              "cuda": "13.0", "runs": runs, **facts}  # fmt: skip
    return Executed(**values)


def inventory(*runs: Run, compiled: Compiled | None = None, **facts: object) -> Inventory:
    whole = environment(device_file("torch/lib/libtorch_cuda.so", "s90"))
    return replace(whole, executed=executed(*runs, **facts), compiled=compiled)


def asked(check: str, whole: Inventory) -> list[Finding]:
    about = Question(target=HOPPER, sm=Sm.parse(HOPPER.sm), driver=None, inventory=whole)
    return list(named(check).run(about))


def found(check: str, *runs: Run, **facts: object) -> list[Finding]:
    return asked(check, inventory(*runs, **facts))


def one(check: str, *runs: Run, **facts: object) -> Finding:
    (finding,) = found(check, *runs, **facts)
    return finding


@pytest.mark.parametrize("check", ALL)
def test_without_a_run_each_says_so_and_how_to_get_one(check):
    (finding,) = asked(check, environment(device_file("a.so", "s90")))
    assert (finding.status, finding.required) == (Status.SKIP, False)
    assert "envcheck check --arch native" in finding.message


@pytest.mark.parametrize("check", ALL)
def test_what_ran_on_another_card_says_nothing(check):
    other = replace(CARD, name="NVIDIA GeForce RTX 4090", sm="sm_89")
    bad = run("mm", replace(GOOD, worst=9.0))
    for finding in found(check, bad, card=other):
        assert (finding.status, finding.required) == (Status.SKIP, False)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (replace(GOOD, finite=False, worst=None), "NaN or infinity"),
        (replace(GOOD, exact=False), "not what it must be to the last bit (relative error 0.0001)"),
        (replace(GOOD, worst=3.25), "is 3.25 times as far off as rounding explains"),
        (replace(GOOD, output="d_a", worst=2.0), "d_a is 2 times as far off"),
    ],
)
def test_wrong_numbers_fail_with_the_case_that_shows_them(output, words):
    finding = one(OPS, run(), run("mm", GOOD, output, direction="backward"))
    assert finding.status is Status.FAIL
    assert finding.message.startswith("fp16 M=3 N=5 K=7 backward: ")
    assert words in finding.message
    assert finding.evidence["faults"][0]["seed"] == 7


def test_good_runs_pass_with_their_figures():
    finding = one(OPS, run(), run("mm", replace(GOOD, worst=0.7, exact=True)))
    assert finding.status is Status.PASS
    assert finding.message == (
        "2 runs in 0.0 s (100.0% of all), at most 0.7 of the bound, 1 outputs exact to the last bit"
    )
    assert (finding.evidence["share"], finding.evidence["worst"]) == (1.0, 0.7)


@pytest.mark.parametrize(
    ("outcome", "message", "words"),
    [
        (Outcome(status="crashed", signal="SIGSEGV"), "killed by SIGSEGV", "killed by SIGSEGV"),
        (Outcome(status="exited", code=1), "ended with code 1", "ended with code 1"),
        (Outcome(status="timed-out"), "not done after 30 s", "not done after 30 s"),
    ],
)
def test_what_ends_its_process_fails(outcome, message, words):
    lost = replace(run(), outcome=outcome, message=message, outputs=())
    finding = one(OPS, run(), lost)
    assert (finding.status, finding.domain) == (Status.FAIL, Domain.PACKAGE)
    assert words in finding.message


def test_no_kernel_image_has_the_install_command_as_remedy():
    error = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"
    finding = one(OPS, raised(error))
    assert finding.status is Status.FAIL
    assert finding.remedy.startswith("pip install --upgrade 'torch")


def test_too_little_memory_is_the_hosts_fault_and_no_verdict_on_the_environment():
    finding = one(OPS, run(), raised("OutOfMemoryError: CUDA out of memory. Tried to allocate"))
    assert (finding.status, finding.domain) == (Status.ERROR, Domain.HOST)
    wrong = run("mm", replace(GOOD, worst=2.0))
    finding = one(OPS, raised("OutOfMemoryError: CUDA out of memory."), wrong)
    assert (finding.status, finding.domain) == (Status.FAIL, Domain.PACKAGE)


def test_an_output_that_is_missing_is_no_success():
    assert one(OPS, replace(run(), outputs=())).status is Status.FAIL


def test_nothing_that_ran_is_an_error_and_not_silence():
    assert one(OPS).status is Status.ERROR


def test_what_the_card_has_no_instructions_for_is_no_gap():
    finding = one(OPS, run(), not_run("mm with fp8 needs sm_89"))
    assert (finding.status, finding.evidence.get("left_out")) == (Status.PASS, None)
    skipped = one(OPS, not_run("mm with fp8 needs sm_89"))
    assert (skipped.status, skipped.required) == (Status.SKIP, False)


def report(*runs: Run, require: Assurance = Assurance.SCANNED, **facts: object):
    return judge(HOPPER, inventory(*runs, **facts), None, require=require)


def test_assurance_is_executed_only_when_nothing_was_left_out():
    whole = report(run())
    assert (whole.verdict, whole.assurance) == (Verdict.COMPATIBLE, Assurance.EXECUTED)
    assert "kernels ran on such a card" in whole.summary["line"]
    late = not_run("left out: no time is left of 20 s", "sdpa-flash")
    partial = report(run(), late)
    assert (partial.verdict, partial.assurance) == (Verdict.COMPATIBLE, Assurance.SCANNED)
    assert "1 runs were left out (--budget)" in partial.summary["line"]
    wanted = report(run(), late, require=Assurance.EXECUTED)
    assert wanted.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("part", ["triton", "extensions"])
def test_what_is_left_out_of_another_part_is_not_executed_either(part):
    late = not_run("left out: no time is left of 20 s", "x", part=part)
    assert report(run(), late).assurance is not Assurance.EXECUTED


def test_a_fault_in_any_part_is_incompatible():
    for part in ("ops", "triton", "cuda", "extensions"):
        bad = run("x", replace(GOOD, worst=2.0), part=part)
        assert report(run(), bad).verdict is Verdict.INCOMPATIBLE
    assert reached(report(run("mm", replace(GOOD, finite=False))).findings) is Assurance.SCANNED


def test_numbers_of_what_ran_stand_in_the_summary():
    facts = report(run(), seconds=12.5, budget=60.0, spent={"calls": 0.0041}).summary["executed"]
    assert facts["runs"] == {"ops": 1, "triton": 0, "cuda": 0, "extensions": 0}
    assert (facts["seconds"], facts["budget"], facts["spent"]) == (12.5, 60.0, {"calls": 0.004})
    assert judge(HOPPER, environment(), None).summary["executed"] is None


CONFIG = "BLOCK=128 num_warps=8 num_stages=4"
TOO_LARGE = (
    "OutOfResources: out of resource: shared memory, Required: 245760, Hardware limit: 232448"
)


def compiled(shared: int, kernel: str = "matmul") -> Compiled:
    code = MachineCode(
        target="sm_90a",
        ptx_isa="8.7",
        registers=90,
        stack_bytes=0,
        static_shared=0,
        dynamic_shared=shared,
        num_warps=8,
        num_stages=4,
    )
    made = Compilation(
        kernel=kernel, function="f", dtype="fp16", config=CONFIG, outcome=OK, code=code
    )
    kernels = CompiledKernels(
        target="sm_90", triton="3.6.0", outcome=OK, variables={}, compilations=(made,)
    )
    return Compiled(target="sm_90", outcome=OK, triton=kernels)


def launched(**facts: object) -> Run:
    return run("matmul", part="triton", case=f"M=3 N=5 K=7 {CONFIG}", **facts)


def refused() -> Run:
    return raised(TOO_LARGE, "matmul", part="triton", case=f"M=3 N=5 K=7 {CONFIG}")


def test_prediction_and_outcome_of_a_configuration_stand_beside_each_other():
    finding = one(TRITON, launched(), compiled=compiled(100_000))
    assert finding.status is Status.PASS
    (row,) = finding.evidence["configurations"]
    assert (row["bytes"], row["limit"]) == (100_000, 232448)
    assert (row["predicted"], row["outcome"]) == ("fits", "ran")


def test_a_configuration_that_must_not_fit_and_does_not_is_as_predicted():
    other = run("matmul", part="triton", case="M=3 N=5 K=7 BLOCK=64 num_warps=4 num_stages=2")
    finding = one(TRITON, refused(), other, compiled=compiled(245_760))
    assert finding.status is Status.PASS
    assert "1 did not fit into 232448 bytes of shared memory, as predicted" in finding.message
    assert finding.evidence["configurations"][0]["outcome"] == "did not fit"


def test_a_configuration_that_was_to_fit_and_does_not_is_a_fault():
    finding = one(TRITON, refused(), launched(dtype="bf16"), compiled=compiled(200_000))
    assert finding.status is Status.FAIL
    assert "was predicted to fit (200000 of 232448 bytes) and did not" in finding.message


def test_a_kernel_of_which_nothing_fits_is_incompatible():
    finding = one(TRITON, refused(), compiled=compiled(245_760))
    assert finding.status is Status.FAIL
    assert finding.message.startswith("no configuration fits into the card: OutOfResources")


def test_a_race_in_torch_is_a_fault_and_in_a_kernel_a_warning():
    differing = replace(GOOD, same_again=False)
    assert {f.status for f in found(REPEAT, run("mm", differing))} == {Status.FAIL, Status.PASS}
    of_kernel = run("scan", differing, part="triton")
    assert {f.status for f in found(REPEAT, of_kernel)} == {Status.WARN, Status.PASS}
    atomics = run("scatter-add", differing, deterministic=False)
    finding = one(REPEAT, atomics, run())
    assert finding.status is Status.PASS
    assert "1 of 2 runs gave the same bytes twice; 1 sum in any order" in finding.message


def test_an_output_that_is_not_on_the_card_is_a_fault():
    findings = found(FALLBACK, run("mm", replace(GOOD, device="cpu")), run())
    assert findings[0].status is Status.FAIL
    assert "its output is on cpu, not on the card" in findings[0].message


def test_what_starts_no_kernel_was_computed_elsewhere():
    seen = run("mm", watched=True, kernels=("gemm",))
    silent = run("nms", watched=True, kernels=("Memcpy HtoD (Pageable -> Device)",))
    fault = next(f for f in found(FALLBACK, seen, silent) if f.subject == "nms")
    assert (fault.status, fault.message.rpartition(": ")[2]) == (
        Status.FAIL,
        "it was computed elsewhere",
    )


def test_a_profiler_that_sees_nothing_accuses_nobody():
    findings = found(FALLBACK, run("mm", watched=True), run("nms", watched=True))
    assert {f.status for f in findings} == {Status.SKIP, Status.PASS}


def test_warnings_about_falling_back_are_told_once_each():
    said = "'sm_120' is not a recognized processor for this target"
    group = Group(family="compile", seconds=1, processes=1, warnings=(said,))
    findings = found(
        FALLBACK, run("mm", warnings=("falling back",)), run("mm", warnings=("x",)), groups=(group,)
    )
    assert [(f.subject, f.status) for f in findings if f.status is Status.WARN] == [
        ("mm", Status.WARN),
        ("compile", Status.WARN),
    ]


def test_memory_that_every_call_keeps_is_a_fault():
    finding = one(MEMORY, run(), run("leaks", retained=4096))
    assert (finding.subject, finding.status) == ("leaks", Status.FAIL)
    assert "every call keeps 4096 bytes" in finding.message
    assert one(MEMORY, run()).status is Status.PASS
    assert one(MEMORY, replace(run(), retained=None)).status is Status.SKIP


def test_a_first_kernel_that_takes_minutes_is_named():
    finding = one(SOON, run(), card=replace(CARD, first_kernel=95.0))
    assert finding.status is Status.WARN
    assert "the first kernel took 95 s" in finding.message
    slow = [f for f in found(SOON, run(first=61_000.0)) if f.status is Status.WARN]
    assert [f.subject for f in slow] == ["mm"]
    assert one(SOON, run(first=59_000.0)).status is Status.PASS


def test_extensions_that_nothing_covers_are_named():
    files = ("flash_attn_2_cuda.so", "torchvision/_C.so", "torch/lib/libtorch_cuda.so")
    whole = replace(
        environment(
            *(device_file(f, "s90") for f in files),
            distributions=(
                distribution("flash-attn", "2.8", files[0]),
                distribution("torchvision", "0.26", files[1]),
                distribution("torch", "2.11", files[2]),
                distribution("rich", "15"),
            ),
        ),
        executed=executed(
            run("torchvision.nms", part="extensions", family="torchvision"),
            smoked=(Smoked(module="torchvision", distributions=("torchvision",)),),
        ),
    )
    findings = asked(EXTENSIONS, whole)
    assert [(f.subject, f.status) for f in findings] == [
        ("torchvision.nms", Status.PASS),
        ("flash-attn", Status.WARN),
    ]
    assert "smoke = " in findings[1].remedy


@pytest.mark.parametrize(
    ("facts", "status", "domain", "words"),
    [
        ({"cuda": None, "message": "Torch not compiled with CUDA enabled", "torch": "2.13.0+cpu"},
         Status.FAIL, Domain.PACKAGE, "torch 2.13.0+cpu is built without CUDA"),
        ({"message": "RuntimeError: The NVIDIA driver on your system is too old (found 12020)",
          "cards": replace(CARDS, driver=replace(DRIVER, cuda="12.2"))},
         Status.FAIL, Domain.HOST, "the driver serves CUDA 12.2, torch 2.11.0 needs 13.0"),
        ({"torch": None, "cuda": None, "message": "ModuleNotFoundError: No module named 'torch'"},
         Status.SKIP, Domain.PACKAGE, "no PyTorch is in the environment"),
        ({"torch": None, "cuda": None, "message": "ImportError: libcudart.so.13: cannot open"},
         Status.FAIL, Domain.PACKAGE, "torch cannot be imported: ImportError: libcudart.so.13"),
        ({"message": "AcceleratorError: CUDA-capable device(s) is/are busy or unavailable"},
         Status.ERROR, Domain.HOST, "cannot use the card"),
        ({"cards": Cards(driver=DriverFacts(missing="no libcuda"), in_container=True)},
         Status.ERROR, Domain.HOST, "no card is in this container"),
        ({"cards": Cards(driver=DriverFacts(init=100), visible="7")},
         Status.ERROR, Domain.JOB, "CUDA_VISIBLE_DEVICES=7 names no card"),
    ],
)  # fmt: skip
def test_why_the_card_cannot_be_used_and_whose_fault_it_is(facts, status, domain, words):
    finding = one(USABLE, **{"card": None, **facts})
    assert (finding.status, finding.domain) == (status, domain)
    assert words in finding.message


ABSENT = replace(CARDS, driver=replace(DRIVER, absent=(PTX_COMPILER,)))


@pytest.mark.parametrize(
    ("codes", "status"), [("p80", Status.FAIL), ("s90", Status.WARN), ("s90 p80", Status.WARN)]
)
def test_r23c_a_container_without_the_compiler_of_ptx(codes, status):
    """NVIDIA/nvidia-container-toolkit#1875: files with machine code work on without it."""
    made = replace(inventory(run(), cards=ABSENT), files=(device_file("p/_C.so", codes),))
    first, card = asked(USABLE, made)
    assert (first.status, first.domain) == (status, Domain.HOST)
    assert "libnvidia-ptxjitcompiler.so.1 is not here" in first.message
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in first.remedy
    assert ("p/_C.so" in first.message) is (status is Status.FAIL)
    assert card.status is Status.PASS


@pytest.mark.parametrize("package", ["vllm", "torch"])
def test_r23b_a_container_without_nvml(package):
    """vllm-project/vllm#23935: vLLM asks NVML which platform it is on, PyTorch does not need to."""
    without = replace(CARDS, driver=replace(DRIVER, absent=(MANAGEMENT,)))
    made = inventory(run(), cards=without)
    environment = replace(made.environment, distributions=(distribution(package),))
    findings = asked(USABLE, replace(made, environment=environment))
    assert [f.status for f in findings] == [Status.FAIL, Status.PASS][package != "vllm" :]
    assert package != "vllm" or "libnvidia-ml.so.1 is not here: vllm" in findings[0].message


def test_a_card_with_others_on_it_is_named_and_a_free_one_is_not():
    busy = found(USABLE, run(), card=replace(CARD, free_memory=20_000_000_000))
    assert [f.status for f in busy] == [Status.WARN, Status.PASS]
    assert "130.0 of 150.0 GB are taken already" in busy[0].message
    (free,) = found(USABLE, run())
    assert free.message == "150 GB, 149 free, driver 580.159.04"
    (part,) = found(USABLE, run(), card=replace(CARD, mig=True))
    assert part.message.endswith(", a slice of a card (MIG)")


def test_a_card_whose_shared_memory_is_not_that_of_the_catalogue_is_named():
    findings = found(USABLE, run(), card=replace(CARD, shared_memory_per_block=101376))
    assert [f.status for f in findings] == [Status.WARN, Status.PASS]


def test_memory_on_a_card_with_others_is_no_proof():
    busy = replace(CARD, free_memory=20_000_000_000)
    finding = one(MEMORY, run("leaks", retained=4096), card=busy)
    assert finding.status is Status.WARN


def test_a_card_that_no_architecture_row_names_is_named():
    target = Target(name="sm_90", sm="sm_90", card="NVIDIA X")
    whole = inventory(run())
    about = Question(target=target, sm=Sm.parse("sm_90"), driver=None, inventory=whole)
    findings = list(named(USABLE).run(about))
    assert [f.status for f in findings] == [Status.WARN, Status.PASS]
    assert "no architecture of the catalogue has sm_90" in findings[0].message


def test_without_pytorch_no_kernel_could_be_built_and_nobody_misses_it():
    outcome = Outcome(status="raised", error="ModuleNotFoundError: No module named 'torch'")
    cuda = CudaKernels(torch=None, nvcc=None, outcome=outcome, message=outcome.error, own=False)
    made = Compiled(target="sm_90", outcome=OK, cuda=cuda)
    finding = one("cuda-kernels-hold-target-code", run(), compiled=made)
    assert (finding.status, finding.required) == (Status.SKIP, False)


@pytest.mark.parametrize(("own", "status"), [(True, Status.FAIL), (False, Status.WARN)])
def test_a_compiler_of_the_machine_alone_decides_nothing(own, status):
    outcome = Outcome(status="exited", code=1)
    cuda = CudaKernels(torch="2.11", nvcc="12.4", outcome=outcome, message="mismatch", own=own)
    made = Compiled(target="sm_90", outcome=OK, cuda=cuda)
    assert one("cuda-kernels-hold-target-code", run(), compiled=made).status is status
