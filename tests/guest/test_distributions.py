"""Names, RECORD rows and digests, held against their specifications and hand calculations."""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envcheck.core.distribution import Distribution
from envcheck.guest import distributions


@pytest.mark.parametrize(
    "name", ["friendly-bard", "Friendly-Bard", "FRIENDLY-BARD", "friendly.bard", "friendly_bard",
             "friendly--bard", "FrIeNdLy-._.-bArD"]
)  # fmt: skip
def test_names_are_normalised_as_pep_503_shows(name: str) -> None:
    assert distributions.normalise(name) == "friendly-bard"


@pytest.mark.parametrize(
    ("path", "compiled"),
    [
        ("torch/lib/libtorch_cuda.so", True),
        ("nvidia/cublas/lib/libcublas.so.12", True),
        ("lib/libx.so.1.2.3", True),
        ("pkg/_C.cpython-311-x86_64-linux-gnu.so", True),
        ("pkg/_C.abi3.so", True),
        ("lib/libcudart_static.a", True),
        ("pkg/kernel.cubin", True),
        ("pkg/kernel.fatbin", True),
        ("pkg/kernel.ptx", True),
        ("pkg/part.o", True),
        ("pkg/a.py", False),
        ("pkg/so", False),
        ("pkg/libx.so.txt", False),
        ("pkg/x.pyso", False),
        ("pkg.so/readme.md", False),
        ("", False),
    ],
)
def test_compiled_files_are_told_by_their_suffix(path: str, compiled: bool) -> None:
    assert distributions.is_compiled(path) is compiled


STABLE = [("a/b.py", "sha256=x", "3"), ("a-1.dist-info/METADATA", "sha256=y", "9")]


def test_the_record_digest_is_that_of_its_sorted_rows() -> None:
    text = b"a-1.dist-info/METADATA,sha256=y,9\na/b.py,sha256=x,3"
    expected = hashlib.sha256(text).hexdigest()
    assert distributions.record_digest(STABLE) == expected
    assert distributions.record_digest(reversed(STABLE)) == expected
    assert distributions.record_digest(STABLE * 2) == expected


@pytest.mark.parametrize(
    "row",
    [
        ("a-1.dist-info/RECORD", "", ""),
        ("a-1.dist-info/RECORD", "sha256=z", "1"),
        ("a-1.dist-info/INSTALLER", "sha256=z", "4"),
        ("a-1.dist-info/REQUESTED", "sha256=z", "0"),
        ("a-1.dist-info/direct_url.json", "sha256=z", "70"),
        ("a-1.dist-info/uv_cache.json", "sha256=z", "70"),
        ("a/__pycache__/b.cpython-311.pyc", "", ""),
        ("a/__pycache__/b.cpython-311.pyc", "sha256=z", "5"),
        ("../../../bin/a", "sha256=z", "200"),
        ("/usr/share/a", "sha256=z", "200"),
    ],
    ids=lambda row: row[0],
)
def test_rows_that_differ_between_machines_do_not_count(row: tuple[str, str, str]) -> None:
    assert distributions.record_digest([*STABLE, row]) == distributions.record_digest(STABLE)


@pytest.mark.parametrize(
    "row",
    [
        ("a/c.so", "sha256=z", "5"),
        ("a/INSTALLER", "sha256=z", "5"),
        ("a/direct_url.json", "sha256=z", "5"),
        ("a-1.dist-info/entry_points.txt", "sha256=z", "5"),
        ("a.pth", "sha256=z", "5"),
    ],
    ids=lambda row: row[0],
)
def test_rows_of_what_was_installed_count(row: tuple[str, str, str]) -> None:
    assert distributions.record_digest([*STABLE, row]) != distributions.record_digest(STABLE)


ROWS = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\0"), min_size=1),
        st.just("sha256=abc"),
        st.integers(0, 10**12).map(str),
    ),
    max_size=8,
)  # fmt: skip


