"""What several test modules share: where the samples lie, and how to read one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import parts
import pytest
from fake_driver import fake  # noqa: F401 - a fixture for all
from fake_nvml import nvml, old_nvml  # noqa: F401 - fixtures for all
from hypothesis import HealthCheck, settings

DATA = Path(__file__).parent / "data"
# The scripts that made the samples also make the odd files of single tests.
sys.path.append(str(DATA))

# Wall-clock limits fail on a busy machine; where time matters, a test counts CPU seconds.
settings.register_profile(
    "steady",
    settings.get_profile("ci" if os.environ.get("CI") else "default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        action="append",
        default=[],
        metavar="PART",
        help=f"run the tests of a part ({', '.join(parts.PARTS)}), and let none of them be skipped;"
        " may be repeated, or name several with commas",
    )


def pytest_configure(config: pytest.Config) -> None:
    parts.required(config)


@pytest.fixture(scope="session")
def report_schema() -> dict:
    """Return the JSON Schema of the report, as it ships."""
    import envcheck

    text = (Path(envcheck.__file__).parent / "schema" / "report-v1.json").read_text()
    return json.loads(text)
