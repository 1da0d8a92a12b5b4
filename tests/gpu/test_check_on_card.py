"""`envcheck check --arch native` as a process, on a real card, with what a user brings along."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from own_python import envcheck_command

from envcheck import catalog
from envcheck.core.driver_facts import DriverCard

pytestmark = pytest.mark.timeout(900)
SETTINGS = """\
kernels = ["kernels"]

[[sizes]]
op = "mm"
dtypes = ["bf16"]
M = 3001
N = 3002
K = 3003

[[extensions]]
name = "good_ops"
smoke = "smoke_good.py:check"
"""
GOOD = """\
import torch

def check():
    x = torch.arange(1000.0, device="cuda")
    assert (x + x).sum().item() == 999000.0
"""
# Every block needs at least (128 + 256) x 64 halves in each of 5 buffers: 245760 bytes, more
# than any card of the catalogue has; the other configuration needs a tenth of that.
KERNEL = """\
kind = "triton"
purpose = "A configuration that fits no card, beside one that fits all."

[dtypes.fp16]
min_sm = "sm_75"
tolerance = { accumulate = "fp32-truncated", source = "as that of matmul" }

[[configs]]
constants = { BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 32, GROUP_M = 8 }
num_warps = 4
num_stages = 2

[[configs]]
constants = { BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 64, GROUP_M = 8 }
num_warps = 8
num_stages = 6

[[shapes]]
M = 512
N = 512
K = 512
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with settings, a package, a smoke test for it and a kernel."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "packages").mkdir()
    (folder / "packages" / "good_ops.py").write_text("")
    (folder / "envcheck.toml").write_text(SETTINGS)
    (folder / "smoke_good.py").write_text(GOOD)
    kernel = folder / "kernels" / "too_large"
    kernel.mkdir(parents=True)
    shutil.copy(catalog.shipped() / "matmul" / "kernel.py", kernel)
    (kernel / "kernel.toml").write_text(KERNEL)
    return folder


