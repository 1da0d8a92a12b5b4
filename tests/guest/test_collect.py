"""Which folders and files are an environment's; whole environments are in tests/engine."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from envcheck import bundle
from envcheck.guest import collect, nvidia_module, site_paths


def test_the_standard_library_is_no_site_folder(tmp_path: Path) -> None:
    standard = sysconfig.get_path("stdlib")
    dynamic = os.path.join(sysconfig.get_path("platstdlib"), "lib-dynload")
    path = ["", standard, dynamic, str(tmp_path), str(tmp_path / "gone"), "/x/python311.zip"]
    assert site_paths.site_folders(path) == [str(tmp_path)]


def test_each_folder_counts_once_in_the_order_of_the_path(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (tmp_path / "alias").symlink_to(one)
    path = [str(two), str(tmp_path / "alias"), str(one), f"{two}/"]
    assert site_paths.site_folders(path) == [str(two), str(one)]


def places(*folders: Path) -> list[str]:
    found = [p.absolute for p in collect._places(dict.fromkeys(map(str, folders)), ())]
    assert len(found) == len(set(found))
    return found


def put(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return str(path)


def test_a_folder_inside_another_is_walked_once(tmp_path: Path) -> None:
    outer, inner = tmp_path, tmp_path / "src"
    first, second = put(outer / "a.so"), put(inner / "b.so")
    assert places(outer, inner) == [first, second]
    assert places(inner, outer) == [second, first]


@pytest.mark.parametrize("name", ["__pycache__", ".git", "node_modules", ".venv", "venv"])
def test_folders_that_are_no_packages_are_not_walked(tmp_path: Path, name: str) -> None:
    put(tmp_path / name / "deep" / "x.so")
    kept = put(tmp_path / "pkg" / "x.so")
    assert places(tmp_path) == [kept]


def test_a_single_module_that_two_folders_have_is_the_first(tmp_path: Path) -> None:
    first = put(tmp_path / "one" / "_C.so")
    put(tmp_path / "two" / "_C.so")
    assert places(tmp_path / "one", tmp_path / "two") == [first]


def test_a_folder_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = put(tmp_path / "a" / "x.so")
    put(tmp_path / "shut" / "y.so")
    real = os.scandir

    def scandir(path: str) -> object:
        if os.path.basename(path) == "shut":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert places(tmp_path) == [kept, str(tmp_path / "shut")]


def test_the_driver_is_read_from_what_the_kernel_module_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "version"
    monkeypatch.setattr(nvidia_module, "_FILES", (str(said),))
    assert nvidia_module.version() is None
    said.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x)\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    assert nvidia_module.version() == "580.65.06"
    said.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.42.01  Tue Jun 15\n")
    assert nvidia_module.version() == "470.42.01"
    said.write_bytes(b"\xff\xff")
    assert nvidia_module.version() is None


# What is staged into a foreign environment


def test_the_bundle_is_the_guest_and_the_core_and_nothing_else(tmp_path: Path) -> None:
    entry = bundle.stage(tmp_path)
    assert entry == tmp_path / "envcheck" / "guest" / "__main__.py"
    staged = {p.relative_to(tmp_path).parts[1] for p in tmp_path.rglob("*.py")}
    assert staged == {"__init__.py", "errors.py", "core", "guest"}


def test_a_guest_that_is_asked_something_unknown_refuses(tmp_path: Path) -> None:
    entry = bundle.stage(tmp_path / "bundle")
    (tmp_path / "request.json").write_text('{"schema": "envcheck/request/v2"}')
    done = subprocess.run(
        [sys.executable, str(entry), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "unknown request schema: 'envcheck/request/v2'" in done.stderr
    assert not (tmp_path / "inventory.json").exists()


def test_a_guest_answers_in_its_file_and_says_nothing(tmp_path: Path) -> None:
    entry = bundle.stage(tmp_path / "bundle")
    (tmp_path / "request.json").write_text('{"schema": "envcheck/request/v1", "read": true}')
    done = subprocess.run(
        [sys.executable, str(entry), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert '"schema": "envcheck/collected/v1"' in (tmp_path / "inventory.json").read_text()


def test_a_mask_of_our_own_is_no_choice_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    expected = {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert collect._variables() == expected
    monkeypatch.setenv("ENVCHECK_CARDS_HIDDEN", "1")
    assert collect._variables() == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
