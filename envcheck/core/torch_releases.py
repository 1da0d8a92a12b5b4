"""What PyTorch's own wheels on PyPI hold, for remedies that name a version.

Source: the cp311 x86_64 wheel of each release, walked entry by entry (libtorch_cuda.so),
and its metadata. None of them holds PTX there, so no release runs on a newer major.
"""

from __future__ import annotations

from dataclasses import dataclass

from envcheck.core.sm import Sm, sass_runs_on


@dataclass(frozen=True, slots=True)
class Release:
    """One PyTorch release as PyPI serves it."""

    version: str
    cuda: str
    sms: tuple[int, ...]
    triton: str


_OLD = (50, 60, 70, 75, 80, 86, 90)
_CU128 = (70, 75, 80, 86, 90, 100, 120)
_CU130 = (75, 80, 86, 90, 100, 120)

RELEASES = (
    Release("2.4.1", "12.1", _OLD, "3.0.0"),
    Release("2.5.1", "12.4", _OLD, "3.1.0"),
    Release("2.6.0", "12.4", _OLD, "3.2.0"),
    Release("2.7.1", "12.6", _OLD, "3.3.1"),
    Release("2.8.0", "12.8", _CU128, "3.4.0"),
    Release("2.9.1", "12.8", _CU128, "3.5.1"),
    Release("2.10.0", "12.8", _CU128, "3.6.0"),
    Release("2.11.0", "13.0", _CU130, "3.6.0"),
    Release("2.12.1", "13.0", _CU130, "3.7.1"),
    Release("2.13.0", "13.0", _CU130, "3.7.1"),
    Release("2.14.1", "13.0", _CU130, "3.8.0"),
    Release("2.15.0", "13.2", _CU130, "3.9.0"),
)


def install_command(target: Sm) -> str:
    """Return the pip command for a PyTorch with code for `target`, empty when there is none."""
    fitting = [r for r in RELEASES if any(sass_runs_on(Sm(n), target) for n in r.sms)]
    if not fitting:
        return ""
    first, last = fitting[0], fitting[-1]
    bounds = [] if first is RELEASES[0] else [f">={first.version}"]
    bounds += [] if last is RELEASES[-1] else [f"<={last.version}"]
    return f"pip install --upgrade 'torch{','.join(bounds)}'"
