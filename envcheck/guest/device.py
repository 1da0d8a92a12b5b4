"""One card with a context of its own and envcheck's kernels: memory, launches, times.

All calls are those of cuda.h of CUDA 13.0; where it maps a name to `_v2`, that is called. Every
integer is given its C type, because ctypes would pass it as an int of 32 bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import resources

from envcheck.guest.driver import Driver
from envcheck.guest.patterns import WORD, Pattern, Report

OUT_OF_MEMORY = 2
_MULTIPROCESSORS, _INTEGRATED = 16, 18  # of CUdevice_attribute
_THREADS = 256
_BLOCKS_OF_EACH = 32
"""Blocks for each multiprocessor: several times what fits (2048 threads), so that none idles."""


class Device:
    """A card, by the number that the driver gives it; every call may raise DriverFailed."""

    def __init__(self, driver: Driver, index: int) -> None:
        number, self.context = ctypes.c_int(), ctypes.c_void_p()
        self._driver = driver
        driver.call("cuInit", ctypes.c_uint(0))
        driver.call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(index))
        self.number = number.value
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), number)
        self.use()
        self.blocks = _BLOCKS_OF_EACH * driver.attribute(self.number, _MULTIPROCESSORS)
        self._functions = self._load()
        self._events = tuple(self._event() for _ in range(2))

    def _load(self) -> dict[str, ctypes.c_void_p]:
        image = resources.files("envcheck.guest").joinpath("ptx/memory.ptx").read_bytes() + b"\0"
        module = ctypes.c_void_p()
        self._driver.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        found = {}
        for name in ("nothing", "fill", "verify", "copy"):
            found[name] = ctypes.c_void_p()
            function = ctypes.c_char_p(name.encode())
            arguments = (ctypes.byref(found[name]), module, function)
            self._driver.call("cuModuleGetFunction", *arguments)
        return found

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._driver.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return event

    @property
    def shares_memory(self) -> bool:
        """Whether its memory is the host's own."""
        return bool(self._driver.attribute(self.number, _INTEGRATED))

    def address(self) -> str:
        """Return where the card is on the bus, as sysfs writes it: `0000:18:00.0`."""
        text = ctypes.create_string_buffer(32)
        arguments = (text, ctypes.c_int(len(text)), ctypes.c_int(self.number))
        self._driver.call("cuDeviceGetPCIBusId", *arguments)
        domain, _, rest = text.value.decode("ascii", "replace").lower().partition(":")
        return f"{domain[-4:]}:{rest}"

    def use(self) -> None:
        """Make this card's context the one that calls without a context mean."""
        self._driver.call("cuCtxSetCurrent", self.context)

    def wait(self) -> None:
        """Wait until all is done; what failed meanwhile is raised here."""
        self._driver.call("cuCtxSynchronize")

    def memory(self) -> tuple[int, int]:
        """Return the free and all bytes of the card."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes of the card's memory."""
        address = ctypes.c_uint64()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give memory of the card back."""
        self._driver.call("cuMemFree_v2", ctypes.c_uint64(address))

    def pinned(self, size: int) -> int:
        """Return the address of so many bytes of the host's memory that stay where they are."""
        address = ctypes.c_void_p()
        arguments = (ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_uint(0))
        self._driver.call("cuMemHostAlloc", *arguments)
        return address.value or 0

    def free_pinned(self, address: int) -> None:
        """Give it back."""
        self._driver.call("cuMemFreeHost", ctypes.c_void_p(address))

    def set_bytes(self, address: int, byte: int, size: int) -> None:
        """Set each byte of the card's memory to one value."""
        arguments = (ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size))
        self._driver.call("cuMemsetD8_v2", *arguments)

    def to_card(self, card: int, host: int, size: int, *, later: bool = False) -> None:
        """Copy from the host; with `later` it may go on after the call."""
        arguments = (ctypes.c_uint64(card), ctypes.c_void_p(host), ctypes.c_size_t(size))
        if later:
            self._driver.call("cuMemcpyHtoDAsync_v2", *arguments, None)
        else:
            self._driver.call("cuMemcpyHtoD_v2", *arguments)

    def to_host(self, host: int, card: int, size: int, *, later: bool = False) -> None:
        """Copy to the host; with `later` it may go on after the call."""
        arguments = (ctypes.c_void_p(host), ctypes.c_uint64(card), ctypes.c_size_t(size))
        if later:
            self._driver.call("cuMemcpyDtoHAsync_v2", *arguments, None)
        else:
            self._driver.call("cuMemcpyDtoH_v2", *arguments)

    def copy_by_driver(self, to: int, source: int, size: int) -> None:
        """Begin a copy inside of the card's memory."""
        arguments = (ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size))
        self._driver.call("cuMemcpyDtoDAsync_v2", *arguments, None)

    def copy_by_kernel(self, to: int, source: int, size: int) -> None:
        """Begin the same by a kernel; addresses and size divide by 16."""
        count = ctypes.c_uint64(size // 16)
        self._launch("copy", ctypes.c_uint64(to), ctypes.c_uint64(source), count)

    def may_reach(self, other: Device) -> bool:
        """Say whether the driver claims that this card can be let into another one's memory."""
        value = ctypes.c_int()
        numbers = (ctypes.c_int(self.number), ctypes.c_int(other.number))
        self._driver.call("cuDeviceCanAccessPeer", ctypes.byref(value), *numbers)
        return bool(value.value)

    def reach(self, other: Device) -> None:
        """Let this card into the other one's memory; its context is the current one after."""
        self.use()
        self._driver.call("cuCtxEnablePeerAccess", other.context, ctypes.c_uint(0))

    def copy_to(self, other: Device, to: int, source: int, size: int) -> None:
        """Begin a copy to another card's memory; this card's context must be the current one."""
        target = (ctypes.c_uint64(to), other.context)
        origin = (ctypes.c_uint64(source), self.context)
        count = ctypes.c_size_t(size)
        self._driver.call("cuMemcpyPeerAsync", *target, *origin, count, None)

    def nothing(self) -> None:
        """Begin a kernel that does nothing."""
        self._launch("nothing", blocks=1, threads=1)

    def fill(self, address: int, words: int, start: int, pattern: Pattern) -> None:
        """Begin to write a pattern; `start` is the index of the first word."""
        self._launch("fill", *_of(address, words, start, pattern))

    def verify(self, address: int, words: int, start: int, pattern: Pattern, report: int) -> None:
        """Begin to compare memory with a pattern; adds to the report at an address."""
        self._launch("verify", *_of(address, words, start, pattern), ctypes.c_uint64(report))

    def new_report(self) -> int:
        """Return the address of an empty report."""
        address = self.allocate(ctypes.sizeof(Report))
        self.set_bytes(address, 0, ctypes.sizeof(Report))
        return address

    def read_report(self, address: int) -> Report:
        """Wait for what fills a report, and return it; it is given back."""
        self.wait()
        report = Report()
        self.to_host(ctypes.addressof(report), address, ctypes.sizeof(report))
        self.free(address)
        return report

    def seconds(self, work: Callable[[], None]) -> float:
        """Return how long the card took for what a call begins, by its own clock."""
        first, last = self._events
        self._driver.call("cuEventRecord", first, None)
        work()
        self._driver.call("cuEventRecord", last, None)
        self._driver.call("cuEventSynchronize", last)
        milliseconds = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), first, last)
        # Below the clock's resolution of half a microsecond it may say nothing at all.
        return max(milliseconds.value / 1000, 5e-7)

    def _launch(
        self, name: str, *given: ctypes._SimpleCData[int], blocks: int = 0, threads: int = _THREADS
    ) -> None:
        arguments = (ctypes.c_void_p * max(len(given), 1))(*map(ctypes.addressof, given))
        shape = (blocks or self.blocks, 1, 1, threads, 1, 1, 0)
        sizes = map(ctypes.c_uint, shape)
        self._driver.call("cuLaunchKernel", self._functions[name], *sizes, None, arguments, None)


def _of(
    address: int, words: int, start: int, pattern: Pattern
) -> tuple[ctypes._SimpleCData[int], ...]:
    """Return the first six parameters of `fill` and `verify`."""
    return (
        ctypes.c_uint64(address),
        ctypes.c_uint64(words),
        ctypes.c_uint64(start),
        ctypes.c_uint(pattern.kind),
        ctypes.c_uint64(pattern.seed),
        ctypes.c_uint64(pattern.mask),
    )


def whole_words(size: int) -> int:
    """Return how many bytes of a size the kernels can take: they copy sixteen at once."""
    return size // (2 * WORD) * (2 * WORD)
