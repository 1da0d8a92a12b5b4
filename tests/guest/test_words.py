"""The telling line of what compilers really printed."""

from __future__ import annotations

import pytest

from envcheck.core.compiled import Outcome
from envcheck.guest import words

# As Triton 3.1.0 printed for sm_120.
PTX_ERROR = """RuntimeError: Internal Triton PTX codegen error:
ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'

Repro command: /usr/lib/triton/backends/nvidia/bin/ptxas -lineinfo -v --gpu-name=sm_120 /tmp/tmpq.ptx
"""
# As Triton 3.8.0 printed for sm_86.
NO_FP8 = """CompilationError: at 1:0:
def matmul_kernel(
^
ValueError("type fp8e4nv not supported in this architecture.")"""
ABORT = (
    "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32",
    "Fatal Python error: Aborted",
    "",
    "Current thread 0x00007f6ddff61b20 (most recent call first):",
    '  File "compiler.py", line 282 in make_llir',
)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (
            Outcome(status="raised", error=PTX_ERROR),
            "ptxas fatal : Value 'sm_120' is not defined for option 'gpu-name'",
        ),
        (
            Outcome(status="raised", error=NO_FP8),
            'ValueError("type fp8e4nv not supported in this architecture.")',
        ),
        (Outcome(status="crashed", signal="SIGABRT", stderr=ABORT), ABORT[0]),
        (Outcome(status="crashed", signal="SIGABRT", stderr=ABORT[1:]), "killed by SIGABRT"),
        (Outcome(status="crashed", signal="SIGKILL"), "killed by SIGKILL"),
        (Outcome(status="exited", code=2, stderr=("one", "two")), "ended with code 2: two"),
        (Outcome(status="timed-out", milliseconds=120_004), "not done after 120 s"),
        (
            Outcome(
                status="raised",
                error="RuntimeError: PassManager::run failed",
                stderr=("kernel.py:9:1: error: 'tt.dot' op has no lowering", "Traceback"),
            ),
            "kernel.py:9:1: error: 'tt.dot' op has no lowering",
        ),
        (Outcome(status="raised", error="KeyError: 'x'"), "KeyError: 'x'"),
        (Outcome(status="ok", stderr=("error: not one",)), ""),
    ],
)
def test_the_reason_is_one_line(outcome, reason):
    assert words.reason(outcome) == reason


def test_distinct_lines_leave_out_what_differs_between_machines():
    lines = (
        "/usr/lib/python3/site-packages/triton/knobs.py:504: UserWarning: fusion is on",
        "  warn_once(FUSION)",
        "again",
        "... (4 more)",
        "again",
        "",
        "/home/me/kernels/matmul/kernel.py:47:17: error: no lowering",
        "see /tmp/tmpab12.ptx",
    )
    assert words.distinct(lines) == (
        "knobs.py:504: UserWarning: fusion is on",
        "again",
        "kernel.py:47:17: error: no lowering",
        "see <ptx>",
    )


def test_a_line_without_end_is_cut():
    assert len(words.reason(Outcome(status="raised", error="x" * 10_000))) == 300
