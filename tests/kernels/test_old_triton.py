"""What published releases of Triton say of a card that is newer than they are: `-m wheels`.

R06 to R08 of the fixtures: 3.1.0 has an assembler without the target and a compiler that
aborts; 3.3.0 has two assemblers of which one knows it, and compiles all but matrix products.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from envcheck import catalog
from envcheck.core import codec
from envcheck.core.compiled import AssemblerProbe, Compilation, CompiledKernels
from envcheck.core.request import CompileRequest

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="no wheel of these for this Python"),
]

ROOT = Path(__file__).parents[2]
NAMES = ("vector_add", "fused_softmax", "matmul")
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from envcheck.core import codec
from envcheck.core.request import CompileRequest
from envcheck.guest import assemblers, kernels
sys.path[0] = sys.argv[2]
request = codec.loads(CompileRequest, Path("request.json").read_text(), name="request")
Path("compiled.json").write_text(codec.dumps(kernels.compile_kernels(request)))
Path("probes.json").write_text(codec.dumps(assemblers.probe(request.target, [sys.argv[2]])))
"""

Answers = tuple[CompiledKernels, tuple[AssemblerProbe, ...]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Answers]:
    sites: dict[str, Path] = {}

    def answers(release: str, target: str) -> Answers:
        if release not in sites:
            sites[release] = tmp_path_factory.mktemp("site")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
            packages = ["--target", str(sites[release]), f"triton=={release}", "setuptools<80"]
            subprocess.run([*pip, *packages], check=True)
        folder = tmp_path_factory.mktemp(release)
        request = CompileRequest(
            target=target,
            root=str(catalog.shipped()),
            kernels=tuple(catalog.load(catalog.shipped() / name) for name in NAMES),
            cache=str(folder / "cache"),
        )
        (folder / "request.json").write_text(codec.dumps(request))
        command = [sys.executable, "-I", "-c", SCRIPT, str(ROOT), str(sites[release])]
        subprocess.run(command, check=True, cwd=folder)
        probes = codec.parse((folder / "probes.json").read_text(), name="probes")
        return (
            codec.loads(CompiledKernels, (folder / "compiled.json").read_text(), name="compiled"),
            tuple(codec.from_json(AssemblerProbe, probe, "probe") for probe in probes),
        )

    return answers


def of(result: CompiledKernels, name: str) -> list[Compilation]:
    assert result.outcome.ok, result.message
    found = [c for c in result.compilations if c.kernel == name]
    assert found
    return found


def test_3_1_refuses_or_aborts_for_sm_120(ask):
    result, probes = ask("3.1.0", "sm_120")
    assert result.triton == "3.1.0"
    assert {(c.outcome.status, c.message) for c in of(result, "vector_add")} == {
        ("raised", "ptxas fatal : Value 'sm_120' is not defined for option 'gpu-name'")
    }
    for one in of(result, "fused_softmax"):
        assert (one.outcome.status, one.outcome.signal) == ("crashed", "SIGABRT")
        assert one.message.startswith("LLVM ERROR: Cannot select: intrinsic")
        assert "shfl.sync.bfly" in one.message
    for one in of(result, "matmul"):
        assert (one.outcome.status, one.outcome.signal) == ("crashed", "SIGABRT")
        assert "computeCapability not supported" in one.message
    bundled = [p for p in probes if p.origin == "triton"]
    assert [(p.name, p.version, p.target, p.accepted) for p in bundled] == [
        ("ptxas", "12.4", "sm_120", False),
        ("ptxas", "12.4", "sm_120a", False),
    ]
    assert "Value 'sm_120a' is not defined" in bundled[1].message


def test_3_1_compiles_all_of_it_for_sm_89(ask):
    """The other interface is served: what fails on one target fails for that target alone."""
    result, probes = ask("3.1.0", "sm_89")
    for name in NAMES:
        assert {c.message for c in of(result, name) if not c.outcome.ok} == set()
    assert {c.code.target for c in result.compilations} == {"sm_89"}
    label = "BLOCK_M=128 BLOCK_N=256 BLOCK_K=64 GROUP_M=8 num_warps=8 num_stages=4"
    (one,) = (c for c in of(result, "matmul") if (c.dtype, c.config) == ("fp16", label))
    assert one.code.dynamic_shared == 147456
    assert [p.accepted for p in probes if p.origin == "triton"] == [True]


def test_3_3_compiles_what_holds_no_matrix_product(ask):
    result, probes = ask("3.3.0", "sm_120")
    for name in ("vector_add", "fused_softmax"):
        assert {(c.outcome.status, c.code.target) for c in of(result, name)} == {("ok", "sm_120a")}
    assert {c.outcome.ok for c in of(result, "matmul")} == {False}
    bundled = {(p.name, p.version): p.accepted for p in probes if p.origin == "triton"}
    assert bundled == {("ptxas", "12.4"): False, ("ptxas-blackwell", "12.8"): True}
