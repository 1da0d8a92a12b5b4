"""The interpreter of the environment starts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.installed import Undecodable
from envcheck.core.model import Domain, Finding, Status

_ALONE = "envcheck check --arch native looks at it again, without the machine"


def _run(question: Question) -> Iterator[Finding]:
    failed = question.machine.failed if question.machine is not None else {}
    if "environment" in failed:
        message = f"the environment could not be looked at: {failed['environment']}"
        yield CHECK.finding("environment", Status.ERROR, message, remedy=_ALONE, domain=Domain.JOB)
        return
    environment = question.inventory.environment
    installed = environment.installed if environment is not None else None
    found = installed.interpreter.undecodable if installed is not None else None
    if found is None:
        yield CHECK.skip("interpreter", "what an interpreter reads when it starts was not read")
        return
    yield from map(_of, found)
    if not found:
        message = "pyvenv.cfg and .pth files can be decoded; code that they name was not run"
        yield CHECK.finding("interpreter", Status.PASS, message, required=False)


def _of(file: Undecodable) -> Finding:
    quoted = shlex.quote(file.path)
    again = f"iconv -f latin1 -t utf-8 {quoted} -o {quoted}.utf8 && mv {quoted}.utf8 {quoted}"
    locale = "export LC_ALL=C.UTF-8"
    if file.encoding != "utf-8":
        again += f" && {locale}"
    return CHECK.finding(
        file.path,
        Status.FAIL,
        f"Python does not start: it reads this file first, and byte {file.offset} is no "
        f"{file.encoding}",
        remedy=locale if file.is_utf8 else again,
        domain=Domain.JOB if file.is_utf8 else Domain.PACKAGE,
    )


CHECK = Check(
    id="interpreter-starts",
    claim="The interpreter starts, as far as the files tell that it reads then.",
    how=(
        "Decodes pyvenv.cfg and the .pth files of the site directories as that interpreter does: "
        "one that it cannot decode ends it before any job. Lines of .pth files that begin with "
        "`import`, and sitecustomize, are code: they are not run, nor judged."
    ),
    remedy="Write the file again as UTF-8, or remove it.",
    run=_run,
)
