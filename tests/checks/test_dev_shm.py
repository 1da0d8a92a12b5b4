"""`/dev/shm` of a job's own size (recipe R24)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from inventories import ask, environment

from envcheck.core.model import Finding, Image, Inventory, Torch
from envcheck.core.tools import SharedMemory, Tools
from envcheck.guest import cache_folders

CHECK = "dev-shm-is-large-enough"
MIB = 1 << 20


def seen(shared: SharedMemory | None, image: Image | None = None) -> Inventory:
    made = environment(torch=Torch(version="2.14.1", cuda="13.0"))
    assert made.environment is not None
    facts = replace(made.environment, tools=Tools(shared=shared), image=image)
    return replace(made, environment=facts)


def only(inventory: Inventory) -> Finding:
    (finding,) = ask(CHECK, inventory, "sm_90")
    return finding


def shm(size: int | None, *, writable: bool = True) -> SharedMemory:
    return SharedMemory(path="/dev/shm", exists=True, writable=writable, size=size)


# 8 workers x 2 batches x 32 images x 3 x 224 x 224 x 4 bytes = 308 281 344 bytes.
@pytest.mark.parametrize(
    ("shared", "status", "said"),
    [
        (shm(64 * MIB), "warn", "has 64 MiB: 8 workers of a data loader need 294"),
        (shm(308_281_343), "warn", "bus error"),
        (shm(308_281_344), "pass", "has 294 MiB"),
        (shm(8 << 30), "pass", "has 8192 MiB"),
        (shm(None), "pass", "no limit"),
        (shm(8 << 30, writable=False), "warn", "cannot be written"),
        (SharedMemory(path="/dev/shm", exists=False), "warn", "is not there"),
        (None, "skip", "only files were looked at"),
    ],
)
def test_r24_a_small_one_is_told(shared: SharedMemory | None, status: str, said: str) -> None:
    finding = only(seen(shared))
    assert finding.status.value == status
    assert said in finding.message
    assert ("--shm-size" in finding.remedy) is (status == "warn")


def test_of_an_image_it_is_settled_later_and_without_torch_it_is_no_matter() -> None:
    image = Image(reference="job:1", id="sha256:1", labels={}, variables={})
    assert only(seen(shm(64 * MIB), image)).status.value == "skip"
    made = seen(shm(64 * MIB))
    assert made.environment is not None
    bare = replace(made, environment=replace(made.environment, torch=None))
    assert "no PyTorch" in only(bare).message


def test_a_folder_that_is_none_is_a_fact(tmp_path: Path) -> None:
    assert cache_folders.shared_memory(str(tmp_path / "gone")).exists is False
    there = cache_folders.shared_memory(str(tmp_path))
    assert (there.exists, there.writable) == (True, True)
    assert there.size == shutil.disk_usage(tmp_path).total


def test_r24_a_real_file_system_of_64_mib(tmp_path: Path) -> None:
    look = (
        "import json, sys; from envcheck.guest import cache_folders;"
        f"print(json.dumps(cache_folders.shared_memory({str(tmp_path)!r}).size))"
    )
    mount = f'mount -t tmpfs -o size=64m none {tmp_path} && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, sys.executable, look],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()[-100:]}")
    size = json.loads(done.stdout)
    assert size == 64 * MIB
    assert only(seen(shm(size))).status.value == "warn"
