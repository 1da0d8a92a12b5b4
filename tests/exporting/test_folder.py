"""What arrives in a folder, file by file; each fault is made in the middle of a real copy."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from envcheck.errors import FileUnavailable
from envcheck.exporting import digests
from envcheck.exporting.folder import ASIDE, Folder
from envcheck.exporting.looking import look
from envcheck.exporting.target import CHANGED, ENDED, Delivery

BIG = b"0123456789abcdef" * (1 << 17)  # two pieces of a copy, so that it has a middle


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Folder:
    made = Folder(str(tmp_path / "to"))
    made.prepare()
    return made


def never() -> bool:
    return False


def deliver(target: Folder, run: Path, cancelled: Callable[[], bool] = never) -> Delivery:
    return target.deliver(str(run), look(str(run), ()).files, cancelled)


def checked(target: Folder) -> int:
    """Return how many files sha256sum finds as they were noted; it must find no other."""
    done = subprocess.run(
        ["sha256sum", "--strict", "--check", digests.NAME],
        cwd=target.name, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.count(b": OK")


def present(target: Folder) -> set[str]:
    return set(look(target.name, (ASIDE, digests.NAME)).files)


def test_files_arrive_with_their_hash_and_are_not_copied_again(run: Path, target: Folder) -> None:
    (run / "a" / "b").mkdir(parents=True)
    (run / "a" / "b" / "new\nline").write_bytes(b"x" * 3)
    (run / "empty").write_bytes(b"")
    found = deliver(target, run)
    assert found.arrived == {
        "a/b/new\nline": hashlib.sha256(b"xxx").hexdigest(),
        "empty": hashlib.sha256(b"").hexdigest(),
    }
    assert (found.copied, found.size, found.failed) == (2, 3, {})
    assert checked(target) == 2
    assert (Path(target.name) / "a/b/new\nline").read_bytes() == b"xxx"
    before = os.stat(Path(target.name) / "empty").st_ino
    assert deliver(target, run) == Delivery()
    assert os.stat(Path(target.name) / "empty").st_ino == before


def test_another_export_goes_on_where_one_ended(run: Path, target: Folder) -> None:
    for name in ("same", "differs", "shorter"):
        (run / name).write_bytes(name.encode())
    deliver(target, run)
    target.close()
    inode = os.stat(Path(target.name) / "same").st_ino
    (Path(target.name) / "differs").write_bytes(b"DIFFERS")
    (Path(target.name) / "shorter").write_bytes(b"")
    (Path(target.name) / "of somebody else").write_bytes(b"kept")
    again = Folder(target.name)
    again.prepare()
    found = deliver(again, run)
    assert (found.copied, set(found.arrived)) == (2, {"same", "differs", "shorter"})
    assert os.stat(Path(target.name) / "same").st_ino == inode
    assert (Path(target.name) / "differs").read_bytes() == b"differs"
    assert (Path(target.name) / "of somebody else").read_bytes() == b"kept"
    assert checked(again) == 3


def test_what_the_job_removes_stays_where_it_was_exported(run: Path, target: Folder) -> None:
    (run / "old").write_bytes(b"1")
    deliver(target, run)
    (run / "old").unlink()
    (run / "new").write_bytes(b"2")
    deliver(target, run)
    assert present(target) == {"old", "new"}
    assert checked(target) == 2


def test_what_vanished_in_the_target_is_copied_again(run: Path, target: Folder) -> None:
    (run / "x").write_bytes(b"1")
    deliver(target, run)
    (Path(target.name) / "x").unlink()
    (Path(target.name) / digests.NAME).unlink()
    assert deliver(target, run).copied == 1
    assert checked(target) == 1


def test_a_file_that_changes_while_it_is_copied_does_not_get_its_name(
    run: Path, target: Folder
) -> None:
    (run / "big").write_bytes(BIG)
    (run / "other").write_bytes(b"1")
    files = look(str(run), ()).files

    def change() -> bool:
        with (run / "big").open("r+b") as file:
            file.write(b"changed!")
        return False

    found = target.deliver(str(run), {"big": files["big"]}, change)
    assert (found.failed, found.arrived, present(target)) == ({"big": CHANGED}, {}, set())
    assert deliver(target, run).copied == 2
    assert (Path(target.name) / "big").read_bytes()[:8] == b"changed!"


def test_what_does_not_read_back_as_it_was_written_gets_no_name(run: Path, target: Folder) -> None:
    (run / "big").write_bytes(BIG)
    calls = []

    def damage() -> bool:
        calls.append(None)
        # The two pieces are written; the first one has been read back.
        if len(calls) == 3:
            with (Path(target.name) / ASIDE / "part").open("r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"X")
        return False

    found = target.deliver(str(run), look(str(run), ()).files, damage)
    assert found.failed == {"big": "what was read back is not what was written"}
    assert present(target) == set()
    assert not list((Path(target.name) / ASIDE).iterdir())


def test_the_earlier_file_stays_until_the_new_one_is_whole(run: Path, target: Folder) -> None:
    (run / "big").write_bytes(BIG)
    deliver(target, run)
    (run / "big").write_bytes(BIG[::-1])
    seen = []

    def watch() -> bool:
        seen.append((Path(target.name) / "big").read_bytes() == BIG)
        return False

    deliver(target, run, watch)
    assert seen[0] is True
    assert (Path(target.name) / "big").read_bytes() == BIG[::-1]


def test_one_that_became_a_link_is_not_followed(run: Path, target: Folder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (run / "x").write_bytes(b"result")
    files = look(str(run), ()).files
    (run / "x").unlink()
    (run / "x").symlink_to(tmp_path / "secret")
    found = target.deliver(str(run), files, never)
    assert (set(found.failed), present(target)) == ({"x"}, set())


def test_one_that_is_gone_since_it_was_looked_at_is_no_failure(run: Path, target: Folder) -> None:
    (run / "x").write_bytes(b"result")
    files = look(str(run), ()).files
    (run / "x").unlink()
    assert target.deliver(str(run), files, never) == Delivery()


def test_a_folder_in_the_place_of_a_file_fails_that_file_alone(run: Path, target: Folder) -> None:
    for name in ("x", "y"):
        (run / name).write_bytes(b"1")
    (Path(target.name) / "x" / "inside").mkdir(parents=True)
    found = deliver(target, run)
    assert (set(found.failed), set(found.arrived)) == ({"x"}, {"y"})
    assert not list((Path(target.name) / ASIDE).iterdir())


def test_an_export_that_is_ended_leaves_no_half_file(run: Path, target: Folder) -> None:
    (run / "big").write_bytes(BIG)
    found = deliver(target, run, lambda: True)
    assert found.failed == {"big": ENDED, "": ENDED}
    assert present(target) == set()
    assert deliver(target, run).copied == 1


def test_a_target_that_is_gone_is_not_made_anew(run: Path, target: Folder) -> None:
    (run / "x").write_bytes(b"1")
    away = Path(target.name).rename(Path(target.name).with_name("away"))
    found = deliver(target, run)
    assert "gone" in found.failed[""]
    assert not Path(target.name).exists()
    away.rename(target.name)
    assert deliver(target, run).copied == 1


def test_two_exports_do_not_write_to_one_folder(target: Folder) -> None:
    with pytest.raises(FileUnavailable, match="another export"):
        Folder(target.name).prepare()
    target.close()
    Folder(target.name).prepare()


def test_a_manifest_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / digests.NAME).write_bytes(b"what is this\n")
    with pytest.raises(FileUnavailable, match="not ours"):
        Folder(str(tmp_path)).prepare()
    assert (tmp_path / digests.NAME).read_bytes() == b"what is this\n"


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_target_that_cannot_be_one(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileUnavailable, match="cannot be exported to"):
        Folder(str(tmp_path / name)).prepare()
