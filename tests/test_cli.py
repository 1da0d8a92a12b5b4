"""The command line, as its users see it: a process, its two streams and its exit code."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from building import OBJECTS, SM80, SM80_PTX80, SM89_SM120, SM90, tarred, venv, wheel, zipped
from running import COMMAND, envcheck, environment, on_terminal, report

import envcheck as package
from envcheck.commands.judging import worst
from envcheck.core.model import Verdict

ROOT = Path(package.__file__).parent
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])[0-9;]*m")

# The names that users were promised, with what each of them stands for.
NAMES = {
    "turing": "sm_75", "ampere": "sm_80", "ampere-rtx": "sm_86", "ada": "sm_89",
    "hopper": "sm_90", "blackwell-dc": "sm_100", "blackwell-ultra": "sm_103",
    "blackwell": "sm_120", "spark": "sm_121", "sm_90": "sm_90", "sm_101": "sm_101",
    "rtx-4090": "sm_89", "rtx-6000-ada": "sm_89", "rtx-5090": "sm_120", "h200": "sm_90",
    "RTX 5090": "sm_120", "NVIDIA-H200": "sm_90",
}  # fmt: skip


def check_ids() -> list[str]:
    """Return what the files of the checks are called: a check's id is its file's name."""
    found = (ROOT / "checks").glob("*.py")
    shared = {
        "__init__",
        "check",
        "commands",
        "jax_libraries",
        "linking_words",
        "multiplied",
        "owners",
        "pins",
    }
    shared |= {"ran", "remedies", "shown_cards", "torch_family_commands", "tries", "xids"}
    return sorted(p.stem.replace("_", "-") for p in found if p.stem not in shared)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Return a library whose ELF header points past its end."""
    path = tmp_path / "broken.so"
    path.write_bytes(SM80.read_bytes()[:2000])
    return path


# Version, help, explain, targets


def test_version_is_one_line_and_that_of_the_package() -> None:
    done = envcheck("--version")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"envcheck {package.__version__}\n",
        "",
    )


def test_help_names_every_command_and_every_exit_code() -> None:
    done = envcheck("--help")
    assert done.returncode == 0
    assert not done.stderr
    words = set(re.findall(r"\w+", done.stdout))
    assert {"targets", "scan", "check", "judge", "keygen", "verify", "guard", "explain"} <= words
    assert {"0", "1", "2", "3", "10", "11", "12"} <= words


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("targets", ["--format"]),
        ("scan", ["--arch", "--driver", "--format", "--save-inventory", "-q", "-v", "PATH"]),
        ("check", ["--arch", "--driver", "--python", "--sign", "-o", "--save-inventory"]),
        ("judge", ["--arch", "--driver", "--format", "INVENTORY"]),
        ("keygen", ["-o", "--passphrase"]),
        ("verify", ["--key", "--format", "--save-inventory", "MANIFEST"]),
        ("guard", ["--manifest", "--key", "--max-age", "--require", "--deep", "--python", "CMD"]),
        ("explain", ["CHECK-ID"]),
    ],
)
def test_help_of_a_command_names_its_options(command: str, options: list[str]) -> None:
    done = envcheck(command, "--help")
    assert done.returncode == 0
    assert [o for o in options if o not in done.stdout] == []


def test_explain_lists_every_check() -> None:
    done = envcheck("explain")
    assert done.returncode == 0
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == check_ids()


@pytest.mark.parametrize("check", check_ids())
def test_explain_says_what_a_check_claims_how_it_looks_and_what_to_do(check: str) -> None:
    done = envcheck("explain", check)
    assert done.returncode == 0
    head, _, *entries = done.stdout.splitlines()
    assert head == check
    assert [line.split()[0] for line in entries] == ["claims", "looks", "finds", "do"]
    assert min(map(len, entries)) > 30


def test_explain_names_the_failure_classes_by_id_and_name() -> None:
    done = envcheck("explain", "extension-symbols-resolve")
    assert "Failure classes: C1 C++ symbols and ABI of libtorch; D3 a wrong NCCL.\n" in done.stdout


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("adapter-wil-load", "adapter-will-load"),
        ("extension-symbols", "extension-symbols-resolve"),
        ("Adapter-Will-Load", "adapter-will-load"),
    ],
)
def test_explain_of_an_unknown_check_is_a_usage_error_that_names_the_one_meant(
    name: str, meant: str
) -> None:
    done = envcheck("explain", name)
    assert done.returncode == 2
    assert f"explain {name}: there is no such check; did you mean {meant}?" in done.stderr
    assert f"envcheck explain {meant}" in done.stderr


def test_explain_of_what_is_like_no_check_names_the_list() -> None:
    done = envcheck("explain", "zzz")
    assert done.returncode == 2
    assert "did you mean" not in done.stderr
    assert "envcheck explain lists all checks" in done.stderr


def test_explain_wraps_between_words_on_a_terminal() -> None:
    code, text = on_terminal("explain", "device-code-runs-on-target", columns=60)
    assert code == 0
    assert max(map(len, text.splitlines())) <= 60
    plain = envcheck("explain", "device-code-runs-on-target").stdout
    assert text.split() == plain.split()


