"""`envcheck selftest`: its rule on rows of a real card, and the command with a driver of our own.

The driver is a small C library that answers as it is told by variables, in the place of libcuda.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fake_driver import words
from inventories import DATA
from running import envcheck, on_terminal

from envcheck import selftest
from envcheck.core import agreement, cuda, tally
from envcheck.core.agreement import Comparison, Launch, Needs, Prediction
from envcheck.core.driver_facts import DriverCard, DriverFacts
from envcheck.core.model import Inventory, Target
from envcheck.errors import DocumentInvalid, FileUnavailable
from envcheck.guest import driver, launch_needs, trial
from envcheck.judge import judge

H200 = DriverCard(
    name="NVIDIA H200",
    sm="sm_90",
    uuid="",
    total_memory=1,
    multiprocessors=132,
    shared_memory_per_block=232448,  # 227 KiB: compute capability 9.0 in the CUDA guide
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
DRIVER = cuda.parse_version("580.159.04")


# The rule, with what a real card did.


def compared(name: str) -> list[Comparison]:
    """Compare a measured folder with its own rows, as if they had just been measured."""
    rows = json.loads((DATA / name / "h200.json").read_text())
    found = []
    for each in selftest.objects(DATA / name):
        prediction = selftest._predict(each, selftest._read(each), H200, DRIVER)
        kernels = rows.get("kernels", {}).get(each.name, {"probe": rows["results"][each.name]})
        library = each.path.suffix == ".so"
        found.append(agreement.compare(each.name, "", prediction, kernels, library=library))
    return found


def test_every_row_of_the_card_agrees_or_is_named_as_undecidable() -> None:
    assert Counter(c.agreement for c in compared("truth")) == {"agree": 79}
    found = compared("truth-extra")
    assert [c.name for c in found if c.agreement == "disagree"] == []
    by_reason: dict[str, set[str]] = {}
    for each in found:
        if each.agreement == "undecidable":
            by_reason.setdefault(each.reason, set()).add(each.name)
    assert sum(c.agreement == "agree" for c in found) == 147
    assert by_reason[agreement.EMPTY] == {
        *("one_empty.fatbin", "one_empty.so", "one_stub75.fatbin", "one_stub75.so"),
        "nokernel_cudart.so",
    }
    assert by_reason[agreement.SAME_NAME] == {"same_80__90.so", "same_90__80.so"}
    assert by_reason[agreement.HOST_ASKS] == {"notarch_smem300k.so"}
    assert by_reason[agreement.COMPILER] == {"ptx_wgmma_90.ptx", "notarch_ptx_debug_noinfo.ptx"}
    assert all(n.startswith("notarch_") for n in by_reason[agreement.BY_ITSELF])
    assert all(n.startswith(("head_", "ptx_")) for n in by_reason[agreement.DAMAGED])
    assert sum(map(len, by_reason.values())) == 36


def test_an_image_without_the_kernel_is_predicted_to_load_and_no_more() -> None:
    (found,) = (c for c in compared("truth-extra") if c.name == "notarch_order_s90other_p80.fatbin")
    assert (found.prediction.expected, found.agreement) == ("loads", "agree")


def test_static_shared_memory_of_a_ptx_text_is_held_against_the_card() -> None:
    found = {c.name: c for c in compared("truth-extra")}
    assert found["ptx_smem160k.ptx"].prediction.expected == "runs"
    refused = found["notarch_ptx_smem300k.ptx"]
    assert (refused.prediction.expected, refused.agreement) == ("no-code", "agree")
    assert "307200" in refused.prediction.reason


RUNS = Prediction(expected="runs", reason="machine code for sm_90")
NO_CODE = Prediction(expected="no-code", reason="no code for sm_90")
NO_LAUNCH = Prediction(expected="no-launch", reason="a block needs too much")
LOADS = Prediction(expected="loads", reason="no kernel probe")
NONE = "CUDA_ERROR_NO_BINARY_FOR_GPU"


@pytest.mark.parametrize(
    ("prediction", "outcome", "image", "library"),
    [
        (RUNS, "ok", "agree", "agree"),
        (RUNS, f"load:{NONE}", "disagree", "disagree"),
        (RUNS, f"launch:{NONE} (209)", "disagree", "disagree"),
        (RUNS, "launch:CUDA_ERROR_NOT_FOUND (500)", "disagree", "disagree"),
        (RUNS, "load:CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "disagree", "disagree"),
        (RUNS, "load:CUDA_ERROR_INVALID_PTX", "undecidable", "undecidable"),
        (RUNS, "load:CUDA_ERROR_OUT_OF_MEMORY", "undecidable", "undecidable"),
        (RUNS, "load:libfoo.so.1: cannot open shared object file", "undecidable", "undecidable"),
        (RUNS, "launch:CUDA_ERROR_INVALID_VALUE", "disagree", "undecidable"),
        (RUNS, "wrong-numbers", "undecidable", "undecidable"),
        (RUNS, "launch:CUDA_ERROR_LAUNCH_FAILED (719)", "undecidable", "undecidable"),
        (RUNS, "timeout", "undecidable", "undecidable"),
        (RUNS, "crash:SIGSEGV", "undecidable", "undecidable"),
        (RUNS, "setup:CUDA_ERROR_DEVICE_UNAVAILABLE", "undecidable", "undecidable"),
        (NO_CODE, f"load:{NONE}", "agree", "agree"),
        (NO_CODE, "launch:CUDA_ERROR_NOT_FOUND (500)", "disagree", "agree"),
        (NO_CODE, "ok", "disagree", "disagree"),
        (NO_CODE, "wrong-numbers", "disagree", "disagree"),
        (NO_CODE, "launch:CUDA_ERROR_INVALID_VALUE", "disagree", "disagree"),
        (NO_LAUNCH, "launch:CUDA_ERROR_INVALID_VALUE", "agree", "agree"),
        (NO_LAUNCH, "launch:CUDA_ERROR_INVALID_CLUSTER_SIZE", "agree", "agree"),
        (NO_LAUNCH, f"load:{NONE}", "disagree", "disagree"),
        (NO_LAUNCH, "ok", "disagree", "disagree"),
        (LOADS, "launch:CUDA_ERROR_NOT_FOUND", "agree", "disagree"),
        (LOADS, "ok", "disagree", "disagree"),
    ],
)
def test_which_outcome_bears_a_prediction_out(
    prediction: Prediction, outcome: str, image: str, library: str
) -> None:
    for of_library, expected in ((False, image), (True, library)):
        found = agreement.compare("x", "", prediction, {"probe": outcome}, library=of_library)
        assert found.agreement == expected
        assert bool(found.reason) is (expected == "undecidable")


def test_where_kernels_are_named_exactly_those_must_fail() -> None:
    named = Prediction(expected="no-code", reason="", kernels=("add2",))
    gone = "launch:CUDA_ERROR_NOT_FOUND (500)"
    for kernels, expected in (
        ({"probe": "ok", "add2": gone}, "agree"),
        ({"probe": gone, "add2": gone}, "disagree"),
        ({"probe": gone, "add2": "ok"}, "disagree"),
    ):
        found = agreement.compare("x.so", "", named, kernels, library=True)
        assert found.agreement == expected


SM90 = DATA / "truth-extra" / "objects" / "one_s90_lineinfo.fatbin"


@pytest.mark.parametrize(
    ("launch", "needs", "expected"),
    [
        (Launch(), Needs(static_shared=0), "runs"),
        (Launch(dynamic_shared=232448), Needs(static_shared=0), "runs"),
        (Launch(dynamic_shared=232449), Needs(static_shared=0), "no-launch"),
        (Launch(dynamic_shared=200000), Needs(static_shared=40960), "no-launch"),
        (Launch(), Needs(static_shared=232449, compiled=False), "no-code"),
        (Launch(), Needs(static_shared=0, cluster_blocks=8), "runs"),
        (Launch(), Needs(static_shared=0, cluster_blocks=9), "no-launch"),
        (Launch(nonportable_cluster=True), Needs(static_shared=0, cluster_blocks=16), "runs"),
        (Launch(nonportable_cluster=True), Needs(static_shared=0, cluster_blocks=17), "no-launch"),
        (Launch(), None, "loads"),
    ],
)
def test_what_a_launch_asks_for_is_held_against_the_card(
    launch: Launch, needs: Needs | None, expected: str
) -> None:
    (each,) = (o for o in selftest.objects(SM90.parent) if o.path == SM90)
    file = selftest._read(each)
    report = judge(
        Target(name="sm_90", sm="sm_90"), Inventory(source="files", files=(file,)), DRIVER
    )
    found = agreement.predict(report, file, launch, needs, H200.shared_memory_per_block)
    assert found.expected == expected


PTX = b"""\
.version 8.0
.target sm_90
.extern .shared .align 16 .b8 dynamic[];
.shared .align 4 .b8 everywhere[100];
// .shared .b8 never[1000000];
.visible .entry other(.param .u64 a) { .shared .align 4 .b8 mine[5000]; { ret; } }
.visible .entry probe(.param .u64 a)
.explicitcluster
.reqnctapercluster 4, 2, 1
{
    .shared .align 8 .f64 one;
    .shared .v4 .b32 two[3][2];
    ret;
}
"""


def test_what_a_ptx_text_declares_for_one_kernel() -> None:
    found = launch_needs.of_ptx(PTX, "probe")
    assert found == Needs(static_shared=100 + 8 + 4 * 4 * 6, cluster_blocks=8, compiled=False)
    other = launch_needs.of_ptx(PTX, "other")
    assert other == Needs(static_shared=5100, compiled=False)
    assert launch_needs.of_ptx(PTX, "dynamic") is None
    assert launch_needs.of_ptx(PTX + b"}{{{", "prob") is None
    endless = PTX.replace(b"[3][2]", b"[" + b"9" * 5000 + b"]")
    assert launch_needs.of_ptx(endless, "probe") is not None


def count(*found: str) -> tally.Selftest:
    prediction = Prediction(expected="runs", reason="")
    objects = tuple(
        Comparison(
            name=str(at),
            group="g",
            prediction=prediction,
            outcome="ok",
            kernels={},
            agreement=each,
            reason="why" if each == "undecidable" else "",
        )
        for at, each in enumerate(found)
    )
    return tally.Selftest(
        schema=tally.SCHEMA, card=H200, driver="1", groups=tally.count(objects), objects=objects
    )


def test_the_exit_code() -> None:
    assert count("agree", "undecidable").exit_code == 0
    assert count("agree", "disagree", "undecidable").exit_code == 10
    assert count("undecidable").exit_code == 11
    assert count("agree", "undecidable", "undecidable").groups[0].undecidable == {"why": 2}


@pytest.mark.parametrize(
    ("module", "own", "judged"),
    [
        ("580.159.04", "13.0", (580, 159, 4)),
        ("580.159.04", None, (580, 159, 4)),
        # A compatibility package: libcuda is newer than the kernel module.
        ("535.104.05", "12.4", (550, 54, 14)),
        (None, "12.8", (570, 26)),
    ],
)
def test_which_driver_is_judged_for(
    module: str | None, own: str | None, judged: tuple[int, ...]
) -> None:
    facts = DriverFacts(init=0, cuda=own, module=module)
    assert selftest.judged_driver(facts) == judged


def test_a_driver_without_any_version_is_refused() -> None:
    with pytest.raises(FileUnavailable, match="no version"):
        selftest.judged_driver(DriverFacts(init=0))


# The command, with a driver of our own.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return two images: one that an sm_90 takes, and one that it does not."""
    (tmp_path / "objects" / "mine").mkdir(parents=True)
    source = DATA / "truth-extra" / "objects"
    shutil.copy(source / "one_s90_lineinfo.fatbin", tmp_path / "objects" / "mine" / "fits.fatbin")
    shutil.copy(source / "ptx_isa7.0_80.ptx", tmp_path / "objects" / "text.ptx")
    return tmp_path


