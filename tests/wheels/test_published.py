"""Real published wheels, and a real PyTorch environment: `pytest -m wheels`.

Downloads some gigabytes once, into ENVCHECK_WHEELS_CACHE or ~/.cache/envcheck-wheels. What is
expected was found without envcheck: with `cuobjdump --list-elf -all` and `--list-ptx -all`
over the unpacked files, from the packages' metadata, and from their release notes.
"""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from fake_driver import words
from published import TORCH, wheel
from running import envcheck, report

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(1800)]


def files(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the findings of files with device code, by their path in the wheel."""
    found = [
        f
        for f in document["findings"]
        if f["check"] == "device-code-runs-on-target" and f["evidence"].get("mode")
    ]
    by_path = {f["subject"].rpartition("!/")[2]: f for f in found}
    assert len(by_path) == len(found)
    return by_path


def modes(document: dict[str, Any]) -> dict[str, str]:
    return {path: f["evidence"]["mode"] for path, f in files(document).items()}


def scan(path: Path) -> dict[str, dict[str, Any]]:
    """Scan a wheel for Blackwell and Ada; return both reports."""
    document = report("scan", path, "--arch", "blackwell", "--arch", "ada", timeout=600)
    return {r["target"]["name"]: r for r in document["reports"]}


# torch


def test_torch_2_6_has_no_code_for_blackwell_and_runs_on_ada() -> None:
    reports = scan(wheel("torch", "2.6.0"))
    old = files(reports["blackwell"])
    assert reports["blackwell"]["verdict"] == "incompatible"
    assert {path: f["status"] for path, f in old.items()} == {
        "torch/lib/libtorch_cuda.so": "fail",
        "torch/lib/libtorch_cuda_linalg.so": "fail",
    }
    whole = old["torch/lib/libtorch_cuda.so"]["evidence"]
    assert whole["sass"] == [
        "sm_50",
        "sm_60",
        "sm_70",
        "sm_75",
        "sm_80",
        "sm_86",
        "sm_90",
        "sm_90a",
    ]
    assert (whole["ptx"], whole["reason"]) == ([], "no-code-for-target")
    linalg = old["torch/lib/libtorch_cuda_linalg.so"]["evidence"]
    assert linalg["sass"] == ["sm_50", "sm_60", "sm_70", "sm_80", "sm_86", "sm_90"]
    assert all("torch>=2.8.0" in f["remedy"] for f in old.values())
    assert reports["ada"]["verdict"] == "compatible"
    # sm_86 code is what runs there, for no sm_89 code is in it.
    assert set(modes(reports["ada"]).values()) == {"native"}


def test_torch_2_8_runs_on_both() -> None:
    reports = scan(wheel("torch", "2.8.0"))
    for name in ("blackwell", "ada"):
        assert reports[name]["verdict"] == "compatible"
        assert set(modes(reports[name]).values()) == {"native"}
    library = files(reports["blackwell"])["torch/lib/libtorch_cuda.so"]["evidence"]
    assert {"sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"} <= set(library["sass"])
    assert library["ptx"] == []
    assert reports["blackwell"]["summary"]["least_driver"] is not None


# Packages with PTX, variants, and code for single SMs


def test_xformers_is_jit_only_on_blackwell_and_native_on_ada() -> None:
    reports = scan(wheel("xformers", "0.0.35"))
    (finding,) = files(reports["blackwell"]).values()
    assert finding["evidence"]["mode"] == "jit"
    assert finding["evidence"]["ptx"] == ["compute_80"]
    assert not any(sm.startswith("sm_1") for sm in finding["evidence"]["sass"])
    assert reports["blackwell"]["verdict"] == "compatible"
    assert set(modes(reports["ada"]).values()) == {"native"}


def test_bitsandbytes_has_blackwell_code_from_cuda_12_8_on_and_ptx_before() -> None:
    reports = scan(wheel("bitsandbytes", "0.50.2"))
    found = {
        int(re.search(r"cuda(\d+)", path)[1]): mode  # type: ignore[index]
        for path, mode in modes(reports["blackwell"]).items()
    }
    assert len(found) >= 6
    assert {mode for version, mode in found.items() if version >= 128} == {"native"}
    assert {mode for version, mode in found.items() if version < 128} == {"jit"}
    assert set(modes(reports["ada"]).values()) == {"native"}


def cuobjdump(*arguments: str | Path) -> str | None:
    """Return what cuobjdump lists, None for a file that it takes for invalid."""
    files = metadata.files("nvidia-cuda-cuobjdump") or []
    tool = next(str(f.locate()) for f in files if f.name == "cuobjdump")
    done = subprocess.run(
        [tool, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600
    )
    if "Invalid ELF" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    return done.stdout


def counted(listing: str) -> Counter[str]:
    """Count what cuobjdump lists; it names a cubin by its ELF, which does not say `f`."""
    return Counter(re.findall(r"\.(sm_\d+[af]?)\.(?:cubin|ptx)", listing))


def test_the_variants_of_bitsandbytes_hold_what_cuobjdump_lists(tmp_path: Path) -> None:
    path = wheel("bitsandbytes", "0.50.2")
    refused = []
    with zipfile.ZipFile(path) as archive:
        for member, finding in files(scan(path)["ada"]).items():
            library = archive.extract(member, tmp_path)
            # What stands in __nv_relfatbin of a linked library is not loaded, so no `-all`
            # here; PTX there is what the driver links.
            elf, ptx = cuobjdump("--list-elf", library), cuobjdump("--list-ptx", "-all", library)
            if elf is None or ptx is None:
                refused.append(member)
                continue
            held = finding["evidence"]
            assert {sm.removesuffix("f") for sm in held["sass"]} == set(counted(elf)), member
            assert {p.replace("compute", "sm") for p in held["ptx"]} == set(counted(ptx)), member
    # cuobjdump 13.5 stops in the middle of this one; the driver does not.
    assert refused == ["bitsandbytes/libbitsandbytes_cuda121.so"]


@pytest.mark.parametrize(
    ("name", "version", "library"),
    [
        ("nvidia-cusparselt-cu12", "0.8.1", "nvidia/cusparselt/lib/libcusparseLt.so.0"),
        ("nvidia-nccl-cu12", "2.32.3", "nvidia/nccl/lib/libnccl.so.2"),
    ],
)
def test_nvidias_libraries_raise_no_false_alarm(name: str, version: str, library: str) -> None:
    reports = scan(wheel(name, version))
    for arch in ("blackwell", "ada"):
        assert reports[arch]["verdict"] == "compatible"
        assert modes(reports[arch])[library] in ("native", "jit")
        assert [f for f in reports[arch]["findings"] if f["status"] in ("fail", "error")] == []


# A whole environment


@pytest.fixture(scope="module")
def checked(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the exit code, both reports and the inventory of that environment."""
    inventory = tmp_path_factory.mktemp("checked") / "inventory.json"
    done = envcheck(
        *("check", "--python", environment, "--arch", "blackwell", "--arch", "ada"),
        *("--format", "json", "--save-inventory", inventory),
    )
    reports = {r["target"]["name"]: r for r in json.loads(done.stdout)["reports"]}
    facts = json.loads(inventory.read_text())
    return {"code": done.returncode, "facts": facts, **reports}


def test_a_fresh_torch_is_compatible_with_both(checked: dict[str, Any]) -> None:
    assert checked["code"] == 0
    for name in ("blackwell", "ada"):
        assert checked[name]["verdict"] == "compatible"
        # The first driver of CUDA 13.0, by the toolkit's release notes.
        assert checked[name]["summary"]["least_driver"] == "580.65.06"


def test_a_driver_that_is_older_than_its_cuda_is_named(environment: Path, fake: Path) -> None:
    """The driver is ours and says CUDA 12.2; what PyTorch makes of that is its own word."""
    done = envcheck(
        *("check", "--python", environment, "--arch", "native", "--only", "card-is-usable"),
        env=words(fake, version=12020),
    )
    assert done.returncode == 10
    assert f"the driver serves CUDA 12.2, torch {TORCH}+cu130 needs 13.0" in done.stdout


def test_its_facts_are_those_that_it_tells_when_it_runs(
    checked: dict[str, Any], environment: Path
) -> None:
    facts = checked["facts"]["environment"]
    # The list that the binary holds, asked of it in another way than from its bytes.
    ask = (
        "import json, torch; print(json.dumps([torch.__version__, torch.version.cuda, "
        "torch._C._cuda_getArchFlags().split(), torch.compiled_with_cxx11_abi()]))"
    )
    told = subprocess.run(
        [environment / "bin" / "python", "-W", "ignore", "-c", ask],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    version, cuda, archs, abi = json.loads(told.stdout.splitlines()[-1])
    assert facts["torch"] == {
        "version": version,
        "cuda": cuda,
        "hip": None,
        "arch_list": archs,
        "cxx11_abi": abi,
    }
    assert (cuda, abi) == ("13.0", True)
    assert archs == ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


def test_its_assemblers_have_the_releases_that_they_print(
    checked: dict[str, Any], environment: Path
) -> None:
    assemblers = checked["facts"]["environment"]["triton"]["assemblers"]
    (folder,) = environment.glob("lib/python3*/site-packages/triton/backends/nvidia/bin")
    printed = {}
    for path in folder.glob("ptxas*"):
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        printed[path.name] = re.search(r"release ([\d.]+),", said.stdout)[1]  # type: ignore[index]
    assert {a["name"]: a["version"] for a in assemblers} == printed
    assert printed == {"ptxas": "12.9", "ptxas-blackwell": "13.3"}


def test_its_packages_are_those_that_pip_lists(checked: dict[str, Any], environment: Path) -> None:
    listed = subprocess.run(
        [environment / "bin" / "python", "-m", "pip", "list", "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = {
        re.sub(r"[-_.]+", "-", d["name"]).lower(): d["version"] for d in json.loads(listed.stdout)
    }
    found = {d["name"]: d["version"] for d in checked["facts"]["environment"]["distributions"]}
    assert found == expected


def test_its_cuda_packages_are_all_judged(checked: dict[str, Any]) -> None:
    judged = {
        f["subject"].split()[0]: f["evidence"]["mode"]
        for f in checked["blackwell"]["findings"]
        if f["check"] == "distribution-runs-on-target"
    }
    expected = {
        "torch", "bitsandbytes", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cusparse",
        "nvidia-cusolver", "nvidia-curand", "nvidia-nccl-cu13", "nvidia-cusparselt-cu13",
        "nvidia-nvshmem-cu13",
    }  # fmt: skip
    assert {name: judged.get(name) for name in expected} == dict.fromkeys(expected, "native")
    assert "none" not in judged.values()


def test_only_the_variant_of_bitsandbytes_for_cuda_13_0_decides(checked: dict[str, Any]) -> None:
    for name in ("blackwell", "ada"):
        found = {
            int(re.search(r"cuda(\d+)", f["subject"])[1]): (f["status"], f["required"])  # type: ignore[index]
            for f in checked[name]["findings"]
            if f["check"] == "device-code-runs-on-target" and "libbitsandbytes_cuda" in f["subject"]
        }
        assert found.pop(130) == ("pass", True)
        assert len(found) >= 5
        assert {required for _, required in found.values()} == {False}
        assert "fail" not in {status for status, _ in found.values()}


def test_cubins_of_libtorch_cuda_are_counted_as_cuobjdump_counts_them(
    environment: Path,
) -> None:
    (library,) = environment.glob("lib/python3*/site-packages/torch/lib/libtorch_cuda.so")
    from envcheck.guest import containers

    ours: Counter[str] = Counter()
    for found in containers.find(library.read_bytes(), "shared-object"):
        for entry in found.entries:
            if entry.code.kind == "sass":
                ours[entry.code.sm.removesuffix("f")] += 1
    theirs = counted(cuobjdump("--list-elf", library) or "")
    assert ours == theirs
    assert theirs["sm_120"] > 400
