"""NVIDIA's own libraries: they carry kernels for one SM each and choose among them at run time.

Seen in cuBLAS 12.4 and 13.1, cuDNN 9.1 to 9.24, cuSPARSE, cuSPARSELt, cuSOLVER and NCCL: a
container without code for a card is by design there, so their kernels are neither named nor
judged one by one.
"""

from __future__ import annotations

import re

_NAMES = re.compile(
    r"lib(cublas|cublasLt|cudnn|cufft|cufile|curand|cusolver|cusparse|cutensor|cudss|nccl|npp"
    r"|nvJitLink|nvinfer|nvjpeg|nvrtc|nvshmem)"
)


def dispatches(path: str) -> bool:
    """Say whether a file is such a library, by its name."""
    return _NAMES.match(path.rpartition("/")[2]) is not None