def test_all_agree(fake: Path, folder: Path) -> None:
    done = envcheck("selftest", "--truth", folder, env=words(fake))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    header, rule, *rows = (line for line in lines if line.startswith("|"))
    assert [cell.strip() for cell in header.strip("| ").split("|")] == [
        "group", "objects", "agree", "disagree", "undecidable",
    ]  # fmt: skip
    assert set(rule) <= set("|- ")
    cells = [[cell.strip() for cell in row.strip("| ").split("|")] for row in rows]
    assert cells == [
        ["PTX text", "1", "1", "0", "0"],
        ["mine", "1", "1", "0", "0"],
        ["all", "2", "2", "0", "0"],
    ]
    assert lines[-1].startswith("Fake 90 (sm_90, driver 580")
    assert lines[-1].endswith("2 objects, 2 agree, 0 disagree, 0 undecidable")


def test_each_disagreement_is_a_line_of_its_own(fake: Path, folder: Path) -> None:
    done = envcheck("selftest", "--truth", folder, env=words(fake, load=209))
    assert done.returncode == 10
    said = [line for line in done.stdout.splitlines() if line.startswith("disagree: ")]
    assert len(said) == 2
    assert "mine/fits.fatbin: predicted runs (machine code for sm_90)" in said[0]
    assert "the card: load:CUDA_ERROR_NO_BINARY_FOR_GPU" in said[0]


