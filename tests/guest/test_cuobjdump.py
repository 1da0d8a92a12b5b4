"""Entries and kernels against NVIDIA's own tool, file by file.

`data/cuobjdump.json` keeps what cuobjdump found; `data/ask_cuobjdump.py` asks it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
from inventories import DATA, read

from envcheck.core.device_file import Code
from envcheck.guest import containers, cubin, elf
from envcheck.guest.device_code import unpack
from envcheck.guest.fatbin import Entry
from envcheck.inflate import inflate

HERE = Path(__file__).parent / "data"
STORED = json.loads((HERE / "cuobjdump.json").read_text())

# Their headers and payloads disagree; cuobjdump believes the payload. See test_truth.py.
FILES = [name for name in STORED["files"] if not name.split("/")[1].startswith("head_")]


def _path(name: str) -> Path:
    folder, _, file = name.partition("/")
    return DATA / folder / "objects" / file


def _entries(data: bytes, form: str) -> list[Entry]:
    return [e for found in containers.find(data, form) for e in found.entries]


def _listed(codes: list[Code], kind: str) -> dict[str, int]:
    """Count SMs as cuobjdump prints them: without `f`, which no cubin says in its header."""
    return dict(Counter(c.sm.removesuffix("f") if kind == "sass" else c.sm for c in codes))


@pytest.mark.parametrize("name", FILES)
def test_entries_are_those_of_cuobjdump(name: str) -> None:
    data, expected = _path(name).read_bytes(), STORED["files"][name]
    file = read(_path(name))
    if file.format == "cubin":
        codes = [file.containers[0].code[0]]
    else:
        codes = [e.code for e in _entries(data, file.format)]
    assert _listed([c for c in codes if c.kind == "sass"], "sass") == expected["elf"]
    assert _listed([c for c in codes if c.kind == "ptx"], "ptx") == expected["ptx"]


@pytest.mark.parametrize("name", FILES)
def test_kernels_are_those_of_cuobjdump(name: str) -> None:
    data, expected = _path(name).read_bytes(), STORED["files"][name]
    file = read(_path(name))
    if file.format == "cubin":
        images = [data]
    else:
        sass = [e for e in _entries(data, file.format) if e.code.kind == "sass"]
        images = [unpack(data, e, inflate) for e in sass]
    kernels = [k for image in images for k in cubin.cubin_kernels(image, elf.read(image))]
    assert sorted(kernels) == expected["kernels"]


def test_the_samples_cover_every_kind_of_file() -> None:
    forms = {read(_path(name)).format for name in FILES}
    assert forms == {"cubin", "fatbin", "shared-object", "object", "archive"}
    assert len(FILES) > 200
    suffixes = {sm[-1] for name in FILES for sm in STORED["files"][name]["ptx"]}
    assert {"a", "f"} <= suffixes


def _installed() -> Path | None:
    try:
        files = metadata.files("nvidia-cuda-cuobjdump") or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())) for f in files if f.name == "cuobjdump"), None)


@pytest.mark.skipif(_installed() is None, reason="nvidia-cuda-cuobjdump is not installed")
def test_what_is_stored_is_what_cuobjdump_says() -> None:
    tool = _installed()
    assert tool is not None
    command = [sys.executable, HERE / "ask_cuobjdump.py", tool]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["files"] == STORED["files"]
