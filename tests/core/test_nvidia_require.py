"""NVIDIA_REQUIRE_CUDA, by the container toolkit's documentation."""

from __future__ import annotations

import pytest

from envcheck.core.cuda import parse_version
from envcheck.core.nvidia_require import admits, least_driver, parse

BASE = "cuda>=12.8 brand=unknown,driver>=470,driver<471 brand=tesla,driver>=535,driver<536"


@pytest.mark.parametrize(
    ("text", "driver", "starts"),
    [
        ("cuda>=12.8", "570.26", True),
        ("cuda>=12.8", "565.57.01", False),
        ("cuda>=9.0", "450.80.02", True),
        ("driver>=535", "535.54.03", True),
        ("driver>=535,driver<536", "550.54", False),
        (BASE, "580.65.06", True),
        (BASE, "535.129.03", None),  # a Tesla may, another card may not
        (BASE, "550.54.14", False),
        ("", "100.1", True),
    ],
)
def test_which_hosts_may_start_it(text: str, driver: str, starts: bool | None) -> None:
    alternatives = parse(text)
    assert alternatives is not None
    assert admits(alternatives, parse_version(driver)) is starts


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("cuda>=12.8", (570, 26)),  # release notes: CUDA 12.8 came with 570.26
        (BASE, (570, 26)),
        ("driver>=580.65.06", (580, 65, 6)),
        ("cuda>=11.0 cuda>=12.8", (450, 51, 5)),
        ("brand=tesla", None),
        ("cuda<13", None),
    ],
)
def test_the_oldest_driver_of_any_card(text: str, least: tuple[int, ...] | None) -> None:
    assert least_driver(parse(text) or ()) == least


@pytest.mark.parametrize("text", ["cuda", "cuda>=x", "cuda>=12.8;driver>=5", "gpu>=1", "cuda>=1,"])
def test_what_is_no_condition_is_not_guessed(text: str) -> None:
    assert parse(text) is None