def test_nothing_that_could_be_compared(fake: Path, folder: Path) -> None:
    done = envcheck("selftest", "--truth", folder, "-v", env=words(fake, add=7))
    assert done.returncode == 11
    assert f"2 undecidable: {agreement.BY_ITSELF}" in done.stdout.splitlines()
    assert sum(line.startswith("undecidable: ") for line in done.stdout.splitlines()) == 2


def test_how_a_kernel_is_launched_is_told_beside_the_objects(fake: Path, folder: Path) -> None:
    asked = {"mine/fits.fatbin": {"dynamic_shared": 232449}, "text.ptx": {"kernel": "nobody"}}
    (folder / "launches.json").write_text(json.dumps(asked))
    done = envcheck("selftest", "--truth", folder, "--format", "json", env=words(fake))
    found = {each["name"]: each for each in json.loads(done.stdout)["objects"]}
    assert found["mine/fits.fatbin"]["prediction"]["expected"] == "no-launch"
    assert found["mine/fits.fatbin"]["outcome"] == "launch:CUDA_ERROR_INVALID_VALUE"
    assert found["text.ptx"]["prediction"]["expected"] == "loads"
    assert {each["agreement"] for each in found.values()} <= {"agree", "disagree"}


def test_json_stands_alone_on_stdout(fake: Path, folder: Path) -> None:
    done = envcheck("selftest", "--truth", folder, "--format", "json", env=words(fake))
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["schema"] == "envcheck/selftest/v1"
    assert document["card"]["sm"] == "sm_90"
    assert [g["agree"] for g in document["groups"]] == [1, 1]


