"""The guest unpacks with the system's libraries what other implementations packed."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from types import ModuleType

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


@present
def test_a_frame_that_does_not_say_its_size_is_unpacked():
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(DATA)
    assert inflate.inflate(packed, "zstd", len(DATA)) == DATA
    with pytest.raises(ValueError, match="zstd"):
        inflate.inflate(packed, "zstd", len(DATA) - 1)


@present
@pytest.mark.parametrize(
    ("compression", "payload"),
    [
        # A frame that says 256 MB, and one that says less than the header.
        ("zstd", b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 28) + b"\1\0\0"),
        ("zstd", b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 5) + b"\1\0\0"),
        ("lz4", b"\x1fx" + b"\xff" * 50),
    ],
)
def test_no_size_is_believed_before_it_is_checked(compression, payload):
    unpacked = (1 << 28) - 1
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"{compression}: .* do not become {unpacked}"):
        inflate.inflate(payload, compression, unpacked)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


class ZstdError(Exception):
    """As in Python 3.14: not a ValueError."""


class _Decompressor:
    def decompress(self, payload, max_length=-1):
        assert max_length >= 0, "unbounded"
        if payload == b"damaged":
            message = "bad frame"
            raise ZstdError(message)
        return zstandard.ZstdDecompressor().decompress(payload)[:max_length]


@pytest.fixture
def newer_python(monkeypatch):
    """Stand in for the module that Python has from 3.14 on, with the parts that are used."""
    package, module = ModuleType("compression"), ModuleType("compression.zstd")
    module.ZstdError, module.ZstdDecompressor = ZstdError, _Decompressor
    package.zstd = module
    monkeypatch.setitem(sys.modules, "compression", package)
    monkeypatch.setitem(sys.modules, "compression.zstd", module)


@pytest.mark.usefixtures("newer_python")
def test_pythons_own_zstd_is_bounded_and_its_errors_are_ours():
    assert inflate.inflate(PACKED["zstd"], "zstd", len(DATA)) == DATA
    with pytest.raises(ValueError, match="zstd: 101 bytes where the header says 100"):
        inflate.inflate(PACKED["zstd"], "zstd", 100)
    with pytest.raises(ValueError, match="zstd: bad frame"):
        inflate.inflate(b"damaged", "zstd", 100)
