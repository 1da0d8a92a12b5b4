"""Paths, directories and archives: what is read, under which name, and what can do no harm."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from building import SM80, SM90, SM120_LIBRARY, tarred, wheel, zipped
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import COMMAND, envcheck, environment, report

from envcheck import pipeline, sources, unpack
from envcheck.core.device_file import DeviceFile
from envcheck.errors import FileUnavailable

CODE = SM90.read_bytes()
LIBRARY = SM80.read_bytes()


def scan(*paths: Path | str) -> dict[str, DeviceFile]:
    """Scan paths in this process; return what got a finding, by path, and nothing twice."""
    inventory = pipeline.scan([str(p) for p in paths], lambda *_: None)
    found = {f.path: f for f in inventory.files}
    assert len(found) == len(inventory.files)
    return found


def names(found: dict[str, DeviceFile], under: Path) -> dict[str, str]:
    """Return for each file what became of it: `code`, `skipped` or `problem`."""
    return {
        path.removeprefix(f"{under}"): "problem"
        if f.problem
        else "skipped"
        if f.skipped
        else "code"
        for path, f in found.items()
    }


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# Names


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "one.zip": lambda data: zipped({"torch/lib/x.fatbin": data}),
    "one-1-py3-none-any.whl": lambda data: zipped({"torch/lib/x.fatbin": data}),
    "stored.zip": lambda data: zipped({"torch/lib/x.fatbin": data}, zipfile.ZIP_STORED),
    "one.tar": lambda data: tarred({"torch/lib/x.fatbin": data}),
    "one.tar.gz": lambda data: tarred({"torch/lib/x.fatbin": data}, "w:gz"),
    "one.tgz": lambda data: tarred({"torch/lib/x.fatbin": data}, "w:gz"),
    "one.tar.bz2": lambda data: tarred({"torch/lib/x.fatbin": data}, "w:bz2"),
    "one.tar.xz": lambda data: tarred({"torch/lib/x.fatbin": data}, "w:xz"),
    "one.tar.zst": lambda data: zstd(tarred({"torch/lib/x.fatbin": data})),
    "no-suffix": lambda data: tarred({"torch/lib/x.fatbin": data}, "w:gz"),
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("given_as", ["path", "folder"])
def test_members_are_named_after_their_archive(tmp_path: Path, name: str, given_as: str) -> None:
    path = put(tmp_path / "d" / name, PACKED[name](CODE))
    found = scan(path if given_as == "path" else tmp_path)
    assert list(found) == [f"{path}!/torch/lib/x.fatbin"]
    (file,) = found.values()
    assert (file.size, file.problem, file.skipped) == (len(CODE), None, None)
    assert [c.sm for part in file.containers for c in part.code] == ["sm_90"]


def test_a_wheel_in_a_zip_in_a_tar_is_read(tmp_path: Path) -> None:
    inner = zipped({"pkg/x.fatbin": CODE})
    path = put(tmp_path / "a.tar.gz", tarred({"b.zip": zipped({"c.whl": inner})}, "w:gz"))
    assert names(scan(path), tmp_path) == {"/a.tar.gz!/b.zip!/c.whl!/pkg/x.fatbin": "code"}


def test_a_path_given_as_it_is_keeps_its_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "d" / "x.fatbin", CODE)
    monkeypatch.chdir(tmp_path)
    assert list(scan("d")) == ["d/x.fatbin"]
    assert list(scan("./d/../d/x.fatbin")) == ["./d/../d/x.fatbin"]
    assert list(scan("d", "d/x.fatbin")) == ["d/x.fatbin"]


def test_what_cannot_hold_device_code_is_counted_not_named(tmp_path: Path) -> None:
    put(tmp_path / "a.py", b"x = 1\n")
    put(tmp_path / "b", b"whatever\n")
    put(tmp_path / "c.fatbin", CODE)
    put(tmp_path / "d.whl", zipped({"e.py": b"", "f.fatbin": CODE, "g/": b"", "h.bin": b"1234"}))
    inventory = pipeline.scan([str(tmp_path)], lambda *_: None)
    assert [f.path.rpartition("/")[2] for f in inventory.files] == ["c.fatbin", "f.fatbin"]
    assert inventory.passed_over == 4


def test_code_is_told_by_content_where_the_name_does_not_tell(tmp_path: Path) -> None:
    put(tmp_path / "kernels.bin", CODE)
    put(tmp_path / "w.zip", zipped({"data/blob": LIBRARY}))
    assert names(scan(tmp_path), tmp_path) == {
        "/kernels.bin": "code",
        "/w.zip!/data/blob": "code",
    }


def test_the_order_does_not_depend_on_the_file_system(tmp_path: Path) -> None:
    for name in ("b/2.fatbin", "a/1.fatbin", "c.fatbin", "a.fatbin"):
        put(tmp_path / name, CODE)
    found = [path.removeprefix(f"{tmp_path}/") for path in scan(tmp_path)]
    assert found == ["a.fatbin", "c.fatbin", "a/1.fatbin", "b/2.fatbin"]


# Members that want out, or to be two


@pytest.mark.parametrize("name", ["../../outside.so", "/etc/outside.so", "a/../../../outside.so"])
@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
def test_members_that_climb_out_are_read_and_nothing_is_written(
    tmp_path: Path, name: str, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    path = put(tmp_path / "inside" / "a.bin", pack({name: LIBRARY}))
    before = sorted(tmp_path.rglob("*"))
    found = scan(path)
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/etc/outside.so").exists()
    # tarfile and zipfile keep the name as it stands in the archive, or drop its first slash.
    assert names(found, path) in ({f"!/{name}": "code"}, {f"!/{name.lstrip('/')}": "code"})


def test_links_in_archives_are_not_followed(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret.so", LIBRARY)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"link{kind.decode()}.so")
            info.type, info.linkname = kind, str(secret)
            tar.addfile(info)
        info = tarfile.TarInfo("real.fatbin")
        info.size = len(CODE)
        tar.addfile(info, io.BytesIO(CODE))
    path = put(tmp_path / "links.tar", buffer.getvalue())
    assert names(scan(path), path) == {"!/real.fatbin": "code"}

    link = zipfile.ZipInfo("link.so")
    link.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link, str(secret))
        archive.writestr("real.fatbin", CODE)
    path = put(tmp_path / "links.zip", buffer.getvalue())
    assert names(scan(path), path) == {"!/real.fatbin": "code"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_one_problem_unless_they_are_equal(tmp_path: Path) -> None:
    def archive(*members: tuple[str, bytes]) -> Path:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as made:
            for name, data in members:
                made.writestr(name, data)
        return put(tmp_path / "twice.zip", buffer.getvalue())

    path = archive(("a.so", CODE), ("a.so", LIBRARY), ("b.so", CODE))
    assert names(scan(path), path) == {"!/a.so": "problem", "!/b.so": "code"}
    done = envcheck("scan", path, "--arch", "hopper")
    assert done.returncode == 11
    path = archive(("a.so", CODE), ("a.so", CODE))
    assert names(scan(path), path) == {"!/a.so": "code"}


# Broken archives: one problem, and the others are still read


@pytest.mark.parametrize("name", [n for n in PACKED if n != "no-suffix"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.99])
def test_a_truncated_archive_is_a_problem_that_names_it(
    tmp_path: Path, name: str, part: float
) -> None:
    data = PACKED[name](LIBRARY)
    path = put(tmp_path / name, data[: int(len(data) * part)])
    other = put(tmp_path / "z.fatbin", CODE)
    found = scan(tmp_path)
    assert names(found, tmp_path)["/z.fatbin"] == "code"
    wrong = {p: f.problem for p, f in found.items() if p != str(other)}
    assert wrong
    assert all(p.startswith(str(path)) and problem for p, problem in wrong.items())
    given = envcheck("scan", path, "--arch", "ampere")
    assert given.returncode == 11
    assert name in given.stdout


@pytest.mark.parametrize("name", [n for n in PACKED if n != "no-suffix"])
def test_no_flipped_byte_makes_code_disappear_in_silence(tmp_path: Path, name: str) -> None:
    whole = PACKED[name](CODE)
    path = tmp_path / name
    for at in range(0, len(whole), max(1, len(whole) // 400)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        # A renamed member, a problem or a reason to skip: but something.
        assert scan(path), at


def test_an_encrypted_member_does_not_hide_the_others(tmp_path: Path) -> None:
    data = bytearray(zipped({"secret.so": LIBRARY, "open.fatbin": CODE, "notes.md": b"x"}))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        offsets = [info.header_offset for info in archive.infolist()[:1]]
    data[offsets[0] + 6] |= 1  # general purpose bit 0, in the local and the central header
    central = data.index(b"PK\x01\x02")
    data[central + 8] |= 1
    path = put(tmp_path / "locked.zip", bytes(data))
    found = scan(path)
    assert names(found, path) == {"!/secret.so": "problem", "!/open.fatbin": "code"}
    assert "encrypted" in str(found[f"{path}!/secret.so"].problem)


def test_a_member_with_a_wrong_checksum_does_not_hide_the_others(tmp_path: Path) -> None:
    data = bytearray(zipped({"bad.so": LIBRARY, "good.fatbin": CODE}, zipfile.ZIP_STORED))
    data[data.index(LIBRARY) + 500_000] ^= 1
    path = put(tmp_path / "crc.zip", bytes(data))
    assert names(scan(path), path) == {"!/bad.so": "problem", "!/good.fatbin": "code"}


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_zip_methods_that_unpack_without_bound_are_refused(tmp_path: Path, method: int) -> None:
    path = put(tmp_path / "a.zip", zipped({"a.so": LIBRARY}, method))
    found = scan(path)
    assert names(found, path) == {"!/a.so": "problem"}
    assert f"method {method}" in str(found[f"{path}!/a.so"].problem)


def test_a_broken_header_inside_a_tar_is_no_end_of_it(tmp_path: Path) -> None:
    data = bytearray(tarred({"a.fatbin": CODE, "b.fatbin": CODE}))
    data[data.index(b"b.fatbin")] ^= 1  # its checksum is wrong now
    path = put(tmp_path / "a.tar", bytes(data))
    assert names(scan(path), path) == {"!/a.fatbin": "code", "": "problem"}


def test_compressed_data_that_is_no_archive_is_passed_over_unless_it_was_given(
    tmp_path: Path,
) -> None:
    for name, pack in (
        ("a.json.gz", gzip.compress),
        ("b.bz2", bz2.compress),
        ("c.xz", lzma.compress),
    ):
        put(tmp_path / name, pack(b'{"no": "tar"}' * 100))
    put(tmp_path / "fixture.bin", b"PK\x03\x04 and then nothing of a zip")
    put(tmp_path / "x.fatbin", CODE)
    assert names(scan(tmp_path), tmp_path) == {"/x.fatbin": "code"}
    assert names(scan(tmp_path / "a.json.gz"), tmp_path) == {"/a.json.gz": "problem"}
    assert names(scan(tmp_path / "fixture.bin"), tmp_path) == {"/fixture.bin": "problem"}


# Bombs


MEBIBYTE = bytes(1 << 20)
MEASURED = """
import re, sys
from envcheck import cli
code = cli.main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(code)
"""


def measured(*arguments: str | Path) -> tuple[int, dict[str, str], int]:
    """Scan in a child; return its exit code, the status by subject, and its peak MiB."""
    command = [sys.executable, "-c", MEASURED, "scan", *map(str, arguments), "--format", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=100, check=False
    )
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    checked = [f for f in findings if f["check"] == "device-code-runs-on-target"]
    status = {f["subject"]: f["status"] for f in checked}
    return done.returncode, status, int(done.stderr.splitlines()[-1]) >> 10


def zip_bomb(head: bytes, mebibytes: int, declared: int | None = None) -> bytes:
    """Write by hand a zip whose one member `a.so` is `head` and then zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush nothing refers back, so one packed block serves for all.
    packed += (packer.compress(MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)) * mebibytes
    packed += packer.flush()
    crc = zlib.crc32(head)
    for _ in range(mebibytes):
        crc = zlib.crc32(MEBIBYTE, crc)
    size = len(head) + (mebibytes << 20) if declared is None else declared
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(packed), size, 4, 0)
    local = b"PK\x03\x04" + common + b"a.so"
    central = b"PK\x01\x02" + struct.pack("<H", 20) + common + bytes(14) + b"a.so"
    at = len(local) + len(packed)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), at, 0)
    return local + packed + central + end


