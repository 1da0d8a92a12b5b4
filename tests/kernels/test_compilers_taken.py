"""What the installed Triton and PyTorch do with CC and CXX is what the check of tools takes it for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from envcheck.core import compiler_use, jit_needs
from envcheck.core.tools import Tools
from envcheck.guest import compilers

# Each builds something small with the code that a job runs, from a cache of its own.
TRITON = """
from triton.runtime.build import _build
open("a.c", "w").write("int answer(void) { return 42; }")
open(_build("a", "a.c", ".", [], [], [], []))
"""
INDUCTOR = """
from torch._inductor.cpp_builder import get_cpp_compiler
get_cpp_compiler()
"""
EXTENSION = """
from torch.utils.cpp_extension import load_inline
load_inline("a", ["int answer() { return 42; }"], functions=["answer"], build_directory=".")
"""
PARTS = {
    jit_needs.C: ("CC", "gcc", TRITON),
    jit_needs.CXX: ("CXX", "g++", INDUCTOR),
    jit_needs.EXTENSION_CXX: ("CXX", "g++", EXTENSION),
}


@pytest.mark.parametrize("tool", PARTS)
@pytest.mark.parametrize(
    "form", ["{0}", "{0} -m64", "env {0}", "'{0}'", "{0}-99", "", "true", "'{0}"]
)
def test_a_variable_is_taken_as_it_is_judged(
    tool: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    variable, name, code = PARTS[tool]
    if tool == jit_needs.EXTENSION_CXX:
        pytest.importorskip("ninja")
    for other in ("CC", "CXX"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, form.format(name))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    chosen = compiler_use.chosen(tool, Tools(compilers=tuple(compilers.look())))
    assert chosen is not None
    fault = compiler_use.fault(tool, chosen, jit_needs.release(torch.__version__))
    if form == "true" and tool == jit_needs.CXX:
        # Inductor asks for nothing but an answer to --version; the first kernel then fails.
        assert (done.returncode, fault) == (0, compiler_use.Fault.NO_COMPILER)
    else:
        assert (fault is None) == (done.returncode == 0), done.stderr[-2000:]
