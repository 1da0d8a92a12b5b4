"""The same faults as kernels in folders and as an extension: both are loaded by path."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import planted

from envcheck import catalog
from envcheck.guest import kernels
from envcheck.guest.ops.op import Case, Op, Tensors
from envcheck.guest.ops.torches import torch

_HERE = Path(__file__).parent
KERNELS: Mapping[str, set[str]] = {
    "k_tail": {"out of bounds"},
    "one_shape": {"out of bounds"},
    "bf16_sums": {"out of bounds"},
    "constant_rows": {"not finite"},
    "race": {"out of bounds"},
    "second_call": {"out of bounds", "unsteady"},
    "leak": {"leaks"},
}
"""Folders that come to an end, and as what they must be caught."""
KERNELS_ONE_OF: Mapping[str, set[str]] = {"uninitialised": {"out of bounds", "not finite"}}
"""As one of several: memory that nothing wrote may hold anything."""
FATAL_KERNELS: Mapping[str, set[str]] = {"hang": {"timed-out"}, "illegal_address": {"raised"}}
EXTENSION: Mapping[str, set[str]] = {
    "drops_the_tail": {"out of bounds", "not exact"},
    "warns": {"warned"},
    "lies": {"out of bounds", "not exact"},
    "raises": {"raised"},
}
EXTENSION_ON_A_CARD: Mapping[str, set[str]] = {"falls_back": {"no kernel"}, "leaks": {"leaks"}}
FATAL_EXTENSION: Mapping[str, set[str]] = {"exits": {"exited"}, "crashes": {"crashed"}}


def kernel(name: str, folder: Path) -> Op:
    """Copy the kernel into a folder of this name; returns the operation that launches it."""
    root = folder / name
    if not root.exists():
        shutil.copytree(_HERE / "broken_kernel", root)
    told = catalog.load(root)
    (config,) = told.configs
    values = config.values

    def inputs(case: Case, draw: object) -> Tensors:
        return _kernel(name, str(folder)).inputs(case.sizes, values, draw)

    def call(operands: Tensors, case: Case) -> Tensors:
        return _kernel(name, str(folder)).launch(operands, values)

    def reference(operands: Tensors, case: Case) -> object:
        return _kernel(name, str(folder)).reference(operands, values)

    return Op(
        name=f"kernel {name}",
        family="triton",
        dtypes=told.dtypes,
        cases=tuple(Case(sizes=s, pattern=p) for s in told.shapes for p in ("random", "ones")),
        inputs=inputs,
        call=call,
        reference=reference,
        exact=(),
        watched=True,
        deadline=10,
    )


@cache
def _kernel(name: str, root: str) -> ModuleType:
    return kernels.load(name, root)


def extension(name: str) -> Op:
    """Return an operation that calls the extension's function of this name."""
    return replace(
        planted.MM,
        name=f"extension {name}",
        family="extension",
        call=partial(_extended, name),
        watched=True,
    )


def _extended(name: str, operands: Tensors, case: Case) -> Tensors:
    _extension()
    return {"out": getattr(torch().ops.planted, name)(operands["a"], operands["b"])}


@cache
def _extension() -> ModuleType:
    spec = importlib.util.spec_from_file_location("planted_ext", _HERE / "broken_extension.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