def tar_bomb(kind: bytes, name: str, pack: Callable[[bytes], bytes] = gzip.compress) -> bytes:
    """Return a compressed tar of one member of 1 GiB of zeros; its streams are concatenated."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, 1 << 30
    return pack(info.tobuf(tarfile.GNU_FORMAT)) + pack(MEBIBYTE) * 1024


def sparse_bomb() -> bytes:
    """Return a tar whose member says in 10 kB that it is an EiB of nothing."""
    info = tarfile.TarInfo("a.so")
    info.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.name": "a.so",
        "GNU.sparse.map": "0,4096",
        "GNU.sparse.size": str(1 << 60),
        "GNU.sparse.realsize": str(1 << 60),
    }
    info.size = 4096
    whole = info.tobuf(tarfile.PAX_FORMAT) + LIBRARY[:4096] + bytes(1024)
    return gzip.compress(whole)


BOMBS: dict[str, Callable[[], bytes]] = {
    "code.zip": lambda: zip_bomb(LIBRARY, 1024),
    "zeros.zip": lambda: zip_bomb(b"\x7fELF", 1024),
    "nested.zip": lambda: zipped({"b.zip": zip_bomb(b"\x7fELF", 1024)}),
    "text.tar.gz": lambda: tar_bomb(b"0", "a.txt"),
    "text.tar.xz": lambda: tar_bomb(b"0", "a.txt", lzma.compress),
    "text.tar.bz2": lambda: tar_bomb(b"0", "a.txt", bz2.compress),
    "text.tar.zst": lambda: tar_bomb(b"0", "a.txt", zstd),
    "pax-header.tar.gz": lambda: tar_bomb(b"x", "a"),
    "global-header.tar.gz": lambda: tar_bomb(b"g", "a"),
    "long-name.tar.gz": lambda: tar_bomb(b"L", "././@LongLink"),
    "sparse.tar.gz": sparse_bomb,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_a_problem_within_bounds_of_memory_disk_and_time(
    tmp_path: Path, name: str
) -> None:
    path = put(tmp_path / name, BOMBS[name]())
    assert path.stat().st_size < 2 << 20
    good = put(tmp_path / "good.fatbin", CODE)
    code, status, megabytes = measured(path, good, "--arch", "hopper")
    assert code == 11
    assert status.pop(str(good)) == "pass"
    status.pop("(other files)", None)
    assert set(status.values()) == {"error"}
    assert all(subject.startswith(str(path)) for subject in status)
    assert megabytes < 100


def test_a_zip_directory_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    """A zip in a zip can have a directory of gigabytes that packs to nothing."""
    entry = b"PK\x01\x02" + bytes(42)
    many = (64 << 20) // len(entry)
    directory = entry * many
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    path = put(tmp_path / "outer.zip", zipped({"inner.zip": b"PK\x03\x04" + directory + end}))
    code, status, megabytes = measured(path, "--arch", "hopper")
    assert (code, status) == (11, {f"{path}!/inner.zip": "error"})
    assert megabytes < 200


def test_archives_nested_deeper_than_three_are_a_problem(tmp_path: Path) -> None:
    data = zipped({"x.fatbin": CODE})
    for _ in range(3):
        data = zipped({"in.zip": data})
    path = put(tmp_path / "deep.zip", data)
    found = scan(path)
    assert names(found, path) == {"!/in.zip!/in.zip!/in.zip": "problem"}
    with zipfile.ZipFile(path) as archive:
        shallower = put(tmp_path / "less.zip", archive.read("in.zip"))
    assert names(scan(shallower), shallower) == {"!/in.zip!/in.zip!/x.fatbin": "code"}


def test_an_archive_that_holds_itself_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = zipped({"x": b""})
    endless = unpack.Member("self.zip", len(data), 0, lambda: io.BytesIO(data))
    monkeypatch.setattr(unpack, "reader", lambda *_, **__: lambda *_: iter([endless]))
    path = put(tmp_path / "self.zip", data)
    assert names(scan(path), path) == {"!/self.zip" * 3: "problem"}


@pytest.mark.parametrize("declared", [0, 10, 1 << 31], ids=["nothing", "less", "more"])
def test_a_size_that_the_zip_lies_about_is_a_problem(tmp_path: Path, declared: int) -> None:
    data = zip_bomb(LIBRARY, 1, declared)
    path = put(tmp_path / "lies.zip", data)
    found = scan(path)
    assert names(found, path) == {"!/a.so": "problem"}


def test_a_member_that_does_not_fit_the_disk_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "a.zip", zipped({"a.so": LIBRARY, "b.py": b""}))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    found = scan(path)
    assert names(found, path) == {"!/a.so": "problem"}
    assert "do not fit" in str(found[f"{path}!/a.so"].problem)


# Wheels are streamed


def test_a_large_wheel_is_streamed_not_held(tmp_path: Path) -> None:
    """300 MB that do not compress: a scan that held them would show it."""
    path = tmp_path / "large-1-py3-none-any.whl"
    noise = os.urandom(1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("pkg/large.so", "w", force_zip64=True) as member:
            member.write(LIBRARY)
            for _ in range(300):
                member.write(noise)
        archive.writestr("pkg/small.so", SM120_LIBRARY.read_bytes())
    code, status, megabytes = measured(path, "--arch", "ampere")
    assert (code, status) == (
        10,
        {f"{path}!/pkg/large.so": "pass", f"{path}!/pkg/small.so": "fail"},
    )
    assert megabytes < 100


def test_members_go_to_disk_and_not_to_a_tmp_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "a.zip", zipped({"a.fatbin": CODE}))
    places: list[str] = []
    real = tempfile.TemporaryFile

    def noted(**options: str) -> object:
        places.append(options["dir"])
        return real(**options)

    monkeypatch.setattr(tempfile, "TemporaryFile", noted)
    monkeypatch.delenv("TMPDIR", raising=False)
    scan(path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    scan(path)
    assert places == ["/var/tmp", str(tmp_path)]
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


# Directories, links, things that are no files


def test_an_empty_directory_is_inconclusive(tmp_path: Path) -> None:
    document = report("scan", tmp_path, "--arch", "ada")
    assert document["verdict"] == "inconclusive"
    assert "no device code" in document["summary"]["line"]


def test_links_inside_a_directory_are_read_once_and_loops_end(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root / "lib" / "libx.so.1", LIBRARY)
    (root / "lib" / "libx.so").symlink_to("libx.so.1")
    (root / "lib" / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "loop.so").symlink_to("loop.so")
    (root / "self").symlink_to(root)
    (root / "gone.so").symlink_to("nowhere.so")
    (root / "gone.txt").symlink_to("nowhere.txt")
    outside = put(tmp_path / "outside.so", LIBRARY)
    (root / "outside.so").symlink_to(outside)
    (tmp_path / "folder").mkdir()
    (root / "folder").symlink_to(tmp_path / "folder")
    assert names(scan(root), root) == {
        "/lib/libx.so.1": "code",
        "/outside.so": "code",
        "/gone.so": "skipped",
        "/loop.so": "skipped",
        "/folder": "skipped",
    }


def test_a_link_that_is_given_is_followed_and_one_to_nothing_is_not_to_be_had(
    tmp_path: Path,
) -> None:
    put(tmp_path / "x.fatbin", CODE)
    (tmp_path / "link").symlink_to("x.fatbin")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    assert names(scan(tmp_path / "link"), tmp_path) == {"/link": "code"}
    for name, says in (("gone", "No such file"), ("loop", "symbolic links")):
        with pytest.raises(FileUnavailable, match=says):
            scan(tmp_path / name)
    # Beside a file that can be had it is a problem of its own.
    both = scan(tmp_path / "gone", tmp_path / "x.fatbin")
    assert names(both, tmp_path) == {"/gone": "problem", "/x.fatbin": "code"}


@pytest.fixture
def special(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with a FIFO, a socket and a link to a device, all named as libraries."""
    folder = tmp_path / "special"
    folder.mkdir()
    os.mkfifo(folder / "fifo.so")
    (folder / "zero.so").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        # The path of a socket may have 107 bytes.
        short = Path(tempfile.mkdtemp()) / "socket"
        server.bind(str(short))
        short.rename(folder / "socket.so")
        yield folder


