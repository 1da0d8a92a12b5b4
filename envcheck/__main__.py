"""The entry point: errors become one line and an exit code, never a traceback."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import NoReturn


def main() -> int:
    """Run the command line and return its exit code."""
    from envcheck.errors import EnvcheckError, FileUnavailable

    _open_standard_streams()
    _end_in_order()
    try:
        from envcheck import cli

        if isinstance(sys.stdout, io.TextIOWrapper):
            # A letter that the terminal's encoding lacks must not end the program.
            sys.stdout.reconfigure(errors="backslashreplace")
        code = cli.main(sys.argv[1:])
        sys.stdout.flush()
    except EnvcheckError as error:
        _say(f"error: {error.message}")
        if error.remedy:
            _say(f"try: {error.remedy}")
        if error.exit_code == 1:
            _say("nothing was verified")
        return error.exit_code
    except _Cancelled as cancelled:
        _say("interrupted; nothing was verified")
        return 128 + cancelled.number
    except KeyboardInterrupt:
        _say("interrupted; nothing was verified")
        return 130
    except BrokenPipeError:
        # The reader went away (`envcheck ... | head`): there is nobody left to tell.
        _discard_stdout()
        return 1
    except OSError as error:
        if os.environ.get("ENVCHECK_DEBUG"):
            raise
        # A full disk, a terminal that is gone: the machine's affair, not a fault of envcheck.
        what, remedy = _cause(error)
        _say(f"error: {what}: {error.strerror or error}")
        _say(f"try: {remedy}")
        _say("nothing was verified")
        _discard_stdout()
        return FileUnavailable.exit_code
    except Exception as error:  # noqa: BLE001 - the last line of defence
        if os.environ.get("ENVCHECK_DEBUG"):
            raise
        _say(f"error: unexpected {type(error).__name__}: {error}")
        from envcheck import own_library

        _say(f"try: {own_library.remedy(error) or 'ENVCHECK_DEBUG=1, and report what it prints'}")
        _say("nothing was verified")
        _discard_stdout()
        return 1
    return code


def _cause(error: OSError) -> tuple[str, str]:
    """Return what is not to be had, and what to do."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder", "cd to a folder that is there"
    where = error.filename or "output or temporary files"
    if isinstance(error, PermissionError):
        return str(where), "cd to a folder that this user may read, or run it as one who may"
    return str(where), "make room there, or set TMPDIR to a folder with room"


def _end_in_order() -> None:
    """Let containers, compilers and temporary files end with us, as they do at Ctrl-C.

    Whoever cancels a job (CI, timeout, a closed terminal) sends these signals.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _cancelled)


class _Cancelled(KeyboardInterrupt):
    """A signal that ends the process, in order."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _cancelled(number: int, _: object) -> NoReturn:
    raise _Cancelled(number)


def _open_standard_streams() -> None:
    """Give a process that was started with closed streams (cron, daemons) empty ones."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            stream = open(number, "w" if number else "r", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)


def _say(text: str) -> None:
    from envcheck.output.visible import visible

    print(f"envcheck: {visible(text)}", file=sys.stderr)


def _discard_stdout() -> None:
    """Forget what could not be written, or the interpreter tries once more when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return  # there is no stdout


if __name__ == "__main__":
    sys.exit(main())
