"""Every row that a real card decided, decided the same way from bytes alone.

`tests/data/truth` and `truth-extra` hold what an NVIDIA H200 (sm_90, driver 580.159.04) did with
each object: `ok`, or how the load or the launch ended. Where the bytes cannot tell, the rows
are named here, and what is said of them instead.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inventories import DATA, judged, read, scanned

from envcheck.core.model import Finding, Report, Status, Verdict

ROWS: list[tuple[Path, str]] = []
KERNELS: dict[str, dict[str, str]] = {}
GROUPS: dict[str, list[str]] = {}
for _folder in ("truth", "truth-extra"):
    _document = json.loads((DATA / _folder / "h200.json").read_text())
    assert (_document["sm"], _document["driver"]) == ("sm_90", "580.159.04")
    ROWS += [(DATA / _folder / "objects" / n, r) for n, r in _document["results"].items()]
    KERNELS |= _document.get("kernels", {})
    GROUPS |= _document.get("notes", {}).get("not_decided_by_the_union_of_entries", {})

RESULTS = {path.name: result for path, result in ROWS}

# The code is there and fits; the launch fails, or computes wrong numbers, for another reason.
UNDECIDABLE = {
    *GROUPS["not_architecture"],
    *GROUPS["instruction_needs_another_target"],
    # Two static kernels of one name in two objects: which of them the host calls is not told.
    "same_80__90.so",
    "same_90__80.so",
}
# Neither verdict: there is no code in the file, or it is no file of its format.
NOTHING = {
    *("one_empty.fatbin", "one_empty.so", "one_stub75.fatbin", "one_stub75.so"),
    *("ptx_bom.ptx", "ptx_no_target.ptx", "ptx_no_version.ptx"),
}
# The header says one thing and the payload another.
LYING = {p.name for p, _ in ROWS if p.name.startswith("head_")} - {
    # Except the suffix `a`, at which the card does not look either.
    *("head_h90_is_s90a.fatbin", "head_h90a_is_s90.fatbin", "head_h90a_is_s90.so"),
    *("head_hp90_is_p90a.fatbin", "head_hp90a_is_p90.fatbin", "head_h90f_is_s90.fatbin"),
}
NO_KERNEL = set(GROUPS["no_kernel_to_cover"])
DECIDED = [(p, r) for p, r in ROWS if p.name not in UNDECIDABLE | LYING | NO_KERNEL | NOTHING]


def _ids(rows: list[tuple[Path, str]]) -> list[str]:
    return [path.name for path, _ in rows]


def _judge(path: Path) -> Report:
    return judged(scanned(read(path)), "sm_90", "580.159.04")


def _finding(report: Report, check: str) -> Finding:
    (found,) = (f for f in report.findings if f.check == check)
    return found


def test_the_rows_are_all_there() -> None:
    assert len([p for p, _ in ROWS if p.parts[-3] == "truth"]) >= 79
    assert len([p for p, _ in ROWS if p.parts[-3] == "truth-extra"]) >= 183
    assert len(DECIDED) >= 220
    assert {p.name for p, _ in ROWS} >= UNDECIDABLE | LYING | NO_KERNEL | NOTHING
    assert set(GROUPS["payload_unlike_header"]) <= LYING


@pytest.mark.parametrize(("path", "result"), DECIDED, ids=_ids(DECIDED))
def test_verdict_agrees_with_the_card(path: Path, result: str) -> None:
    report = _judge(path)
    expected = Verdict.COMPATIBLE if result == "ok" else Verdict.INCOMPATIBLE
    assert report.verdict is expected, report.summary["line"]


@pytest.mark.parametrize("name", sorted(NOTHING))
def test_what_holds_no_code_is_refused_by_the_card_and_inconclusive_here(name: str) -> None:
    assert RESULTS[name] != "ok"
    assert _judge(DATA / "truth-extra" / "objects" / name).verdict is Verdict.INCONCLUSIVE


FILE_ROWS = [(p, r) for p, r in DECIDED if p.name not in KERNELS]
LINK_ROWS = set(GROUPS["relocatable_callee_left_out"])


@pytest.mark.parametrize(
    ("path", "result"),
    [(p, r) for p, r in FILE_ROWS if p.name not in LINK_ROWS],
    ids=[p.name for p, _ in FILE_ROWS if p.name not in LINK_ROWS],
)
def test_file_passes_exactly_where_the_card_runs_it(path: Path, result: str) -> None:
    finding = _finding(_judge(path), "device-code-runs-on-target")
    assert (finding.status is Status.PASS) is (result == "ok"), finding.message
    if "UNSUPPORTED_PTX_VERSION" in result:
        assert finding.evidence["reason"] == "ptx-newer-than-driver"


NAMED = {name: rows for name, rows in KERNELS.items() if name not in UNDECIDABLE}


@pytest.mark.parametrize("name", NAMED)
def test_kernels_that_the_card_cannot_launch_are_named(name: str) -> None:
    report = _judge(DATA / "truth-extra" / "objects" / name)
    failing = sorted(kernel for kernel, result in NAMED[name].items() if result != "ok")
    of_file = _finding(report, "device-code-runs-on-target")
    if len(failing) == len(NAMED[name]):
        assert of_file.status is Status.FAIL
        return
    assert of_file.status is Status.PASS
    of_kernels = _finding(report, "every-kernel-runs-on-target")
    assert of_kernels.status is Status.FAIL
    assert list(of_kernels.evidence["kernels"]) == failing


@pytest.mark.parametrize("name", sorted(LYING))
def test_no_file_whose_header_lies_passes_where_the_card_refuses_it(name: str) -> None:
    finding = _finding(
        _judge(DATA / "truth-extra" / "objects" / name), "device-code-runs-on-target"
    )
    assert finding.status is Status.ERROR, f"{RESULTS[name]}: {finding.message}"
    assert "fatbin payload at" in finding.message


@pytest.mark.parametrize("name", sorted(UNDECIDABLE))
def test_what_bytes_cannot_tell_is_claimed_to_be_there_and_no_more(name: str) -> None:
    report = _judge(DATA / "truth-extra" / "objects" / name)
    finding = _finding(report, "device-code-runs-on-target")
    assert finding.status is Status.PASS
    assert report.assurance.value == "scanned"


@pytest.mark.parametrize("name", sorted(NO_KERNEL))
def test_a_file_without_kernels_is_skipped_and_proves_nothing(name: str) -> None:
    report = _judge(DATA / "truth-extra" / "objects" / name)
    finding = _finding(report, "device-code-runs-on-target")
    assert (finding.status, finding.required) == (Status.SKIP, False)
    assert report.verdict is Verdict.INCONCLUSIVE
