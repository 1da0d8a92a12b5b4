"""Architectures, cards and the names that users give them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envcheck import targets
from envcheck.core import codec
from envcheck.core.driver_facts import DriverCard
from envcheck.core.model import Target
from envcheck.core.sm import KNOWN, Sm
from envcheck.errors import DocumentInvalid, UsageError

CARD_HERE = DriverCard(
    name="NVIDIA H200",
    sm="sm_90",
    uuid="GPU-1",
    total_memory=150109880320,
    multiprocessors=132,
    shared_memory_per_block=232448,
)

# The names that the command line promises, and NVIDIA's list of CUDA GPUs.
ARCHITECTURES = {
    "turing": "sm_75",
    "ampere": "sm_80",
    "ampere-rtx": "sm_86",
    "ada": "sm_89",
    "hopper": "sm_90",
    "blackwell-dc": "sm_100",
    "blackwell-ultra": "sm_103",
    "blackwell": "sm_120",
    "spark": "sm_121",
}
CARDS = {
    "rtx-4090": "sm_89",
    "rtx-6000-ada": "sm_89",
    "l40s": "sm_89",
    "rtx-5090": "sm_120",
    "rtx-pro-6000": "sm_120",
    "h100": "sm_90",
    "h200": "sm_90",
    "b200": "sm_100",
    "gb10": "sm_121",
    "a100": "sm_80",
    "rtx-3090": "sm_86",
    "t4": "sm_75",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_that_is_promised(name: str) -> None:
    target = targets.resolve(name)
    assert (target.name, target.sm) == (name, ARCHITECTURES[name])


@pytest.mark.parametrize("name", CARDS)
def test_cards_are_found_by_their_name(name: str) -> None:
    target = targets.resolve(name)
    assert (target.name, target.sm) == (name, CARDS[name])


@pytest.mark.parametrize(
    ("written", "name", "sm"),
    [
        ("RTX 4090", "rtx-4090", "sm_89"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090", "sm_120"),
        ("rtx4090", "rtx-4090", "sm_89"),
        (" Ada ", "ada", "sm_89"),
        ("NVIDIA H200", "h200", "sm_90"),
        ("ampere_rtx", "ampere-rtx", "sm_86"),
        ("sm_120", "sm_120", "sm_120"),
        ("SM_90", "sm_90", "sm_90"),
        ("sm90", "sm_90", "sm_90"),
        ("sm-87", "sm_87", "sm_87"),
    ],
)
def test_names_are_taken_as_people_write_them(written: str, name: str, sm: str) -> None:
    target = targets.resolve(written)
    assert (target.name, target.sm) == (name, sm)


@pytest.mark.parametrize("name", ["", "rtx", "5090ti", "sm_", "sm_5", "sm_1200", "90", "sm_090"])
def test_an_unknown_name_is_refused_with_what_is_known(name: str) -> None:
    with pytest.raises(UsageError, match="unknown target") as refused:
        targets.resolve(name)
    assert repr(name) in refused.value.message
    assert "blackwell" in refused.value.remedy
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("name", "better"), [("sm_120a", "sm_120"), ("sm_100f", "sm_100")])
def test_a_suffix_is_refused_with_the_name_that_is_meant(name: str, better: str) -> None:
    with pytest.raises(UsageError, match="a card has no suffix") as refused:
        targets.resolve(name)
    assert refused.value.remedy == f"--arch {better}"


def test_every_row_of_the_file_is_sound() -> None:
    known = targets.catalogue()
    assert {a.name: a.sm for a in known.architectures} == ARCHITECTURES
    names = [a.name for a in known.architectures] + [c.name for c in known.cards]
    assert len(names) == len(set(names))
    for architecture in known.architectures:
        assert Sm.parse(architecture.sm).number in KNOWN
    for card in known.cards:
        assert card.source
        assert card.memory_gb is None or 8 <= card.memory_gb <= 1024


# cuda_occupancy.h of CUDA 13: shared memory per SM less 1 KiB; all 64 KiB on 7.5.
@pytest.mark.parametrize(
    ("name", "kib"),
    [
        *(("turing", 64), ("ampere", 163), ("ampere-rtx", 99), ("ada", 99), ("hopper", 227)),
        *(("blackwell-dc", 227), ("blackwell-ultra", 227), ("blackwell", 99), ("spark", 99)),
    ],
)
def test_shared_memory_of_one_block(name: str, kib: int) -> None:
    (row,) = (a for a in targets.catalogue().architectures if a.name == name)
    assert row.shared_memory_per_block == kib * 1024


ROW = '[architectures.x]\nsm = "{}"\nshared_memory_per_block = 1\n'
CARD = '[cards.{}]\ntitle = "T"\narchitecture = "{}"\nsource = "s"\n'


def test_a_sound_file_is_loaded() -> None:
    made = targets.load(ROW.format("sm_90") + CARD.format("y", "x"))
    assert (made.architectures[0].sm, made.cards[0].architecture) == ("sm_90", "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[architectures", "targets.toml: "),
        ("[architectures]\n", "cards"),
        (ROW.format("90") + "[cards]\n", r"architectures\.x\.sm: '90'"),
        (ROW.format("sm_90a") + "[cards]\n", r"architectures\.x\.sm: 'sm_90a'"),
        (ROW.format("sm_90") + CARD.format("y", "z"), r"cards\.y: architecture 'z'"),
        (ROW.format("sm_90") + CARD.format("x", "x"), r"cards\.x"),
        (ROW.format("sm_90") + "colour = 1\n[cards]\n", "colour"),
        ('[architectures.x]\nsm = "sm_90"\n[cards]\n', "shared_memory_per_block"),
    ],
)
def test_a_broken_file_is_refused_and_the_row_is_named(text: str, message: str) -> None:
    with pytest.raises(DocumentInvalid, match=message):
        targets.load(text)


@pytest.mark.parametrize(
    ("title", "sm"),
    [
        ("NVIDIA GeForce RTX 4090", "sm_89"),
        ("RTX 6000 Ada Generation", "sm_89"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "sm_120"),
        ("GeForce  RTX_5090", "sm_120"),
    ],
)
def test_the_makers_own_names_of_cards_are_understood(title, sm):
    assert targets.resolve(title).sm == sm


def test_the_name_that_the_driver_gives_tells_the_product_and_what_it_can_do() -> None:
    known = targets.of_card(replace(CARD_HERE, name="NVIDIA GeForce RTX 5090", sm="sm_120"))
    assert known.limits is not None
    # Table 3 of the whitepaper of NVIDIA RTX Blackwell.
    assert (known.limits.bandwidth, known.limits.bf16, known.limits.pcie) == (1792, 209.5, 5)
    other = targets.of_card(replace(CARD_HERE, name="NVIDIA GeForce RTX 4090 D", sm="sm_89"))
    assert other.limits is None


@pytest.mark.parametrize("name", [card.name for card in targets.catalogue().cards])
def test_limits_survive_the_document_that_keeps_them(name: str) -> None:
    target = targets.resolve(name)
    assert target.limits is not None
    assert codec.loads(Target, codec.dumps(target), name="target") == target


def test_what_was_rented_is_a_product_or_an_architecture() -> None:
    product, kind = targets.expected("RTX 5090"), targets.expected("blackwell")
    assert (product.name, product.sm) == ("rtx-5090", "sm_120")
    assert product.reported == ("NVIDIA GeForce RTX 5090",)
    assert product.limits is not None
    assert product.limits.memory_gb == 32
    assert (kind.name, kind.sm, kind.reported, kind.limits) == ("blackwell", "sm_120", (), None)


def test_no_name_of_the_driver_stands_for_two_products() -> None:
    names = [name for card in targets.catalogue().cards for name in card.reported]
    assert len(names) == len(set(names)) >= len(targets.catalogue().cards)
