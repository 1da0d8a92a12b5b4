"""Fatal errors, each with the exit code that the shell sees.

EnvcheckError                1   envcheck itself failed; nothing was verified
+-- UsageError               2   the command line or a configuration file is wrong
+-- FileUnavailable          3   an engine, image or file is not to be had
+-- DocumentInvalid          1   a file was read, but it is not what it should be
+-- SignatureInvalid        12   signature, digest or freshness does not verify
    +-- JobRefused          12   a manifest does not let a job start; 10 or 11 by its verdict

Exit codes 0 (compatible), 10 (incompatible) and 11 (inconclusive) belong to verdicts
and stand in `envcheck.core.model.Verdict`.
"""

from __future__ import annotations


class EnvcheckError(Exception):
    """Report that envcheck failed and that nothing was verified.

    The message is one line that names the cause; `remedy` is what to do about it.
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(EnvcheckError):
    """Report a command line or configuration that cannot be carried out."""

    exit_code = 2


class FileUnavailable(EnvcheckError):
    """Report an engine, image or file that cannot be had."""

    exit_code = 3


class DocumentInvalid(EnvcheckError):
    """Report a document (inventory, report, data table) that does not fit its schema."""


class SignatureInvalid(EnvcheckError):
    """Report an envelope whose signature, digest or freshness does not verify."""

    exit_code = 12


class JobRefused(SignatureInvalid):
    """Report that a manifest, though authentic, does not let a job start here."""

    def __init__(self, message: str, *, remedy: str = "", code: int = 12) -> None:
        super().__init__(message, remedy=remedy)
        self.exit_code = code
