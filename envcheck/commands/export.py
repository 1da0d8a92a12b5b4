"""`envcheck export`: a job, and its finished files brought to a safe place meanwhile."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from envcheck.engine import beside, job
from envcheck.engine.rsync import Rsync, is_remote
from envcheck.errors import FileUnavailable, UsageError
from envcheck.exporting.folder import Folder
from envcheck.exporting.rounds import Exporter, Lines
from envcheck.exporting.target import Target
from envcheck.output.visible import visible


def export(options: argparse.Namespace) -> int:
    """Run the job, and export beside it; its exit code is ours."""
    program = job.resolve(options.words[0])
    source = _source(options.source)
    target = _target(options.to, source)
    target.prepare()
    try:
        exporter = Exporter(source, target, options.every, _Teller(quiet=options.quiet))
        code = beside.run(program, options.words, exporter)
    finally:
        target.close()
    return 1 if exporter.failed and code == 0 else code


def _source(path: Path) -> str:
    if not path.is_dir():
        message = f"{path}: there is no such folder to export from"
        raise FileUnavailable(message, remedy=f"mkdir -p {path}")
    return os.path.realpath(path)


def _target(name: str, source: str) -> Target:
    """Return the place; raises UsageError for one inside the results, or around them."""
    if is_remote(name):
        return Rsync(name)
    place = os.path.realpath(name)
    if os.path.commonpath((place, source)) in (place, source):
        message = f"{name}: it lies in {source}, or that in it, and would be exported itself"
        raise UsageError(message, remedy="--to a folder elsewhere, on another disk")
    return Folder(name)


class _Teller:
    """Write on stderr as long as somebody reads it."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._heard = True

    def __call__(self, lines: Lines) -> None:
        told = () if self._quiet else lines.told
        errors = [f"error: {line}" for line in lines.errors]
        try:
            for line in (*told, *errors) if self._heard else ():
                print(f"envcheck: export: {visible(line)}", file=sys.stderr, flush=True)
        except OSError:
            # The reader of the job's stderr went away; exporting goes on.
            self._heard = False