def test_a_fifo_a_socket_and_a_device_are_never_opened(
    special: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(special / "x.fatbin", CODE)
    opened: list[str] = []
    real = os.open

    def noted(path: str, *rest: int, **options: int) -> int:
        opened.append(str(path))
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "open", noted)
    assert names(scan(special), special) == {
        "/fifo.so": "skipped",
        "/socket.so": "skipped",
        "/zero.so": "skipped",
        "/x.fatbin": "code",
    }
    assert opened == [str(special / "x.fatbin")]


@pytest.mark.parametrize("name", ["fifo.so", "socket.so", "zero.so"])
def test_what_is_no_file_is_not_to_be_had_when_it_is_given(special: Path, name: str) -> None:
    done = envcheck("scan", special / name, "--arch", "ada", timeout=20)
    assert done.returncode == 3
    assert name in done.stderr


def test_a_fifo_that_takes_the_place_of_a_file_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "x.fatbin", CODE)
    real = os.open

    def replaced(name: str, *rest: int, **options: int) -> int:
        if name == str(path):
            path.unlink()
            os.mkfifo(path)
        return real(name, *rest, **options)

    monkeypatch.setattr(os, "open", replaced)
    assert names(scan(path), tmp_path) == {"/x.fatbin": "problem"}


def test_a_file_that_vanishes_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = put(tmp_path / "a.fatbin", CODE), put(tmp_path / "b.fatbin", CODE)
    real = os.open

    def vanish(name: str, *rest: int, **options: int) -> int:
        gone.unlink(missing_ok=True)
        return real(name, *rest, **options)

    monkeypatch.setattr(os, "open", vanish)
    found = scan(tmp_path)
    assert names(found, tmp_path) == {"/a.fatbin": "problem", "/b.fatbin": "code"}
    assert "No such file" in str(found[str(gone)].problem)
    assert stays.exists()


