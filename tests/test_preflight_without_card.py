"""`envcheck preflight` as its users run it, where no card can be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_driver import fake, words
from running import envcheck

__all__ = ["fake"]
UUID = "GPU-712d216e-9dbf-7499-bf71-e7ce8743abe8"
NO_DEVICE = 100


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    assert envcheck("keygen", "-q", "-o", path).returncode == 0
    return path


def preflight(*more: str | Path, **env: str) -> tuple[int, str, str]:
    done = envcheck("preflight", "--quick", "--expect", "h200", *more, env=env)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("extra", [(), ("--keep-going",)])
def test_a_machine_to_give_back_is_told_so_with_and_without_a_manifest(
    fake: Path, key: Path, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    """Nothing of an environment is known where no time was spent on it: no manifest, but a word."""
    manifest = tmp_path / "manifest.json"
    code, out, said = preflight(
        *extra, "--sign", key, "-o", manifest, **words(fake, init=NO_DEVICE)
    )
    assert code == 10
    assert out.splitlines()[-1].startswith("give back: driver: ")
    assert manifest.exists() is bool(extra)
    assert ("was not written" in said) is not bool(extra)
    if extra:
        verified = envcheck("verify", manifest, "--key", key.with_suffix(".pub"))
        assert verified.stdout.splitlines()[-1] == f"signed decision: {out.splitlines()[-1]}"
        job = ("guard", "--manifest", manifest, "--key", key.with_suffix(".pub"), "--")
        started = tmp_path / "started"
        done = envcheck(*job, "python3", "-c", f"open({str(started)!r}, 'w')")
        assert (done.returncode, started.exists()) == (10, False)


def test_a_file_that_cannot_be_kept_costs_nobody_the_decision(
    fake: Path, key: Path, tmp_path: Path
) -> None:
    (tmp_path / "facts.json").mkdir()
    kept = ("--save-inventory", tmp_path / "facts.json")
    code, out, said = preflight(*kept, **words(fake, init=NO_DEVICE))
    assert code != 0
    assert "give back: driver: " in out
    assert "facts.json" in said


@pytest.mark.parametrize("words_of_it", [("--redact",), ("--format", "markdown")])
def test_no_name_is_printed_or_kept_where_names_are_hidden(
    fake: Path, tmp_path: Path, words_of_it: tuple[str, ...]
) -> None:
    """What is said while it goes on is told from the same facts as what is said in the end."""
    facts = tmp_path / "facts.json"
    told = words(fake, init=NO_DEVICE) | {"CUDA_VISIBLE_DEVICES": UUID}
    _, out, said = preflight("-v", "--save-inventory", facts, *words_of_it, **told)
    assert "CUDA_VISIBLE_DEVICES=GPU-redacted-" in said.replace("\\", "")
    assert "GPU-redacted-" in json.loads(facts.read_text())["machine"]["cards"]["visible"]
    for text in (out, said, facts.read_text()):
        assert "712d216e" not in text
    shown = preflight("--no-redact", **told)
    assert UUID in shown[1]
    assert UUID in shown[2]


@pytest.mark.parametrize(
    ("env", "back"),
    [({}, True), ({"CUDA_VISIBLE_DEVICES": "7"}, False), ({"FAKE_INIT": "34"}, False)],
)
def test_what_is_to_be_judged_for_is_not_known_where_no_card_is(
    fake: Path, env: dict[str, str], *, back: bool
) -> None:
    """A variable of the job, or its image, is no reason to give a machine back."""
    done = envcheck("preflight", env=words(fake, init=NO_DEVICE) | env)
    assert (done.returncode, done.stdout) == (3, "")
    assert ("error: give back: " in done.stderr) is back
