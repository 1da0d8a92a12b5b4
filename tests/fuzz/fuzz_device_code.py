"""Feed changed samples to the reader of device code until a budget of time is spent.

    python tests/fuzz/fuzz_device_code.py --seconds 20 --seed 1 --keep findings/

Every answer must be a `DeviceFile` within a time and memory that follow from the size of the
file, must survive the codec, and must be judged for a card without an error of a check. Exits 1
at the first input that does not, and keeps it. Inputs in `regressions/` are tried first.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"

from envcheck.core import codec  # noqa: E402
from envcheck.core.device_file import DeviceFile  # noqa: E402
from envcheck.core.model import Domain, Inventory, Target  # noqa: E402
from envcheck.guest import device_code  # noqa: E402
from envcheck.inflate import inflate  # noqa: E402
from envcheck.judge import judge  # noqa: E402

DEADLINE = 10
"""Seconds of CPU time for one input; the samples take milliseconds."""
MEMORY = 2 << 30
"""Bytes of address space for the whole run."""

NUMBERS = (0, 1, 2, 7, 8, 16, 63, 64, 255, 0x7FFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40)
HUGE = ((1 << 63) - 1, 1 << 63, (1 << 64) - 64, (1 << 64) - 1)
MAGICS = (
    b"\x7fELF",
    b"\x50\xed\x55\xba\1\0\x10\0",
    b"!<arch>\n",
    b"\x28\xb5\x2f\xfd",
    b"/*",
    b"\0" * 8,
)


def samples() -> list[bytes]:
    """Return the objects to start from, the small ones more than once."""
    folders = [DATA / "truth" / "objects", DATA / "truth-extra" / "objects", DATA / "elf"]
    paths = [p for f in folders for p in sorted(f.iterdir()) if p.suffix not in (".json", ".md")]
    return [p.read_bytes() for p in paths if p.stat().st_size <= 1 << 20]


def flip(data: bytearray, chance: random.Random, _: list[bytes]) -> None:
    """Change a few single bytes."""
    for _round in range(chance.randint(1, 8)):
        data[chance.randrange(len(data))] = chance.randrange(256)


def number(data: bytearray, chance: random.Random, _: list[bytes]) -> None:
    """Write a number that sizes and offsets do not expect, at an aligned place."""
    width, code = chance.choice([(2, "H"), (4, "I"), (8, "Q")])
    at = chance.randrange(max(1, len(data) // width)) * width
    value = chance.choice(NUMBERS + HUGE + (len(data), len(data) - at))
    if at + width <= len(data):
        struct.pack_into(f"<{code}", data, at, value & ((1 << 8 * width) - 1))


def header(data: bytearray, chance: random.Random, corpus: list[bytes]) -> None:
    """Change numbers behind a magic, where the fields are."""
    places = [at for m in MAGICS[:3] if (at := data.find(m, chance.randrange(len(data)))) >= 0]
    if not places:
        number(data, chance, corpus)
        return
    at = chance.choice(places) + chance.randrange(2, 80)
    for offset in range(at, min(at + 8, len(data))):
        data[offset] = chance.choice((0, 0xFF, 1, chance.randrange(256)))


def cut(data: bytearray, chance: random.Random, _: list[bytes]) -> None:
    """Drop the end, or a piece from the middle."""
    at = chance.randrange(len(data))
    del data[at : len(data) if chance.random() < 0.5 else at + chance.randrange(1, 64)]


def splice(data: bytearray, chance: random.Random, corpus: list[bytes]) -> None:
    """Put a piece of another sample somewhere."""
    other = chance.choice(corpus)
    if other:
        begin = chance.randrange(len(other))
        piece = other[begin : begin + chance.choice((8, 64, 512, 1 << 20))]
        at = chance.randrange(len(data) + 1)
        data[at : at + (0 if chance.random() < 0.5 else len(piece))] = piece


def repeat(data: bytearray, chance: random.Random, _: list[bytes]) -> None:
    """Say one piece many times over."""
    at, size = chance.randrange(len(data)), chance.choice((1, 16, 64, 256))
    data[at:at] = data[at : at + size] * chance.choice((2, 16, 500))


def magic(data: bytearray, chance: random.Random, _: list[bytes]) -> None:
    """Write the beginning of another format."""
    at = 0 if chance.random() < 0.3 else chance.randrange(len(data))
    word = chance.choice(MAGICS)
    data[at : at + len(word)] = word


CHANGES: tuple[Callable[[bytearray, random.Random, list[bytes]], None], ...] = (
    *(flip, number, number, header, header, cut, splice, repeat, magic),
)


def mutate(corpus: list[bytes], chance: random.Random) -> bytes:
    """Return a sample with a few changes."""
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        if data:
            chance.choice(CHANGES)(data, chance, corpus)
    return bytes(data[: 1 << 22])


def check(data: bytes, name: str) -> DeviceFile:
    """Read one input and hold its answer to what is promised; raises AssertionError."""
    before = time.process_time()
    file = device_code.read(data, path=name, inflate=inflate)
    assert time.process_time() - before < DEADLINE
    assert isinstance(file, DeviceFile)
    assert (file.path, file.size) == (name, len(data))
    assert any((file.problem, file.skipped, file.containers)), "silence"
    assert not (file.problem and file.skipped), "two answers"
    text = codec.dumps(file).encode()
    assert len(text) < 100 * len(data) + 10_000, "an answer far larger than its file"
    assert codec.loads(DeviceFile, text, name="file") == file
    inventory = Inventory(source="files", files=(file,))
    report = judge(Target(name="sm_90", sm="sm_90"), inventory, (580, 65, 6))
    broken = [f for f in report.findings if f.domain is Domain.ENVCHECK]
    assert not broken, broken
    return file


def _late(_signal: int, _frame: FrameType | None) -> None:
    message = f"more than {DEADLINE} seconds"
    raise TimeoutError(message)


def run(seconds: float, seed: int, keep: Path | None) -> int:
    """Try inputs until the time is over; return the exit code."""
    signal.signal(signal.SIGPROF, _late)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    corpus, chance, tried, sound = samples(), random.Random(seed), 0, 0
    known = sorted((HERE / "regressions").glob("*")) if (HERE / "regressions").is_dir() else []
    waiting = [path.read_bytes() for path in known] + corpus
    end = time.monotonic() + seconds
    while waiting or time.monotonic() < end:
        data = waiting.pop() if waiting else mutate(corpus, chance)
        name = chance.choice(("a.so", "a.o", "a.a", "a.ptx", "a.fatbin"))
        signal.setitimer(signal.ITIMER_PROF, DEADLINE)
        try:
            file = check(data, name)
        except BaseException:  # noqa: BLE001 - a RecursionError or MemoryError is a finding too
            signal.setitimer(signal.ITIMER_PROF, 0)
            return _report(data, name, keep)
        signal.setitimer(signal.ITIMER_PROF, 0)
        tried += 1
        sound += file.problem is None
        if file.problem is None and len(corpus) < 2000 and chance.random() < 0.05:
            corpus.append(data[: 1 << 20])
    sys.stdout.write(f"{tried} inputs read, {sound} of them without a problem, seed {seed}\n")
    # A fuzzer that meets only broken files tests the first check alone.
    return 0 if tried > 100 and 0.05 < sound / tried < 0.95 else 1


def _report(data: bytes, name: str, keep: Path | None) -> int:
    traceback.print_exc()
    digest = hashlib.sha256(data).hexdigest()[:12]
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{digest}-{name}").write_bytes(data)
    sys.stderr.write(f"\nfailed on {len(data)} bytes read as {name}: {digest}\n")
    return 1


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where to put an input that fails")
    options = parser.parse_args()
    return run(options.seconds, options.seed, options.keep)


if __name__ == "__main__":
    sys.exit(main())
