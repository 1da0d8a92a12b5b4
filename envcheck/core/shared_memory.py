"""How much memory the processes of a job share."""

from __future__ import annotations

# PyTorch's data loader keeps two batches for each of its workers (`prefetch_factor`); one of 32
# images of 224 x 224 in float32 takes 19 MB. Eight workers are those of recipe R24.
WORKERS, BATCHES, BATCH = 8, 2, 32 * 3 * 224 * 224 * 4


def for_workers(workers: int | None = None) -> int:
    """Return the bytes that a data loader keeps in shared memory; 8 workers where nobody said."""
    return (WORKERS if workers is None else workers) * BATCHES * BATCH
