"""What JAX's plugin asks for by name, against what its own code and the loader make of it here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from build_linking import CC, library

from envcheck.core.request import Place
from envcheck.guest.jax_process import names
from envcheck.guest.linking import link

needs_compiler = pytest.mark.skipif(
    CC is None or not os.path.exists("/etc/ld.so.cache"), reason="needs a C compiler and glibc"
)
# Two of what jax_plugins/xla_cuda12 of jax 0.10.2 opens, one that is not there, and one of CUDA 13.
PLUGIN = """
import ctypes, importlib, pathlib

def _load(module, libraries):
    try:
        m = importlib.import_module(f"nvidia.{module}")
    except ImportError:
        return
    for one in libraries:
        try:
            ctypes.CDLL(str(pathlib.Path(m.__path__[0]) / "lib" / one))
        except OSError:
            pass

def initialize():
    _load("cu13", ["libcufft.so.12"])
    _load("cufft", ["libcufft.so.11"])
    _load("cusparse", ["libcusparse.so.12"])
    _load("nccl", ["libnccl.so.2"])
    _load("cudnn", ["libcudnn.so.9"])
"""
ASK = """
import ctypes, runpy, sys
site, *wanted = sys.argv[1:]
runpy.run_path(f"{site}/jax_plugins/xla_cuda12/__init__.py")["initialize"]()
ask = ctypes.CDLL(f"{site}/jax_cuda12_plugin/_versions.so").ask
for one in wanted:
    if ask(one.encode()):
        print(one)
"""


@needs_compiler
def test_what_is_found_is_what_the_loader_finds(tmp_path: Path) -> None:
    site = tmp_path / "site"
    plugin = site / "jax_plugins" / "xla_cuda12" / "__init__.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(PLUGIN)
    source = (
        "#include <dlfcn.h>\nint ask(const char *name) { return dlopen(name, RTLD_LAZY) != 0; }"
    )
    library(site / "jax_cuda12_plugin" / "_versions.so", source)
    gone = library(tmp_path / "libnvJitLink.so.12")
    library(site / "nvidia/cusparse/lib/libcusparse.so.12", needs=(gone,))
    gone.unlink()
    library(site / "nvidia/cufft/lib/libcufft.so.11")
    library(tmp_path / "system" / "libcudnn.so.9")
    # Another folder of that name comes first, and is the only one that is looked into.
    other = tmp_path / "other"
    (site / "nvidia" / "nccl").mkdir()
    library(other / "nvidia" / "nccl" / "lib" / "libnccl.so.2")
    path = {"LD_LIBRARY_PATH": str(tmp_path / "system")}
    paths = [p for p in sorted(site.rglob("*.so*")) if p.is_file()]
    places = tuple(Place(path=str(p.relative_to(site)), absolute=str(p)) for p in paths)
    linked = link(sys.executable, places, [str(site), str(other)], variables=path)
    found = {one.name: one.path for one in linked.by_name}
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(site), *found],
        env={**os.environ, **path, "PYTHONPATH": f"{site}:{other}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {name for name, at in found.items() if at} == set(done.stdout.split())
    assert found == {
        "libcufft.so.11": "nvidia/cufft/lib/libcufft.so.11",
        "libcusparse.so.12": None,
        "libnccl.so.2": None,
        "libcudnn.so.9": str(tmp_path / "system" / "libcudnn.so.9"),
    }


def test_those_of_another_cuda_are_not_asked_for(tmp_path: Path) -> None:
    """One source is for both: its folder is `cu13`, or has the name of the library."""
    source = tmp_path / "__init__.py"
    source.write_text(PLUGIN)
    rest = [("nccl", "libnccl.so.2"), ("cudnn", "libcudnn.so.9")]
    sparse = ("cusparse", "libcusparse.so.12")
    assert names(str(source), "12") == [("cufft", "libcufft.so.11"), sparse, *rest]
    assert names(str(source), "13") == [("cu13", "libcufft.so.12"), sparse, *rest]


def test_a_source_that_is_none_asks_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("def (")
    assert names(str(tmp_path / "__init__.py"), "12") == []
