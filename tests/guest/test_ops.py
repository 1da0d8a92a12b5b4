"""What operations say must come out, against hand values and torch's own float64."""

from __future__ import annotations

import cmath
import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="operations are torch's")

from envcheck.core.kernels import DTYPES, FORMATS, Tolerance  # noqa: E402
from envcheck.core.sm import Sm  # noqa: E402
from envcheck.guest import comparing, measuring, memory  # noqa: E402
from envcheck.guest.measuring import Task  # noqa: E402
from envcheck.guest.operands import PATTERNS, Operands  # noqa: E402
from envcheck.guest.ops import catalogue, linear, matmul, settings  # noqa: E402
from envcheck.guest.ops.layouts import LAYOUTS, arranged  # noqa: E402
from envcheck.guest.ops.op import Case, dims  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
OPS = {op.name: op for op in catalogue.OPS}
FP32 = Tolerance(accumulate="fp32", source="a book")


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def numbers(value):
    return value.flatten().tolist()


def test_names_are_unique_and_every_rule_says_where_it_is_written():
    assert len(OPS) == len(catalogue.OPS)
    for op in catalogue.OPS:
        assert op.cases
        assert op.dtypes
        for name, rule in op.dtypes.items():
            assert name in {*DTYPES, "tf32"}
            assert len(rule.tolerance.source) > 10, op.name
            assert {rule.tolerance.accumulate, rule.tolerance.operand} <= set(FORMATS)
            assert Sm.parse(rule.min_sm) >= Sm.parse("sm_50")
            assert op.pairs(name), (op.name, name)


def test_cases_are_made_of_what_there_is_and_have_names_of_their_own():
    for op in catalogue.OPS:
        assert len({case.label for case in op.cases}) == len(op.cases), op.name
        for case in op.cases:
            assert case.pattern in PATTERNS
            assert case.layout in LAYOUTS
            assert set(case.only) <= {*DTYPES, "tf32"}
        assert set(op.exact) <= set(PATTERNS)
        assert set(op.atomics) <= {"forward", "backward"}


def test_what_jobs_need_is_there():
    families = {op.family for op in catalogue.OPS}
    assert families >= {"matmul", "attention", "convolution", "norms", "training", "compile"}
    assert {"sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "sdpa-math"} <= set(OPS)
    assert set(OPS["mm"].dtypes) == {"fp32", "tf32", "fp16", "bf16"}
    odd = [c for c in OPS["mm"].cases if c.sizes["K"] % 128]
    assert len(odd) > len(OPS["mm"].cases) / 2
    assert {c.sizes["HEAD"] for c in OPS["sdpa-flash"].cases} >= {32, 64, 96, 128, 256}
    assert {c.sizes["CAUSAL"] for c in OPS["sdpa-flash"].cases} == {0, 1}
    assert any("KEY_HEADS" in c.sizes for c in OPS["sdpa-cudnn"].cases)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(3, 5), (2, 3, 4, 5), (2, 3, 4, 5, 6), (7,), (0, 3)])
def test_layouts_keep_the_numbers(layout, size):
    plain = torch.randn(size)
    assert torch.equal(arranged(plain, layout), plain)


def test_layouts_are_what_they_say():
    plain = torch.randn(2, 3, 4, 5)
    assert arranged(plain, "transposed").stride()[-2:] == (1, 4)
    assert arranged(plain, "offset").storage_offset() == 1
    assert arranged(plain, "strided").stride()[-1] == 2
    assert arranged(plain, "channels-last").is_contiguous(memory_format=torch.channels_last)
    assert arranged(plain, "heads-last").stride() == (60, 5, 15, 1)


def test_a_product_by_hand():
    operands = {"a": tensor([1, -2], [3, 4]), "b": tensor([5, 6], [-7, 8])}
    operands["grad_out"] = tensor([1, 0], [0, -1])
    found = OPS["mm"].reference(operands, Case(sizes=dims(M=2, N=2, K=2)))
    assert numbers(found["out"]["value"]) == [19, -10, -13, 50]
    assert numbers(found["out"]["magnitude"]) == [19, 22, 43, 50]
    assert numbers(found["d_a"]["value"]) == [5, -7, -6, -8]
    assert numbers(found["d_b"]["value"]) == [1, -3, -2, -4]
    assert numbers(found["d_b"]["magnitude"]) == [1, 3, 2, 4]
    assert "stored" not in found["out"]


def test_a_product_is_stored_before_its_bias():
    operands = {"a": tensor([1, 1]), "b": tensor([1], [2]), "c": tensor(-3)}
    operands["a"] = operands["a"].reshape(1, 2)
    found = OPS["addmm"].reference(operands, Case(sizes=dims(M=1, N=1, K=2)))
    assert numbers(found["out"]["value"]) == [0]
    assert numbers(found["out"]["magnitude"]) == [6]
    assert numbers(found["out"]["stored"]) == [3]


