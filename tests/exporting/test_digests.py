"""MANIFEST.sha256 beside sha256sum itself."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envcheck.exporting import digests

NAMES = ("plain", "two words", "new\nline", "back\\slash", "re\rturn", "\\n", os.fsdecode(b"\xff"))
PATHS = st.binary(min_size=1, max_size=8).filter(lambda b: b"\0" not in b).map(os.fsdecode)


def test_sha256sum_takes_it(tmp_path: Path) -> None:
    noted = {}
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode(errors="surrogateescape"))
        noted[name] = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()
    (tmp_path / digests.NAME).write_bytes(digests.write(noted))
    check = ["sha256sum", "--strict", "--check", digests.NAME]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b": OK") == len(NAMES)


def test_what_sha256sum_writes_is_read(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes(b"x")
    written = subprocess.run(
        ["sha256sum", "--", *NAMES], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    # The hash of "x", from any other tool.
    x = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert digests.read(written) == dict.fromkeys(NAMES, x)


@given(st.dictionaries(PATHS, st.binary(min_size=32, max_size=32).map(bytes.hex)))
def test_what_is_written_is_read_back(noted: dict[str, str]) -> None:
    assert digests.read(digests.write(noted)) == noted


@pytest.mark.parametrize("line", [b"{}", b"abc  name", b"0" * 64 + b"  ", b"G" * 64 + b"  name"])
def test_what_is_no_such_list_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="no line of sha256sum"):
        digests.read(line + b"\n")
