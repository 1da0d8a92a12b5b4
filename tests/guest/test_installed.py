"""What packages say of themselves, and their files against RECORD."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from data.dist_info import NUMPY_1, NUMPY_2, install
from packaging.markers import default_environment

from envcheck.core import codec
from envcheck.core.installed import Installed
from envcheck.guest import installed, records


def read(*sites: Path) -> Installed:
    found = installed.read([str(site) for site in sites])
    assert codec.loads(Installed, codec.dumps(found), name="facts") == found
    return found


def test_markers_are_those_that_packaging_finds() -> None:
    expected = default_environment()
    left_out = {"platform_release", "platform_version"}  # of the kernel, which differ by host
    assert installed.markers() == {k: v for k, v in expected.items() if k not in left_out}


def test_requirements_behind_an_extra_alone_are_left_out(tmp_path: Path) -> None:
    lines = (
        "numpy>=1.26",
        "torch (==2.4.1) ; sys_platform == 'linux'",
        "pytest ; extra == 'test'",
        "scipy ; (python_version < '3.14') and extra == \"all\"",
        "rich ; extra == 'x' or python_version >= '3.10'",
    )
    install(tmp_path, "a-b", requires=lines, requires_python=">=3.9", tags=("cp311-abi3-x", "y"))
    (package,) = read(tmp_path).packages
    assert package.requires == (lines[0], lines[1], lines[4])
    assert (package.name, package.info) == ("a-b", "a_b-1.0.dist-info")
    assert (package.requires_python, package.tags) == (">=3.9", ("cp311-abi3-x", "y"))
    assert (package.installer, package.place) == ("pip", 0)


def test_packages_of_later_folders_are_told_with_their_place(tmp_path: Path) -> None:
    install(tmp_path / "one", "torch", "2.6.0")
    install(tmp_path / "two", "torch", "2.8.0")
    found = read(tmp_path / "one", tmp_path / "two").packages
    assert [(p.version, p.place) for p in found] == [("2.6.0", 0), ("2.8.0", 1)]


def test_two_owners_of_one_path_are_told_with_whose_content_is_there(tmp_path: Path) -> None:
    """R17: as nvidia-cudnn-cu12 and -cu13 do in pytorch/pytorch#188892; the later one wins."""
    library = "nvidia/cudnn/lib/libcudnn.so.9"
    same = {"nvidia/__init__.py": b""}
    install(tmp_path, "nvidia-cudnn-cu12", "9.10", files={library: b"cu12", **same})
    install(tmp_path, "nvidia-cudnn-cu13", "9.12", files={library: b"cu13!", **same})
    found = read(tmp_path)
    (overlap,) = found.overlaps
    assert overlap.owners == ("nvidia-cudnn-cu12 9.10", "nvidia-cudnn-cu13 9.12")
    assert (overlap.identical, overlap.differing, overlap.compiled) == (1, 1, 1)
    assert overlap.paths == (library,)
    assert overlap.held == {"nvidia-cudnn-cu13 9.12": 1}
    assert found.records.differing == ()  # told once


def test_content_of_one_size_is_told_apart_by_its_hash(tmp_path: Path) -> None:
    install(tmp_path, "a", files={"x/lib.so": b"aaaa"})
    install(tmp_path, "b", files={"x/lib.so": b"bbbb"})
    (overlap,) = read(tmp_path).overlaps
    assert overlap.held == {"b 1.0": 1}


def test_large_content_of_one_size_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "HASH_BOUND", 3)
    install(tmp_path, "a", files={"x/lib.so": b"aaaa"})
    install(tmp_path, "b", files={"x/lib.so": b"bbbb"})
    (overlap,) = read(tmp_path).overlaps
    assert overlap.held == {}


def test_files_that_differ_from_record_are_told_by_how(tmp_path: Path) -> None:
    names = "gone.so", "empty.so", "short.so", "other.so", "fifo.so", "whole.so", "large.so"
    files = {f"x/{name}": b"content" for name in names} | {"x/a.py": b"1", "x/b.py": b"1"}
    install(tmp_path, "x", files=files)
    (tmp_path / "x/gone.so").unlink()
    (tmp_path / "x/empty.so").write_bytes(b"")
    (tmp_path / "x/short.so").write_bytes(b"cont")
    (tmp_path / "x/other.so").write_bytes(b"CONTENT")
    (tmp_path / "x/fifo.so").unlink()
    os.mkfifo(tmp_path / "x/fifo.so")
    (tmp_path / "x/a.py").write_bytes(b"12")
    (tmp_path / "x/b.py").write_bytes(b"2")  # same size, and no compiled file: not hashed
    found = read(tmp_path).records
    assert {(d.how, d.paths, d.compiled, d.code) for d in found.differing} == {
        ("missing", ("x/gone.so",), 1, 0),
        ("empty", ("x/empty.so",), 1, 0),
        ("size", ("x/short.so", "x/a.py"), 1, 1),
        ("hash", ("x/other.so",), 1, 0),
        ("unreadable", ("x/fifo.so",), 1, 0),
    }
    assert {d.of for d in found.differing} == {len(files)}
    assert found.sized == len(files) + 3  # METADATA, WHEEL and INSTALLER
    assert found.hashed == 4  # other, whole, large, METADATA


