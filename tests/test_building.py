"""`envcheck build` from configuration to manifest, with venvs of tiny wheels that pip installs.

The wheel named torch holds a real library with machine code for sm_120 alone; what a card
does with it stands in tests/data/truth-extra. Images are built in tests/docker.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from building import SM80, SM120_LIBRARY, wheel
from fake_driver import words
from running import envcheck

BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    {do}
    name = "{name}-1.0-py3-none-any.whl"
    info = "{name}-1.0.dist-info"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("{name}.py", {code!r})
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return name
"""


def sources(folder: Path, name: str, code: str, do: str = "pass") -> str:
    """Write an extension that needs no tool to be built."""
    place = folder / f"{name}-sources"
    place.mkdir()
    (place / "backend.py").write_text(BACKEND.format(name=name, code=code, do=do))
    (place / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n'
    )
    return f'[[extensions]]\nname = "{name}"\nsource = "{place.name}"\n'


def project(folder: Path, *extensions: str, library: Path = SM120_LIBRARY) -> Path:
    """Write a lock of one package named torch, and the settings that build it."""
    # Its files tell a CUDA, and when it runs it has none: no CUDA C++ kernel is built with it.
    held = {
        "torch/__init__.py": b"from torch import version\nversion.cuda = None\n__version__ = '2.13.0'\n",
        "torch/version.py": b"__version__ = '2.13.0'\ncuda = '13.0'\nhip = None\n",
        "torch/lib/libtorch_cuda.so": library.read_bytes(),
    }
    # Not the release of the architecture's own lock: so its nvcc is not fetched.
    wheels = (
        wheel(folder, "torch", "2.13.0", held),
        wheel(folder, "nvidia-cuda-runtime", "13.0.96", {"nvidia/x.txt": b"x"}),
    )
    lines = (
        f"{name}=={version} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        for file in wheels
        for name, version in [file.name.split("-")[:2]]
    )
    (folder / "lock.txt").write_text("".join(lines))
    (folder / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {folder}\n")
    (folder / "envcheck.toml").write_text(
        'architectures = ["blackwell"]\nlock = "lock.txt"\npip_config = "pip.conf"\n'
        f"{''.join(extensions)}"
    )
    return folder


def build(
    folder: Path, *options: str | Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {"XDG_CACHE_HOME": str(folder / "cache"), **(env or {})}
    return envcheck("build", "--engine", "venv", *options, cwd=folder, env=variables)


def reports(done: subprocess.CompletedProcess[str]) -> dict:
    """Return the findings of the only report, by check and subject."""
    document = json.loads(done.stdout)
    return {(f["check"], f["subject"]): f for f in document["findings"]}


def test_a_venv_is_built_judged_and_attested(tmp_path: Path) -> None:
    project(tmp_path, sources(tmp_path, "mine", "value = 1\n"))
    assert envcheck("keygen", "-q", "-o", tmp_path / "key.pem").returncode == 0
    done = build(
        *(tmp_path, "--sign", "key.pem", "-o", "manifest.json", "--save-inventory", "facts.json")
    )
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1]
    assert line.startswith("compatible with blackwell (sm_120): 1 file(s) native")
    python = tmp_path / ".envcheck" / "blackwell" / "environment" / "bin" / "python"
    said = subprocess.run(
        [python, "-c", "import mine, torch; print(mine.value)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "1\n"
    log = tmp_path / "cache" / "envcheck" / "logs" / "blackwell.log"
    assert f"log: {log}" in done.stderr
    assert log.is_file()
    verified = envcheck("verify", tmp_path / "manifest.json", "--key", tmp_path / "key.pub")
    assert verified.returncode == 0
    assert f"signed verdict: {line}" in verified.stdout
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["environment"]["content"].startswith("sha256:")
    assert facts["compiled"]["extensions"][0]["imported"]["status"] == "ok"
    again = envcheck("judge", tmp_path / "facts.json", "--arch", "blackwell")
    assert again.stdout == done.stdout


def test_what_is_asked_for_and_not_reached_is_inconclusive(tmp_path: Path) -> None:
    project(tmp_path)
    done = build(tmp_path, "--require", "executed", "-q")
    assert (done.returncode, done.stdout) == (
        11,
        (
            "inconclusive with blackwell (sm_120): bytes were read, nothing was compiled or run; "
            "assurance executed was asked for\n"
        ),
    )
    assert done.stderr == ""


def test_a_card_of_another_architecture_is_told_and_not_run_on(tmp_path: Path, fake: Path) -> None:
    project(tmp_path)
    done = build(tmp_path, "--format", "json", env=words(fake))
    assert done.returncode == 0, done.stderr
    note = "blackwell: the card here is Fake 90 (sm_90): what it does says nothing about sm_120"
    assert note in done.stderr
    found = reports(done)[("core-ops-match-reference", "operations")]
    assert (found["status"], found["message"].partition(":")[0]) == ("skip", "nothing was run")


def test_a_card_of_the_target_is_run_on(tmp_path: Path, fake: Path) -> None:
    """The driver is ours and the torch a stub: what is seen is that it was tried, and why not."""
    project(tmp_path)
    facts = ("--save-inventory", "facts.json")
    done = build(tmp_path, "--arch", "hopper", *facts, "--format", "json", env=words(fake))
    executed = json.loads((tmp_path / "facts.json").read_text())["executed"]
    assert executed["cards"]["driver"]["cards"][0]["name"] == "Fake 90"
    assert executed["parts"] == ["ops", "triton", "extensions"]
    assert (executed["torch"], executed["cuda"], executed["card"]) == ("2.13.0", None, None)
    found = reports(done)[("card-is-usable", "torch")]
    assert found["status"] == "fail"
    assert "torch 2.13.0 is built without CUDA: it cannot use the card" in found["message"]


def test_a_library_for_another_card_is_incompatible(tmp_path: Path) -> None:
    project(tmp_path, library=SM80)
    done = build(tmp_path, "--format", "json")
    assert done.returncode == 10
    found = reports(done)
    assert found["device-code-runs-on-target", "torch/lib/libtorch_cuda.so"]["status"] == "fail"


def test_a_lock_of_ones_own_says_what_its_cuda_kernels_lack(tmp_path: Path) -> None:
    project(tmp_path)
    finding = reports(build(tmp_path, "--format", "json"))[
        "cuda-kernels-hold-target-code", "kernels"
    ]
    assert (finding["status"], finding["required"]) == ("skip", False)
    assert finding["message"] == "no nvcc belongs to this lock: --builder-lock brings one"


def test_extensions_that_fail_cost_their_own_finding(tmp_path: Path) -> None:
    project(
        tmp_path,
        sources(tmp_path, "good", "value = 1\n"),
        sources(tmp_path, "unbuilt", "", do="raise SystemExit('error: no such header')"),
        sources(tmp_path, "leaves", "import os\nos._exit(3)\n"),
        sources(tmp_path, "raises", "import no_such_module\n"),
        sources(tmp_path, "crashes", "import ctypes\nctypes.string_at(0)\n"),
        '[[extensions]]\nname = "torch"\n[[extensions]]\nname = "absent"\n',
    )
    done = build(tmp_path, "--format", "json")
    assert done.returncode == 10, done.stderr
    found = {
        subject: (f["status"], f["message"])
        for (check, subject), f in reports(done).items()
        if check == "extensions-import"
    }
    assert found["good"] == ("pass", "built and imported, not run")
    assert found["torch"][0] == "pass"
    assert found["unbuilt"][0] == "fail"
    assert "error: no such header" in found["unbuilt"][1]
    assert found["leaves"][0] == "fail"
    assert found["raises"] == (
        "fail",
        "import raises fails: ModuleNotFoundError: No module named 'no_such_module'",
    )
    assert found["crashes"][0] == "fail"
    assert "SIGSEGV" in found["crashes"][1]
    assert found["absent"] == (
        "fail",
        "import absent fails: ModuleNotFoundError: No module named 'absent'",
    )


def test_two_builds_that_embed_the_time_are_told_apart(tmp_path: Path) -> None:
    text = sources(tmp_path, "timed", "")
    backend = tmp_path / "timed-sources" / "backend.py"
    backend.write_text(
        backend.read_text().replace(
            "wheel.writestr(\"timed.py\", '')",
            'import time; wheel.writestr("timed.py", f"built = {time.time_ns()}\\n")',
        )
    )
    project(tmp_path, text)
    done = build(tmp_path, "--check-reproducible", "--format", "json")
    assert done.returncode == 11, done.stderr
    finding = reports(done)["build-is-reproducible", "content"]
    assert finding["status"] == "error"
    assert "site-packages/timed.py: bytes" in finding["message"]


def test_two_builds_of_the_same_are_the_same(tmp_path: Path) -> None:
    project(tmp_path, sources(tmp_path, "mine", "value = 1\n"))
    done = build(tmp_path, "--check-reproducible", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert reports(done)["build-is-reproducible", "content"]["status"] == "pass"


@pytest.mark.parametrize(
    ("text", "options", "code", "message"),
    [
        ("", ("--arch", "turing"), 2, "turing: no image is defined for this architecture"),
        ("", ("--arch", "sm_107"), 2, "sm_107: no image is defined for sm_107"),
        ("lok = 1\n", (), 2, "envcheck.toml: lok: unknown key"),
        ("", ("--builder", "far"), 2, "--builder names a builder of Docker"),
        ("", ("--lock", "gone.txt"), 3, "gone.txt"),
        ("", ("--sign", "key.pem"), 2, "--sign and -o belong together"),
        ("", ("--config", "gone.toml"), 3, "gone.toml"),
        ('kernels = ["gone"]\n', (), 2, "gone"),
        ("", ("--save-inventory", "gone/facts.json"), 3, "there is no folder gone"),
    ],
)
def test_what_cannot_be_built_is_said_before_anything_is(
    tmp_path: Path, text: str, options: tuple[str, ...], code: int, message: str
) -> None:
    project(tmp_path)
    settings = tmp_path / "envcheck.toml"
    settings.write_text(f"{text}{settings.read_text()}")
    done = build(tmp_path, *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "try: " in done.stderr
    assert not (tmp_path / ".envcheck").exists()


def test_without_docker_a_venv_is_built_and_said_so(tmp_path: Path) -> None:
    project(tmp_path)
    nowhere = {
        "DOCKER_HOST": f"unix://{tmp_path}/no.sock",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = envcheck("build", cwd=tmp_path, env=nowhere)
    assert done.returncode == 0, done.stderr
    assert f"no engine answers at unix://{tmp_path}/no.sock" in done.stderr
    assert "building a venv in .envcheck/blackwell instead" in done.stderr
    refused = envcheck("build", "--engine", "docker", cwd=tmp_path, env=nowhere)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "try: start Docker" in refused.stderr


def test_nobody_says_for_what(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 2
    assert "nothing says for which architecture to build" in done.stderr
