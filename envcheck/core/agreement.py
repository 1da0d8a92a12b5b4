"""What the bytes of a file predict for one card, beside what the card did with it.

The claim is about loading: whether a driver finds code in the file that the card can run, and
whether the launch that is asked for fits the card. What code computes once it has started is
not told by bytes, so an outcome of that kind neither confirms nor refutes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from envcheck.core import coverage
from envcheck.core.cuda import Version
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Finding, Report, Status, Verdict
from envcheck.core.sm import Sm

RUNS = "runs"
"""Its code is taken and launched."""
LOADS = "loads"
"""Its code is taken, and the kernel to launch is not in it."""
NO_CODE = "no-code"
"""No driver finds code in it for this card, or takes that code."""
NO_LAUNCH = "no-launch"
"""The code is taken, and the launch asks for more than the card has."""
UNKNOWN = "unknown"

AGREE, DISAGREE, UNDECIDABLE = "agree", "disagree", "undecidable"

# A cluster of more blocks than this needs the kernel's consent to a size that other cards may
# not have. Source: CUDA C++ Programming Guide, "Thread Block Clusters".
PORTABLE_CLUSTER = 8
# The most with that consent. Source: CUDA C++ Programming Guide and Hopper tuning guide,
# "nonportable cluster size of 16" on compute capability 9.0; measured for no other.
_LARGEST_CLUSTER = {90: 16}

# What a driver or runtime says where there is no code that it takes.
_CODE_ERRORS = (
    *("NO_BINARY_FOR_GPU", "UNSUPPORTED_PTX_VERSION", "INVALID_PTX", "INVALID_SOURCE"),
    *("INVALID_IMAGE", "JIT_COMPILATION_DISABLED", "SHARED_OBJECT_SYMBOL_NOT_FOUND"),
)
_LAUNCH_ERRORS = ("INVALID_VALUE", "INVALID_CLUSTER_SIZE", "LAUNCH_OUT_OF_RESOURCES")
_STARTED, _NOT_ASKED = "started", "not-asked"

DAMAGED = "the file contradicts itself or is damaged"
EMPTY = "there is no code in it"
SAME_NAME = "two objects hold kernels of one name, and not both have code for the card"
BY_DESIGN = "beside code for this card it holds kernels for other SMs alone, by design or not"
BY_ITSELF = "its code started, and failed by itself"
COMPILER = "the PTX fits, and the driver's compiler refuses its text"
HOST_ASKS = "what a library's launch asks for stands in its host code"
NOT_ASKED = "the card could not be asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the kernel of an image is launched."""

    kernel: str = "probe"
    blocks: int = 2
    threads: int = 32
    dynamic_shared: int = 0
    """Bytes of shared memory of a block, beyond what the kernel itself fixes."""
    nonportable_cluster: bool = False
    """Whether a cluster may be larger than every card with clusters has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one kernel fixes by itself, read from the code that a driver would take."""

    static_shared: int
    """Bytes of shared memory of a block."""
    cluster_blocks: int = 1
    compiled: bool = True
    """False for PTX: there the driver's compiler is what refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What should happen to one file on one card."""

    expected: str
    """`runs`, `loads`, `no-code`, `no-launch` or `unknown`."""
    reason: str
    """Why; of `unknown` one of the few kinds of this module."""
    kernels: tuple[str, ...] = ()
    """Those without code, where others of the file have some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One file: what was predicted, what happened, and whether these agree."""

    name: str
    group: str
    prediction: Prediction
    outcome: str
    """`ok`, or the first failure of its kernels."""
    kernels: Mapping[str, str]
    """The outcome of each kernel."""
    agreement: str
    """`agree`, `disagree` or `undecidable`."""
    reason: str = ""
    """Why it is undecidable."""


def predict(
    report: Report, file: DeviceFile, launch: Launch, needs: Needs | None, shared_limit: int
) -> Prediction:
    """Turn a verdict on one file into what loading and launching it will do.

    `needs` is None for libraries, whose launches are not ours, and for an image whose code does
    not hold the kernel. `shared_limit` is what one block may use on the card, opt-in.
    """
    sm, driver = Sm.parse(report.target.sm), _driver(report)
    if report.verdict is Verdict.INCONCLUSIVE:
        return Prediction(expected=UNKNOWN, reason=DAMAGED if file.problem else EMPTY)
    if _same_name(file, sm, driver):
        return Prediction(expected=UNKNOWN, reason=SAME_NAME)
    if report.verdict is Verdict.INCOMPATIBLE:
        failed = next(f for f in report.findings if f.required and f.status is Status.FAIL)
        lacking = _lacking(report.findings)
        return Prediction(expected=NO_CODE, reason=failed.message, kernels=lacking)
    if file.format == "shared-object":
        if _single_sms(file, sm, driver):
            return Prediction(expected=UNKNOWN, reason=BY_DESIGN)
        return Prediction(expected=RUNS, reason=coverage.of_file(file, sm, driver).message)
    if needs is None:
        return Prediction(expected=LOADS, reason=f"no kernel {launch.kernel} in the code it takes")
    too_much = _too_much(launch, needs, shared_limit, sm)
    if too_much:
        compiler = not needs.compiled and needs.static_shared > shared_limit
        return Prediction(expected=NO_CODE if compiler else NO_LAUNCH, reason=too_much)
    return Prediction(expected=RUNS, reason=coverage.of_file(file, sm, driver).message)


