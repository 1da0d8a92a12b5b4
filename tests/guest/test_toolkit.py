"""Which CUDA made a file's code: the files say in their names which nvcc or ptxas it was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envcheck.core import cuda
from envcheck.core.model import Inventory, Target
from envcheck.guest import cubin, device_code, elf
from envcheck.inflate import inflate
from envcheck.judge import judge

OBJECTS = Path(__file__).parents[1] / "data" / "truth" / "objects"
CUBINS = sorted(OBJECTS.glob("*.cubin"))


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.name)
def test_a_cubin_names_the_release_of_its_assembler(path):
    release, number = re.match(r"cu([\d.]+)__rawsass_(\d+)", path.name).groups()
    # CUDA 12.8 wrote the new ELF ABI for sm_100 and newer, and no release into it.
    silent = release == "12.8" and int(number) >= 100
    data = path.read_bytes()
    assert cubin.toolkit(data, elf.read(data)) == (None if silent else release)


def test_there_are_cubins_of_four_releases():
    assert {p.name.partition("__")[0] for p in CUBINS} >= {"cu11.8", "cu12.4", "cu12.8", "cu13.0"}


def library():
    """Return a library that nvcc 13.0 made for sm_80, with its runtime linked in."""
    data = (OBJECTS / "nordc_s80.so").read_bytes()
    file = device_code.read(data, path="x.so", inflate=inflate)
    assert not any(name.startswith("libcudart") for name in file.needed)
    return file


def driver_finding(driver):
    inventory = Inventory(source="files", files=(library(),))
    target = Target(name="ampere", sm="sm_80")
    report = judge(target, inventory, driver and cuda.parse_version(driver))
    (finding,) = (f for f in report.findings if f.check == "driver-supports-target")
    return finding


@pytest.mark.parametrize(
    ("driver", "status"),
    [("570.26", "fail"), ("580.65.05", "fail"), ("580.65.06", "pass"), (None, "pass")],
)
def test_a_runtime_that_is_linked_in_has_the_floor_of_its_major(driver, status):
    finding = driver_finding(driver)
    assert finding.status == status
    # CUDA 13.x needs 580.65.06: release notes, table 2.
    assert finding.evidence["least_driver"] == "580.65.06"
