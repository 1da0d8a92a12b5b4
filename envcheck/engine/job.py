"""The command that a gate lets start: which file it is, whose Python it would use, and starting it.

What is started is the very path that was resolved, in this same process. What a link in that
path points to at that moment is not held: only the kernel could.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Sequence
from typing import NoReturn

from envcheck.errors import FileUnavailable, UsageError

_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)*t?)?")
_HEAD = 4096
# What pip writes where a path is too long for `#!` or has a space in it: a line for the shell.
_LONG = re.compile(rb"""#!/bin/sh\n'''exec' ("?)(/[^"\n]+?)\1 "\$0" "\$@\"""")


def resolve(command: str) -> str:
    """Return the file that exec would start; raises FileUnavailable without one."""
    found = shutil.which(command)
    if found is None:
        message = f"{command}: no such command, or not one that may be run"
        raise FileUnavailable(message, remedy="name a program on PATH, or its path")
    return os.path.abspath(found)


def interpreter(program: str) -> str:
    """Return the Python that a program is, or whose script it is; raises UsageError without."""
    found = own_interpreter(program)
    if found is None:
        message = f"{program} is no Python and no script of one: whose environment is it to be?"
        raise UsageError(message, remedy="--python PATH of the interpreter that the job will use")
    return found


def own_interpreter(program: str) -> str | None:
    """Return the Python that a program is, or whose script it is; None for other programs."""
    return program if _is_python(program) else _of_script(program)


def replace_by(program: str, words: Sequence[str]) -> NoReturn:
    """Become the program: same process, standard streams and signals; raises FileUnavailable."""
    # Python ignores these, and what is ignored stays so in a program that is started.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, list(words))  # noqa: S606 - no shell is what is wanted
    except OSError as error:
        message = f"{program}: cannot be started: {error.strerror or error}"
        raise FileUnavailable(message, remedy="a script begins with #! and a program") from None


def _is_python(program: str) -> bool:
    names = (os.path.basename(program), os.path.basename(os.path.realpath(program)))
    return any(map(_PYTHON.fullmatch, names))


def _of_script(program: str) -> str | None:
    """Return the Python of a script's first line, None where that is another program."""
    try:
        with open(program, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    if long := _LONG.match(head):
        return os.fsdecode(long[2])
    if not head.startswith(b"#!"):
        return None
    words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
    if words and os.path.basename(words[0]) == "env":
        # `env -S python3 -u`. Before the program nothing else may stand: variables that are set or
        # taken away there, and another folder, make another environment of it than is looked at.
        rest = words[2:] if words[1:2] == ["-S"] else words[1:]
        found = shutil.which(rest[0]) if rest else None
        words = [] if found is None else [found]
    return words[0] if words and _is_python(words[0]) else None