@pytest.mark.parametrize("length", ["\u00b2", "9" * 5000, "-1", ""])
def test_a_length_that_is_no_number_is_passed_over(tmp_path: Path, length: str) -> None:
    """int() raises for a superscript that `isdigit` takes, and for more than 4300 digits."""
    install(tmp_path, "x", files={"x/a.so": b"12345678"})
    (record,) = tmp_path.glob("x-*.dist-info/RECORD")
    rows = record.read_text(encoding="utf-8").splitlines()
    changed = [f"{row.rpartition(',')[0]},{length}" if "a.so" in row else row for row in rows]
    assert changed != rows
    record.write_text("\n".join(changed), encoding="utf-8")
    (tmp_path / "x/a.so").write_bytes(b"1")
    assert [d.paths for d in read(tmp_path).records.differing] == []


def test_only_files_below_the_bound_are_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "x", files={"x/a.so": b"12345678"})
    (tmp_path / "x/a.so").write_bytes(b"abcdefgh")
    monkeypatch.setattr(records, "HASH_BOUND", 7)
    assert read(tmp_path).records.hashed == 0


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        (("p/_C.cpython-310-x86_64-linux-gnu.so",), 1),
        (("p/_C.pypy310-pp73-x86_64-linux-gnu.so",), 1),
        (("p/_C.abi3.so",), 0),
        (("p/_C.so",), 0),
        (("p/libx.so.1",), 0),
        # One module for several Pythons, of which one fits.
        (("p/_C.cpython-310-x86_64-linux-gnu.so", "p/_C.abi3.so"), 0),
    ],
)
def test_modules_for_another_python_are_told(
    tmp_path: Path, files: tuple[str, ...], foreign: int
) -> None:
    if sys.version_info[:2] == (3, 10):
        pytest.skip("the other Python is this one")
    install(tmp_path, "p", files=dict.fromkeys(files, b"1"))
    assert sum(f.count for f in read(tmp_path).foreign) == foreign


def test_modules_are_told_by_the_headers_of_numpy_they_were_made_with(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.4.6", files={"numpy/_core/umath.so": NUMPY_2})
    files = {"old/_C.so": NUMPY_1, "old/_D.so": NUMPY_1, "old/_E.so": NUMPY_2, "old/_F.so": b"x"}
    install(tmp_path, "old", files={**files, "old/_G.so": b""})
    found = read(tmp_path).numpy
    assert {(u.owner, u.headers, u.least, u.paths) for u in found} == {
        ("old 1.0", 1, None, ("old/_C.so", "old/_D.so")),
        ("old 1.0", 2, "1.23", ("old/_E.so",)),
    }


def test_what_an_earlier_folder_hides_is_not_read_for_numpy(tmp_path: Path) -> None:
    install(tmp_path / "one", "numpy", "2.4.6")
    install(tmp_path / "one", "x", "2", files={"x/_C.so": NUMPY_2})
    install(tmp_path / "two", "x", "1", files={"x/_C.so": NUMPY_1})
    assert {u.owner for u in read(tmp_path / "one", tmp_path / "two").numpy} == {"x 2"}


def test_egg_infos_are_read_too(tmp_path: Path) -> None:
    text = "Metadata-Version: 1.1\nName: Old_One\nVersion: 3.2\n"
    (tmp_path / "old_one-3.2.egg-info").write_text(text)  # distutils: one file
    folder = tmp_path / "other-1.0.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Name: other\nVersion: 1.0\n\nreadme\n")
    (folder / "requires.txt").write_text("numpy>=1.2\n\n[test]\npytest\n")
    found = [(p.name, p.version, p.requires) for p in read(tmp_path).packages]
    assert found == [("old-one", "3.2", ()), ("other", "1.0", ("numpy>=1.2",))]


@pytest.mark.parametrize("name", ["METADATA", "RECORD", "WHEEL", "INSTALLER"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\0", b'"', b"\0" * 100, None, "folder"])
def test_broken_metadata_is_never_a_traceback(
    tmp_path: Path, name: str, content: bytes | str | None
) -> None:
    info = install(tmp_path, "numpy", files={"x/_C.so": NUMPY_1})
    (info / name).unlink()
    if isinstance(content, bytes):
        (info / name).write_bytes(content)
    elif content is not None:
        (info / name).mkdir()
    (package,) = read(tmp_path).packages
    assert package.name == "numpy"
