"""The guest unpacks with the system's libraries what other implementations packed."""

from __future__ import annotations

import lz4.block
import pytest
import zstandard

from envcheck.guest import inflate

DATA = b"kernel code " * 1000
PACKED = {
    "zstd": zstandard.ZstdCompressor().compress(DATA),
    "lz4": lz4.block.compress(DATA, store_size=False),
}
present = pytest.mark.skipif(
    any(inflate._library(name) is None for name in PACKED), reason="no libzstd or liblz4 here"
)


@present
@pytest.mark.parametrize("compression", PACKED)
def test_what_another_implementation_packed_comes_out(compression):
    assert inflate.inflate(PACKED[compression], compression, len(DATA)) == DATA


@present
@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("wrong", [0, 1, len(DATA) - 1, len(DATA) + 1])
def test_a_size_that_does_not_fit_is_refused(compression, wrong):
    with pytest.raises(ValueError, match=compression):
        inflate.inflate(PACKED[compression], compression, wrong)


@present
@pytest.mark.parametrize("compression", PACKED)
def test_damaged_bytes_are_refused(compression):
    with pytest.raises(ValueError, match=compression):
        inflate.inflate(b"\xff" * 40, compression, len(DATA))


def test_what_nothing_can_unpack_is_refused_by_name():
    with pytest.raises(ValueError, match="keyed"):
        inflate.inflate(b"x", "keyed", 1)
