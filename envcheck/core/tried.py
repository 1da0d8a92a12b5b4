"""What one card did, asked through the driver alone, without PyTorch: facts, unjudged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """An empty kernel of one thread, launched again and again from one thread of the host."""

    answered: float
    """Microseconds from a launch until the host knows that the kernel is done: the median."""
    enqueued: float
    """Microseconds that each launch takes the host where nobody waits for it."""
    count: int
    """Launches that were waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Eight bytes that were not what had been written."""

    offset: int
    """Bytes from the start of what was tested, on through all its chunks."""
    expected: str
    """`0x00000000000000ff`."""
    found: str
    side: str = ""
    """Of the link: `to host` or `to card`, where the wrong bytes came from; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bus:
    """The link to the host as the kernel of the system sees it (sysfs), while data went over it."""

    speed: float
    """1e9 transfers a second on each lane, as it was trained at that time: 16.0."""
    width: int
    """Lanes."""
    most_speed: float
    """What the card itself could do."""
    most_width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Copies between host and card; rates are in 1e9 bytes a second, the best of several."""

    size: int
    """Bytes of one copy."""
    to_card: float | None = None
    """From pinned memory; None where none could be had."""
    to_host: float | None = None
    pageable_to_card: float | None = None
    """From ordinary memory, for information."""
    pageable_to_host: float | None = None
    pinned: str = ""
    """Why no pinned memory could be had; empty where it could."""
    wrong: int
    """Words of eight bytes that came back otherwise than they went, of one copy each way."""
    first: tuple[Mismatch, ...] = ()
    """Some of them."""
    bus: Bus | None = None
    """None where the system does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Copies inside of the card's memory, too large for its caches."""

    size: int
    """Bytes of one copy; each is read and written."""
    by_kernel: float
    """1e9 bytes a second, read and written together, by a kernel of envcheck's own: the median."""
    by_driver: float
    """The same by the driver's own copy."""

    @property
    def rate(self) -> float:
        """What the memory can do at least: the better of both ways."""
        return max(self.by_kernel, self.by_driver)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pattern, written to all of the memory and then compared with all of it."""

    pattern: str
    """`address`, `random`, `walking one` and the like."""
    seed: int
    wrong: int
    """Words of eight bytes that did not hold it."""
    bits: str = "0x0"
    """Every bit that differed anywhere."""
    first: tuple[Mismatch, ...] = ()
    """Some of them."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A test of most of the card's free memory."""

    total: int
    """Bytes of the card."""
    free: int
    """Bytes that nobody held when the test began."""
    tested: int
    """Bytes of it that were written and compared in each pass."""
    passes: tuple[Pass, ...] = ()
    left: str = ""
    """Why patterns of the first round were left out; empty where all were done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What ended the work on a card before its time."""

    step: str
    """`start`, `launches`, `link`, `copied` or `held`."""
    error: str
    """`CUDA_ERROR_ECC_UNCORRECTABLE (214)`, or how the process ended."""
    hung: bool = False
    """Whether it did not come to an end, and was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Its memory, the link to the host, and its launches."""

    uuid: str
    """As in `DriverCard`."""
    name: str = ""
    """As in `DriverCard`."""
    launches: Launches | None = None
    link: Link | None = None
    copied: Copied | None = None
    held: Held | None = None
    stopped: tuple[Stopped, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    """Steps that were not begun, and why."""
