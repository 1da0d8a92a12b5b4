"""The line that matters in what a compiler or assembler said."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envcheck.core.compiled import Outcome

# The first that matches any line wins: an assembler's word says more than who passes it on.
_TELLING = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bptxas.*\b(fatal|error) :",
        r"LLVM ERROR|Assertion .* failed|terminate called",
        r"\bld: cannot find |undefined reference to ",
        r"\b(fatal|error)\b\s*:|out of memory|cannot open shared object|symbol lookup error",
    )
)
_TEMPORARY = re.compile(r"\S*/tmp\w*\.(ptx|o|log)\b")
_FOLDER = re.compile(r"^\S*/(?=[^/\s]+(:\d+|\(\d+\)):)")
_BLANK = re.compile(r"\s{2,}")
# What Python adds to a crash: that it crashed, and where it was in its own code.
_STACK = re.compile(
    r"Fatal Python error:|(Current t|T)hread 0x|Current thread's C stack|Extension modules:"
    r"|\s*(Binary f|F)ile \"|\.\.\.|$"
)
_MAX_LINE, _MAX_LINES = 300, 20


def reason(outcome: Outcome) -> str:
    """Return why something failed in one line, empty for what did not."""
    if outcome.ok:
        return ""
    if outcome.status == "timed-out":
        return f"not done after {outcome.milliseconds / 1000:.0f} s"
    raised = _tidy_lines((outcome.error or "").splitlines())
    said = _tidy_lines(n for n in (*outcome.stderr, *outcome.stdout) if not _STACK.match(n))
    # What was printed explains an exception that has nothing to say, and any other end.
    lines = raised if len(raised) > 1 else raised + said
    for pattern in _TELLING:
        for line in lines:
            if pattern.search(line):
                return line
    if raised:
        # Triton quotes the source first and ends with what is wrong with it.
        return raised[-1] if "CompilationError" in raised[0] else raised[0]
    how = f"killed by {outcome.signal}" if outcome.signal else f"ended with code {outcome.code}"
    return f"{how}: {said[-1]}" if said else how


def distinct(lines: Iterable[str]) -> tuple[str, ...]:
    """Return different lines in their order, without quoted source (which is indented)."""
    told = _tidy_lines(n for n in lines if not n[:1].isspace() and not n.startswith("..."))
    return tuple(dict.fromkeys(told))[:_MAX_LINES]


def _tidy_lines(lines: Iterable[str]) -> list[str]:
    """Return lines without blanks in rows and without paths that differ from run to run."""
    tidy: list[str] = []
    for line in lines:
        text = _FOLDER.sub("", _TEMPORARY.sub(r"<\1>", line))
        tidy.append(_BLANK.sub(" ", text).strip()[:_MAX_LINE])
    return [line for line in tidy if line]
