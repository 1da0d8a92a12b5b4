"""Which cards this process would see, asked of the driver alone, in a child: cuInit may hang."""

from __future__ import annotations

import ctypes
import glob
import os
from typing import Any

from envcheck.core import codec
from envcheck.core.cards import Cards, VisibleCard
from envcheck.guest import nvidia_module, trial

_SECONDS = 60
_MAJOR, _MINOR, _SHARED = 75, 76, 97  # of CUdevice_attribute, cuda.h


def look() -> Cards:
    """Return what the driver tells; never raises."""
    ended = trial.run(_ask, deadline=_SECONDS)
    if isinstance(ended.value, dict):
        return codec.from_json(Cards, ended.value, "cards")
    outcome = ended.outcome
    said = outcome.error or outcome.signal or outcome.status
    return Cards(library=True, said=said, **_surroundings())


def _ask() -> object:
    around = _surroundings()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return codec.to_json(Cards(library=False, said=str(error), **around))
    code = cuda.cuInit(0)
    version = ctypes.c_int()
    known = cuda.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value
    cards = Cards(
        library=True,
        said=_name(cuda, code),
        code=code,
        driver_cuda=f"{version.value // 1000}.{version.value % 1000 // 10}" if known else None,
        cards=_cards(cuda) if code == 0 else (),
        **around,
    )
    return codec.to_json(cards)


def _name(cuda: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    if cuda.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
        return text.value.decode("ascii", "replace")
    return f"CUresult {code}"


def _cards(cuda: ctypes.CDLL) -> tuple[VisibleCard, ...]:
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return tuple(_card(cuda, number) for number in range(count.value))


def _card(cuda: ctypes.CDLL, number: int) -> VisibleCard:
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    # The second version gives a slice its own number, the first that of its card.
    sliced = getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)
    sliced(uuid, device)
    title = name.value.decode("utf-8", "replace")
    text = uuid.raw.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return VisibleCard(
        name=title,
        sm=f"sm_{_attribute(cuda, device, _MAJOR)}{_attribute(cuda, device, _MINOR)}",
        uuid=f"{'MIG' if 'MIG' in title else 'GPU'}-{'-'.join(parts)}",
        total_memory=memory.value,
        shared_memory_per_block=_attribute(cuda, device, _SHARED),
    )


def _attribute(cuda: ctypes.CDLL, device: ctypes.c_int, number: int) -> int:
    value = ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value


def _surroundings() -> dict[str, Any]:
    return {
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "nodes": tuple(sorted(glob.glob("/dev/nvidia*"))),
        "driver": nvidia_module.version(),
        "in_container": any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))),
    }