def as_nobody(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run as a user who may not read everything, as root may."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root reads everything, and there is no setpriv")
        prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run(
        [*prefix, *COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment({"HOME": "/nonexistent"}),
        timeout=60,
        check=False,
    )
    if "Permission denied" in done.stderr and "python" in done.stderr:
        pytest.skip("nobody may not run this interpreter")
    return done


def test_what_may_not_be_read_is_a_problem_and_the_others_are_read() -> None:
    # Not below pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        put(folder / "open.fatbin", CODE).chmod(0o644)
        put(folder / "shut.so", CODE).chmod(0)
        put(folder / "shut" / "x.so", CODE)
        (folder / "shut").chmod(0)
        try:
            done = as_nobody("scan", folder, "--arch", "hopper", "--format", "json")
            alone = as_nobody("scan", folder / "shut.so", "--arch", "hopper")
        finally:
            (folder / "shut").chmod(0o755)
        assert done.returncode == 11, done.stderr
        found = {f["subject"]: f["status"] for f in json.loads(done.stdout)["findings"]}
        assert found[str(folder / "open.fatbin")] == "pass"
        assert found[str(folder / "shut.so")] == "error"
        assert found[str(folder / "shut")] == "error"
        assert alone.returncode == 3
        assert "shut.so: no permission" in alone.stderr


def test_a_text_file_named_so_is_skipped_with_its_reason(tmp_path: Path) -> None:
    path = put(tmp_path / "libm.so", b"/* GNU ld script */\nGROUP ( /lib/libm.so.6 )\n")
    document = report("scan", path, "--arch", "ada")
    assert document["verdict"] == "inconclusive"
    (finding,) = [f for f in document["findings"] if f["subject"] == str(path)]
    assert finding["status"] == "skip"
    assert finding["message"]


def test_files_of_the_kernel_that_have_no_size_are_no_crash() -> None:
    done = envcheck("scan", "/proc/self/maps", "--arch", "ada", timeout=20)
    assert done.returncode == 11


def test_a_reader_that_fails_in_a_way_nobody_foresaw_hides_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from envcheck.guest import device_code

    real = device_code.read

    def failing(buffer: bytes, *, path: str, **options: Any) -> DeviceFile:
        return real(buffer if path.endswith("b.fatbin") else None, path=path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(device_code, "read", failing)
    put(tmp_path / "a.fatbin", CODE)
    put(tmp_path / "b.fatbin", CODE)
    found = scan(tmp_path)
    assert names(found, tmp_path) == {"/a.fatbin": "problem", "/b.fatbin": "code"}
    assert "TypeError" in str(found[str(tmp_path / "a.fatbin")].problem)


# Progress


def test_progress_adds_up_to_the_bytes_that_were_announced(tmp_path: Path) -> None:
    put(tmp_path / "x.fatbin", CODE)
    put(tmp_path / "notes.txt", b"12345")
    wheel(tmp_path, "pkg", "1", {"pkg/a.fatbin": CODE, "pkg/b.py": b"x = 1\n" * 1000})
    put(tmp_path / "t.tar", tarred({"a.fatbin": CODE, "b.fatbin": CODE}))
    done: list[int] = []
    pipeline.scan([str(tmp_path)], lambda _, size: done.append(size))
    total = pipeline.total_size([str(tmp_path)])
    assert total == sum(p.stat().st_size for p in tmp_path.rglob("*"))
    # Headers of archives are nobody's bytes.
    assert total - 25_000 < sum(done) <= total


# Any bytes at all


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(["one.zip", "one.tar", "one.tar.gz", "one.tar.xz", "one.tar.zst"]),
    cuts=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=0, max_size=12)), max_size=6
    ),
)
def test_a_mutated_archive_is_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, kind: str, cuts: list[tuple[float, bytes]]
) -> None:
    data = bytearray(PACKED[kind](CODE))
    for where, patch in cuts:
        at = int(where * len(data))
        data[at : at + len(patch)] = patch
    path = tmp_path_factory.mktemp("mutated") / kind
    path.write_bytes(data)
    for found in sources.read_paths([str(path)], lambda *_: None):
        assert found.file is None or found.file.path.startswith(str(path))


@pytest.mark.parametrize("content", [b"", b"this is no archive"])
def test_what_is_named_a_wheel_and_is_none_is_a_problem(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x-1.0-py3-none-any.whl"
    path.write_bytes(content)
    (seen,) = sources.read_paths([str(path)], lambda *_: None)
    assert seen.file is not None
    assert seen.file.problem == "is named like an archive, and is none"