def test_targets_as_text_and_as_json_name_the_same() -> None:
    text, document = envcheck("targets"), report("targets")
    assert text.returncode == 0
    assert document["schema"] == "envcheck/targets/v1"
    sms = {a["name"]: a["sm"] for a in document["architectures"]}
    assert {n: sms[n] for n in list(NAMES)[:9]} == dict(list(NAMES.items())[:9])
    for row in document["architectures"]:
        assert re.search(rf"^{row['name']} +{row['sm']} ", text.stdout, re.MULTILINE)
    for card in document["cards"]:
        assert card["architecture"] in sms
        assert re.search(rf"^{card['name']} +{card['architecture']} ", text.stdout, re.MULTILINE)


# What the command line refuses


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "COMMAND"),
        (["frobnicate"], "frobnicate"),
        (["scan", "--arch", "ada"], "PATH"),
        (["scan", "x.so"], "--arch"),
        (["check"], "--arch"),
        (["scan", "x.so", "--arch", "pascal"], "'pascal'"),
        (["scan", "x.so", "--arch", "sm_5"], "'sm_5'"),
        (["scan", "x.so", "--arch", "sm_05"], "'sm_05'"),
        (["scan", "x.so", "--arch", "sm_1200"], "'sm_1200'"),
        (["scan", "x.so", "--arch", "sm_90a"], "no suffix"),
        (["scan", "x.so", "--arch", ""], "''"),
        (["scan", "x.so", "--arch", "ada", "--driver", "latest"], "'latest'"),
        (["scan", "x.so", "--arch", "ada", "--driver", "-1"], "--driver"),
        (["scan", "x.so", "--arch", "ada", "--format", "yaml"], "yaml"),
        (["check", "--arch", "ada", "--sign", "key.pem"], "-o FILE"),
        (["check", "--arch", "ada", "-o", "manifest.json"], "--sign KEY"),
        (["keygen"], "--output"),
        (["keygen", "-o", "key.pub"], "key.pub"),
        (["verify", "manifest.json"], "--key"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_command_line_is_exit_code_2_and_named(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = envcheck(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert not done.stdout
    first, second = done.stderr.splitlines()
    assert first.startswith("envcheck: error: ")
    assert says in done.stderr
    assert second.startswith("envcheck: try: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan", "missing.so", "--arch", "ada"],
        ["scan", "missing.so", "gone.so", "--arch", "ada", "--format", "json"],
        ["judge", "missing.json", "--arch", "ada"],
        ["judge", ".", "--arch", "ada"],
        ["verify", "missing.json", "--key", "missing.pub"],
        ["check", "--python", "missing/bin/python", "--arch", "ada"],
    ],
    ids=" ".join,
)
def test_what_is_not_to_be_had_is_exit_code_3_and_named(
    arguments: list[str], tmp_path: Path
) -> None:
    done = envcheck(*arguments, cwd=tmp_path)
    assert done.returncode == 3
    assert not done.stdout
    assert done.stderr.startswith("envcheck: error: ")
    assert any(word in done.stderr for word in arguments[1:3])


# Verdicts and exit codes


def test_exit_code_0_is_compatible() -> None:
    done = envcheck("scan", SM89_SM120, "--arch", "blackwell")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("compatible with blackwell (sm_120)")


def test_exit_code_10_is_incompatible() -> None:
    done = envcheck("scan", SM80, "--arch", "blackwell")
    assert done.returncode == 10
    assert done.stdout.splitlines()[-1].startswith("incompatible with blackwell (sm_120)")
    assert "no code for sm_120, only sm_80" in done.stdout


def test_exit_code_11_is_inconclusive(broken: Path) -> None:
    done = envcheck("scan", broken, "--arch", "blackwell")
    assert done.returncode == 11
    assert done.stdout.splitlines()[-1].startswith("inconclusive with blackwell (sm_120)")
    assert "broken.so" in done.stdout


@pytest.mark.parametrize("reverse", [False, True], ids=["in order", "reversed"])
def test_several_targets_exit_with_the_worst_of_their_codes(broken: Path, reverse: bool) -> None:
    def code(*paths: Path, archs: list[str]) -> int:
        archs = archs[::-1] if reverse else archs
        options = [word for arch in archs for word in ("--arch", arch)]
        return envcheck("scan", *paths, *options).returncode

    # sm_80 code runs on 8.x, not on 12.0; the broken file makes a pass inconclusive.
    assert code(SM80, archs=["ampere", "ada"]) == 0
    assert code(SM80, archs=["ada", "blackwell"]) == 10
    assert code(SM80, broken, archs=["ada"]) == 11
    assert code(SM80, broken, archs=["blackwell"]) == 10
    assert code(SM80, broken, archs=["ada", "blackwell"]) == 10


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["compatible"], 0),
        (["compatible", "inconclusive"], 11),
        (["inconclusive", "compatible"], 11),
        (["inconclusive", "incompatible", "compatible"], 10),
    ],
)
def test_incompatible_is_worse_than_inconclusive_is_worse_than_compatible(
    verdicts: list[str], code: int
) -> None:
    assert worst(map(Verdict, verdicts)).exit_code == code


