"""Images with the real PyTorch for CUDA: built by the shipped locks, and by one that is too old.

They are built once for all tests here. What is expected was found without envcheck: with
`cuobjdump --list-elf` and `--list-ptx` over torch 2.6.0 and NVIDIA's libraries beside it, from
what assemblers print as their release, and by hand where the sum is in the test.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from places import Place, findings, network
from real_engine import Images
from running import envcheck

from envcheck import catalog
from envcheck.engine import buildkit
from envcheck.engine.docker import Docker

OLD_LOCK = Path(__file__).parents[1] / "data" / "locks" / "torch-2.6.0.txt"
SM = {"blackwell": "sm_120", "ada": "sm_89"}
# CUDA C++ Programming Guide, technical specifications by compute capability: 99 KB a block.
SHARED = 99 * 1024
SHIPPED = catalog.load_all([catalog.shipped()])

pytestmark = pytest.mark.timeout(2700)


@dataclass(frozen=True)
class Done:
    """What a build for both generations came to."""

    place: Place
    to: str
    process: subprocess.CompletedProcess[str]

    @property
    def reports(self) -> dict[str, dict[str, Any]]:
        return {r["target"]["name"]: r for r in json.loads(self.process.stdout)["reports"]}

    def manifest(self, name: str) -> Path:
        return self.place.folder / self.to / f"{name}.json"

    def image(self, name: str) -> str:
        """Return the id of the image, by which it is found whatever its name means meanwhile."""
        subjects = self.verified(name)["subject"]
        (digest,) = (s["digest"] for s in subjects if s["name"] == f"envcheck-{name}:latest")
        return f"sha256:{digest['sha256']}"

    def verified(self, name: str) -> dict[str, Any]:
        """Return the statement that `verify` accepted."""
        key = self.place.folder / "key.pub"
        done = envcheck("verify", self.manifest(name), "--key", key)
        assert done.returncode == 0, done.stderr
        return json.loads(base64.b64decode(json.loads(self.manifest(name).read_text())["payload"]))


@pytest.fixture(scope="module")
def place(engine: Docker, plain_base: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("torch")
    assert envcheck("keygen", "-o", folder / "key.pem").returncode == 0
    made = Place(folder, {"base": plain_base, "architectures": list(SM)})
    made.write()
    return made


def build(place: Place, *words: str | Path, to: str) -> Done:
    (place.folder / to).mkdir(exist_ok=True)
    signed = ("--sign", "key.pem", "-o", f"{to}/", "--format", "json")
    done = place.build(*network(place.folder), *signed, *words, timeout=2600)
    assert done.stdout, done.stderr
    return Done(place, to, done)


@pytest.fixture(scope="module")
def built(place: Place) -> Done:
    return build(place, to="manifests")


# --- the shipped locks


def test_both_generations_are_compatible_and_compiled_for(built: Done) -> None:
    assert built.process.returncode == 0, built.process.stderr
    for name, report in built.reports.items():
        assert (report["verdict"], report["assurance"]) == ("compatible", "compiled"), name
        # CUDA 13.0's first driver, by its release notes; and what was not done is said.
        line = report["summary"]["line"]
        assert f"compatible with {name} ({SM[name]})" in line
        assert "kernels compiled for it, nothing run on a card" in line
        assert "least driver 580.65.06" in line


@pytest.mark.parametrize("name", SM)
def test_a_manifest_is_about_the_image_that_there_is(
    engine: Docker, built: Done, name: str
) -> None:
    statement = built.verified(name)
    subjects = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
    form = '{{.Id}} {{index .Config.Labels "envcheck.target"}} {{.Config.User}}'
    command = [buildkit.find().command[0], "image", "inspect", "--format", form, built.image(name)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [built.image(name), name, "10001:10001"]
    assert f"{name}: {built.image(name)} (" in built.process.stderr
    assert f"{name}: content sha256:{subjects['content']};" in built.process.stderr
    member = statement["predicate"]["envcheck"]
    assert member["report"]["assurance"] == "compiled"
    assert member["target"]["sm"] == SM[name]
    assert set(subjects) == {"environment", "content", f"envcheck-{name}:latest"}


@pytest.mark.parametrize(
    ("name", "assembler"), [("blackwell", "ptxas-blackwell 13.3"), ("ada", "ptxas 12.9")]
)
def test_the_assembler_that_triton_runs_took_the_card(
    built: Done, name: str, assembler: str
) -> None:
    found = findings(built.reports[name], "assembler-accepts-target")
    (decides,) = (f for f in found.values() if f["required"])
    assert decides["subject"].startswith(assembler)
    assert decides["status"] == "pass"
    # Triton emits the arch-specific form for Blackwell (sm_arch_from_capability).
    assert {"blackwell": "sm_120a", "ada": "sm_89"}[name] in decides["evidence"]["accepted"]


@pytest.mark.parametrize("name", SM)
def test_every_triton_kernel_was_compiled_for_the_card(built: Done, name: str) -> None:
    found = findings(built.reports[name], "triton-kernels-compile-for-target")
    assert set(found) == {k.name for k in SHIPPED if k.kind == "triton"}
    assert {f["status"] for f in found.values()} == {"pass"}
    targets = {target for f in found.values() for target in f["evidence"]["targets"]}
    assert targets == {{"blackwell": "sm_120a", "ada": "sm_89"}[name]}


@pytest.mark.parametrize("name", SM)
def test_the_matmul_that_dies_on_both_cards_is_named_with_its_bytes(built: Done, name: str) -> None:
    found = findings(built.reports[name], "triton-kernels-fit-shared-memory")["matmul fp16"]
    # Two halves of a tile, two bytes each, and one stage less in memory than in flight.
    needed = (128 * 64 + 64 * 256) * 2 * (4 - 1)
    assert needed == 147456 > SHARED
    (config,) = (c for c, n in found["evidence"]["over"].items() if n == needed)
    assert all(part in config for part in ("BLOCK_M=128", "BLOCK_N=256", "BLOCK_K=64"))
    assert found["evidence"]["limit"] == SHARED
    assert found["status"] == "warn"
    assert f"needs {needed} bytes" in found["message"]
    assert f"above {SHARED} bytes" in found["message"]
    assert found["evidence"]["remain"]


@pytest.mark.parametrize("name", SM)
def test_the_cuda_kernels_hold_the_card_s_code_and_no_other(built: Done, name: str) -> None:
    found = findings(built.reports[name], "cuda-kernels-hold-target-code")
    assert set(found) == {k.name for k in SHIPPED if k.kind == "cuda"}
    for finding in found.values():
        assert finding["status"] == "pass"
        assert finding["evidence"]["sass"] == [SM[name]]
        assert finding["evidence"]["nvcc"] == "13.0"


def test_the_second_generation_shares_the_layers_of_the_equal_lock(
    engine: Docker, built: Done, plain_base: str
) -> None:
    first, second, base = (
        engine.inspect(reference).layers
        for reference in (built.image("blackwell"), built.image("ada"), plain_base)
    )
    # Those of the base, its compiler, and the locked packages: 6 of 6.2 GB.
    shared = len(base) + 2
    assert first[:shared] == second[:shared]
    assert first[shared] != second[shared]


def test_asking_for_more_than_was_done_is_inconclusive_and_builds_nothing(built: Done) -> None:
    again = build(built.place, "--require", "executed", to="again")
    assert again.process.returncode == 11, again.process.stderr
    for name, report in again.reports.items():
        assert report["verdict"] == "inconclusive"
        assert "assurance executed was asked for" in report["summary"]["line"]
        assert again.image(name) == built.image(name)
    said = again.process.stderr.splitlines()
    steps = [line for line in said if line.endswith(" s") or ": cached" in line]
    assert len([line for line in said if "its facts are known from before" in line]) == 2
    assert not [line for line in said if "compiling" in line or "reading everything" in line]
    assert {line.rsplit(": ", 1)[-1] for line in steps if "packages" in line} == {"cached"}


def test_an_image_whose_labels_lie_is_found(
    engine: Docker, images: Images, built: Done, make_image
) -> None:
    engine._client.api.tag(built.image("blackwell"), "envcheck-test-torch", images.session)
    text = (
        f"FROM envcheck-test-torch:{images.session}\n"
        'LABEL torch.version="2.8.0" cuda.version="12.8"\n'
    )
    image = make_image("lies-of-torch", text)
    done = envcheck(
        "check", "--image", image, "--arch", "blackwell", "--format", "json", timeout=900
    )
    assert done.returncode == 10, done.stderr
    report = json.loads(done.stdout)
    found = findings(report, "image-labels-match-content")[image]
    assert found["status"] == "fail"
    assert "label torch.version says torch 2.8.0, it holds 2.14.1" in found["message"]
    assert "label cuda.version says cuda 12.8, it holds 13.0" in found["message"]
    fails = {f["check"] for f in report["findings"] if f["required"] and f["status"] == "fail"}
    assert fails == {"image-labels-match-content"}


# --- torch 2.6.0


@pytest.fixture(scope="module")
def old(place: Place) -> Done:
    return build(place, "--lock", OLD_LOCK, to="old")


def test_torch_2_6_has_no_code_for_blackwell(old: Done) -> None:
    assert old.process.returncode == 10, old.process.stderr
    report = old.reports["blackwell"]
    assert (report["verdict"], report["assurance"]) == ("incompatible", "scanned")
    files = findings(report, "device-code-runs-on-target")
    # cuobjdump lists PTX for every other library with code, and for these two none.
    assert {s for s, f in files.items() if f["status"] == "fail"} == {
        "torch/lib/libtorch_cuda.so",
        "torch/lib/libtorch_cuda_linalg.so",
    }
    whole = files["torch/lib/libtorch_cuda.so"]["evidence"]
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
    assert whole["ptx"] == []
    # Its ptxas is of CUDA 12.4, four releases before the first that knows the card.
    assembler = findings(report, "assembler-accepts-target")
    (decides,) = (f for f in assembler.values() if f["required"])
    assert (decides["status"], decides["subject"].split(" (")[0]) == ("fail", "ptxas 12.4")
    assert "sm_120a" in decides["evidence"]["refused"]


def test_torch_2_6_runs_on_ada(old: Done) -> None:
    report = old.reports["ada"]
    assert (report["verdict"], report["assurance"]) == ("compatible", "scanned")
    triton = findings(report, "triton-kernels-compile-for-target")
    assert set(triton) == {k.name for k in SHIPPED if k.kind == "triton"}
    assert {t for f in triton.values() for t in f["evidence"]["targets"]} == {"sm_89"}
    # No nvcc of CUDA 12.4 is among the shipped locks: that is said, and is no success.
    cuda = findings(report, "cuda-kernels-hold-target-code")
    assert {f["status"] for f in cuda.values()} == {"skip"}
    assert all("--builder-lock" in f["message"] for f in cuda.values())
    assert "kernels compiled" not in report["summary"]["line"]
