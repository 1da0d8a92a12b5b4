"""The one card of a machine, by NVML: a gate cannot wait for CUDA, whose start may take a second.

It answers only where there is no doubt which card a job would see: one card, whole, hidden by no
variable, with all that CUDA opens. In any other case CUDA has to be asked. NVML is called without
its binding (`envcheck.guest.nvml`), for this runs in a job's interpreter, which need not have it.
"""

from __future__ import annotations

import ctypes
import os

from envcheck.core import codec
from envcheck.core.driver_facts import MANAGEMENT
from envcheck.core.present import OnlyCard
from envcheck.guest import driver, nodes, nvidia_module, trial

_SECONDS = 10
_OPENED = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_LONGEST = 96
"""Bytes of a name or a UUID: NVML_DEVICE_NAME_V2_BUFFER_SIZE of nvml.h, of which both are."""


def look(library: str = MANAGEMENT) -> OnlyCard | None:
    """Return it; None where there may be another answer, and never raises."""
    if not set(_OPENED) <= set(nodes.nodes()):
        return None
    ended = trial.run(lambda: _ask(library), deadline=_SECONDS)
    if not isinstance(ended.value, dict):
        return None
    card = codec.from_json(OnlyCard, ended.value, "card")
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return card if shown in (None, "0", card.uuid) else None


def _ask(library: str) -> object:
    """Ask NVML; None where it does not show exactly one card, or where a call fails."""
    nvml = ctypes.CDLL(library)
    ctypes.CDLL(driver.LIBRARY)
    if nvml.nvmlInitWithFlags(0):
        return None
    count, handle = ctypes.c_uint(), ctypes.c_void_p()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) or count.value != 1:
        return None
    if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) or _is_cut(nvml, handle):
        return None
    name, uuid = (ctypes.create_string_buffer(_LONGEST) for _ in range(2))
    major, minor = ctypes.c_int(), ctypes.c_int()
    failed = (
        nvml.nvmlDeviceGetName(handle, name, _LONGEST)
        or nvml.nvmlDeviceGetUUID(handle, uuid, _LONGEST)
        or nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    )
    if failed:
        return None
    card = OnlyCard(
        name=name.value.decode("utf-8", "replace"),
        sm=f"sm_{major.value}{minor.value}",
        uuid=uuid.value.decode("utf-8", "replace"),
        module=nvidia_module.version(),
    )
    return codec.to_json(card)


def _is_cut(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> bool:
    """Say whether it is in slices (MIG), of which a job sees one; cards without them fail here."""
    now, later = ctypes.c_uint(), ctypes.c_uint()
    failed = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(now), ctypes.byref(later))
    return not failed and bool(now.value)