def test_every_promised_name_is_its_architecture() -> None:
    options = [word for name in NAMES for word in ("--arch", name)]
    document = report("scan", SM89_SM120, *options)
    # Three spellings of a name already given are the same target, judged once.
    assert {r["target"]["name"]: r["target"]["sm"] for r in document["reports"]} == {
        name.lower().replace(" ", "-").removeprefix("nvidia-"): sm for name, sm in NAMES.items()
    }
    assert len(document["reports"]) == len({r["target"]["name"] for r in document["reports"]})


def test_a_given_driver_decides_and_without_one_the_least_is_named() -> None:
    # The H200 with driver 580.159.04 refused PTX of ISA 9.1 (error 222); CUDA 13.1 came with
    # driver 590.44.01.
    ptx = OBJECTS / "isa9.1__ptx_75.ptx"
    old = report("scan", ptx, "--arch", "h200", "--driver", "580.159.04")
    assert (old["verdict"], old["driver"]) == ("incompatible", "580.159.04")
    (finding,) = [f for f in old["findings"] if f["status"] == "fail" and f["subject"] == str(ptx)]
    assert finding["evidence"]["reason"] == "ptx-newer-than-driver"
    assert "590.44.01" in finding["remedy"]
    new = report("scan", ptx, "--arch", "h200", "--driver", "590.44.01")
    assert (new["verdict"], new["driver"]) == ("compatible", "590.44.01")
    free = report("scan", ptx, "--arch", "h200")
    assert (free["verdict"], free["driver"]) == ("compatible", None)
    assert free["summary"]["least_driver"] == "590.44.01"


# JSON