def test_on_a_narrow_terminal(fake: Path, folder: Path) -> None:
    code, text = on_terminal("selftest", "--truth", folder, columns=60, env=words(fake))
    assert code == 0
    table = [line for line in _COLOUR.sub("", text).splitlines() if line.startswith("|")]
    assert len(table) >= 5
    assert all(len(line) <= 60 for line in table)


@pytest.mark.parametrize(
    ("told", "cause", "remedy"),
    [
        ({"init": 100}, "the driver is here, but no card", "--gpus all"),
        ({"init": 34}, "is a stub, which only serves linking: CUDA_ERROR_STUB_LIBRARY", "stubs"),
        ({"init": 804}, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)", "`compat`"),
        ({"init": 4711}, "the driver cannot be started: unnamed (4711)", "nvidia-smi"),
        ({"count": 0}, "the driver is here, but no card", "--gpus all"),
        ({"crash": 1}, "did not come to an end: killed by SIGABRT", "reboot the host"),
    ],
)
def test_without_a_card(
    told: dict[str, int], cause: str, remedy: str, fake: Path, folder: Path
) -> None:
    done = envcheck("selftest", "--truth", folder, env=words(fake, **told))
    assert (done.returncode, done.stdout) == (3, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("envcheck: error: ")
    assert cause in error
    assert remedy in hint


def test_a_libcuda_that_is_none(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"not a library")
    done = envcheck("selftest", "--truth", folder, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 3
    assert "libcuda.so.1" in done.stderr


def test_measuring_keeps_the_rows_that_the_tests_compare_with(fake: Path, folder: Path) -> None:
    out = folder / "fake.json"
    script = DATA / "run_truth.py"
    call = [sys.executable, script, folder / "objects" / "mine", folder / "objects" / "text.ptx"]
    for more, code in ((["--out", out, "--setting", "FAKE_ADD=7"], 0), (["--expect", out], 0)):
        done = subprocess.run(
            [*call, *more], env={**os.environ, **words(fake)}, capture_output=True, check=False
        )
        assert done.returncode == code, done.stderr
    rows = json.loads(out.read_text())
    assert rows["results"] == {"fits.fatbin": "ok", "text.ptx": "ok"}
    assert rows["differs_with"]["FAKE_ADD=7"] == {
        "fits.fatbin": "wrong-numbers",
        "text.ptx": "wrong-numbers",
    }
    assert (rows["card"], rows["sm"], rows["driver_cuda"]) == ("Fake 90", "sm_90", "13.0")


@pytest.mark.parametrize("what", ["missing", "file", "empty"])
def test_a_folder_that_cannot_be_had(what: str, tmp_path: Path) -> None:
    path = tmp_path / what
    if what == "empty":
        path.mkdir()
    elif what == "file":
        path.write_bytes(b"")
    done = envcheck("selftest", "--truth", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert str(path) in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"text.ptx": {"dynamic": 1}}', r"launches.json.*text.ptx"),
        ('{"test.ptx": {}}', "test.ptx: there is no such object"),
        ("[]", "launches.json"),
        ("{", "not valid JSON"),
    ],
)
def test_launches_that_do_not_fit(text: str, said: str, folder: Path) -> None:
    (folder / "launches.json").write_text(text)
    with pytest.raises(DocumentInvalid, match=said):
        selftest.objects(folder)


