"""Rates and burns from made-up facts; the numbers of healthy cards are published ones.

stas00/ml-engineering, compute/accelerator, "Maximum Achievable Matmul FLOPS comparison table"
(H100 SXM, H200, B200); mag-/gpu_benchmark, README (H100 PCIe, L40S, RTX 6000 Ada, L4, RTX 4090);
main-horse.github.io/posts/5090-mm-perf (RTX 5090); NVIDIA developer forums, topic 264462 (T4).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import environment, named

from envcheck import targets
from envcheck.checks import Question
from envcheck.core.cards import Cards
from envcheck.core.compiled import Outcome
from envcheck.core.executed import Card, Executed
from envcheck.core.limits import Limits
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Domain, Finding, Status, Target
from envcheck.core.rated import Burn, Mismatch, Rate, Rated
from envcheck.core.sm import Sm

FAST, EQUAL = "matrix-units-are-fast", "repeated-work-is-bit-equal"
OK = Outcome(status="ok")
CARD = Card(
    name="NVIDIA H200",
    sm="sm_90",
    uuid="GPU-0",
    total_memory=150_000_000_000,
    free_memory=149_400_000_000,
    driver="580.159.04",
    mig=False,
)
H200 = replace(targets.resolve("h200"), card=CARD.name)
MACHINE = Machine(asked=Asked(), cards=Cards(driver=None))
BURN = Burn(
    dtype="bf16",
    size=8192,
    repetitions=1042,
    seconds=4.0,
    mismatches=0,
    rows=128,
    finite=True,
    worst=0.93,
)


def rate(dtype: str, tflops: float, **facts: object) -> Rate:
    values = {
        "dtype": dtype,
        "size": 8192,
        "tflops": tflops,
        "tflops_at_first": tflops,
        "milliseconds": 2 * 8192**3 / tflops / 1e9,
        "repetitions": 100,
        "seconds": 2.0,
        **facts,
    }
    return Rate(**values)


def rated(*rates: Rate, **facts: object) -> Rated:
    return Rated(**{"rates": rates, "burns": (BURN,), **facts})


def asked(
    check: str, found: Rated | None, target: Target = H200, card: Card | None = CARD
) -> list[Finding]:
    ran = Executed(outcome=OK, card=card, torch="2.14.1", rated=found)
    whole = replace(environment(), executed=ran, machine=MACHINE)
    about = Question(target=target, sm=Sm.parse(target.sm), driver=None, inventory=whole)
    return list(named(check).run(about))


def one(check: str, found: Rated | None, target: Target = H200, card: Card = CARD) -> Finding:
    (finding,) = asked(check, found, target, card)
    return finding


@pytest.mark.parametrize("check", [FAST, EQUAL])
def test_what_was_not_measured_is_skipped_with_the_reason(check):
    (finding,) = asked(check, None)
    assert (finding.status, finding.required) == (Status.SKIP, False)
    assert finding.message == "that was not looked at"
    (finding,) = asked(check, rated(rate("bf16", 700)), card=None)
    assert (finding.status, finding.required) == (Status.SKIP, False)
    assert "nothing could be run" in finding.message
    about = Question(target=H200, sm=Sm(90), driver=None, inventory=environment())
    (finding,) = named(check).run(about)
    assert finding.message == "the machine was not looked at: `envcheck preflight` does that"


@pytest.mark.parametrize("check", [FAST, EQUAL])
def test_another_card_says_nothing(check):
    other = replace(CARD, name="NVIDIA GeForce RTX 4090", sm="sm_89")
    bad = rated(rate("bf16", 1.0), burns=(replace(BURN, mismatches=3),))
    assert {f.status for f in asked(check, bad, card=other)} == {Status.SKIP}


@pytest.mark.parametrize(
    ("name", "dtype", "tflops", "share"),
    [
        ("h200", "bf16", 794.5, "80%"),
        ("h200", "fp8", 1453.4, "73%"),
        ("h100-pcie", "bf16", 499.5, "66%"),
        ("b200", "bf16", 1745.0, "78%"),
        ("b200", "fp8", 3432.5, "76%"),
        ("l40s", "bf16", 252.0, "70%"),
        ("rtx-6000-ada", "bf16", 278.5, "77%"),
        ("l4", "bf16", 91.4, "76%"),
        ("rtx-4090", "bf16", 178.5, "108%"),
        ("rtx-5090", "bf16", 224.3, "107%"),
    ],
)
def test_cards_that_were_measured_elsewhere_are_healthy(name, dtype, tflops, share):
    target = replace(targets.resolve(name), card=CARD.name)
    card = replace(CARD, sm=target.sm)
    finding = one(FAST, rated(rate(dtype, tflops)), target, card)
    assert (finding.status, finding.domain) == (Status.PASS, Domain.CARD)
    assert f"{share} of" in finding.message


def test_a_small_card_gives_less_of_what_its_maker_says():
    limits = Limits(card="t4", bf16=65.0, power=70.0, source="T4 data sheet")
    target = replace(H200, limits=limits)
    assert one(FAST, rated(rate("fp16", 24.0)), target).status is Status.PASS
    strong = replace(target, limits=replace(limits, power=300.0))
    assert one(FAST, rated(rate("fp16", 24.0)), strong).status is Status.WARN


@pytest.mark.parametrize(
    ("clock", "status"), [(1980, Status.PASS), (990, Status.WARN), (345, Status.FAIL)]
)
def test_clocks_that_are_held_back_show(clock, status):
    """Of an H200 that gives 794.5 at 1980 MHz; 345 MHz is what a card idles at."""
    finding = one(FAST, rated(rate("bf16", 794.5 * clock / 1980, clock=clock)))
    assert finding.status is status
    assert f"at {clock} MHz" in finding.message
    assert finding.evidence["limit_tflops"] == 989
    assert finding.evidence["share"] == pytest.approx(0.8033 * clock / 1980, abs=0.001)
    assert bool(finding.remedy) is (status is not Status.PASS)


@pytest.mark.parametrize(
    ("target", "card", "said"),
    [
        (replace(H200, limits=None), CARD, "no limit of bf16 is known"),
        (replace(H200, limits=Limits(card="x", source="y")), CARD, "no limit of bf16 is known"),
        (H200, replace(CARD, mig=True), "not those of a slice"),
        (H200, replace(CARD, name="NVIDIA H20"), "those of NVIDIA H200"),
        # A product that is asked about, and not the one that is here.
        (targets.resolve("h100"), CARD, "those of h100"),
    ],
)
def test_without_a_limit_of_the_card_itself_nothing_is_too_slow(target, card, said):
    finding = one(FAST, rated(rate("bf16", 20.0)), target, card)
    assert finding.status is Status.PASS
    assert said in finding.message
    assert finding.message.startswith("20 TFLOP/s")


def test_tf32_is_told_without_a_limit():
    assert "no limit of tf32" in one(FAST, rated(rate("tf32", 400.0))).message


def test_the_same_bits_again_and_again_pass():
    finding = one(EQUAL, rated())
    assert (finding.status, finding.subject) == (Status.PASS, "burn bf16")
    assert finding.message == "1042 products in 4.0 s, all with the bits of the first"


def test_one_product_that_differs_is_a_reason_to_give_the_machine_back():
    first = Mismatch(
        repetition=17,
        elements=1,
        positions=("3,5",),
        expected=("0.5",),
        found=("0.53125",),
        flipped=("0x8",),
    )
    finding = one(EQUAL, rated(burns=(replace(BURN, mismatches=1, first=first),)))
    assert (finding.status, finding.domain) == (Status.FAIL, Domain.CARD)
    assert "1 of 1042" in finding.message
    assert "number 17 in 1 element(s) (0.53125 instead of 0.5 at 3,5)" in finding.message
    assert finding.remedy.startswith("give the machine back")
    assert finding.evidence["flipped"] == ("0x8",)


@pytest.mark.parametrize(
    ("facts", "said"),
    [({"worst": 5.3}, "5.3 times"), ({"worst": None, "finite": False}, "NaN or infinity")],
)
def test_a_card_that_is_always_wrong_fails(facts, said):
    finding = one(EQUAL, rated(burns=(replace(BURN, **facts),)))
    assert (finding.status, finding.domain) == (Status.FAIL, Domain.CARD)
    assert said in finding.message


def test_each_check_tells_of_its_own_part():
    found = rated(
        rate("bf16", 700),
        burns=(),
        failed={"burn bf16 on card 1": "not done after 42 s"},
        left={"fp8": "sm_80 has no matrix units for it"},
    )
    fast, fp8 = asked(FAST, found)
    assert (fast.status, fp8.status, fp8.subject) == (Status.PASS, Status.SKIP, "fp8")
    (equal,) = asked(EQUAL, found)
    assert (equal.status, equal.domain) == (Status.FAIL, Domain.CARD)
    assert equal.subject == "burn bf16 on card 1"
    assert "not done after 42 s" in equal.message


def test_a_rate_that_ends_its_process_leaves_no_burn():
    found = rated(burns=(), failed={"bf16": "not done after 42 s"})
    (fast,) = asked(FAST, found)
    assert (fast.status, fast.domain) == (Status.FAIL, Domain.CARD)
    (equal,) = asked(EQUAL, found)
    assert equal.status is Status.SKIP
    assert equal.message == "nothing was repeated: bf16 failed before it"


def test_each_of_several_cards_has_a_finding_and_its_own_limit():
    found = rated(
        rate("bf16", 700.0, name="NVIDIA H200"),
        rate("bf16", 100.0, name="NVIDIA H200", card=1),
        rate("bf16", 60.0, name="NVIDIA L4", card=2),
        burns=(BURN, replace(BURN, card=1, worst=None, finite=False)),
    )
    first, second, third = asked(FAST, found)
    assert (first.status, first.subject) == (Status.PASS, "bf16")
    assert (second.status, second.subject) == (Status.FAIL, "bf16 on card 1")
    assert third.status is Status.PASS
    assert "NVIDIA L4 is another card than the first" in third.message
    good, bad = asked(EQUAL, found)
    assert (good.status, bad.status) == (Status.PASS, Status.FAIL)
    assert bad.subject == "burn bf16 on card 1"


@pytest.mark.parametrize(
    ("said", "status", "domain"),
    [
        ("CUDA error: uncorrectable ECC error encountered", Status.FAIL, Domain.CARD),
        ("CUDA error: unspecified launch failure", Status.FAIL, Domain.CARD),
        ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling", Status.FAIL, Domain.PACKAGE),
        ("CUDA error: an illegal memory access was encountered", Status.FAIL, Domain.PACKAGE),
        ("CUDA out of memory. Tried to allocate 128.00 MiB.", Status.WARN, Domain.HOST),
    ],
)
def test_whose_fault_an_error_is(said, status, domain):
    finding = one(FAST, rated(failed={"bf16": said}))
    assert (finding.status, finding.domain) == (status, domain)
    assert said in finding.message
    found = rated(failed={"burn fp32": said})
    assert [f.status for f in asked(FAST, found)] == [Status.SKIP]
    assert [f.status for f in asked(EQUAL, found)] == [Status.PASS, status]


def test_a_function_that_another_torch_has_otherwise_is_no_fault():
    finding = one(FAST, rated(failed={"fp8": "_scaled_mm() got an unexpected argument"}))
    assert finding.status is Status.WARN
    sick = one(FAST, rated(failed={"fp8": "CUDA error: uncorrectable ECC error"}))
    assert sick.status is Status.FAIL
