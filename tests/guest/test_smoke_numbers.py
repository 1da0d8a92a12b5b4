"""What smokes say must come out, against hand values; packages and stand-ins for them on a CPU."""

from __future__ import annotations

import importlib
import itertools
import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="operations are torch's")

import planted  # noqa: E402
import standing  # noqa: E402

from envcheck.guest import comparing, measuring  # noqa: E402
from envcheck.guest.measuring import Task  # noqa: E402
from envcheck.guest.operands import Operands  # noqa: E402
from envcheck.guest.ops.op import Case, dims  # noqa: E402
from envcheck.guest.smokes import (  # noqa: E402
    adam,
    gsplat,
    mamba_ssm,
    nvdiffrast,
    onnx_model,
    sageattention,
    torchao,
    torchaudio,
    torchvision,
    vllm,
    weights,
)
from envcheck.guest.smokes.catalogue import SMOKES  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
SMOKE = {smoke.module: smoke for smoke in SMOKES}
STANDING = (
    *("flash_attn", "flash_attn_interface", "flashinfer", "causal_conv1d", "mamba_ssm"),
    *("gsplat", "deepspeed", "apex", "transformer_engine", "vllm", "xformers"),
)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def numbers(value):
    return value.flatten().tolist()


def measured(op, dtype, seed=1):
    tasks = [Task(op=op, dtype=dtype, case=c, seed=seed, device="cpu") for c in op.pairs(dtype)]
    return [run for task in tasks for run in measuring.measure(task)]


def suspicions(ops, seed=1):
    runs = [run for op in ops for dtype in op.dtypes for run in measured(op, dtype, seed)]
    assert runs
    return planted.suspicions(runs, "cpu"), [run.message for run in runs if run.message]


def test_boxes_by_hand():
    """Of three boxes the second covers more than half of the first one, the third exactly half."""
    boxes = tensor([0, 0, 4, 4], [0, 0, 4, 3], [0, 0, 4, 2])
    operands = {"boxes": boxes, "scores": tensor(2, 1, 0)}
    found = torchvision.NMS.reference(operands, Case(sizes=dims(BOXES=3)))
    assert numbers(found["kept"]["value"]) == [0, 2]


def test_pooling_of_a_slope_gives_the_middles_of_the_bins():
    slope = torch.arange(25, dtype=torch.float64).expand(1, 1, 25, 25)
    operands = {"x": slope, "_regions": tensor([0, 8, 4, 40, 20])}
    case = Case(sizes=dims(N=1, C=1, SIZE=25, REGIONS=1))
    found = torchvision.ROI_ALIGN.reference(operands, case)["out"]
    # From 8/4 - 1/2 over four bins of 32/4/4.
    assert numbers(found["value"][0, 0, 0]) == [1.5 + 2 * n + 1 for n in range(4)]
    assert torch.equal(found["value"], found["magnitude"])


def test_the_filters_answer_to_an_impulse():
    found = torchaudio.LFILTER.reference({"x": tensor([1, 0, 0, 0])}, Case(sizes={}))["out"]
    # By hand, from halves, quarters and eighths of three inputs and two outputs before.
    assert numbers(found["value"]) == [1 / 2, 1 / 2, 1 / 4, 0]
    assert numbers(found["magnitude"])[:2] == [1 / 2, 1 / 2 + 1 / 4]


def test_the_best_path_is_that_of_all_paths():
    case = Case(sizes=dims(T=4, WORDS=2))
    draw = Operands("fp32", seed=5, device="cpu")
    operands = torchaudio.FORCED_ALIGN.inputs(case, draw)
    frames, targets = operands["x"][0].double(), operands["_targets"][0].tolist()

    def spelt(path):
        return [a for a, _ in itertools.groupby(path) if a]

    scores = [
        sum(frames[t, label].item() for t, label in enumerate(path))
        for path in itertools.product(range(frames.shape[1]), repeat=4)
        if spelt(path) == targets
    ]
    given = {"x": frames[None], "_targets": operands["_targets"]}
    found = torchaudio.FORCED_ALIGN.reference(given, case)["score"]
    assert numbers(found["value"]) == pytest.approx([max(scores)])


def test_adam_is_torchs_in_float64():
    operands = {"p": torch.randn(7).double(), "gradients": torch.randn(adam.STEPS, 7).double()}
    parameter = operands["p"].clone().requires_grad_()
    optimizer = torch.optim.AdamW(
        [parameter],
        lr=adam.RATE,
        betas=(adam.FIRST, adam.SECOND),
        eps=adam.EPSILON,
        weight_decay=adam.DECAY,
    )
    for gradient in operands["gradients"]:
        parameter.grad = gradient.clone()
        optimizer.step()
    found = adam.whole(operands, Case(sizes={}))["p"]
    torch.testing.assert_close(found["value"], parameter.detach(), rtol=1e-12, atol=1e-12)
    assert (found["magnitude"] >= found["value"].abs()).all()


