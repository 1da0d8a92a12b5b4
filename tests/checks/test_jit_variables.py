"""The variables of the driver's compiler, against files of which a real card said what they do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import inventories
import pytest
from inventories import DATA, device_file

from envcheck.core.distribution import Distribution
from envcheck.core.model import Finding
from envcheck.guest import collect

CHECK = "jit-variables-leave-code"
TRUTH = json.loads((DATA / "truth-extra" / "h200.json").read_text())["differs_with"]
NATIVE = device_file("a/lib.so", "s90")
PTX = device_file("b/lib.so", "p80:8.4")
BOTH = device_file("c/lib.so", "s90 p90:8.4")


def ask(*files: object, sm: str = "sm_90", **variables: str) -> list[Finding]:
    names = [
        Distribution(name=f.path[0], version="1.0", record_digest=None, files=(f.path,))
        for f in files
    ]  # type: ignore[attr-defined]
    made = inventories.environment(*files, distributions=tuple(names), variables=variables)  # type: ignore[arg-type]
    return inventories.ask(CHECK, made, sm)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("CUDA_DISABLE_PTX_JIT", "fail", "b 1.0: b/lib.so, with nothing but PTX for sm_90, ends with error 223"),
        ("CUDA_DISABLE_JIT", "fail", "b 1.0: b/lib.so, with nothing but PTX for sm_90, ends with error 223"),
        ("CUDA_FORCE_PTX_JIT", "fail", "a 1.0: a/lib.so, without PTX for sm_90, ends with error 209"),
        ("CUDA_FORCE_JIT", "fail", "a 1.0: a/lib.so, without PTX for sm_90, ends with error 209"),
        ("CUDA_CACHE_DISABLE", "warn", "b 1.0: b/lib.so, with nothing but PTX for sm_90, is compiled anew"),
    ],
)  # fmt: skip
def test_a_variable_and_the_file_that_it_takes_away_are_named(
    name: str, status: str, said: str
) -> None:
    (finding,) = ask(NATIVE, PTX, BOTH, **{name: "1"})
    assert (finding.status.value, finding.remedy) == (status, f"unset {name}")
    assert finding.message.startswith(said)
    (off,) = ask(NATIVE, PTX, BOTH, **{name: "0"})
    assert off.status.value == "pass"
    (both,) = ask(BOTH, **{name: "1"})
    assert both.status.value == "pass"
    (odd,) = ask(NATIVE, PTX, **{name: "yes"})
    assert odd.status.value == "warn"


def test_code_for_the_card_that_is_asked_for_counts() -> None:
    (finding,) = ask(BOTH, sm="sm_120", CUDA_DISABLE_PTX_JIT="1")
    assert finding.status.value == "fail"
    assert "sm_120" in finding.message


@pytest.mark.parametrize("setting", ["CUDA_DISABLE_PTX_JIT=1", "CUDA_FORCE_PTX_JIT=1"])
def test_whole_files_end_as_they_did_on_the_card(setting: str) -> None:
    """Each library that was measured and lies here, but for those with headers that are not true."""
    name, _, value = setting.partition("=")
    end = {
        "CUDA_DISABLE_PTX_JIT": "JIT_COMPILATION_DISABLED",
        "CUDA_FORCE_PTX_JIT": "NO_BINARY_FOR_GPU",
    }[name]
    seen = 0
    for file, answer in TRUTH[setting].items():
        paths = list(DATA.glob(f"truth*/objects/{file}"))
        linked = file.endswith(".so") and "head_" not in file
        if not paths or not linked or end not in str(answer):
            continue
        seen += 1
        (finding,) = ask(inventories.read(paths[0], "a/lib.so"), **{name: value})
        # Two objects are linked in it, one of PTX and one of machine code.
        mixed = "_p80__s90" in file
        assert finding.status.value == ("warn" if mixed else "fail"), file
    assert seen > 5


def test_without_a_variable_or_code_nothing_is_claimed() -> None:
    assert [f.status.value for f in ask(NATIVE)] == ["skip"]
    (finding,) = ask(CUDA_FORCE_JIT="1")
    assert (finding.status.value, finding.required) == ("skip", False)


def test_the_guest_hands_them_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("CUDA_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_FORCE_PTX_JIT", "1")
    environment = collect.collect([str(tmp_path)], read=False).environment
    assert environment.variables == {"CUDA_FORCE_PTX_JIT": "1"}


def test_what_only_gpudirect_storage_needs_fails_nothing() -> None:
    file = device_file("nvidia/cufile/libcufile.so", "p80:8.4")
    named = Distribution(
        name="nvidia-cufile", version="1.15", record_digest=None, files=(file.path,)
    )
    made = inventories.environment(
        file, distributions=(named,), variables={"CUDA_DISABLE_PTX_JIT": "1"}
    )
    (finding,) = inventories.ask(CHECK, made, "sm_90")
    assert finding.status.value == "warn"
    assert "nvidia-cufile 1.15" in finding.message
