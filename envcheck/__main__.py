"""The entry point: errors become one line and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line and return its exit code."""
    from envcheck.errors import EnvcheckError

    try:
        from envcheck import cli

        code = cli.main(sys.argv[1:])
        sys.stdout.flush()
    except EnvcheckError as error:
        print(f"envcheck: error: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"envcheck: try: {error.remedy}", file=sys.stderr)
        if error.exit_code == 1:
            print("envcheck: nothing was verified", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("envcheck: interrupted; nothing was verified", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`envcheck ... | head`): there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 - the last line of defence
        if os.environ.get("ENVCHECK_DEBUG"):
            raise
        kind = type(error).__name__
        print(f"envcheck: error: unexpected {kind}: {error}", file=sys.stderr)
        print("envcheck: try: ENVCHECK_DEBUG=1, and report what it prints", file=sys.stderr)
        print("envcheck: nothing was verified", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
