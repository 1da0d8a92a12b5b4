"""That a remedy which is a pip command can be typed: every finding that a test asks for is held to it.

A command ends where `, or` or `;` begins another way. What it asks for must parse, and a release that
it names must be one of the inventory, or stand in a table of envcheck.
"""

from __future__ import annotations

import re
import shlex

from packaging.requirements import Requirement

from envcheck.core import codec, jit_needs, torch_family, torch_releases
from envcheck.core.model import Inventory

_ALONE = {"--upgrade", "--force-reinstall", "--no-deps", "--no-build-isolation"}
_WITH_VALUE = {"--index-url", "--no-binary"}
_INDEX = re.compile(r"https://download\.pytorch\.org/whl/(cpu|cu1[1-9][0-9])")
_TABLES = " ".join(
    [repr(torch_releases.RELEASES), repr(torch_family.TORCHAO), repr(torch_family.TORCHAO_LEAST)]
    + [repr(getattr(jit_needs, name)) for name in dir(jit_needs) if name.isupper()]
    # The series that NumPy 2 ended, and the last PEFT that reads patterns as it once did.
    + ["numpy 2", "peft 0.15"]
)


def commands(remedy: str) -> list[list[str]]:
    """Return the words of each `pip install` in a remedy."""
    parts = re.split(r"; |, or |: (?=pip install)", remedy)
    return [shlex.split(part)[2:] for part in parts if part.startswith("pip install ")]


def require_valid(remedy: str, inventory: Inventory) -> None:
    """Fail for a command that pip would not take, or a release out of nowhere."""
    for words in commands(remedy):
        known = _TABLES + codec.dumps(inventory)
        asked = list(_asked(words))
        assert asked, remedy
        for requirement in asked:
            for one in requirement.specifier:
                version = one.version.removesuffix(".*")
                assert re.search(rf"(?<![0-9.]){re.escape(version)}(?![0-9])", known), remedy


def _asked(words: list[str]):
    rest = iter(words)
    for word in rest:
        if word in _WITH_VALUE:
            value = next(rest)
            assert word != "--index-url" or _INDEX.fullmatch(value), words
        elif word not in _ALONE:
            assert not word.startswith("-"), words
            yield Requirement(word)