def schema(name: str) -> jsonschema.Draft202012Validator:
    document = json.loads((ROOT / "schema" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


@pytest.fixture
def mixed(tmp_path: Path, broken: Path) -> Path:
    """Return a folder that holds one file of each kind."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for sample in (SM80, SM80_PTX80, SM89_SM120):
        (folder / sample.name).write_bytes(sample.read_bytes())
    (folder / "empty.so").touch()
    (folder / "text.so").write_text("INPUT(libreal.so)\n")
    (folder / "readme.md").write_text("nothing\n")
    (folder / "notes").write_text("nothing\n")
    broken.rename(folder / "broken.so")
    (folder / "one.whl").write_bytes(zipped({"pkg/a.so": SM80.read_bytes()}))
    (folder / "two.tar.gz").write_bytes(tarred({"b/c.so": SM80.read_bytes()}, "w:gz"))
    return folder


def test_json_of_one_target_fits_the_shipped_schema(mixed: Path) -> None:
    document = report("scan", mixed, "--arch", "hopper")
    schema("report-v1").validate(document)
    assert document["schema"] == "envcheck/report/v1"
    assert document["target"] == {
        "name": "hopper",
        "sm": "sm_90",
        "shared_memory_per_block": 232448,
        "card": None,
        "limits": None,
    }
    assert document["assurance"] == "scanned"


def test_json_of_several_targets_fits_the_shipped_schema(mixed: Path) -> None:
    document = report("scan", mixed, "--arch", "ada", "--arch", "rtx-5090")
    schema("reports-v1").validate(document)
    assert document["schema"] == "envcheck/reports/v1"
    assert [r["target"]["name"] for r in document["reports"]] == ["ada", "rtx-5090"]
    for each in document["reports"]:
        schema("report-v1").validate(each)


def test_the_two_shipped_schemas_describe_the_same_report() -> None:
    one, several = schema("report-v1").schema, schema("reports-v1").schema
    inner = several["$defs"]["report"]
    for key in ("type", "additionalProperties", "required", "properties"):
        assert inner[key] == one[key]
    assert several["$defs"]["finding"] == one["$defs"]["finding"]


def test_every_file_with_device_code_gets_exactly_one_finding(mixed: Path) -> None:
    document = report("scan", mixed, "--arch", "hopper")
    found = [f for f in document["findings"] if f["check"] == "device-code-runs-on-target"]
    status = {f["subject"].removeprefix(f"{mixed}/"): f["status"] for f in found}
    assert len(status) == len(found)
    assert status == {
        SM80.name: "fail",
        SM80_PTX80.name: "pass",
        SM89_SM120.name: "fail",
        "empty.so": "skip",
        "text.so": "skip",
        "broken.so": "error",
        "one.whl!/pkg/a.so": "fail",
        "two.tar.gz!/b/c.so": "fail",
        "(other files)": "skip",
    }


def test_evidence_says_how_a_file_runs_and_what_it_holds() -> None:
    def evidence(path: Path, arch: str) -> dict[str, Any]:
        findings = report("scan", path, "--arch", arch)["findings"]
        (one,) = [f for f in findings if f["subject"] == str(path)]
        return one["evidence"]

    native = evidence(SM80_PTX80, "ada")
    assert (native["mode"], native["sass"], native["ptx"]) == ("native", ["sm_80"], ["compute_80"])
    jit = evidence(SM80_PTX80, "hopper")
    assert (jit["mode"], jit["reason"]) == ("jit", "ptx-jit")
    none = evidence(SM80, "hopper")
    assert (none["mode"], none["reason"]) == ("none", "no-code-for-target")
    assert evidence(OBJECTS / "cu13.0__sass_100a.fatbin", "blackwell-ultra")["reason"] == (
        "arch-specific"
    )
    assert evidence(OBJECTS / "cu13.0__sass_120f.fatbin", "hopper")["reason"] in (
        "family-specific",
        "no-code-for-target",
    )


def test_json_is_alone_on_stdout_and_hints_are_on_stderr(tmp_path: Path) -> None:
    key, manifest = tmp_path / "key.pem", tmp_path / "manifest.json"
    assert envcheck("keygen", "-o", key).returncode == 0
    key.chmod(0o644)
    done = envcheck(
        "check", "--arch", "ada", "--sign", key, "-o", manifest, "--format", "json", "-v"
    )
    assert json.loads(done.stdout)["schema"] == "envcheck/report/v1"
    assert "manifest written" in done.stderr
    assert "mode 0644" in done.stderr


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_json_is_utf8_whatever_the_locale_and_the_name_of_a_file(
    tmp_path: Path, locale: str
) -> None:
    path = os.fsencode(tmp_path) + b"/sch\xc3\xb6n-\xff.so"
    with open(path, "wb") as handle:
        handle.write(SM80.read_bytes())
    command = [*COMMAND, "scan", str(tmp_path), "--arch", "ada", "--format", "json"]
    env = environment({"LC_ALL": locale, "PYTHONIOENCODING": "ascii"})
    done = subprocess.run(command, capture_output=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.decode("utf-8"))
    assert document["findings"][0]["subject"] == f"{tmp_path}/schön-\\xff.so"


# Text


def test_quiet_prints_the_verdict_alone() -> None:
    done = envcheck("scan", SM80, "--arch", "ada", "--arch", "blackwell", "-q")
    assert done.returncode == 10
    first, second = done.stdout.splitlines()
    assert first.startswith("compatible with ada")
    assert second.startswith("incompatible with blackwell")
    assert not done.stderr


def test_verbose_shows_what_is_hidden_otherwise(mixed: Path) -> None:
    short = envcheck("scan", mixed, "--arch", "hopper").stdout
    long = envcheck("scan", mixed, "--arch", "hopper", "-v").stdout
    assert "text.so" not in short
    assert "text.so" in long
    assert all(check not in short for check in check_ids())
    others = set(check_ids()) - {"device-code-runs-on-target"}
    assert [check for check in others if check not in long] == []


def test_without_a_terminal_there_are_no_escapes_no_wraps_and_no_progress(mixed: Path) -> None:
    done = envcheck("scan", mixed, "--arch", "hopper", env={"COLUMNS": "40"})
    assert "\x1b" not in done.stdout
    assert not done.stderr
    (row,) = [
        line for line in done.stdout.splitlines() if "/pkg/a.so" in line or " pkg/a.so" in line
    ]
    assert row.startswith("missing")
    assert "no code for sm_90, only sm_80" in row
    assert all(line == line.rstrip() for line in done.stdout.splitlines())


def test_a_terminal_gets_colour_unless_no_color_is_set() -> None:
    _, coloured = on_terminal("scan", str(SM80), "--arch", "blackwell")
    _, plain = on_terminal("scan", str(SM80), "--arch", "blackwell", env={"NO_COLOR": "1"})
    assert COLOUR.search(coloured)
    assert not COLOUR.search(plain)


def test_progress_is_shown_on_a_terminal_and_not_with_quiet(tmp_path: Path) -> None:
    path = wheel(tmp_path, "pkg", "1", {f"pkg/{n}.fatbin": SM90.read_bytes() for n in range(50)})
    _, shown = on_terminal("scan", str(path), "--arch", "ada")
    _, quiet = on_terminal("scan", str(path), "--arch", "ada", "-q")
    assert "━" in shown
    assert "━" not in quiet


@pytest.mark.parametrize("columns", [80, 120])
def test_a_report_fits_the_terminal(tmp_path: Path, columns: int) -> None:
    long = "a_package_with_a_long_name/and_a_deep_folder/libwith_a_name_that_is_long.so"
    path = wheel(tmp_path, "pkg", "1", {long: SM80.read_bytes(), "b.so": SM80_PTX80.read_bytes()})
    code, text = on_terminal(
        "scan", str(path), "--arch", "hopper", columns=columns, env={"NO_COLOR": "1"}
    )
    assert code == 10
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r[^\n]*━[^\n]*", "", text).splitlines()
    rows = [line for line in lines if line.startswith(("missing", "JIT"))]
    assert [row.split()[0] for row in rows] == ["missing", "JIT"]
    # The end of a name tells files apart; the folders before it give way.
    assert "_a_name_that_is_long.so  " in rows[0]
    assert all(len(row) <= columns for row in rows)
    assert [line[:24] for line in lines if line.startswith("in")] == ["incompatible with hopper"]


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    hostile = "a\x1b]0;owned\x07\x1b[2J\n\u202e.so"
    path = tmp_path / "w.zip"
    path.write_bytes(zipped({hostile: SM80.read_bytes()}))
    for arguments in (["-v"], ["-q"]):
        done = envcheck("scan", path, "--arch", "blackwell", *arguments)
        assert done.returncode == 10
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout)
    document = report("scan", path, "--arch", "blackwell")
    assert document["findings"][0]["subject"] == f"{path}!/{hostile}"
    gone = envcheck("scan", "\x1b[2Jgone.so", "--arch", "ada")
    assert gone.returncode == 3
    assert "\x1b" not in gone.stderr


# judge


def test_judging_a_saved_inventory_gives_the_same_report_byte_for_byte(
    mixed: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "inventory.json"
    options = ["--arch", "hopper", "--driver", "580.65.06", "--format", "json"]
    first = envcheck("scan", mixed, *options, "--save-inventory", saved)
    again = envcheck("judge", saved, *options)
    assert again.stdout == first.stdout
    assert again.returncode == first.returncode == 10
    other = report("judge", saved, "--arch", "ada")
    direct = report("scan", mixed, "--arch", "ada")
    assert other == direct
    assert other["target"]["sm"] == "sm_89"
    assert json.loads(first.stdout)["findings"] != other["findings"]


def text_of(document: Any) -> bytes:
    return json.dumps(document).encode()


def with_file(document: dict[str, Any], **changes: Any) -> bytes:
    """Return an inventory whose first file is changed; a value of `...` takes a field away."""
    file = {**document["files"][0], **changes}
    kept = {name: value for name, value in file.items() if value is not ...}
    return text_of({**document, "files": [kept]})


NO_INVENTORY: dict[str, tuple[Callable[[dict[str, Any]], bytes], str]] = {
    "unknown schema": (
        lambda d: text_of({**d, "schema": "envcheck/inventory/v999"}),
        "inventory.json.schema: 'envcheck/inventory/v999'",
    ),
    "no schema": (
        lambda d: text_of({k: v for k, v in d.items() if k != "schema"}),
        "inventory.json.schema",
    ),
    "a report": (
        lambda _: text_of({"schema": "envcheck/report/v1"}),
        "inventory.json.schema: 'envcheck/report/v1'",
    ),
    "a list": (lambda d: text_of([d]), "inventory.json.schema"),
    "a number as text": (lambda d: with_file(d, size="12"), "inventory.json.files[0].size"),
    "unknown field": (lambda d: with_file(d, odd=1), "inventory.json.files[0].odd"),
    "missing field": (lambda d: with_file(d, format=...), "inventory.json.files[0].format"),
    "NaN": (lambda d: with_file(d, size=float("nan")), "NaN"),
    "a key twice": (lambda d: text_of(d).replace(b'"source"', b'"schema": "", "source"'), "twice"),
    "cut": (lambda d: text_of(d)[:-20], "inventory.json: not valid JSON"),
    "not UTF-8": (lambda d: b"\xff" + text_of(d), "inventory.json: not valid JSON"),
    "deep": (lambda _: b"[" * 100_000, "inventory.json: not valid JSON"),
    "empty": (lambda _: b"", "inventory.json: not valid JSON"),
}


@pytest.mark.parametrize("defect", NO_INVENTORY)
def test_a_document_that_is_no_inventory_is_one_line_that_names_the_field(
    tmp_path: Path, defect: str
) -> None:
    path = tmp_path / "inventory.json"
    assert envcheck("scan", SM80, "--arch", "ada", "--save-inventory", path).returncode == 0
    spoil, names = NO_INVENTORY[defect]
    path.write_bytes(spoil(json.loads(path.read_text())))
    done = envcheck("judge", path, "--arch", "ada")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert names in lines[0]
    assert lines[-1] == "envcheck: nothing was verified"
    assert len(lines) <= 3
    assert max(map(len, lines)) < 500


# Keys, manifests, verification


def openssl(*arguments: str | Path, data: bytes | None = None) -> bytes:
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, input=data, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with one package for sm_80 and PTX, and one without device code."""
    folder = tmp_path_factory.mktemp("environment")
    code = {"gpu/__init__.py": b"", "gpu/_C.so": SM80_PTX80.read_bytes()}
    return venv(
        folder / "venv",
        wheel(folder, "gpu-package", "1.0", code),
        wheel(folder, "plain", "2.0", {"plain.py": b"raise SystemExit\n"}),
    )


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Path:
    """Return a folder with a key pair and a manifest of that environment."""
    folder = tmp_path_factory.mktemp("signed")
    assert envcheck("keygen", "-o", folder / "key.pem").returncode == 0
    done = envcheck(
        "check", "--python", python, "--arch", "hopper",
        "--sign", folder / "key.pem", "-o", folder / "manifest.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return folder


def payload_of(manifest: Path) -> dict[str, Any]:
    return json.loads(base64.b64decode(json.loads(manifest.read_text())["payload"]))


def pae(payload: bytes) -> bytes:
    """Build what DSSE signs, by the formula of its specification."""
    kind = b"application/vnd.in-toto+json"
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sealed_by_hand(folder: Path, payload: bytes) -> Path:
    """Sign a payload with openssl alone and write the envelope; return its path."""
    (folder / "pae").write_bytes(pae(payload))
    signature = openssl(
        "pkeyutl", "-sign", "-rawin", "-inkey", folder / "key.pem", "-in", folder / "pae"
    )
    envelope = {
        "payloadType": "application/vnd.in-toto+json",
        "payload": base64.b64encode(payload).decode(),
        "signatures": [
            {
                "keyid": json.loads((folder / "manifest.json").read_text())["signatures"][0][
                    "keyid"
                ],
                "sig": base64.b64encode(signature).decode(),
            }
        ],
    }
    path = folder / f"by-hand-{hashlib.sha256(payload).hexdigest()[:8]}.json"
    path.write_text(json.dumps(envelope))
    return path


def verified(folder: Path, manifest: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return envcheck("verify", manifest, "--key", folder / "key.pub", *options)


def test_keygen_writes_a_private_and_a_public_file_and_overwrites_neither(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    assert envcheck("keygen", "-o", key).returncode == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "key.pub").stat().st_mode) == 0o644
    before = key.read_bytes(), (tmp_path / "key.pub").read_bytes()
    assert openssl("pkey", "-in", key, "-pubout") == before[1]
    assert b"ENCRYPTED" not in before[0]
    again = envcheck("keygen", "-o", key)
    assert again.returncode == 2
    assert "never overwritten" in again.stderr
    key.unlink()
    assert envcheck("keygen", "-o", key).returncode == 2
    assert not key.exists()
    assert (tmp_path / "key.pub").read_bytes() == before[1]


def test_a_passphrase_comes_from_the_environment_and_encrypts(tmp_path: Path, python: Path) -> None:
    key, manifest = tmp_path / "key.pem", tmp_path / "manifest.json"
    secret = {"ENVCHECK_PASSPHRASE": "correct horse"}
    made = envcheck("keygen", "-o", key, env=secret)
    assert made.returncode == 0
    assert "correct horse" not in made.stdout + made.stderr
    assert key.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert openssl("pkey", "-in", key, "-passin", "pass:correct horse", "-pubout") == (
        (tmp_path / "key.pub").read_bytes()
    )
    sign = ["check", "--python", python, "--arch", "ada", "--sign", key, "-o", manifest]
    nobody = envcheck(*sign)
    assert nobody.returncode == 2
    assert "ENVCHECK_PASSPHRASE" in nobody.stderr
    assert envcheck(*sign, env={"ENVCHECK_PASSPHRASE": "wrong"}).returncode == 2
    assert not manifest.exists()
    assert envcheck(*sign, env=secret).returncode == 0
    assert verified(tmp_path, manifest).returncode == 0


def test_a_manifest_verifies_and_verify_says_what_was_signed(signed: Path) -> None:
    done = verified(signed, signed / "manifest.json")
    assert (done.returncode, done.stderr) == (0, "")
    subject = payload_of(signed / "manifest.json")["subject"][0]["digest"]["sha256"]
    assert f"sha256:{subject}" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("signed verdict: compatible with hopper (sm_90)")
    document = json.loads(verified(signed, signed / "manifest.json", "--format", "json").stdout)
    assert document == payload_of(signed / "manifest.json")


def test_openssl_verifies_the_envelope_too(signed: Path) -> None:
    envelope = json.loads((signed / "manifest.json").read_text())
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    (signed / "pae").write_bytes(pae(base64.b64decode(envelope["payload"])))
    (signed / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    said = openssl(
        "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", signed / "key.pub",
        "-in", signed / "pae", "-sigfile", signed / "sig",
    )  # fmt: skip
    assert b"Signature Verified Successfully" in said


def test_verify_needs_no_network(signed: Path) -> None:
    unshare = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no permission to make a network namespace")
    command = [*unshare, *COMMAND, "verify", str(signed / "manifest.json"), "--key"]
    done = subprocess.run(
        [*command, str(signed / "key.pub")], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_facts_in_a_manifest_give_the_same_report_again(signed: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    verified(signed, signed / "manifest.json", "--save-inventory", str(facts))
    again = report("judge", facts, "--arch", "hopper")
    statement = payload_of(signed / "manifest.json")
    assert again == statement["predicate"]["envcheck"]["report"]
    digest = hashlib.sha256(facts.read_bytes()).hexdigest()
    assert statement["predicate"]["envcheck"]["inventoryDigest"] == {"sha256": digest}
    assert report("judge", facts, "--arch", "rtx-4090")["target"]["sm"] == "sm_89"


def test_a_signed_inconclusive_verdict_is_authentic(signed: Path, tmp_path: Path) -> None:
    empty = venv(tmp_path / "venv")
    manifest = tmp_path / "manifest.json"
    done = envcheck(
        "check", "--python", empty, "--arch", "ada", "--sign", signed / "key.pem", "-o", manifest
    )
    assert done.returncode == 11
    assert payload_of(manifest)["predicate"]["result"] == "FAILED"
    said = verified(signed, manifest)
    assert said.returncode == 0
    assert "signed verdict: inconclusive" in said.stdout


def test_several_targets_give_one_manifest_each(signed: Path, python: Path, tmp_path: Path) -> None:
    sign = ["check", "--python", python, "--arch", "ada", "--arch", "rtx-5090", "--sign"]
    refused = envcheck(*sign, signed / "key.pem", "-o", tmp_path / "one.json")
    assert refused.returncode == 2
    assert "folder" in refused.stderr
    assert envcheck(*sign, signed / "key.pem", "-o", tmp_path).returncode == 0
    targets = {
        path.name: payload_of(path)["predicate"]["envcheck"]["target"]["sm"]
        for path in tmp_path.iterdir()
    }
    assert targets == {"ada.json": "sm_89", "rtx-5090.json": "sm_120"}


@pytest.mark.parametrize("member", ["payload", "sig", "keyid", "payloadType"])
def test_a_changed_byte_does_not_verify(signed: Path, tmp_path: Path, member: str) -> None:
    envelope = json.loads((signed / "manifest.json").read_text())
    place = envelope if member.startswith("payload") else envelope["signatures"][0]
    old = place[member]
    place[member] = old[:20] + ("A" if old[20] != "A" else "B") + old[21:]
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(envelope))
    done = verified(signed, changed)
    assert (done.returncode, done.stdout) == (12, "")


def test_a_key_that_did_not_sign_and_no_signature_at_all_do_not_verify(
    signed: Path, tmp_path: Path
) -> None:
    envcheck("keygen", "-o", tmp_path / "key.pem")
    stranger = verified(tmp_path, signed / "manifest.json")
    assert (stranger.returncode, stranger.stdout) == (12, "")
    both = verified(tmp_path, signed / "manifest.json", "--key", str(signed / "key.pub"))
    assert both.returncode == 0
    envelope = json.loads((signed / "manifest.json").read_text())
    unsigned = tmp_path / "unsigned.json"
    unsigned.write_text(json.dumps({**envelope, "signatures": []}))
    assert verified(signed, unsigned).returncode == 12


def test_what_openssl_signed_by_hand_verifies(signed: Path) -> None:
    """Show that the refusals below are about the payload, not about the envelope."""
    payload = json.dumps(payload_of(signed / "manifest.json")).encode()
    assert verified(signed, sealed_by_hand(signed, payload)).returncode == 0


def edited(*path: str | int, to: Any) -> Callable[[dict[str, Any]], bytes]:
    """Return what gives a statement one member of another value."""

    def edit(statement: dict[str, Any]) -> bytes:
        place: Any = statement
        for key in path[:-1]:
            place = place[key]
        assert place[path[-1]] != to
        place[path[-1]] = to
        return text_of(statement)

    return edit


OURS = ("predicate", "envcheck")
NO_MANIFEST: dict[str, tuple[Callable[[dict[str, Any]], bytes], str]] = {
    "another tool's statement": (
        edited("predicate", to={"result": "PASSED", "configuration": [{"name": "x"}]}),
        "manifest.predicate",
    ),
    "another predicate type": (
        edited("predicateType", to="https://slsa.dev/provenance/v1"),
        "manifest.predicateType",
    ),
    "another statement type": (edited("_type", to="https://in-toto.io/Statement/v2"), "_type"),
    "an unknown manifest schema": (
        edited(*OURS, "schema", to="envcheck/manifest/v2"),
        "manifest.predicate.envcheck.schema",
    ),
    "an unknown report schema": (
        edited(*OURS, "report", "schema", to="envcheck/report/v2"),
        "manifest.predicate.envcheck.report.schema",
    ),
    "an unknown inventory schema": (
        edited(*OURS, "inventory", "schema", to="envcheck/inventory/v2"),
        "manifest.predicate.envcheck.inventory.schema",
    ),
    "a subject of another environment": (
        edited("subject", 0, "digest", "sha256", to="0" * 64),
        "manifest.subject",
    ),
    "an inventory that was edited": (
        edited(*OURS, "inventory", "environment", "python", to="3.99.0"),
        "manifest.predicate.envcheck.inventoryDigest",
    ),
    "a result that the report does not give": (
        edited("predicate", "result", to="FAILED"),
        "manifest.predicate.result",
    ),
    "a test list that the report does not give": (
        edited("predicate", "passedTests", to=["more-than-was-tested: everything"]),
        "manifest.predicate.passedTests",
    ),
    "a target that the report is not about": (
        edited(*OURS, "target", to={"name": "ada", "sm": "sm_89"}),
        "manifest.predicate.envcheck.target",
    ),
    "NaN": (edited(*OURS, "inventory", "passed_over", to=float("nan")), "NaN"),
    "no JSON": (lambda _: b"hello", "manifest: not valid JSON"),
    "a list": (lambda _: b"[]", "manifest"),
}


@pytest.mark.parametrize("defect", NO_MANIFEST)
def test_a_signed_payload_that_is_no_manifest_of_ours_is_refused(signed: Path, defect: str) -> None:
    spoil, names = NO_MANIFEST[defect]
    payload = spoil(payload_of(signed / "manifest.json"))
    done = verified(signed, sealed_by_hand(signed, payload))
    assert (done.returncode, done.stdout) == (12, "")
    assert names in done.stderr.splitlines()[0]


def test_a_run_that_fails_leaves_the_old_manifest(signed: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text("the old one")
    done = envcheck(
        "check", "--python", tmp_path / "gone", "--arch", "ada",
        "--sign", signed / "key.pem", "-o", manifest,
    )  # fmt: skip
    assert done.returncode == 3
    assert manifest.read_text() == "the old one"
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]


def test_output_is_never_written_over_what_is_no_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for place in (fifo, tmp_path, tmp_path / "missing" / "file.json"):
        done = envcheck("scan", SM80, "--arch", "ada", "--save-inventory", place)
        assert done.returncode == 3
        assert str(place) in done.stderr
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert list(tmp_path.iterdir()) == [fifo]


# Interruptions


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    files = {f"pkg/{n:04}.fatbin": SM90.read_bytes() for n in range(2000)}
    path = tmp_path / "many.zip"
    path.write_bytes(zipped(files))
    for options in ("--format json", "-v"):
        line = f"{COMMAND[0]} scan {path} --arch hopper {options} | head -1"
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, env=environment(), timeout=120, check=False
        )
        assert done.stdout.count(b"\n") == 1
        assert done.stderr == b""


def test_a_full_disk_under_stdout_is_told_and_exit_code_3() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "targets", "--format", "json"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert done.returncode == 3
    assert b"No space left" in done.stderr
    assert b"nothing was verified" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_as_under_cron_change_no_exit_code(closed: str) -> None:
    line = f"exec {COMMAND[0]} scan '{SM80}' --arch hopper {closed}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, env=environment(), timeout=60, check=False
    )
    assert done.returncode == 10
    assert b"Traceback" not in done.stderr


def test_ctrl_c_ends_it_and_what_it_started(tmp_path: Path) -> None:
    started, child = tmp_path / "started", tmp_path / "python"
    child.write_text(f"#!/bin/sh\necho $$ > {started}\nsleep 600\n")
    child.chmod(0o755)
    command = [*COMMAND, "check", "--python", str(child), "--arch", "ada"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        wait_for(lambda: started.exists() and started.read_text().endswith("\n"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err == "envcheck: interrupted; nothing was verified\n"
    pid = int(started.read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


# check


def test_check_says_for_each_package_with_device_code_how_it_runs(python: Path) -> None:
    def modes(arch: str) -> dict[str, str]:
        document = report("check", "--python", python, "--arch", arch)
        schema("report-v1").validate(document)
        return {
            f["subject"]: f["evidence"]["mode"]
            for f in document["findings"]
            if f["check"] == "distribution-runs-on-target"
        }

    assert modes("ampere") == {"gpu-package 1.0": "native"}
    assert modes("hopper") == {"gpu-package 1.0": "jit"}
    assert modes("turing") == {"gpu-package 1.0": "none"}


def test_check_takes_the_interpreter_it_runs_in_by_default() -> None:
    document = report("check", "--arch", "ada")
    assert any(f["check"] == "distribution-runs-on-target" for f in document["findings"])


def test_scan_of_a_wheel_and_check_of_its_installation_agree(tmp_path: Path) -> None:
    path = wheel(tmp_path, "sm80-only", "1", {"sm80/_C.so": SM80.read_bytes()})
    installed = venv(tmp_path / "venv", path)
    for arch, expected in (("ada", 0), ("hopper", 10)):
        assert envcheck("scan", path, "--arch", arch).returncode == expected
        assert envcheck("check", "--python", installed, "--arch", arch).returncode == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--base", "foo bar"), "--base: 'foo bar' is no image reference"),
        (("--base", "python@sha256:12"), "--base: 'python@sha256:12' is no image reference"),
        (("--base", "a:b", "--engine", "venv"), "--base names an image, and --engine venv uses"),
    ],
)
def test_a_base_that_cannot_be_used_is_refused_before_anything_is_built(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    # An engine that does not answer and an interpreter that is none: nothing is built here.
    nowhere = {"DOCKER_HOST": "unix:///nowhere.sock"}
    arguments = ("build", "--arch", "ada", *options, "--python", "/nowhere")
    done = envcheck(*arguments, cwd=tmp_path, env=nowhere)
    assert done.returncode == 2
    assert message in done.stderr


def test_several_architectures_do_not_write_their_facts_over_each_other(tmp_path: Path) -> None:
    nowhere = {"DOCKER_HOST": "unix:///nowhere.sock"}
    several = ("build", "--arch", "ada", "--arch", "hopper", "--engine", "docker")
    done = envcheck(*several, "--save-inventory", "facts.json", cwd=tmp_path, env=nowhere)
    assert done.returncode == 2
    assert "facts.json: with several --arch, --save-inventory must be a folder" in done.stderr