def test_the_largest_of_a_block():
    w = tensor([1, -2, 3, -4, 0, 5])
    assert numbers(weights.largest(w, 2)) == [2, 2, 4, 4, 5, 5]
    assert numbers(weights.largest(w, 3)) == [3, 3, 3, 5, 5, 5]


def test_codes_of_a_simple_quantizer_lie_within_their_bound_and_near_it():
    w = Operands("bf16", seed=3, device="cpu").values(67, 384)
    case = Case(sizes=dims(N=67, K=384))
    whole = w.double()
    top = whole.abs().amax(1, keepdim=True)
    groups = whole.unflatten(1, (-1, 128))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = (high - low) / 15
    made = {
        "torchao.int8_weights": (whole / top * 127).round() * top / 127,
        "torchao.float8_weights": (whole * 448 / top).to(torch.float8_e4m3fn).double() * top / 448,
        "torchao.int4_weights": (((groups - low) / step).round() * step + low).flatten(1),
    }
    for name, codes in made.items():
        (op,) = (op for op in torchao.OPS if op.name == name)
        rule, expected = op.dtypes["bf16"].tolerance, op.reference({"w": whole}, case)["weights"]
        found = comparing.compare(codes, expected, rule, exactly=False)
        assert 0.3 < found["worst"] <= 1, name
        # A code that is the next one, everywhere, is seen.
        off = codes + (step.expand_as(groups).flatten(1) if "int4" in name else top / 127 * 8)
        assert comparing.compare(off, expected, rule, exactly=False)["worst"] > 1, name


def test_a_scan_that_forgets_by_half():
    """One state that is halved in each step: u = 1 makes 1, 1.5, 1.75."""
    ones = torch.ones(1, 1, 3, dtype=torch.float64)
    operands = {"u": ones, "b": ones, "c": ones, "d": tensor(0), "_delta": ones}
    operands["_decay"] = tensor([math.log(2)])
    case = Case(sizes=dims(B=1, D=1, N=1, T=3))
    found = mamba_ssm.SCAN.reference(operands, case)["out"]
    assert numbers(found["value"]) == pytest.approx([1, 1.5, 1.75])


def test_a_quarter_turn_swaps_the_axes():
    half = math.sqrt(0.5)
    operands = {"turns": 3 * tensor([half, 0, 0, half]), "scales": tensor([1, 2, 3])}
    found = gsplat.COVARIANCES.reference(operands, Case(sizes=dims(N=1)))["out"]
    assert numbers(found["value"]) == pytest.approx([4, 0, 0, 0, 1, 0, 0, 0, 9])
    assert (found["magnitude"] >= found["value"].abs() - 1e-12).all()


def test_the_middles_of_pixels():
    operands = {"slopes": tensor([1], [10], [100])}
    case = Case(sizes=dims(SIZE=2, ATTRIBUTES=1))
    found = nvdiffrast.SQUARE.reference(operands, case)["out"]
    assert numbers(found["value"]) == [94.5, 95.5, 104.5, 105.5]


def test_gates_are_torchs():
    x = torch.randn(3, 8, dtype=torch.float64)
    (op,) = (op for op in vllm.SMOKE.ops if op.name == "vllm.silu_and_mul")
    found = op.reference({"x": x}, Case(sizes=dims(M=3, N=4)))["out"]["value"]
    torch.testing.assert_close(found, torch.nn.functional.silu(x[:, :4]) * x[:, 4:])


def coded(x, block):
    """Return numbers as int8 codes with one scale for each block of rows would have them."""
    parts = []
    for part in x.split(block, 2):
        step = part.abs().amax((-1, -2), keepdim=True) / 127
        parts.append((part / step).round().nan_to_num() * step)
    return torch.cat(parts, 2)


def attended(operands, causal, *, padded):
    """Return attention with int8 scores, in which padding up to whole blocks may count."""
    q, k, v = (operands[name].float() for name in "qkv")
    codes = coded(k - k.mean(2, keepdim=True), 64)
    scores = coded(q / math.sqrt(q.shape[-1]), 128) @ codes.mT
    if padded:
        room = -scores.shape[-1] % 64
        scores = torch.nn.functional.pad(scores, (0, room))
        v = torch.nn.functional.pad(v, (0, 0, 0, room))
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", sageattention.ATTENTION.cases, ids=lambda case: case.label)
def test_int8_scores_stay_within_their_bound(case, seed):
    op = sageattention.ATTENTION
    operands = op.inputs(case, Operands("bf16", seed=seed, pattern=case.pattern, device="cpu"))
    out = attended(operands, case.sizes["CAUSAL"], padded=False).bfloat16()
    expected = op.reference({n: t.double() for n, t in operands.items()}, case)["out"]
    found = comparing.compare(out, expected, op.dtypes["bf16"].tolerance, exactly=False)
    assert found["worst"] <= 1


def test_padding_that_counts_is_seen():
    op, case = sageattention.ATTENTION, Case(sizes=dims(Z=1, H=2, T=67, HEAD=64, CAUSAL=0))
    operands = op.inputs(case, Operands("bf16", seed=1, device="cpu"))
    expected = op.reference({n: t.double() for n, t in operands.items()}, case)["out"]
    worst = [
        comparing.compare(
            attended(operands, causal=0, padded=padded).bfloat16(),
            expected,
            op.dtypes["bf16"].tolerance,
            exactly=False,
        )["worst"]
        for padded in (False, True)
    ]
    assert worst[0] <= 1 < worst[1]


