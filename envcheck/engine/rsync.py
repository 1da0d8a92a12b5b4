"""A place that rsync reaches: it writes aside, gives a file its name, and is asked once more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from envcheck.errors import FileUnavailable
from envcheck.exporting import digests
from envcheck.exporting.folder import ASIDE, hashed
from envcheck.exporting.looking import Stamp, open_below
from envcheck.exporting.target import CHANGED, ENDED, Delivery

_REMOTE = re.compile(r"rsync://|[^/:]+:")
# A silent connection is one that is lost. Seconds.
_SILENT = 120
_LOOK = 0.2
_MISSING = 23
"""Exit code of rsync where what was asked for is not there (`man rsync`)."""
# What `--itemize-changes` begins a line with (`man rsync`), and where the name comes after it.
_SENT = (b"<f", b">f")
_SAME = (b".f",)
_NAME_AT = 12
_ESCAPED = re.compile(rb"\\#(\d{3})")
# What a password could be asked for is the job's own terminal.
_SHELL = "ssh -o BatchMode=yes"


def is_remote(target: str) -> bool:
    """Say whether rsync would take a target for a place on another machine."""
    return _REMOTE.match(target) is not None


class Rsync:
    """A folder that rsync can write to."""

    def __init__(self, target: str) -> None:
        self.name = target
        # `host:` is the user's own folder there, and `host:/` would be the root.
        self._place = target if target.endswith(("/", ":")) else f"{target}/"
        self._digests: dict[str, str] = {}
        self._known: dict[str, Stamp] = {}

    def prepare(self) -> None:
        """Find rsync, and read what an earlier export noted there; raises FileUnavailable."""
        if shutil.which("rsync") is None:
            message = f"{self.name}: rsync is not installed here"
            raise FileUnavailable(message, remedy="apt-get install rsync")
        with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
            done = _rsync(["--", f"{self._place}{digests.NAME}", f"{folder}/"])
            if done.returncode not in (0, _MISSING):
                message = f"{self.name}: rsync does not get there: {_why(done)}"
                raise FileUnavailable(message, remedy=f"rsync --list-only {self._place}")
            noted = Path(folder, digests.NAME)
            try:
                self._digests = digests.read(noted.read_bytes()) if noted.exists() else {}
            except ValueError as error:
                message = f"{self.name}: {digests.NAME} there is not ours: {error}"
                raise FileUnavailable(message, remedy="--to another folder") from None

    def close(self) -> None:
        """Nothing is held there."""

    def deliver(
        self, root: str, files: Mapping[str, Stamp], cancelled: Callable[[], bool]
    ) -> Delivery:
        """Send what is new or changed, have it verified there, and note it."""
        delivery = Delivery()
        wanted = {p: s for p, s in files.items() if self._known.get(p) != s}
        if not wanted:
            return delivery
        hashes = _hashes(root, wanted, delivery, cancelled)
        sent = _rsync([*_sending(root), self._place], hashes, cancelled)
        asked = _rsync(["--dry-run", "--itemize-changes", *_sending(root), self._place],
                       hashes, cancelled)  # fmt: skip
        changed, same = _named(sent.stdout, _SENT), _named(asked.stdout, _SAME)
        for path, digest in hashes.items():
            if not _is_still(root, path, wanted[path]):
                delivery.failed[path] = CHANGED
            elif path not in same:
                delivery.failed[path] = ENDED if cancelled() else _why(sent, asked)
            else:
                delivery.arrived[path] = digest
                delivery.copied += path in changed
                delivery.size += wanted[path].size if path in changed else 0
        self._note(delivery)
        self._known |= {path: wanted[path] for path in delivery.arrived}
        return delivery

    def _note(self, delivery: Delivery) -> None:
        noted = {**self._digests, **delivery.arrived}
        if noted == self._digests:
            return
        with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
            Path(folder, digests.NAME).write_bytes(digests.write(noted))
            done = _rsync([*_sending(folder), self._place], [digests.NAME])
        if done.returncode:
            delivery.failed[digests.NAME] = f"{self.name}: {_why(done)}"
        else:
            self._digests = noted


def _hashes(
    root: str,
    wanted: Mapping[str, Stamp],
    delivery: Delivery,
    cancelled: Callable[[], bool],
) -> dict[str, str]:
    """Return the hash of each file that can be read and is what it was."""
    found = {}
    for path, stamp in wanted.items():
        digest, why = _hash(root, path, stamp, cancelled)
        if why:
            delivery.failed[path] = why
        elif digest:
            found[path] = digest
    return found


def _hash(root: str, path: str, stamp: Stamp, cancelled: Callable[[], bool]) -> tuple[str, str]:
    """Return the hash of a file, or why there is none; neither once the job has removed it."""
    try:
        with open(open_below(root, path), "rb") as file:
            digest = hashed(file.fileno(), cancelled)
            still = Stamp.of(os.fstat(file.fileno())) == stamp
    except FileNotFoundError:
        return "", ""
    except OSError as error:
        return "", error.strerror or str(error)
    return (digest, "") if still else ("", CHANGED)


def _sending(root: str) -> list[str]:
    """Return how a list of files is sent: compared by their bytes, each under its name at last."""
    return ["--checksum", "--from0", "--files-from=-", "--itemize-changes",
            "--out-format=%i %n", f"--partial-dir={ASIDE}", "--", f"{root}/"]  # fmt: skip


def _is_still(root: str, path: str, stamp: Stamp) -> bool:
    try:
        return Stamp.of(os.lstat(os.path.join(root, path))) == stamp
    except OSError:
        return False


def _named(out: bytes, kinds: tuple[bytes, ...]) -> set[str]:
    """Return the regular files of which rsync says one of some things."""
    found = set()
    for line in out.splitlines():
        if line.startswith(kinds):
            plain = _ESCAPED.sub(lambda match: bytes((int(match[1], 8),)), line[_NAME_AT:])
            found.add(os.fsdecode(plain))
    return found


def _rsync(
    arguments: Iterable[str],
    paths: Iterable[str] = (),
    cancelled: Callable[[], bool] = lambda: False,
) -> subprocess.CompletedProcess[bytes]:
    """Run rsync apart from the job's terminal; ended when nobody wants to wait for it."""
    command = ["rsync", f"--timeout={_SILENT}", "--8-bit-output", *arguments]
    listed = b"".join(os.fsencode(path) + b"\0" for path in paths)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={"RSYNC_RSH": _SHELL, **os.environ},
    ) as process:
        ended = threading.Event()
        threading.Thread(target=_end_when, args=(process, ended, cancelled), daemon=True).start()
        out, err = process.communicate(listed)
        ended.set()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end_when(
    process: subprocess.Popen[bytes], ended: threading.Event, cancelled: Callable[[], bool]
) -> None:
    while not ended.wait(_LOOK):
        if cancelled():
            process.terminate()


def _why(*done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the first line that rsync said was wrong."""
    said = b"".join(each.stderr for each in done).decode(errors="backslashreplace")
    lines = said.strip().splitlines()
    return lines[0] if lines else "rsync does not say that it is there as it is here"
