"""Forward-compatibility packages are told by the names of their files."""

from __future__ import annotations

from pathlib import Path

from envcheck.guest import cuda_compat


def test_the_versions_of_cuda_compat(tmp_path: Path) -> None:
    for name in (
        "cuda-13.0/compat/libcuda.so.580.82.07",
        "cuda-13.0/compat/libcuda.so.1",
        "cuda-12.8/compat/lib.real/libcuda.so.570.86.10",
        "cuda-12.8/lib64/stubs/libcuda.so",
    ):
        path = tmp_path / "usr/local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert cuda_compat.versions(str(tmp_path)) == ("570.86.10", "580.82.07")
    assert cuda_compat.versions(str(tmp_path / "none")) == ()