def test_a_model_is_what_a_parser_of_the_format_reads():
    """Read the fields back: a number of 7 bits a byte, lengths before what is nested."""

    def fields(data):
        at, found = 0, []

        def number():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while at < len(data):
            tag = number()
            value = number()
            if tag & 7 == 2:
                value, at = data[at : at + value], at + value
            found.append((tag >> 3, value))
        return found

    model = dict(fields(onnx_model.product_of(300, 2, 5)))
    assert model[1] == 8
    graph = fields(model[7])
    kinds = [dict(fields(value))[4] for field, value in graph if field == 1]
    assert kinds == [b"MatMul", b"Relu"]
    (out,) = (dict(fields(value)) for field, value in graph if field == 12)
    shape = dict(fields(dict(fields(out[2]))[1]))
    assert shape[1] == 1
    assert [dict(fields(size))[1] for _, size in fields(shape[2])] == [300, 2]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", STANDING)
def test_a_good_stand_in_is_not_suspected(monkeypatch, name, seed):
    standing.put(monkeypatch, **standing.good())
    assert suspicions(SMOKE[name].ops, seed) == (set(), [])


def test_each_operator_of_xformers_is_told_by_its_name(monkeypatch):
    standing.put(monkeypatch, **standing.good())
    (op,) = (op for op in SMOKE["xformers"].ops if op.name == "xformers.each")
    outputs = {o.output for run in measured(op, "bf16") for o in run.outputs}
    assert outputs == {"cutlassF-pt", "fa2F@0"}


def test_an_xformers_without_operators_fails_and_says_so(monkeypatch):
    """As one does that was built for another CUDA than torch's: it still imports."""
    modules = standing.good()
    modules["xformers__ops__fmha"].ALL_FW_OPS[:] = [standing.operator("fa3F@0", "was not built")]
    standing.put(monkeypatch, **modules)
    (op,) = (op for op in SMOKE["xformers"].ops if op.name == "xformers.each")
    runs = measured(op, "bf16")
    assert {run.outcome.status for run in runs} == {"raised"}
    assert "no operator of xformers supports these operands" in runs[0].outcome.error


def broken_attention(q, k, v, causal=False, **options):
    return standing.flash_attn_func(q, k[:, :128], v[:, :128], causal=causal)


def broken_convolution(x, weight, bias=None, activation=None):
    return standing.causal_conv1d_fn(x, weight.flip(1), bias)


def broken_norm(x, w, eps):
    return standing.rms_norm(x, w, 0.1)


class StepsTwice(standing.FusedAdam):
    def step(self, closure=None):
        super().step(closure)
        return super().step(closure)


@pytest.mark.parametrize(
    ("name", "place", "change"),
    [
        ("flash_attn", "flash_attn", {"flash_attn_func": broken_attention}),
        ("causal_conv1d", "causal_conv1d", {"causal_conv1d_fn": broken_convolution}),
        ("flashinfer", "flashinfer", {"rmsnorm": broken_norm}),
        ("deepspeed", "deepspeed__ops__adam", {"FusedAdam": StepsTwice}),
    ],
)
def test_a_broken_stand_in_is_caught(monkeypatch, name, place, change):
    modules = standing.good()
    vars(modules[place]).update(change)
    standing.put(monkeypatch, **modules)
    assert "out of bounds" in suspicions(SMOKE[name].ops)[0]


# What needs a card, or is computed on a CPU in another way.
NOT_ON_CPUS = ("torchao.int4_weight_only", "torchao.int4_weights")


@pytest.mark.parametrize("name", ["torchvision", "torchaudio", "peft", "torchao", "onnxruntime"])
def test_packages_hold_on_a_cpu(name):
    try:
        importlib.import_module(name)
    except (ImportError, OSError) as error:
        pytest.skip(f"{name} cannot be imported here: {error}")
    ops = [op for op in SMOKE[name].ops if op.name not in NOT_ON_CPUS]
    assert suspicions(ops) == (set(), [])


def test_broken_detection_operations_are_caught():
    vision = pytest.importorskip("torchvision.ops")
    nms, align = torchvision.NMS, torchvision.ROI_ALIGN

    def keeps_more(operands, case):
        return {"kept": vision.nms(operands["boxes"], operands["scores"], 0.6)}

    def is_half_a_pixel_off(operands, case):
        return {"out": vision.roi_align(operands["x"], operands["_regions"], 4, 0.25, 2)}

    found, messages = suspicions([replace(nms, call=keeps_more, cases=nms.cases[:1])])
    assert found & {"not exact", "raised"}
    assert not messages or "shape" in messages[0]
    found, _ = suspicions([replace(align, call=is_half_a_pixel_off, cases=align.cases[:1])])
    assert found == {"out of bounds"}
