"""What several test modules share: where the samples lie, and how to read one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
# The scripts that made the samples also make the odd files of single tests.
sys.path.append(str(DATA))


@pytest.fixture(scope="session")
def report_schema() -> dict:
    """Return the JSON Schema of the report, as it ships."""
    import envcheck

    text = (Path(envcheck.__file__).parent / "schema" / "report-v1.json").read_text()
    return json.loads(text)