def test_libraries_of_the_driver_are_looked_for(fake: Path, tmp_path: Path) -> None:
    names = ("libnvidia-ptxjitcompiler.so.1", "libnvidia-ml.so.1")
    look = (
        f"from envcheck.guest import driver; print(driver.describe({str(fake / 'libcuda.so.1')!r})"
        ".absent)"
    )
    shutil.copy(fake / "libcuda.so.1", tmp_path / names[0])
    shutil.copy(fake / "libcuda.so.1", tmp_path / names[1])
    for folder, absent in ((tmp_path, ()), (fake, tuple(n for n in names if not _is_here(n)))):
        done = subprocess.run(
            [sys.executable, "-c", look],
            env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str(absent)


def _is_here(name: str) -> bool:
    """Ask the system's own list of libraries, as a machine with a driver has them."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False)
    return name in listed.stdout


def test_the_driver_describes_every_card(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_COUNT", "2")
    # A child, so that the count is read from its own environment.
    found = trial.run(
        lambda: selftest.codec.to_json(driver.describe(str(fake / "libcuda.so.1"))), deadline=30
    ).value
    assert isinstance(found, dict)
    assert (found["init"], found["cuda"], len(found["cards"])) == (0, "13.0", 2)
    second = found["cards"][1]
    assert second["name"] == "Fake 90"
    assert second["uuid"] == "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
    assert (second["total_memory"], second["multiprocessors"]) == (5 << 32, 132)
    assert second["shared_memory_per_block"] == 232448


def test_no_driver_is_a_fact_of_its_own() -> None:
    found = driver.describe("libcuda-of-nobody.so.1")
    assert found.missing is not None
    assert "libcuda-of-nobody" in found.missing
    assert (found.init, found.cards) == (None, ())


def test_a_load_that_hangs_costs_its_deadline_and_no_more(fake: Path, folder: Path) -> None:
    os.environ["FAKE_HANG"] = "1"
    try:
        (result,) = selftest.loading.load_all(
            [(str(folder / "objects" / "text.ptx"), Launch())],
            library=str(fake / "libcuda.so.1"),
            deadline=1,
        )
    finally:
        del os.environ["FAKE_HANG"]
    assert result == {"probe": "timeout"}
