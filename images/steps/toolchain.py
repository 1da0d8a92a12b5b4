"""Install nvcc and its parts from wheels, and make of them the tree that build tools expect.

The wheels unpack below `nvidia/cu13` of the environment, beside torch's own CUDA
libraries. They hold no `lib64` and no unversioned libraries, which linkers ask for.
"""
# ruff: noqa: INP001, T201 - a step of a Dockerfile, not a module of the package

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment  # noqa: E402

_CUDA = Path(environment.TOOLCHAIN, "cuda")


def main() -> None:
    """Install the builder's lock when it holds anything."""
    Path(environment.TOOLCHAIN, "wheels").mkdir(parents=True, exist_ok=True)
    _CUDA.mkdir(parents=True, exist_ok=True)
    for lock in sorted(Path(environment.SOURCES).glob("*.txt")):
        if lock.stat().st_size:
            with tempfile.TemporaryDirectory() as folder:
                arguments = ("--only-binary=:all:", "--require-hashes", "-r", str(lock))
                environment.install(folder, *arguments)
    trees = sorted(Path(sysconfig.get_path("purelib"), "nvidia").glob("cu[0-9]*"))
    for tree in trees:
        link_tree(tree)
    if trees and not (_CUDA / "bin" / "nvcc").exists():
        print("no nvcc in the builder's lock: CUDA extensions cannot be built")


def link_tree(tree: Path) -> None:
    """Give CUDA_HOME the folders of `tree`, and each versioned library its plain name."""
    for name in ("bin", "include", "nvvm"):
        if (tree / name).exists():
            (_CUDA / name).symlink_to(tree / name)
    # nvcc links with what it finds beside itself, wherever CUDA_HOME is.
    if not (tree / "lib64").exists():
        (tree / "lib64").symlink_to("lib")
    library = _CUDA / "lib64"
    library.mkdir()
    (_CUDA / "lib").symlink_to("lib64")
    for path in sorted((tree / "lib").glob("*")):
        (library / path.name).symlink_to(path)
        stem, found, _ = path.name.partition(".so.")
        plain = library / f"{stem}.so"
        if found and not plain.is_symlink():
            plain.symlink_to(path)


if __name__ == "__main__":
    main()