def test_attention_by_hand():
    """One head of one feature; the second query sees both keys."""
    q, k, v = (tensor(*t).reshape(1, 1, 2, 1) for t in ((1, 2), (0.5, -1), (3, 5)))
    case = Case(sizes=dims(Z=1, H=1, T=2, HEAD=1, CAUSAL=1))
    found = OPS["sdpa-math"].reference({"q": q, "k": k, "v": v}, case)
    first, second = math.exp(2 * 0.5), math.exp(2 * -1)
    expected = [3, (3 * first + 5 * second) / (first + second)]
    assert numbers(found["out"]["value"]) == pytest.approx(expected)


def test_softmax_and_cross_entropy_by_hand():
    x = tensor([0, math.log(3)])
    case = Case(sizes=dims(M=1, N=2))
    found = OPS["softmax"].reference({"x": x, "grad_out": tensor([1, 0])}, case)
    assert numbers(found["out"]["value"]) == pytest.approx([1 / 4, 3 / 4])
    assert numbers(found["d_x"]["value"]) == pytest.approx([3 / 16, -3 / 16])
    given = {"x": x, "_labels": torch.tensor([1]), "grad_out": tensor(2)}
    given["grad_out"] = given["grad_out"].reshape(1)
    found = OPS["cross_entropy"].reference(given, case)
    assert numbers(found["out"]["value"]) == pytest.approx([math.log(4 / 3)])
    assert numbers(found["d_x"]["value"]) == pytest.approx([1 / 2, -1 / 2])


def test_adamw_by_hand():
    """The first step goes against the sign of the gradient by nearly the rate."""
    rate, decay, epsilon = 2**-6, 2**-4, 2**-20
    gradients = tensor([4], [0], [0])
    operands = {"p": tensor(1.0).reshape(1), "gradients": gradients}
    found = OPS["adamw-fused"].reference(operands, Case(sizes=dims(N=1)))
    p, first, second = 1.0, 0.0, 0.0
    for step, g in enumerate((4.0, 0.0, 0.0), 1):
        p -= rate * decay * p
        first, second = 0.875 * first + 0.125 * g, 0.984375 * second + 0.015625 * g * g
        corrected = second / (1 - 0.984375**step)
        p -= rate * (first / (1 - 0.875**step)) / (math.sqrt(corrected) + epsilon)
    assert numbers(found["p"]["value"]) == pytest.approx([p])


def test_a_transform_by_its_definition():
    x = [1.0, -2.0, 0.5]
    found = OPS["fft"].reference({"x": tensor(x)}, Case(sizes=dims(M=1, N=3)))
    turns = [[cmath.exp(-2j * cmath.pi * k * n / 3) for n in range(3)] for k in range(2)]
    expected = [sum(a * t for a, t in zip(x, row, strict=True)) for row in turns]
    parts = [part for value in expected for part in (value.real, value.imag)]
    assert numbers(found["rfft"]["value"]) == pytest.approx(parts)
    assert set(numbers(found["rfft"]["magnitude"])) == {3.5}


@pytest.mark.parametrize(
    "op",
    [
        op
        for op in catalogue.OPS
        # What works in one type alone, on a card alone, or is compiled for each type.
        if op.name not in ("_int_mm", "_scaled_mm", "amp-grad-scaler", "torch-compile", "random")
        and not op.name.startswith(("sdpa-efficient", "sdpa-cudnn", "transformer", "adamw"))
    ],
    ids=lambda op: op.name,
)
def test_references_are_what_torch_computes_in_float64(op):
    case = op.cases[0]
    draw = Operands("fp32", seed=3, pattern="random", device="cpu")
    operands = {
        n: t.double() if t.is_floating_point() else t for n, t in op.inputs(case, draw).items()
    }
    leaves = {n: t.clone().requires_grad_(n in op.gradients) for n, t in operands.items()}
    outputs = op.call(leaves, case)
    given = {
        f"grad_{n}": torch.randn(out.shape, dtype=torch.float64)
        for n, out in outputs.items()
        if op.gradients and out.requires_grad
    }
    found = op.reference({**operands, **given}, case)
    for name, out in outputs.items():
        if "value" in found[name]:
            torch.testing.assert_close(out.double(), found[name]["value"], rtol=1e-6, atol=1e-9)
    if op.gradients:
        slopes = torch.autograd.grad(
            [outputs[n.removeprefix("grad_")] for n in given],
            [leaves[n] for n in op.gradients],
            list(given.values()),
        )
        for name, slope in zip(op.gradients, slopes, strict=True):
            value = found[f"d_{name}"]["value"]
            torch.testing.assert_close(slope, value, rtol=1e-6, atol=1e-9)


def compare(output, value, **more):
    exactly = more.pop("exactly", False)
    expected = {"value": tensor(*value), **more}
    return comparing.compare(torch.tensor(output), expected, FP32, exactly=exactly)


def test_what_is_compared():
    bounded = {"magnitude": tensor(1, 1), "terms": 1}
    right = {"finite": True, "relative": 0, "worst": 0, "exact": None}
    assert compare([1.0, 2.0], [1, 2], **bounded) == right
    assert compare([1.0, 2.0], [1, 2], exactly=True, **bounded)["exact"] is True
    assert compare([1.0, 2.5], [1, 2], exactly=True, **bounded)["exact"] is False
    assert compare([1.0, 2.5], [1, 2], **bounded)["worst"] > 1e6
    nothing = compare([1.0, math.nan], [1, 2], exactly=True, **bounded)
    assert nothing == {"finite": False, "relative": None, "worst": None, "exact": False}


