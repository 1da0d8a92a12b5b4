"""Assemblers that refuse, hang, crash or are not there, and one that knows the target."""

from __future__ import annotations

import shutil
import stat
import subprocess
import textwrap
from pathlib import Path

import pytest

from envcheck.core import codec
from envcheck.core.compiled import AssemblerProbe
from envcheck.guest import assemblers


@pytest.fixture(autouse=True)
def no_toolkit(monkeypatch, tmp_path):
    """Hide the assemblers of this machine."""
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "no-toolkit"))


def ptxas(path: Path, release: str, knows: str = "", body: str = "") -> Path:
    """Write an assembler that knows some targets; it speaks as NVIDIA's does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        textwrap.dedent(f"""\
            #!/bin/sh
            if [ "$1" = --version ]; then
                echo "ptxas: NVIDIA (R) Ptx optimizing assembler"
                echo "Cuda compilation tools, release {release}, V{release}.0"
                exit 0
            fi
            {body}
            target=${{1#--gpu-name=}}
            case " {knows} " in
            *" $target "*) grep -q "^.target $target" "$2" && cp "$2" "$4" ;;
            *) echo "ptxas fatal   : Value '$target' is not defined for option 'gpu-name'" >&2
               exit 255 ;;
            esac
            """)
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def triton_bin(site: Path) -> Path:
    return site / "triton" / "backends" / "nvidia" / "bin"


def test_each_of_two_assemblers_is_asked_for_both_names_of_the_target(tmp_path):
    ptxas(triton_bin(tmp_path) / "ptxas", "12.4", "sm_89 sm_90 sm_90a")
    ptxas(triton_bin(tmp_path) / "ptxas-blackwell", "12.8", "sm_120 sm_120a")
    probes = assemblers.probe("sm_120", [str(tmp_path)])
    assert [(p.name, p.version, p.target, p.accepted) for p in probes] == [
        ("ptxas", "12.4", "sm_120", False),
        ("ptxas", "12.4", "sm_120a", False),
        ("ptxas-blackwell", "12.8", "sm_120", True),
        ("ptxas-blackwell", "12.8", "sm_120a", True),
    ]
    assert probes[0].message == "ptxas fatal : Value 'sm_120' is not defined for option 'gpu-name'"
    assert probes[2].message == ""
    assert probes[0].path == "triton/backends/nvidia/bin/ptxas"
    assert {p.origin for p in probes} == {"triton"}
    for probe in probes:
        assert codec.loads(AssemblerProbe, codec.dumps(probe), name="probe") == probe


def test_before_sm_90_there_is_one_name(tmp_path):
    ptxas(triton_bin(tmp_path) / "ptxas", "12.4", "sm_89")
    assert [p.target for p in assemblers.probe("sm_89", [str(tmp_path)])] == ["sm_89"]


def test_a_variable_names_an_assembler_that_is_asked_first(tmp_path, monkeypatch):
    bundled = ptxas(triton_bin(tmp_path) / "ptxas", "12.8", "sm_89")
    own = ptxas(tmp_path / "own" / "my-ptxas", "13.0", "sm_89")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(own))
    found = [(a.origin, a.path) for a in assemblers.find([str(tmp_path)])]
    assert found == [("TRITON_PTXAS_PATH", str(own)), ("triton", str(bundled))]
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(bundled))
    found = [(a.origin, a.path) for a in assemblers.find([str(tmp_path)])]
    assert found == [("TRITON_PTXAS_PATH", str(bundled))]


def test_a_variable_that_names_nothing_is_an_assembler_that_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(tmp_path / "gone"))
    (probe,) = assemblers.probe("sm_89", [str(tmp_path)])
    assert (probe.name, probe.origin) == ("ptxas-blackwell", "TRITON_PTXAS_BLACKWELL_PATH")
    assert not probe.accepted
    assert probe.version is None
    assert probe.message.startswith("FileNotFoundError")


def test_toolkits_of_wheels_and_of_cuda_home_are_asked_too(tmp_path, monkeypatch):
    site, home = tmp_path / "site", tmp_path / "cuda"
    ptxas(site / "nvidia" / "cu13" / "bin" / "ptxas", "13.0", "sm_89")
    ptxas(site / "nvidia" / "cuda_nvcc" / "bin" / "ptxas", "12.6", "sm_89")
    ptxas(home / "bin" / "ptxas", "11.8", "sm_89")
    monkeypatch.setenv("CUDA_HOME", str(home))
    probes = assemblers.probe("sm_89", [str(site)])
    assert [(p.version, p.path) for p in probes] == [
        ("13.0", "nvidia/cu13/bin/ptxas"),
        ("12.6", "nvidia/cuda_nvcc/bin/ptxas"),
        ("11.8", str(home / "bin" / "ptxas")),
    ]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("kill -SEGV $$", "crashed", "killed by SIGSEGV"),
        ("sleep 600", "timed-out", "not done after"),
        ("echo odd; exit 3", "exited", "ended with code 3: odd"),
    ],
)
def test_an_assembler_that_ends_oddly_says_how(tmp_path, monkeypatch, body, status, message):
    monkeypatch.setattr(assemblers, "_SECONDS", 1)
    ptxas(triton_bin(tmp_path) / "ptxas", "12.4", body=body)
    (probe,) = assemblers.probe("sm_89", [str(tmp_path)])
    assert (probe.accepted, probe.outcome.status) == (False, status)
    assert probe.message.startswith(message)
    assert probe.version == "12.4"


def test_a_folder_with_odd_characters_is_no_pattern(tmp_path):
    site = tmp_path / "a [b] c"
    ptxas(triton_bin(site) / "ptxas", "12.4", "sm_89")
    assert [p.accepted for p in assemblers.probe("sm_89", [str(site)])] == [True]


def test_nothing_found_is_nothing_said(tmp_path):
    assert assemblers.probe("sm_120", [str(tmp_path)]) == ()


@pytest.mark.parametrize(
    ("target", "lines"),
    [
        # PTX ISA manual, release notes: which ISA brought which target.
        ("sm_89", ".version 7.8\n.target sm_89\n.address_size 64\n"),
        ("sm_90a", ".version 8.0\n.target sm_90a\n.address_size 64\n"),
        ("sm_120a", ".version 8.7\n.target sm_120a\n.address_size 64\n"),
    ],
)
def test_the_ptx_is_of_the_least_isa_that_knows_the_target(target, lines):
    assert assemblers.three_lines(assemblers.Sm.parse(target)) == lines


NVRTC = """
int nvrtcVersion(int *major, int *minor) { *major = 12; *minor = 4; return 0; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 3; return RESULT; }
int nvrtcGetSupportedArchs(int *a) { a[0] = 80; a[1] = 89; a[2] = 90; return 0; }
"""


def nvrtc(site: Path, result: int = 0) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to build a library that answers like NVRTC")
    folder = site / "nvidia" / "cuda_nvrtc" / "lib"
    folder.mkdir(parents=True)
    source, library = folder / "nvrtc.c", folder / "libnvrtc.so.12"
    source.write_text(NVRTC.replace("RESULT", str(result)))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    (folder / "libnvrtc-builtins.so.12.4").write_bytes(b"")
    return library


def test_nvrtc_is_asked_for_its_list(tmp_path):
    nvrtc(tmp_path)
    (known,) = assemblers.probe("sm_89", [str(tmp_path)])
    assert (known.name, known.version, known.accepted) == ("nvrtc", "12.4", True)
    (unknown,) = assemblers.probe("sm_120", [str(tmp_path)])
    assert not unknown.accepted
    assert unknown.message == "does not know sm_120, only sm_80, sm_89, sm_90"


def test_an_nvrtc_that_fails_or_does_not_load_is_a_fact(tmp_path):
    nvrtc(tmp_path, result=7)
    (probe,) = assemblers.probe("sm_89", [str(tmp_path)])
    assert probe.message == "OSError: nvrtcGetNumSupportedArchs returned 7"
    (tmp_path / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12").write_bytes(b"no library")
    (probe,) = assemblers.probe("sm_89", [str(tmp_path)])
    assert not probe.accepted
    assert probe.message.startswith("OSError")
