"""The command that starts a job, or does not."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from envcheck import guard as gate
from envcheck import policy as policies
from envcheck.engine import job, local


def guard(options: argparse.Namespace) -> int:
    """Replace this process by the job, if the manifest lets it start here."""
    program = job.resolve(options.words[0])
    named = options.python
    python = job.interpreter(program) if named is None else local.resolve(named)
    policy = gate.override(
        policies.load(options.settings_file, Path()),
        keys=options.key,
        max_age=options.max_age,
        assurance=options.require,
        target=options.target,
    )
    for warning in gate.key_warnings(policy):
        print(f"envcheck: warning: {warning}", file=sys.stderr)
    admitted = gate.admit(options.manifest, policy, python, deep=options.deep)
    for note in () if options.quiet else admitted.notes:
        print(f"envcheck: {note}", file=sys.stderr)
    sys.stderr.flush()
    job.replace_by(program, options.words)
