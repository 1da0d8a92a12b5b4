"""What `--require` takes, and that a skip of a part which is required fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOWHERE = "unix:///no/such/docker.sock"
CARD = "tests/gpu/test_truth_on_card.py::test_what_triton_compiles_for_several_cards"
ONE = "tests/docker/test_check_image.py::test_an_image_that_is_nowhere"


def run(*words: str) -> tuple[int, str]:
    """Run pytest in this checkout where no engine answers, none can be started, and no card is."""
    folder = os.path.dirname(sys.executable)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        env={**os.environ, "DOCKER_HOST": NOWHERE, "PATH": folder, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 0, "1 skipped"),
        (["-m", "docker"], 0, "1 skipped"),
        (["--require", "docker"], 1, "--require docker: Skipped: no engine answers"),
        (["--require=docker,docker"], 1, "1 error"),
        (["--require", "dokcer"], 4, "--require dokcer: not one of docker, gpu"),
    ],
)
def test_a_part_is_skipped_with_its_reason_unless_it_is_required(
    words: list[str], code: int, said: str
) -> None:
    found, text = run(*words, ONE)
    assert said in text
    assert found == code


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 0, "1 skipped"),
        (["-m", "gpu"], 0, "1 skipped"),
        (["--require", "gpu"], 1, "--require gpu: Skipped: no "),
        (["--require", "docker"], 0, "1 skipped"),
    ],
)
def test_tests_of_a_card_are_skipped_without_one(words: list[str], code: int, said: str) -> None:
    found, text = run(*words, CARD)
    assert said in text
    assert found == code
