"""The README says what the program does: names, paths and tables are compared with it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from envcheck import cli
from envcheck.checks import CHECKS
from envcheck.core.model import Verdict
from envcheck.errors import EnvcheckError

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_path_named_exists():
    named = re.findall(r"`((?:envcheck|images|tests|kernels)/[\w./-]+|[A-Z]+\.md)`", README)
    assert len(named) > 10
    paths = [path for path in named if not path.endswith("/v1")]  # names of schemas
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_table_of_checks_is_the_tuple_of_checks():
    table = README.partition("| check | claims |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", table, re.MULTILINE)
    assert rows == [(check.id, check.claim) for check in CHECKS]


def test_the_table_of_exit_codes_is_what_the_program_returns():
    table = {int(code) for code in re.findall(r"^\| (\d+) \| ", README, re.MULTILINE)}
    kinds = [EnvcheckError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    assert table == {k.exit_code for k in kinds} | {v.exit_code for v in Verdict}


def commands() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?envcheck ", line)]


def test_there_are_commands_to_compare():
    assert len(commands()) >= 5


@pytest.mark.parametrize("line", commands())
def test_every_command_shown_is_one_that_the_parser_takes(line):
    options = cli.build_parser().parse_args(shlex.split(line)[1:])
    assert options.command
