"""What a lane of PCI Express carries."""

from __future__ import annotations

# PCI Express Base Specification: 1e9 transfers a second on each lane, and what of them are data:
# 8 of 10 bits (1.0, 2.0), 128 of 130 (3.0 to 5.0), 242 of the 256 bytes of a flit (6.0).
_GENERATIONS = {
    2.5: (1, 8 / 10),
    5.0: (2, 8 / 10),
    8.0: (3, 128 / 130),
    16.0: (4, 128 / 130),
    32.0: (5, 128 / 130),
    64.0: (6, 242 / 256),
}


def generation(speed: float) -> int | None:
    """Return the generation of a speed in 1e9 transfers a second; None for one that is none."""
    known = _GENERATIONS.get(speed)
    return known[0] if known is not None else None


def speed(generation: int | None) -> float:
    """Return the speed of a generation in 1e9 transfers a second; 0 for one that is none."""
    return next((s for s, (known, _) in _GENERATIONS.items() if known == generation), 0.0)


def lane_rate(speed: float) -> float:
    """Return how much one lane carries one way, in 1e9 bytes a second; 0 for an unknown speed.

    Headers and acknowledgements of packets come out of that: a copy reaches less.
    """
    known = _GENERATIONS.get(speed)
    return speed * known[1] / 8 if known is not None else 0.0
