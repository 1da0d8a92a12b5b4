"""Packages that ship one library per CUDA version or SM and load only one of them.

Only the library that would be loaded may decide a verdict. Each rule names the code that
it follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from envcheck.core.sm import Sm

# bitsandbytes/cextension.py of 0.50: exact CUDA version, else the highest below with the same
# major, else the lowest above with the same major; BNB_CUDA_VERSION overrides. Releases
# before 0.46 know only the exact version, or stop; the library is the same one.
_BITSANDBYTES = re.compile(
    r"(?P<root>.*\bbitsandbytes)/libbitsandbytes_cuda(?P<major>\d\d)(?P<minor>\d+)"
    r"(?P<kind>_nocublaslt\w*)?\.so"
)
# sgl_kernel/load_utils.py of 0.3: the sm90 folder on compute capability 9.0, else sm100.
_SGL_KERNEL = re.compile(r"(?P<root>.*\bsgl_kernel)/(?P<folder>sm90|sm100)/common_ops\.[\w.-]+")
# tiny-cuda-nn bindings/torch/tinycudann/modules.py: the highest variant not above the card;
# tinycudann_bindings_NN/_C before 2.0, tinycudann_bindings/_NN_C since.
_TINYCUDANN = re.compile(
    r"(?P<root>.*\btinycudann_bindings)(/_(?P<number>\d+)_C|_(?P<old>\d+)/_C)\.[\w.-]+"
)
# Parts that a package makes for some cards alone and does without on others: torchao 0.18
# setup.py (MXFP8 for sm_100, CUTLASS for sm_90a); Transformer Engine 2.20 (expert parallelism
# over NCCL, sm_90 and newer, found by name only when that is asked for); nccl-extensions 0.1.0
# nccl/_extensions/_runtime.py (two libraries of NCCL, each opened when it is first called, one
# for sm_80, 90 and 100, the other for sm_90 and newer); sgl_kernel 0.3 flash_attn.py
# (FlashAttention 3, refused by is_fa3_supported elsewhere).
_OPTIONAL = re.compile(
    r".*\b(torchao/_C_(mxfp8|cutlass_90a)\.|transformer_engine/wheel_lib/libnccl_ep\."
    r"|nccl/(ep|m2n)/lib/cu1\d/libnccl_(ep|m2n)\.|sgl_kernel/flash_ops\.)[\w.-]+"
)


def is_optional(path: str) -> bool:
    """Say whether a file is a part of its package that is made for some cards alone."""
    return _OPTIONAL.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class Choice:
    """What a package's loader would do with one of its variants."""

    package: str
    loaded: bool | None
    """None when it depends on something that is not known, such as the CUDA version."""
    why: str


def choices(
    paths: Iterable[str], target: Sm, cuda: str | None, variables: Mapping[str, str]
) -> dict[str, Choice]:
    """Return, for each path that is a variant, whether its package would load it."""
    result: dict[str, Choice] = {}
    groups: dict[str, dict[tuple[int, int], list[str]]] = {}
    bindings: dict[str, dict[int, str]] = {}
    for path in paths:
        if match := _BITSANDBYTES.fullmatch(path):
            version = int(match["major"]), int(match["minor"])
            groups.setdefault(match["root"], {}).setdefault(version, []).append(path)
        elif match := _SGL_KERNEL.fullmatch(path):
            wanted = "sm90" if target.number == 90 else "sm100"
            why = f"sgl_kernel loads its {wanted} folder on {target}"
            result[path] = Choice("sgl_kernel", match["folder"] == wanted, why)
        elif match := _TINYCUDANN.fullmatch(path):
            bindings.setdefault(match["root"], {})[int(match["number"] or match["old"])] = path
    for group in groups.values():
        result.update(_bitsandbytes(group, cuda, variables.get("BNB_CUDA_VERSION")))
    for variants in bindings.values():
        best = max((n for n in variants if n <= target.number), default=None)
        for number, path in variants.items():
            why = f"tinycudann loads the variant for {best} on {target}"
            result[path] = Choice("tinycudann", number == best, why)
    return result


def _bitsandbytes(
    group: dict[tuple[int, int], list[str]], cuda: str | None, override: str | None
) -> dict[str, Choice]:
    chosen: tuple[int, int] | None
    if override is not None:
        # No fallback: an absent version or anything but digits is refused by the loader.
        digits = re.fullmatch(r"([0-9]{2})([0-9]{1,3})", override)
        chosen = (int(digits[1]), int(digits[2])) if digits is not None else None
        why = f"BNB_CUDA_VERSION={override} is set"
    elif cuda is not None:
        major, _, minor = cuda.partition(".")
        chosen = bitsandbytes_pick(set(group), (int(major), int(minor or 0)))
        name = "none" if chosen is None else f"cuda{chosen[0]}{chosen[1]}"
        why = f"bitsandbytes loads {name} with CUDA {cuda}"
    else:
        why = "which variant bitsandbytes loads depends on the CUDA version of torch"
        return {p: Choice("bitsandbytes", None, why) for paths in group.values() for p in paths}
    return {
        path: Choice("bitsandbytes", version == chosen and "nocublaslt" not in path, why)
        for version, paths in group.items()
        for path in paths
    }


def bitsandbytes_pick(
    available: set[tuple[int, int]], cuda: tuple[int, int]
) -> tuple[int, int] | None:
    """Return the CUDA version of the library that bitsandbytes loads, None for none."""
    same = {v for v in available if v[0] == cuda[0]}
    lower, higher = {v for v in same if v <= cuda}, {v for v in same if v > cuda}
    return max(lower) if lower else min(higher, default=None)
