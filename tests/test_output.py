"""Reports as text, JSON and on a terminal, from values made by hand."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from envcheck.core.model import Assurance, Domain, Finding, Report, Status, Target, Verdict
from envcheck.output import json as as_json
from envcheck.output import markdown as as_markdown
from envcheck.output import text as as_text
from envcheck.output.visible import visible

FILES = "device-code-runs-on-target"


def finding(
    subject: str, status: str = "pass", mode: str | None = "native", **more: Any
) -> Finding:
    fields: dict[str, Any] = {
        "check": FILES,
        "message": "machine code for sm_89",
        "domain": Domain.PACKAGE,
        "evidence": {} if mode is None else {"mode": mode},
    }
    return Finding(subject=subject, status=Status(status), **{**fields, **more})


def report(*findings: Finding, verdict: str = "compatible", name: str = "ada") -> Report:
    return Report(
        target=Target(name=name, sm="sm_89"),
        driver=None,
        verdict=Verdict(verdict),
        assurance=Assurance.SCANNED,
        findings=findings,
        summary={"line": f"{verdict} with {name} (sm_89)"},
    )


class Terminal(io.StringIO):
    """A stream that says that a person reads it."""

    def isatty(self) -> bool:
        return True


def rendered(*reports: Report, verbosity: int = 0) -> list[str]:
    stream = io.StringIO()
    as_text.render(reports, stream, verbosity=verbosity)
    return stream.getvalue().splitlines()


def on_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, *reports: Report, verbosity: int = 0
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    as_text.render(reports, stream, verbosity=verbosity)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()


def rows(lines: list[str]) -> list[list[str]]:
    """Split rows into their cells, which at least two spaces part."""
    return [re.split(r" {2,}", line) for line in lines]


def test_a_row_says_how_which_file_and_why() -> None:
    lines = rendered(
        report(
            finding("a.so"),
            finding("longer-name.so", mode="jit", message="JIT-only: compute_80 PTX"),
            finding("b.so", "fail", "none", message="no code for sm_89"),
            finding("c.so", "error", "none", message="cannot be judged"),
            verdict="incompatible",
        )
    )
    assert rows(lines[:6]) == [
        ["ada (sm_89)"],
        ["code", "file", "why"],
        ["native", "a.so", "machine code for sm_89"],
        ["JIT", "longer-name.so", "JIT-only: compute_80 PTX"],
        ["missing", "b.so", "no code for sm_89"],
        ["error", "c.so", "cannot be judged"],
    ]
    assert lines[-1] == "incompatible with ada (sm_89)"


def test_the_columns_stand_under_each_other() -> None:
    lines = rendered(report(finding("a.so"), finding("longer-name.so", "fail", "none")))
    starts = {line.index("machine") for line in lines if "machine" in line}
    assert len(starts) == 1
    assert lines[1].index("why") in starts


def test_a_remedy_stands_once_whole_and_numbered_where_it_applies() -> None:
    command = "pip install --upgrade 'torch>=2.8.0' " + "x" * 100
    lines = rendered(
        report(
            finding("a.so", "fail", "none", remedy=command),
            finding("b.so", "fail", "none", remedy="wait"),
            finding("c.so", "fail", "none", remedy=command),
        )
    )
    assert [line.rsplit(" ", 1)[1] for line in lines[2:5]] == ["[1]", "[2]", "[1]"]
    assert [line.strip() for line in lines[5:7]] == [f"[1]  {command}", "[2]  wait"]


def test_a_remedy_is_not_broken_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "pip install " + " ".join(f"package-{n}" for n in range(30))
    lines = on_terminal(monkeypatch, 80, report(finding("a.so", "fail", "none", remedy=command)))
    assert any(command in line for line in lines)


def test_members_stand_under_their_archive() -> None:
    lines = rendered(
        report(
            finding("w.whl!/torch/a.so"),
            finding("w.whl!/torch/b.so"),
            finding("x.zip!/y.whl!/c.so"),
        )
    )
    assert lines[2] == "w.whl!/"
    assert [row[1] for row in rows(lines[3:5])] == ["torch/a.so", "torch/b.so"]
    assert lines[5] == "x.zip!/y.whl!/"
    assert rows(lines[6:7])[0][1] == "c.so"


def test_files_stand_under_the_folder_they_share() -> None:
    lines = rendered(report(finding("/env/lib/p/a.so"), finding("/env/lib/q/b.so")))
    assert lines[2] == "/env/lib/"
    assert [row[1] for row in rows(lines[3:5])] == ["p/a.so", "q/b.so"]


@pytest.mark.parametrize(
    "subjects",
    [
        ["/a/x.so", "b/y.so"],
        ["/a/x.so", "/b/y.so"],
        ["x.so", "y.so"],
        ["/only/one.so"],
        ["/x", "/x/y"],
    ],
)
def test_files_that_share_no_folder_keep_their_paths_findable(subjects: list[str]) -> None:
    lines = rendered(report(*map(finding, subjects)))
    body = lines[2:-2]
    heading = "" if body[0].startswith("native") else body.pop(0)
    assert [heading + row[1] for row in rows(body)] == subjects


@pytest.mark.parametrize("columns", [80, 120])
def test_a_long_path_loses_its_front_and_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    path = "w.whl!/" + "deep/" * 30 + "libname.so"
    lines = on_terminal(monkeypatch, columns, report(finding(path)))
    (row,) = [line for line in lines if line.startswith("native")]
    assert re.search(r"  …(/deep)+/libname\.so  ", row)
    assert len(row) <= columns
    verbose = on_terminal(monkeypatch, columns, report(finding(path)), verbosity=1)
    joined = "".join(line[9:].split("  ")[0].strip() for line in verbose)
    assert "deep/" * 30 + "libname.so" in joined


@pytest.mark.parametrize("columns", [60, 80])
def test_what_tells_two_long_paths_apart_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    paths = [f"/data/{name}/adapter_model.safetensors" for name in ("first-run", "second-run")]
    told = [finding(p, Status.FAIL, check="adapter-will-load") for p in paths]
    shown = "".join(on_terminal(monkeypatch, columns, report(*told, verdict="incompatible")))
    assert "first-run" in shown
    assert "second-run" in shown


def test_many_native_files_give_way_to_what_needs_attention() -> None:
    many = [finding(f"{n}.so") for n in range(100)]
    bad = finding("bad.so", "fail", "none")
    lines = rendered(report(*many[:50], bad, *many[50:]))
    body = [line for line in lines if line.startswith(("native", "missing"))]
    assert len(body) == 2
    assert body[0].startswith("missing  bad.so")
    assert "100 more" in body[1]
    verbose = rendered(report(*many, bad), verbosity=1)
    assert sum(line.startswith("native") for line in verbose) == 100


def test_skipped_files_are_hidden_unless_there_is_nothing_else() -> None:
    skip = finding("text.so", "skip", None, message="no device code")
    assert not any("text.so" in line for line in rendered(report(skip, finding("a.so"))))
    assert any("text.so" in line for line in rendered(report(skip, finding("a.so")), verbosity=1))
    assert any("no device code" in line for line in rendered(report(skip)))


def test_other_checks_are_named_where_they_found_something_bad() -> None:
    good = finding("driver", mode=None, check="driver-supports-target", message="fine")
    bad = finding(
        "triton 3.2", "fail", None, check="triton-assembler-knows-target", message="too old"
    )
    lines = rendered(report(finding("a.so"), good, bad))
    at = lines.index("triton-assembler-knows-target")
    assert rows([lines[at + 1]]) == [["fail", "triton 3.2", "too old"]]
    assert "driver-supports-target" not in lines
    assert "driver-supports-target" in rendered(report(finding("a.so"), good, bad), verbosity=1)


def test_what_does_not_decide_is_not_shown_as_trouble_of_another_check() -> None:
    aside = finding("x", "fail", None, check="every-kernel-runs-on-target", required=False)
    assert "every-kernel-runs-on-target" not in rendered(report(finding("a.so"), aside))


def test_packages_stand_in_the_table_of_an_environment() -> None:
    package = finding(
        "torch 2.14.1", check="distribution-runs-on-target", message="native: 3 files"
    )
    lines = rendered(report(finding("torch/lib/a.so"), package))
    assert rows(lines[1:3]) == [
        ["code", "package", "why"],
        ["native", "torch 2.14.1", "native: 3 files"],
    ]
    assert not any("a.so" in line for line in lines)


def test_files_that_a_package_speaks_for_are_told_once() -> None:
    package = finding(
        "pkg 1",
        "fail",
        check="distribution-runs-on-target",
        message="missing: 1 of 1",
        evidence={"mode": "none", "files": {"none": ("pkg/a.so",)}},
    )
    missing = finding("pkg/a.so", "fail", "none")
    broken = finding("pkg/b.so", "error", "none", message="cannot be judged")
    lines = rendered(report(missing, broken, package))
    assert not any("a.so" in line for line in lines)
    assert lines[lines.index(FILES) + 1].startswith("error    pkg/b.so")
    assert any("a.so" in line for line in rendered(report(missing, broken, package), verbosity=1))


def test_what_does_not_decide_needs_no_remedy() -> None:
    aside = finding("extra.so", "fail", "none", required=False, remedy="rebuild everything")
    assert not any("rebuild" in line for line in rendered(report(finding("a.so"), aside)))


def test_all_verdicts_come_last_in_the_order_of_the_targets() -> None:
    lines = rendered(report(finding("a.so")), report(finding("a.so"), name="rtx-4090"))
    assert lines[-2:] == ["compatible with ada (sm_89)", "compatible with rtx-4090 (sm_89)"]
    assert rendered(report(finding("a.so")), verbosity=-1) == ["compatible with ada (sm_89)"]


def test_markup_in_names_is_only_text() -> None:
    lines = rendered(report(finding("[bold]a[/bold].so", message="[red]why[/]", remedy="[x] [/y]")))
    assert rows(lines[2:3]) == [["native", "[bold]a[/bold].so", "[red]why[/] [1]"]]
    assert "[x] [/y]" in lines[3]


@given(st.text())
def test_visible_text_is_one_printable_line(text: str) -> None:
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    shown.encode("utf-8")


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(st.text(), st.text(), st.text(), st.integers(min_value=30, max_value=200))
def test_any_text_of_a_report_can_be_rendered(
    subject: str, message: str, remedy: str, columns: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        value = report(finding(subject, "fail", "none", message=message, remedy=remedy))
        for verbosity in (-1, 0, 1):
            lines = on_terminal(patch, columns, value, verbosity=verbosity)
            assert lines[-1].endswith("(sm_89)")


def test_json_is_one_report_or_several_under_one_schema() -> None:
    one = report(finding("a.so"))
    assert json.loads(as_json.render([one]))["schema"] == "envcheck/report/v1"
    both = json.loads(as_json.render([one, one]))
    assert both["schema"] == "envcheck/reports/v1"
    assert both["reports"] == [json.loads(as_json.render([one]))] * 2


def test_json_never_holds_what_json_does_not_know() -> None:
    with pytest.raises(ValueError, match="JSON"):
        as_json.render([report(finding("a.so", evidence={"mode": "native", "x": float("nan")}))])


def test_markdown_names_what_wants_something_done_and_nothing_breaks_out_of_a_cell() -> None:
    bad = finding("a|b.so", "fail", message="no `code` for\nsm_89 <b>", remedy="pip install 'x>=1'")
    lines = as_markdown.render([report(bad, finding("c.so"), verdict="incompatible")]).splitlines()
    assert lines[0] == "## ada (sm_89): incompatible"
    rows = [line for line in lines if line.startswith("| fail")]
    assert len(rows) == 1
    cells = re.split(r"(?<!\\)\|", rows[0])
    assert [c.strip() for c in cells[1:-1]] == [
        "fail",
        FILES,
        r"a\|b.so",
        r"no \`code\` for sm\_89 \<b\>",
        r"`pip install 'x>=1'`",
    ]
    assert not any("c.so" in line for line in lines)
    assert any(
        "c.so" in line
        for line in as_markdown.render([report(bad, finding("c.so"))], verbose=True).splitlines()
    )


OF_STRANGERS = (
    "a|b", "a\\|b", "a\\", "| x | y |", "`x`", "``|``", "x` | y", "`", "<script>alert(1)</script>",
    "<!-- c", "</td>", "[l](https://evil.example)", "![i](x)", "&lt;b&gt;", "&#124;", "&amp;", "~~s~~",
    "**b**", "__b__", "$x$", "https://evil.example/x", "www.evil.example", "# h", "- l", "1. x",
    "a\nb", "\r\n| fail | x |", "\x1b[31mred", "\u202eabc",
)  # fmt: skip


def cells_of(document: str) -> list[list[str]]:
    """Read the tables of a document with a library for CommonMark; markup stands as `<name>`."""
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(document):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and token.level == 4:
            plain = ("text", "text_special", "code_inline")
            parts = (c.content if c.type in plain else f"<{c.type}>" for c in token.children or ())
            rows[-1].append("".join(parts))
    return rows


@pytest.mark.parametrize("text", OF_STRANGERS)
def test_what_strangers_named_stands_in_a_cell_as_it_is(text: str) -> None:
    """In each of two reports of one document; a command is the one that was meant."""
    bad = finding(text, "fail", message=text, remedy=text)
    both = [report(bad, verdict="incompatible"), report(bad, verdict="incompatible", name="l4")]
    document = as_markdown.render(both)
    read, shown = cells_of(document), visible(" ".join(text.split()))
    assert [row[2:] for row in read[1::2]] == [[shown, shown, visible(text)]] * 2
    assert [len(row) for row in read] == [5] * 4
    cells = [line.rpartition(" | ")[0] for line in document.splitlines() if "| fail" in line]
    assert not any(re.search(r"https?://|www\.", line) for line in cells)