def test_without_a_magnitude_there_is_no_bound():
    found = compare([1.0, 3.0], [1, 2])
    assert found["worst"] is None
    assert found["relative"] == pytest.approx(1 / math.sqrt(5))


def test_whole_numbers_are_compared_as_they_are():
    assert compare([1, 2], [1, 2], exactly=True)["exact"] is True
    assert compare([1, 3], [1, 2], exactly=True)["exact"] is False


def test_another_shape_is_no_small_error():
    with pytest.raises(ValueError, match=r"shape \(2,\), not \(3,\)"):
        compare([1.0, 2.0], [1, 2, 3])


def test_exact_means_rounded_once():
    """1111 lies between two numbers of bf16, of which 1112 is the nearer one."""
    expected = {"value": tensor(1111)}
    for number, right in ((1112.0, True), (1104.0, False)):
        output = torch.tensor([number], dtype=torch.bfloat16).reshape(1)
        found = comparing.compare(output, expected, FP32, exactly=True)
        assert found["exact"] is right


def test_settings_are_set_and_told():
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        told = settings.pin({"cuda.matmul.allow_tf32": True, "cuda.matmul.no_such": 1})
        assert told == {"cuda.matmul.allow_tf32": "True"}
        assert torch.backends.cuda.matmul.allow_tf32 is True
        settings.pin(settings.PINNED)
        assert torch.backends.cuda.matmul.allow_tf32 is False
    finally:
        settings.pin({"cuda.matmul.allow_tf32": before})


def test_linear_references_take_whole_numbers_as_they_are():
    def pick(operands, case):
        return {"out": operands["x"][operands["_rows"]]}

    compare_to = linear.reference(pick, lambda operands, case: {"out": 1})
    rows = torch.tensor([1, 0])
    found = compare_to({"x": tensor(-1, 2), "_rows": rows}, Case(sizes={}))
    assert numbers(found["out"]["value"]) == [2, -1]
    assert numbers(found["out"]["magnitude"]) == [2, 1]


def test_backward_alone_measures_the_outputs_too():
    op = replace(OPS["mm"], passes=("backward",), cases=OPS["mm"].cases[3:4])
    (case,) = op.cases
    task = measuring.Task(op=op, dtype="fp32", case=case, seed=1, device="cpu")
    (run,) = measuring.measure(task)
    assert run.direction == "backward"
    assert [o.output for o in run.outputs] == ["out", "d_a", "d_b"]
    assert run.holds


@pytest.mark.parametrize(
    ("of_torch", "beside", "told"),
    [
        ([7, 7, 7, 7], [0, 0, 0, 0], 7),
        ([9, 7, 8, 9], [0, 0, 0, 0], 7),
        ([7, 0, 7, 7], [0, 0, 0, 0], 0),
        ([0, 7, 7, 7], [0, 0, 0, 0], 0),
        ([-3, 7, 7, 7], [0, 0, 0, 0], 0),
        ([0, 0, 0, 0], [5, 5, 5, 5], 5),
        ([0, 0, 0, 0], [5, 5, 6, 5], 0),  # that of another process
        ([0, 0, 0, 0], [-5, -5, -5, -5], 0),
        ([7, 7, 7, 7], [-5, 4, 3, 2], 7),
    ],
)
def test_what_leaks_does_so_every_time(monkeypatch, of_torch, beside, told):
    left, taken = list(zip(of_torch, beside, strict=True)), [100, 1000]
    cuda, total = torch.cuda, 1 << 20
    monkeypatch.setattr(cuda, "memory_allocated", lambda: taken[0])
    monkeypatch.setattr(cuda, "memory_reserved", lambda: 2 * taken[0])
    monkeypatch.setattr(cuda, "mem_get_info", lambda: (total - 2 * taken[0] - taken[1], total))
    monkeypatch.setattr(memory, "synchronize", lambda device: None)

    def call():
        for place, growth in enumerate(left.pop(0)):
            taken[place] += growth

    assert memory.retained(call) == told


def test_memory_that_grows_on_its_own_is_not_a_calls(monkeypatch):
    """Another process that takes as much, call or no call."""
    taken = [0]

    def beside():
        taken[0] += 4
        return 0, taken[0]

    monkeypatch.setattr(memory, "_taken", beside)
    monkeypatch.setattr(memory, "synchronize", lambda device: None)
    assert memory.retained(lambda: None) == 0


def test_a_reference_that_does_not_fit_is_left_out_and_no_fault(monkeypatch):
    def reference(operands, case):
        said = "CUDA out of memory. Tried to allocate 32.00 GiB."
        raise torch.OutOfMemoryError(said)

    op = replace(matmul.MM, reference=reference, gradients=(), watched=False)
    task = Task(op=op, dtype="fp32", case=op.cases[0], seed=3, device="cpu")
    (run,) = measuring.measure(task)
    assert run.outcome.status == "not-applicable"
    assert run.message.startswith("left out: its float64 reference does not fit")
