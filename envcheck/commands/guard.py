"""The command that starts a job, or does not."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck.engine import job
from envcheck.engine.present import Looking

if TYPE_CHECKING:
    from envcheck.policy import Policy


def guard(options: argparse.Namespace) -> int:
    """Replace this process by the job, if the manifest lets it start here."""
    gc.disable()  # nothing lives long enough here to be collected, and a job waits
    program = job.resolve(options.words[0])
    # The guest looks while all that verifies is imported: the half of what there is to wait for.
    looking = Looking(_python(options.python, program))
    try:
        from envcheck import guard as gate

        policy = _policy(options)
        for warning in gate.key_warnings(policy):
            print(f"envcheck: warning: {warning}", file=sys.stderr)
        admitted = gate.admit(options.manifest, policy, looking, deep=options.deep)
    finally:
        looking.end()
    notes = (*_other_python(options.python, program), *admitted.notes)
    for note in () if options.quiet else notes:
        print(f"envcheck: {note}", file=sys.stderr)
    sys.stderr.flush()
    job.replace_by(program, options.words)


def _python(named: str | None, program: str) -> str:
    if named is None:
        return job.interpreter(program)
    from envcheck.engine import named_python

    return named_python.resolve(named)


def _other_python(named: str | None, program: str) -> tuple[str, ...]:
    """Say so where a command brings a Python of its own, and another one was named."""
    if named is None:
        return ()
    own, there = job.own_interpreter(program), _python(named, program)
    if own is None or os.path.abspath(own) == os.path.abspath(there):
        return ()
    return (f"{own}, which the command uses, was not compared: {there} was (--python)",)


def _policy(options: argparse.Namespace) -> Policy:
    """Put the command line over what the settings say."""
    from envcheck import guard as gate
    from envcheck import policy, targets
    from envcheck.core.model import Assurance

    return gate.override(
        policy.load(options.settings_file, Path()),
        keys=options.key,
        max_age=options.max_age,
        assurance=None if options.require is None else Assurance(options.require),
        target=None if options.target is None else targets.resolve(options.target),
    )