def _driver(report: Report) -> Version | None:
    return None if report.driver is None else tuple(int(p) for p in report.driver.split("."))


def _lacking(findings: Iterable[Finding]) -> tuple[str, ...]:
    named = next(
        (f for f in findings if f.check == "every-kernel-runs-on-target" and f.evidence), None
    )
    kernels = named.evidence.get("kernels") if named is not None else None
    return tuple(map(str, kernels)) if isinstance(kernels, (tuple, list)) else ()


def _same_name(file: DeviceFile, sm: Sm, driver: Version | None) -> bool:
    """Say whether a kernel's name stands in containers of which only some have code.

    Those of a linker's input do not count: their image beside them has the same kernels by design.
    """
    with_code: set[str] = set()
    without: set[str] = set()
    for part in file.containers:
        usable = coverage.loadable(file, part)
        if part.section == ".nv_fatbin" and any(c.sm[-1] not in "af" for c in usable):
            runs = coverage.of_codes(usable, sm, driver).mode != coverage.NONE
            (with_code if runs else without).update(part.kernels or ())
    return bool(with_code & without)


def _single_sms(file: DeviceFile, sm: Sm, driver: Version | None) -> bool:
    """Say whether an object has code for other single SMs or families alone.

    A library that chooses its kernels never calls it on this card; another one would fail. Where
    a driver can link anew, what counts is what it links.
    """
    inputs = [part for part in file.containers if part.section == "__nv_relfatbin"]
    found = [coverage.loadable(file, part) for part in inputs or file.containers]
    return any(
        all(c.sm[-1] in "af" for c in codes)
        and coverage.of_codes(codes, sm, driver).mode == coverage.NONE
        for codes in found
        if codes
    )


def _too_much(launch: Launch, needs: Needs, shared_limit: int, sm: Sm) -> str:
    """Say what the launch asks for that the card does not have; empty where it fits."""
    shared = needs.static_shared + launch.dynamic_shared
    if shared > shared_limit:
        return f"a block needs {shared} bytes of shared memory, the card has {shared_limit}"
    most = PORTABLE_CLUSTER
    if launch.nonportable_cluster:
        most = _LARGEST_CLUSTER.get(sm.number, PORTABLE_CLUSTER)
    if needs.cluster_blocks > most:
        return f"a cluster of {needs.cluster_blocks} blocks, the launch may have {most}"
    return ""


def compare(
    name: str, group: str, prediction: Prediction, kernels: Mapping[str, str], *, library: bool
) -> Comparison:
    """Put an outcome beside its prediction; `kernels` has the outcome of each kernel."""
    outcome = fold(kernels)
    happened = _happened(outcome, library=library)
    reason = _why_undecidable(prediction, happened, outcome, library=library)
    if reason:
        agreement = UNDECIDABLE
    else:
        same = prediction.expected == happened and _same_kernels(prediction, kernels)
        agreement = AGREE if same else DISAGREE
    return Comparison(
        name=name,
        group=group,
        prediction=prediction,
        outcome=outcome,
        kernels=dict(kernels),
        agreement=agreement,
        reason=reason,
    )


def fold(kernels: Mapping[str, str]) -> str:
    """Return the first failure of a file's kernels, or `ok`."""
    failed = (result for result in kernels.values() if result != "ok")
    return next(failed, "ok" if kernels else "no kernel")


def _happened(outcome: str, *, library: bool) -> str:
    """Return what an outcome says about the code and the launch."""
    stage, _, said = outcome.partition(":")
    word = said.split(" ")[0].removeprefix("CUDA_ERROR_")
    if outcome == "ok":
        return RUNS
    if stage in ("setup", "timeout", "crash", "no kernel"):
        return _NOT_ASKED
    if word == "NOT_FOUND":
        # The runtime looks a kernel up among all that it could load; a module is loaded by then.
        return NO_CODE if library else LOADS
    if word in _CODE_ERRORS:
        return NO_CODE
    if stage == "load":  # no memory, a library that is missing: nothing about its code
        return _NOT_ASKED
    return NO_LAUNCH if word in _LAUNCH_ERRORS else _STARTED


def _why_undecidable(prediction: Prediction, happened: str, outcome: str, *, library: bool) -> str:
    if prediction.expected == UNKNOWN:
        return prediction.reason
    if happened == _NOT_ASKED:
        return NOT_ASKED
    if prediction.expected == RUNS:
        if happened == _STARTED:
            return BY_ITSELF
        if happened == NO_LAUNCH and library:
            return HOST_ASKS
        if outcome == "load:CUDA_ERROR_INVALID_PTX":
            return COMPILER
    return ""


def _same_kernels(prediction: Prediction, kernels: Mapping[str, str]) -> bool:
    """Say whether exactly the kernels that were named failed, where some were named."""
    failed = {kernel for kernel, result in kernels.items() if result != "ok"}
    return not prediction.kernels or failed == set(prediction.kernels)