def check(folder: Path, *words: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Run the command there; returns its exit code, the report and the inventory."""
    inventory = folder / "inventory.json"
    here = os.getcwd()
    os.chdir(folder)
    try:
        done = envcheck_command(
            folder / "packages",
            *("check", "--arch", "native", "--format", "json"),
            *("--save-inventory", inventory, *words),
        )
    finally:
        os.chdir(here)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), json.loads(inventory.read_text())


@pytest.fixture(scope="module")
def whole(card: DriverCard, folder: Path) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Return what a check of everything gives, with time enough."""
    pytest.importorskip("torch", reason="what runs on the card is PyTorch's")
    return check(folder, "--budget", "5m")


def test_a_good_environment_is_compatible_and_executed(whole, card: DriverCard) -> None:
    code, report, _ = whole
    bad = [f for f in report["findings"] if f["status"] in ("fail", "error")]
    assert [(f["check"], f["subject"], f["message"]) for f in bad] == []
    assert (code, report["verdict"], report["assurance"]) == (0, "compatible", "executed")
    assert report["target"]["card"] == card.name
    assert report["summary"]["executed"]["left_out"] == 0
    assert report["summary"]["executed"]["runs"]["ops"] > 700


def test_prediction_and_outcome_agree_for_every_configuration(whole) -> None:
    _, report, _ = whole
    rows = {
        f["subject"]: f["evidence"]["configurations"]
        for f in report["findings"]
        if f["check"] == "triton-kernels-match-reference" and f["required"]
    }
    assert len(rows) > 5
    outcomes = {(r["predicted"], r["outcome"]) for each in rows.values() for r in each}
    assert outcomes <= {("fits", "ran"), ("does not fit", "did not fit")}
    small, large = sorted(rows["too_large"], key=lambda r: r["bytes"])
    assert (small["predicted"], small["outcome"]) == ("fits", "ran")
    assert (large["predicted"], large["outcome"]) == ("does not fit", "did not fit")
    assert large["bytes"] >= 245760


def test_sizes_of_the_job_are_compared_with_a_reference_on_the_card(whole) -> None:
    _, _, facts = whole
    mine = [r for r in facts["executed"]["runs"] if r["case"] == "M=3001 N=3002 K=3003"]
    assert {(r["op"], r["dtype"], r["direction"]) for r in mine} == {
        ("mm", "bf16", "forward"),
        ("mm", "bf16", "backward"),
    }
    for run in mine:
        assert {o["reference"] for o in run["outputs"]} == {"cuda"}
        assert 0 < max(o["worst"] for o in run["outputs"]) <= 1


def test_what_the_user_named_was_called_on_the_card(whole) -> None:
    _, report, facts = whole
    (found,) = (f for f in report["findings"] if f["subject"] == "smoke_good.py:check")
    assert (found["check"], found["status"]) == ("extensions-match-reference", "pass")
    (run,) = (r for r in facts["executed"]["runs"] if r["op"] == "smoke_good.py:check")
    assert run["watched"]
    assert any(not k.startswith(("Memcpy", "Memset")) for k in run["kernels"])


BAD = {
    "elsewhere": ("torch.ones(9).sum()", "nothing-falls-back", "it was computed elsewhere"),
    "raising": ("raise ValueError('no kernel for this head')", "extensions-match-reference",
                "ValueError: no kernel for this head"),
    "ending": ("import os; os._exit(3)", "extensions-match-reference", "ended with code 3"),
    "lying": ("torch.ones(9, device='cuda').sum(); return False", "extensions-match-reference", "to the last bit"),
    "leaking": ("KEPT.append(torch.ones(1 << 20, device='cuda'))", "device-memory-is-returned",
                "every call keeps"),
}  # fmt: skip


def test_each_bad_extension_is_caught_as_what_it_is(card: DriverCard, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="what runs on the card is PyTorch's")
    (tmp_path / "smoke_good.py").write_text(GOOD)
    smoke = '[[extensions]]\nname = "{0}_ops"\nsmoke = "smoke_{0}.py:check"\n'
    for name, (body, _, _) in BAD.items():
        text = f"import torch\nKEPT = []\n\ndef check():\n    {body}\n"
        (tmp_path / f"smoke_{name}.py").write_text(text)
    (tmp_path / "envcheck.toml").write_text("".join(map(smoke.format, (*BAD, "good"))))
    asked = ("extensions-match-reference", "nothing-falls-back", "device-memory-is-returned")
    code, report, _ = check(tmp_path, *(w for name in asked for w in ("--only", name)))
    bad = {f["subject"]: f for f in report["findings"] if f["status"] in ("fail", "error")}
    assert code == 10
    assert {subject: f["check"] for subject, f in bad.items()} == {
        f"smoke_{name}.py:check": check_id for name, (_, check_id, _) in BAD.items()
    }
    for name, (_, _, words) in BAD.items():
        assert words in bad[f"smoke_{name}.py:check"]["message"]


def test_the_same_seed_gives_the_same_bytes(card: DriverCard, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="what runs on the card is PyTorch's")
    digests = []
    for seed in ("5", "5", "6"):
        words = ("--only", "core-ops-match-reference", "--budget", "30s", "--seed", seed)
        _, _, facts = check(tmp_path, *words)
        digests.append(
            {
                (r["op"], r["dtype"], r["case"], r["direction"], o["output"]): o["sha256"]
                for r in facts["executed"]["runs"]
                for o in r["outputs"]
                if r["deterministic"] and "zeros" not in r["case"] and "ones" not in r["case"]
            }
        )
    first, again, other = digests
    both = first.keys() & again.keys()
    assert len(both) > 100
    assert [key for key in both if first[key] != again[key]] == []
    both = first.keys() & other.keys()
    assert sum(first[key] != other[key] for key in both) > len(both) / 2
