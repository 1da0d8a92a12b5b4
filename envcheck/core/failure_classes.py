"""The classes into which public reports of broken GPU environments were sorted, by their names."""

from __future__ import annotations

NAMES = {
    "A1": "PyTorch has no code for the card",
    "A2": "an extension has no code for the card",
    "A3": "one kernel or variant of a package has none",
    "A4": "suffixes of architectures and arch lists",
    "A5": "an old card that a newer wheel dropped",
    "B1": "the assembler is too old for the card",
    "B2": "a build from source is refused: nvcc, gcc, CUDA_HOME",
    "B3": "tools for compiling at run time are absent",
    "C1": "C++ symbols and ABI of libtorch",
    "C3": "versions of the torch family, duplicates, replacements",
    "C4": "ABI of Python and NumPy",
    "C5": "versions of glibc and libstdc++",
    "D1": "cuDNN is absent or mixed",
    "D2": "CUDA libraries are shadowed, two CUDA majors",
    "D3": "a wrong NCCL",
    "D4": "a library that is opened by name is absent",
    "E1": "the driver is older than the CUDA major",
    "E2": "PTX is newer than the driver",
    "E3": "a compat or stub libcuda wins",
    "E4": "the card is there and cannot be used",
    "F1": "an image is not what its name and labels say",
    "F2": "NVML or device nodes are lost in a container",
    "F3": "/dev/shm is too small",  # noqa: S108 - a name, no file
    "F4": "which device is chosen: MIG, UUID, order",
    "G1": "shared memory of a block",
    "G2": "memory of the card, at its peak",
    "H1": "gates on capability: absent, wrong, too generous",
    "H2": "only backward, or one layout or head size, fails",
    "I1": "numbers that are silently wrong",
    "I2": "a silent fallback, or a very slow path",
    "I3": "copies between cards give wrong bytes",
    "J": "collectives hang",
    "K": "hardware of the card or the rental",
    "L": "artefacts for another card, stale caches, adapters that load as nothing",
    "M": "healthy, and other tools reject it",
}
"""In the order of `tests/FAILURE_CLASSES.md`, which says what finds each of them and what does not."""
