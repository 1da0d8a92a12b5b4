"""A real card, reached through the driver alone: these tests load code on it.

Without one they are skipped with the reason; `-m gpu` runs them alone, and `--require gpu` makes
a failure of every skip.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import agreement_table
import pytest
from own_python import python
from parts import required

from envcheck.core import codec
from envcheck.core.driver_facts import DriverCard

_HERE = Path(__file__).parent
_DESCRIBE = """\
import json
from envcheck import selftest
from envcheck.core import codec
from envcheck.errors import FileUnavailable
try:
    print(json.dumps(codec.to_json(selftest.card()[0])))
except FileUnavailable as error:
    print(json.dumps(error.message))
"""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: loads and launches code on a real card")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport]:
    """Turn a skip into a failure where these tests are required."""
    report = yield
    if report.skipped and item.get_closest_marker("gpu") and "gpu" in required(item.config):
        report.outcome = "failed"
        _, _, reason = report.longrepr
        report.longrepr = f"--require gpu: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how often prediction and card agree, in Markdown."""
    if found := agreement_table.table():
        terminalreporter.section("prediction and card")
        terminalreporter.write(found)


@pytest.fixture(scope="session")
def card() -> DriverCard:
    """Return the first card of this machine; skips without one."""
    done = python("-c", _DESCRIBE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if isinstance(found, str):
        pytest.skip(found)
    return codec.from_json(DriverCard, found, "card")
