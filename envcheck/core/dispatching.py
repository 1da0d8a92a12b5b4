"""NVIDIA's own libraries: they carry kernels for one SM each and choose among them at run time.

Seen in cuBLAS 12.4 and 13.1, cuDNN 9.1 to 9.24, cuSPARSE, cuSPARSELt, cuSOLVER and NCCL: a
container without code for a card is by design there, so their kernels are neither named nor
judged one by one.
"""

from __future__ import annotations

import re

# What follows the name is a version, the hash of a vendored copy, or `_static`.
_NAMES = re.compile(
    r"lib(cublas(Lt)?|cudnn(_\w+)?|cufftw?|cufile|curand|cusolver(Mg)?|cusparse(Lt)?|cutensor(Mg)?"
    r"|cudss(_\w+)?|nccl|npp\w+|nvJitLink|nvinfer(_\w+)?|nvjpeg(2k)?|nvrtc|nvshmem(_\w+)?)"
    r"(_static)?[.-]"
)


def dispatches(path: str) -> bool:
    """Say whether a file is such a library, by its name."""
    return _NAMES.match(path.rpartition("/")[2]) is not None
