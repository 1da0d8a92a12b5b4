"""Products of matrices that are broken on purpose, as a sick card would give them."""

from __future__ import annotations

import os
import time

import torch

from envcheck.guest import burning


class Planted:
    """A product that is right but for what `spoil` does from some call on, counted from 1."""

    def __init__(self, spoil, *, at: int, until: int = 10**9) -> None:
        self.spoil, self.calls = spoil, range(at, until)
        self.count = 0

    def __call__(self, a, b, out) -> None:
        burning.multiply(a, b, out)
        self.count += 1
        if self.count in self.calls:
            self.spoil(out)


def flips_a_bit(out) -> None:
    out.view(torch.int16)[3, 5] ^= 0x8


def shifts_a_tile(out) -> None:
    out[64:, 32:64] += 4.0


def forgets(out) -> None:
    out.fill_(float("nan"))


def hangs(out) -> None:
    time.sleep(60)


def exits(out) -> None:
    os._exit(7)


def fails(out) -> None:
    message = "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be"
    raise RuntimeError(message)
