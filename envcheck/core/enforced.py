"""Requirements that a package checks itself, at its import or before it uses what it requires."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Package -> what it looks at, by the same ranges as its Requires-Dist lines. Sources: jax 0.4 to
# 0.10, jax/_src/lib/__init__.py, check_jaxlib_version (RuntimeError); transformers 4 and 5,
# transformers/dependency_versions_check.py, pkgs_to_check_at_runtime (ImportError); matplotlib 3.11.2,
# _check_versions (ImportError); numba 0.59.1 to 0.68.1, _ensure_critical_deps and _ensure_llvm
# (ImportError); pandas 2 and 3, pandas/compat/numpy/__init__.py (ImportError). Each was tried with a
# release out of its range. scipy 1.17.1 only warns, and scikit-learn 1.9.1 goes on with joblib 1.1.0.
ENFORCED: Mapping[str, frozenset[str]] = {
    "jax": frozenset({"jaxlib"}),
    "matplotlib": frozenset({"cycler", "numpy", "pyparsing"}),
    "numba": frozenset({"llvmlite", "numpy"}),
    "pandas": frozenset({"numpy"}),
    "transformers": frozenset(
        {"filelock", "huggingface-hub", "numpy", "packaging", "pyyaml", "regex"}
        | {"safetensors", "tokenizers", "tqdm"}
    ),
}

# Where a package compares with the least release alone. A newer one than its range it may well work
# with: numba 0.60.0 with llvmlite 0.44.0, 0.62.1 with 0.46.0 and 0.66.0 with 0.50.0 compile and run,
# while 0.61.2 with 0.45.1 and 0.64.0 with 0.50.0 do not.
LEAST_ALONE: Mapping[str, frozenset[str]] = {
    "matplotlib": ENFORCED["matplotlib"],
    "numba": frozenset({"llvmlite"}),
    "pandas": ENFORCED["pandas"],
}

_CUDNN = re.compile(r"(\d+)\.(\d+)")
SKIPS_CUDNN = "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK"
"""The variable that, set to 1, keeps PyTorch from comparing."""


def cudnn_is_refused(compiled: str, found: str) -> bool:
    """Say whether code compiled with one cuDNN refuses another: of another major, or an older minor.

    Source: PyTorch 2.14.1, torch/backends/cudnn/__init__.py, `_init` (RuntimeError at the first RNN, and
    for whoever asks for the version); XLA, `Loaded runtime CuDNN library` in xla_cuda_plugin.so of jax
    0.10.2. PyTorch's wheels pin the release that they were compiled with: 9.24.0.43 and (9, 24, 0).
    """
    built, have = _CUDNN.match(compiled), _CUDNN.match(found)
    if built is None or have is None:
        return False
    return built[1] != have[1] or int(have[2]) < int(built[2])
