"""Requirements that a package checks itself when it is imported, which then ends."""

from __future__ import annotations

from collections.abc import Mapping

# Package -> what it looks at, by the same ranges as its Requires-Dist lines. Sources: jax 0.4 to
# 0.10, jax/_src/lib/__init__.py, check_jaxlib_version (RuntimeError); transformers 4 and 5,
# transformers/dependency_versions_check.py, pkgs_to_check_at_runtime (ImportError).
ENFORCED: Mapping[str, frozenset[str]] = {
    "jax": frozenset({"jaxlib"}),
    "transformers": frozenset(
        {"filelock", "huggingface-hub", "numpy", "packaging", "pyyaml", "regex"}
        | {"safetensors", "tokenizers", "tqdm"}
    ),
}
