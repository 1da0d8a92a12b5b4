"""What envcheck.toml says where the command line does not, read before anything is looked at."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from envcheck.errors import UsageError


def settle(options: argparse.Namespace) -> None:
    """Read the settings of a command that has --config, and put the command line over them.

    Whole and first, so that a mistake costs no build and no card. Raises UsageError for it.
    """
    from envcheck import config, targets

    settings = config.load(options.config, Path())
    if settings.passed_over is not None and not options.quiet:
        text = f"{settings.passed_over}: [tool.envcheck] is passed over for {settings.file}"
        print(f"envcheck: {text}", file=sys.stderr)
    options.settings = settings
    options.require = options.require or settings.require
    if not hasattr(options, "arch"):  # the card that is here is all that it is about
        return
    options.arch = options.arch or [targets.resolve(name) for name in settings.architectures]
    if not options.arch:
        message = f"nothing says for which architecture to {options.command}"
        raise UsageError(message, remedy='--arch blackwell, or architectures = ["blackwell"]')
