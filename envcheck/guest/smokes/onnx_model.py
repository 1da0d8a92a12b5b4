"""A tiny ONNX model, written out as bytes: the package that writes such files need not be there.

The fields' numbers are those of onnx.proto3 (ModelProto, GraphProto, NodeProto, ValueInfoProto,
TypeProto), the encoding that of Protocol Buffers: a tag, a length where there is one, a value.
"""

from __future__ import annotations

from collections.abc import Iterable

_FLOAT = 1
"""TensorProto.DataType.FLOAT."""
_IR_VERSION, _OPSET = 8, 17
"""Of ONNX 1.12 (2022), which every later runtime reads."""


def _number(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _integer(field: int, value: int) -> bytes:
    return _number(field << 3) + _number(value)


def _nested(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return _number(field << 3 | 2) + _number(len(content)) + content


def _node(kind: str, inputs: Iterable[str], output: str) -> bytes:
    named = b"".join(_nested(1, name) for name in inputs)
    return _nested(1, named + _nested(2, output) + _nested(4, kind))


def _value(field: int, name: str, shape: Iterable[int]) -> bytes:
    sizes = b"".join(_nested(1, _integer(1, size)) for size in shape)
    tensor = _integer(1, _FLOAT) + _nested(2, sizes)
    return _nested(field, _nested(1, name) + _nested(2, _nested(1, tensor)))


def product_of(m: int, n: int, k: int) -> bytes:
    """Return a model of `out = relu(a @ b)`, with a of shape (m, k) and b of shape (k, n)."""
    graph = (
        _node("MatMul", ("a", "b"), "product")
        + _node("Relu", ("product",), "out")
        + _nested(2, "product")
        + _value(11, "a", (m, k))
        + _value(11, "b", (k, n))
        + _value(12, "out", (m, n))
    )
    return _integer(1, _IR_VERSION) + _nested(7, graph) + _nested(8, _integer(2, _OPSET))
