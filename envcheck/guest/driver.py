"""A small binding of the CUDA driver API: libcuda by ctypes, and nothing else.

Whoever calls into it holds a CUDA context from then on and must not fork: call it in a
trial's child. Numbers and names are those of cuda.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
from typing import Any

from envcheck.core.driver_facts import MANAGEMENT, PTX_COMPILER, DriverCard, DriverFacts
from envcheck.guest import nvidia_module

LIBRARY = "libcuda.so.1"
_MULTIPROCESSORS, _MAJOR, _MINOR, _SHARED_OPT_IN = 16, 75, 76, 97
# What cuInit may answer where the library cannot name its own errors, as stubs cannot.
_NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    35: "cudaErrorInsufficientDriver",
    36: "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    221: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
    222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}


class DriverFailed(Exception):
    """Report a call that did not return CUDA_SUCCESS."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(f"{name} ({code})")
        self.code = code
        self.name = name


class Driver:
    """The driver's library; raises OSError where it cannot be opened."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(library)

    def has(self, function: str) -> bool:
        """Say whether the library has a function of that name."""
        return hasattr(self._library, function)

    def code(self, function: str, *arguments: Any) -> int:
        """Call a function and return the CUresult; -1 where the library has no such function."""
        if not self.has(function):
            return -1
        return int(getattr(self._library, function)(*arguments))

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function; raises DriverFailed for anything but CUDA_SUCCESS."""
        code = self.code(function, *arguments)
        if code:
            name = self.error_name(code) if code > 0 else f"no {function} in this libcuda"
            raise DriverFailed(code, name)

    def error_name(self, code: int) -> str:
        """Name an error; codes of the runtime alone have no name here."""
        text = ctypes.c_char_p()
        self.code("cuGetErrorName", ctypes.c_int(code), ctypes.byref(text))
        return text.value.decode() if text.value else _NAMES.get(code, "unnamed")

    def attribute(self, device: int, number: int) -> int:
        """Return a CUdevice_attribute; raises DriverFailed."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value


def describe(library: str = LIBRARY) -> DriverFacts:
    """Return what libcuda says of itself and of every visible card; raises DriverFailed.

    It is raised only by a driver that was initialised and then fails to describe a card.
    """
    try:
        driver = Driver(library)
    except OSError as error:
        return DriverFacts(missing=str(error), module=nvidia_module.version())
    code = driver.code("cuInit", 0)
    cards: tuple[DriverCard, ...] = ()
    if not code:
        count = ctypes.c_int()
        driver.call("cuDeviceGetCount", ctypes.byref(count))
        cards = tuple(_card(driver, index) for index in range(count.value))
    return DriverFacts(
        init=code,
        init_name=driver.error_name(code) if code else "",
        cuda=_cuda(driver),
        module=nvidia_module.version(),
        cards=cards,
        absent=tuple(name for name in (PTX_COMPILER, MANAGEMENT) if not _is_there(name)),
    )


def _is_there(name: str) -> bool:
    """Say whether the loader finds a library, under its soname or the driver's own version."""
    version = nvidia_module.version()
    for candidate in (name, f"{name.removesuffix('.1')}.{version}" if version else name):
        try:
            ctypes.CDLL(candidate)
        except OSError:
            continue
        return True
    return False


def _cuda(driver: Driver) -> str | None:
    version = ctypes.c_int()
    if driver.code("cuDriverGetVersion", ctypes.byref(version)) or version.value <= 0:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _card(driver: Driver, index: int) -> DriverCard:
    device = ctypes.c_int()
    driver.call("cuDeviceGet", ctypes.byref(device), index)
    number = device.value
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    driver.call("cuDeviceGetName", name, len(name), number)
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(memory), number)
    title = name.value.decode("utf-8", "replace")
    return DriverCard(
        name=title,
        sm=f"sm_{driver.attribute(number, _MAJOR)}{driver.attribute(number, _MINOR)}",
        uuid=_uuid(driver, number, "MIG" if "MIG" in title else "GPU"),
        total_memory=memory.value,
        multiprocessors=driver.attribute(number, _MULTIPROCESSORS),
        shared_memory_per_block=driver.attribute(number, _SHARED_OPT_IN),
    )


def _uuid(driver: Driver, device: int, kind: str) -> str:
    """Return a card's or a slice's own identifier; the second version of the call tells slices."""
    raw = (ctypes.c_ubyte * 16)()
    function = "cuDeviceGetUuid_v2" if driver.has("cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    if driver.code(function, raw, device):
        return ""
    text = bytes(raw).hex()
    return f"{kind}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
