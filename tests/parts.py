"""Parts of the suite that need what a machine may lack: `--require NAME` insists on one."""

from __future__ import annotations

import pytest

PARTS = ("docker", "gpu")


def required(config: pytest.Config) -> set[str]:
    """Return the parts that `--require` names; raises UsageError for one that there is not."""
    words = ",".join(config.getoption("require"))
    parts = {part.strip() for part in words.split(",") if part.strip()}
    if unknown := parts - set(PARTS):
        message = f"--require {', '.join(sorted(unknown))}: not one of {', '.join(PARTS)}"
        raise pytest.UsageError(message)
    return parts
