"""Registers, stack and shared memory, compared with what each assembler said of its output."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from envcheck.guest import elf
from envcheck.guest.elf import Malformed
from envcheck.guest.resources import resources_of

DATA = Path(__file__).parent / "data"
ANSWERS = json.loads((DATA / "resources.json").read_text())


def cubin(name: str) -> bytes:
    return (DATA / "resources" / f"{name}.cubin").read_bytes()


@pytest.mark.parametrize("name", ANSWERS)
def test_as_the_assembler_said(name):
    data = cubin(name)
    parsed = elf.read(data)
    found = {}
    for kernel, answer in ANSWERS[name].items():
        taken = resources_of(data, parsed, kernel)
        found[kernel] = {
            "registers": taken.registers,
            "stack_bytes": taken.stack_bytes,
            "static_shared": taken.static_shared,
            "spill_stores": answer["spill_stores"],
        }
    assert found == ANSWERS[name]


def test_the_samples_show_what_they_are_for():
    """Sizes that the source fixes: 100 and 300 floats shared, 64 floats of an array."""
    for answers in ANSWERS.values():
        assert answers["fixed"]["static_shared"] == 400
        assert answers["both"]["static_shared"] == 1200
        assert answers["asked"]["static_shared"] == answers["nothing"]["static_shared"] == 0
        assert answers["array"]["stack_bytes"] == 256
        assert answers["spilled"]["stack_bytes"] > 0
        assert answers["spilled"]["spill_stores"] > 0
    assert {name.partition("-")[2] for name in ANSWERS} == {"sm_75", "sm_89", "sm_90a", "sm_120a"}


def test_blocks_of_a_cluster():
    """As their source fixes them, `__cluster_dims__(4, 4, 1)` and so on, by nvcc 13.0 for sm_90."""
    data = (DATA / "clusters.cubin").read_bytes()
    parsed = elf.read(data)
    found = {
        kernel: resources_of(data, parsed, kernel).cluster_blocks
        for kernel in ("plain", "two", "sixteen", "thirtytwo")
    }
    assert found == {"plain": 1, "two": 2, "sixteen": 16, "thirtytwo": 32}


def test_a_kernel_that_is_not_there_is_named():
    data = cubin("13.0-sm_89")
    with pytest.raises(Malformed, match="no absent"):
        resources_of(data, elf.read(data), "absent")
    with pytest.raises(Malformed, match="no fixe"):
        resources_of(data, elf.read(data), "fixe")


def test_a_cubin_without_facts_is_malformed():
    data = cubin("13.0-sm_89")
    with pytest.raises(Malformed, match="no registers of fixed"):
        resources_of(
            data.replace(b".nv.info\0", b".no.info\0"),
            elf.read(data.replace(b".nv.info\0", b".no.info\0")),
            "fixed",
        )
    hidden = data.replace(b".symtab\0", b".nosyms\0")
    with pytest.raises(Malformed, match="symtab: missing"):
        resources_of(hidden, elf.read(hidden), "fixed")


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_bytes_that_lie_never_read_past_the_end(cut):
    """Flip what `.nv.info` says of its lengths: malformed or another number, never an error."""
    data = bytearray(cubin("13.0-sm_89"))
    section = elf.read(bytes(data)).find(".nv.info")
    at = section.offset + cut % section.size
    data[at] ^= 0xFF
    broken = bytes(data)
    with contextlib.suppress(Malformed):
        resources_of(broken, elf.read(broken), "fixed")