@given(ROWS, ROWS)
def test_different_rows_have_different_digests(
    one: list[tuple[str, str, str]], two: list[tuple[str, str, str]]
) -> None:
    def counted(rows: list[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
        empty = distributions.record_digest([])
        return {row for row in rows if distributions.record_digest([row]) != empty}

    equal = distributions.record_digest(one) == distributions.record_digest(two)
    assert equal == (counted(one) == counted(two))


@given(ROWS)
def test_record_is_read_as_the_csv_it_is(rows: list[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    assert distributions._rows(text.getvalue().encode()) == rows


def distribution(name: str, version: str, digest: str | None) -> Distribution:
    return Distribution(name=name, version=version, record_digest=digest)


def test_the_environment_digest_is_that_of_its_sorted_lines() -> None:
    a, b = distribution("b", "2", None), distribution("a", "1", "ff")
    expected = "sha256:" + hashlib.sha256(b"a\x001\x00ff\nb\x002\x00-\n").hexdigest()
    assert distributions.environment_digest([a, b]) == expected
    assert distributions.environment_digest([b, a]) == expected


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://u:p@host/x.whl", "https://host/x.whl"),
        ("https://token@host:8443/x.whl?sig=secret", "https://host:8443/x.whl"),
        ("git+ssh://git@host/x.git", "git+ssh://host/x.git"),
        ("https://user:p@ss@host/x", "https://host/x"),
        ("file:///home/me/project", "file:///home/me/project"),
        ("https://host/x.whl#subdirectory=a", "https://host/x.whl#subdirectory=a"),
    ],
)
def test_an_origin_is_kept_without_its_secrets(url: str, origin: str) -> None:
    assert distributions._origin({"url": url}) == origin


def test_an_egg_info_file_is_a_distribution_too(tmp_path: Path) -> None:
    info = tmp_path / "old_package-0.9.egg-info"
    info.write_text("Metadata-Version: 1.1\nName: old-package\nVersion: 0.9\n")
    (found,) = distributions.read_all([str(tmp_path)])
    assert (found.name, found.version, found.record_digest) == ("old-package", "0.9", None)


def installed(site: Path, record: bytes) -> Distribution:
    info = site / "a-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a\nVersion: 1\n")
    (info / "RECORD").write_bytes(record)
    (found,) = distributions.read_all([str(site)])
    return found


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b'a/b.py,sha256=x,3\n"a/c.so,sha256=y,4\n', "RECORD: unexpected end of data in line 2"),
        (b"a/b.py,sha256=x,3\na/\0c.so,sha256=y,4\n", "RECORD: a NUL byte in line 2"),
        (b"a/b.so,sha256=x,3\n,sha256=y,4\n", "RECORD: no path in line 2"),
        (b"\0", "RECORD: a NUL byte in line 1"),
        (b"a/b\xff.so,sha256=x,3\n", "RECORD: not UTF-8 at byte 3"),
    ],
)
def test_a_record_that_cannot_be_parsed_is_named_and_digested_as_it_is(
    tmp_path: Path, record: bytes, why: str
) -> None:
    found = installed(tmp_path, record)
    assert (found.name, found.version, found.problem, found.files) == ("a", "1", why, ())
    assert found.record_digest == hashlib.sha256(b"malformed\0" + record).hexdigest()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_a_whole_record_has_no_problem_whatever_ends_its_lines(tmp_path: Path, end: bytes) -> None:
    lines = [b"a/b.py,sha256=x,3", b'"a/c,d.so",sha256=y,4', b"a-1.dist-info/RECORD,,", b""]
    found = installed(tmp_path, end.join(lines))
    assert (found.problem, found.files) == (None, ("a/c,d.so",))
    expected = hashlib.sha256(b"a/b.py,sha256=x,3\na/c,d.so,sha256=y,4").hexdigest()
    assert found.record_digest == expected


def test_an_empty_record_is_not_a_broken_one(tmp_path: Path) -> None:
    found = installed(tmp_path, b"")
    assert (found.problem, found.record_digest) == (None, hashlib.sha256(b"").hexdigest())


@pytest.mark.parametrize(
    ("folder", "name", "version"),
    [
        ("torch-2.14.1.dist-info", "torch", "2.14.1"),
        ("nvidia_cuda_nvrtc-13.0.88.dist-info", "nvidia-cuda-nvrtc", "13.0.88"),
        ("x-2.8.0+cu128.dist-info", "x", "2.8.0+cu128"),
        ("old-1.0-py3.11.egg-info", "old", "1.0"),
        ("old.egg-info", "old", "unknown"),
    ],
)
def test_what_has_no_metadata_is_named_by_its_folder(
    tmp_path: Path, folder: str, name: str, version: str
) -> None:
    (tmp_path / folder).mkdir()
    (found,) = distributions.read_all([str(tmp_path)])
    assert (found.name, found.version) == (name, version)


def test_a_record_of_many_rows_takes_no_more_memory_than_they_do(tmp_path: Path) -> None:
    """The files of a data set: 1.5 million rows took 49 s and 1.4 GB, of which 300 000 are tried."""
    rows = "".join(f"d/{n:06d}.json,sha256={'A' * 43},{n % 5000}\n" for n in range(300_000))
    info = tmp_path / "big-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: big\nVersion: 1.0\n")
    (info / "RECORD").write_text(rows)
    code = (
        "import re, sys\n"
        "from envcheck.guest import distributions, installed\n"
        "distributions.read_all(sys.argv[1:]); found = installed.read(sys.argv[1:])\n"
        "(one,) = found.records.differing\n"
        "most = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())\n"
        "print(one.count, int(most[1]) >> 10)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    count, megabytes = map(int, done.stdout.split())
    assert count == 300_000
    # 165 MB on CPython 3.11; with the whole text and every owner in memory it was 231.
    assert megabytes < 200
