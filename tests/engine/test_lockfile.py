"""Locks that users bring, and the recipe that follows from one."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck import targets
from envcheck.engine import lockfile, recipe
from envcheck.engine.recipe import Recipe
from envcheck.errors import FileUnavailable, UsageError

HASH = f"--hash=sha256:{'0' * 64}"
TORCH = f"torch==2.8.0 {HASH}\n"
CUDA_12_8 = f"nvidia-cuda-runtime-cu12==12.8.90 {HASH}\n"


def row(name: str) -> Recipe:
    return recipe.of_architecture(
        next(a for a in targets.catalogue().architectures if a.name == name)
    )


def written(folder: Path, text: str) -> Path:
    path = folder / "my.lock"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", [a.name for a in targets.catalogue().architectures if a.image])
def test_the_rows_own_lock_gives_the_row(name: str) -> None:
    assert recipe.with_lock(row(name), row(name).lock) == row(name)


@pytest.mark.parametrize(
    ("text", "torch", "cuda", "requires"),
    [
        (TORCH + CUDA_12_8, "2.8.0", "12.8", "cuda>=12.8"),
        (TORCH + f"nvidia-cuda-runtime==13.1.40 {HASH}\n", "2.8.0", "13.1", "cuda>=13.0"),
        (TORCH + f"cuda-toolkit==13.0.3.0 {HASH}\n" + CUDA_12_8, "2.8.0", "13.0", "cuda>=13.0"),
        (f"Torch[opt]==2.8.0+cu126 {HASH}\n", "2.8.0+cu126", "12.6", "cuda>=12.8"),
        (f"torch==2.8.0 \\\n    {HASH} \\\n    {HASH}\n    # via x\n{CUDA_12_8}", "2.8.0", "12.8", "cuda>=12.8"),
        (f"torch==2.7.0 ; sys_platform == 'darwin' {HASH}\n" + TORCH + CUDA_12_8, "2.8.0", "12.8", "cuda>=12.8"),
        (f"# comment\n\n--only-binary :all:\n{TORCH}{CUDA_12_8}", "2.8.0", "12.8", "cuda>=12.8"),
    ],
)  # fmt: skip
def test_labels_follow_the_lock(
    tmp_path: Path, text: str, torch: str, cuda: str, requires: str
) -> None:
    made = recipe.with_lock(row("blackwell"), written(tmp_path, text))
    assert (made.torch, made.cuda, made.nvidia_require_cuda) == (torch, cuda, requires)
    assert made.lock == tmp_path / "my.lock"


def test_a_card_older_than_the_runtime_asks_for_the_major_version_alone(tmp_path: Path) -> None:
    made = recipe.with_lock(row("ada"), written(tmp_path, TORCH + CUDA_12_8))
    assert made.nvidia_require_cuda == "cuda>=12.0"


def test_the_rows_compiler_stays_with_the_rows_torch_and_cuda_alone(tmp_path: Path) -> None:
    given = row("blackwell")
    same = f"torch=={given.torch} {HASH}\ncuda-toolkit=={given.cuda}.99 {HASH}\n"
    assert recipe.with_lock(given, written(tmp_path, same)).builder_lock == given.builder_lock
    other = written(tmp_path, TORCH + CUDA_12_8)
    assert recipe.with_lock(given, other).builder_lock is None
    builder = tmp_path / "builder.lock"
    builder.write_text(f"nvidia-cuda-nvcc-cu12==12.8.93 {HASH}\n")
    assert recipe.with_lock(given, other, builder).builder_lock == builder


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"numpy==2.0 {HASH}\n", "my.lock: pins no torch in its 1 packages"),
        ("", "my.lock: pins no torch in its 0 packages"),
        (TORCH + "numpy==2.0\n", "my.lock:2: numpy==2.0 has no hash"),
        (f"\n\ntorch>=2.0 {HASH}\n", "my.lock:3: torch>=2.0 is not pinned"),
        (f"torch @ https://me:pw@host/torch.whl {HASH}\n", "my.lock:1: torch is not pinned"),
        (f"./torch.whl {HASH}\n", "my.lock:1: ./torch.whl is not pinned"),
        ("--index-url=https://me:pw@host/simple\n" + TORCH, "my.lock:1: --index-url does not"),
        ("-r other.txt\n" + TORCH, "my.lock:1: -r does not belong"),
        (f"torch==2.8.0 ; nonsense {HASH}\n", "my.lock:1: 'nonsense' is no marker"),
        (f"torch==2.8.0+cpu {HASH}\n", "my.lock:1: no CUDA runtime is pinned beside torch"),
        (
            f"torch==2.8.0 ; python_version < '3.12' {HASH}\ntorch==2.9.0 {HASH}\n",
            "my.lock:2: torch is pinned several times: 2.8.0, 2.9.0",
        ),
    ],
)
def test_a_lock_that_will_not_do_is_named_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        recipe.with_lock(row("blackwell"), written(tmp_path, text))
    assert said in caught.value.message
    assert "pw" not in caught.value.message
    assert caught.value.remedy


def test_a_builder_lock_needs_hashes_too(tmp_path: Path) -> None:
    builder = tmp_path / "builder.lock"
    builder.write_text("ninja==1.0\n")
    with pytest.raises(UsageError, match=r"builder\.lock:1: ninja==1.0 has no hash"):
        recipe.with_lock(row("blackwell"), written(tmp_path, TORCH + CUDA_12_8), builder)


def test_a_lock_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileUnavailable, match="none: lock cannot be read"):
        lockfile.read(tmp_path / "none")
    (tmp_path / "my.lock").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not a text in UTF-8"):
        lockfile.read(tmp_path / "my.lock")
