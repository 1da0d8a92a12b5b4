"""Packages that are made to be installed one at a time, because they are one thing under names.

Each row says where that is written. A new row is two packages whose wheels own the same folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exclusive:
    """Packages of which one alone is to be installed."""

    what: str
    """What all of them install: a module's name, or a library's."""
    names: re.Pattern[str]
    interchangeable: bool
    """Whether what needs one of them mostly works with another."""
    source: str


EXCLUSIVE = (
    Exclusive(
        "onnxruntime",
        re.compile(
            r"onnxruntime(-(gpu|training|training-cpu|openvino|rocm|migraphx|directml|qnn|cann))?"
        ),
        interchangeable=False,
        source="microsoft/onnxruntime#23833 and #10685: the CPU provider alone is left",
    ),
    Exclusive(
        "cv2",
        re.compile(r"opencv-(contrib-)?python(-headless)?"),
        interchangeable=True,
        source="README of opencv-python: select only one, all of them use the namespace cv2",
    ),
    Exclusive(
        "cupy",
        re.compile(r"cupy(-cuda\d+x?|-rocm-\d+-\d+)?"),
        interchangeable=False,
        source="cupy/_environment.py, _detect_duplicate_installation: warns when imported",
    ),
    Exclusive(
        "faiss",
        re.compile(r"faiss-(cpu|gpu|cuda)(-cu\d+)?(-cuvs)?|faiss-gpu-cuvs"),
        interchangeable=True,
        source="wheels of faiss-cpu and faiss-gpu both own the folder faiss",
    ),
    Exclusive(
        "tensorflow",
        re.compile(r"tensorflow(-cpu|-gpu|-intel)?|tf-nightly(-cpu|-gpu)?|intel-tensorflow"),
        interchangeable=True,
        source="wheels of tensorflow and tensorflow-cpu both own the folder tensorflow",
    ),
    Exclusive(
        "triton",
        re.compile(r"triton|pytorch-triton(-rocm|-xpu)?"),
        interchangeable=False,
        source="wheels of triton and pytorch-triton both own the folder triton",
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
        source="pytorch/pytorch#186591: ncclCommResume undefined with both installed",
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
        source="wheels of nvidia-nvshmem-cu12 and -cu13 own nvidia/nvshmem/lib",
    ),
)
