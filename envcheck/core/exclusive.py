"""Packages that are made to be installed one at a time, because they are one thing under names.

Each row says where that is written, or which wheels were opened to see what they own. A new row is
two packages whose wheels own the same folder. Packages change: since 2.0 onnxruntime-qnn is a plugin
in a folder of its own, and nvidia-cusparselt-cu13 0.10.0 lies in nvidia/cu13, so that a package with
compiled files elsewhere is none of its row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exclusive:
    """Packages of which one alone is to be installed."""

    what: str
    """The folder that all of them install: a module's, or a library's."""
    names: re.Pattern[str]
    interchangeable: bool
    """Whether what needs one of them mostly works with another."""
    source: str


EXCLUSIVE = (
    Exclusive(
        "onnxruntime",
        re.compile(r"onnxruntime(-(gpu|training|training-cpu|openvino|rocm|migraphx|qnn|cann))?"),
        interchangeable=False,
        source="microsoft/onnxruntime#23833 and #10685: the CPU provider alone is left; own "
        "onnxruntime/__init__.py: wheels of onnxruntime 1.32.0, -gpu 1.31.1, -openvino 1.24.1, "
        "-cann 1.24.4, -migraphx 1.27.1, -rocm 1.22.2.post3, -training and -training-cpu 1.19.2",
    ),
    Exclusive(
        "cv2",
        re.compile(r"opencv-(contrib-)?python(-headless)?"),
        interchangeable=True,
        source="README of opencv-python: select only one, all of them use the namespace cv2; so "
        "do the wheels of opencv-python and opencv-contrib-python-headless 5.0.0.93",
    ),
    Exclusive(
        "cupy",
        re.compile(r"cupy(-cuda\d+x?|-rocm-\d+-\d+)?|amd-cupy"),
        interchangeable=False,
        source="cupy/_environment.py of cupy-cuda13x 14.2.0, _detect_duplicate_installation: names "
        "them, and warns when imported",
    ),
    Exclusive(
        "faiss",
        re.compile(r"faiss-(cpu|gpu|cuda)(-cu\d+)?(-cuvs)?|faiss-gpu-cuvs"),
        interchangeable=True,
        source="wheels of faiss-cpu 1.15.1, faiss-gpu 1.15.1, faiss-gpu-cu12 1.14.1.post1, "
        "faiss-cuda 1.14.3.post0 and faiss-gpu-cuvs 1.15.1 own faiss/contrib/torch",
    ),
    Exclusive(
        "tensorflow",
        re.compile(r"tensorflow(-cpu|-gpu)?|tf-nightly(-cpu|-gpu)?|intel-tensorflow"),
        interchangeable=True,
        source="wheels of tensorflow 2.21.0, tensorflow-cpu 2.21.0, tensorflow-gpu 2.11.0, "
        "tf-nightly-cpu 2.22.0.dev20260905 and intel-tensorflow 2.14.0 own the folder tensorflow",
    ),
    Exclusive(
        "triton",
        re.compile(r"triton|pytorch-triton(-rocm)?"),
        interchangeable=False,
        source="wheels of triton 3.8.0, pytorch-triton 0.0.1 and pytorch-triton-rocm 2.1.0 own "
        "triton/__init__.py",
    ),
    Exclusive(
        "nvidia/cudnn",
        re.compile(r"nvidia-cudnn-cu\d+"),
        interchangeable=False,
        source="pytorch/pytorch#188892: the wheels for CUDA 12 and 13 overlap in one folder",
    ),
    Exclusive(
        "nvidia/nccl",
        re.compile(r"nvidia-nccl-cu\d+"),
        interchangeable=False,
        source="pytorch/pytorch#186591: ncclCommResume undefined with both installed; "
        "dmlc/xgboost#10729: errors with the NCCL of a newer CUDA than PyTorch's; wheels of "
        "nvidia-nccl-cu12 2.32.3 and -cu13 2.30.7 own nvidia/nccl/lib/libnccl.so.2",
    ),
    Exclusive(
        "nvidia/cusparselt",
        re.compile(r"nvidia-cusparselt-cu\d+"),
        interchangeable=False,
        source="wheels of nvidia-cusparselt-cu12 0.8.1 and -cu13 0.8.1 own nvidia/cusparselt/lib",
    ),
    Exclusive(
        "nvidia/nvshmem",
        re.compile(r"nvidia-nvshmem-cu\d+"),
        interchangeable=False,
        source="wheels of nvidia-nvshmem-cu12 3.8.0 and -cu13 3.4.5 own nvidia/nvshmem/lib",
    ),
)
