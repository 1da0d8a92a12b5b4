"""The command that compares what envcheck says with what a card does."""

from __future__ import annotations

import argparse
import sys

from envcheck.commands.documents import write
from envcheck.core import codec


def selftest(options: argparse.Namespace) -> int:
    """Judge and load every object of a folder on the card of this machine, and compare."""
    from envcheck import selftest as part

    found = part.run(part.objects(options.truth), cudart=options.cudart)
    if options.format == "json":
        write(codec.dumps(found).encode())
    else:
        from envcheck.output import selftest as text

        text.render(found, sys.stdout, quiet=options.quiet, verbose=options.verbose)
    return found.exit_code
