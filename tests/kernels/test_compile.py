"""Every kernel through the real compiler, compared with what was worked out another way."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import resource
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from envcheck import catalog
from envcheck.core.compiled import Compilation, CompiledKernels
from envcheck.core.cuda import PTX_ISA_CUDA, parse_version
from envcheck.core.kernels import Kernel
from envcheck.core.request import CompileRequest
from envcheck.guest import assemblers, kernels, torch_facts

pytestmark = [pytest.mark.triton, pytest.mark.timeout(1200)]

KERNELS = {k.name: k for k in catalog.load_all([catalog.shipped()])}
LIMITS = {"sm_89": 101376, "sm_90": 232448, "sm_120": 101376}
BYTES = {"fp16": 2, "bf16": 2, "fp8e4nv": 1, "int8": 1}


def version() -> tuple[int, ...]:
    import triton

    return parse_version(triton.__version__.partition("+")[0])


def request(target: str, cache: Path, *described: Kernel) -> CompileRequest:
    chosen = described or tuple(KERNELS.values())
    root = str(catalog.shipped())
    return CompileRequest(target=target, root=root, kernels=chosen, cache=str(cache))


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclasses.dataclass
class Run:
    """One pass over all kernels for sm_120, and the processor time that it took."""

    result: CompiledKernels
    seconds: float
    cache: Path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    cache = tmp_path_factory.mktemp("cache")
    before = children_seconds()
    result = kernels.compile_kernels(request("sm_120", cache))
    return Run(result, children_seconds() - before, cache)


@pytest.fixture(scope="module")
def matmul(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Compilation]]:
    done: dict[str, list[Compilation]] = {}
    cache = tmp_path_factory.mktemp("matmul")

    def compiled(target: str) -> list[Compilation]:
        if target not in done:
            wanted = request(target, cache, KERNELS["matmul"])
            done[target] = list(kernels.compile_kernels(wanted).compilations)
        return done[target]

    return compiled


def test_every_function_of_every_kernel_compiles_for_sm_120(first):
    assert {c.message for c in first.result.compilations if not c.outcome.ok} == set()
    functions = Counter(c.kernel for c in first.result.compilations)
    per_pair = {"layer_norm": 3, "flash_attention": 4, "cross_entropy": 2}
    assert functions == {
        name: len(kernel.pairs()) * per_pair.get(name, 1)
        for name, kernel in KERNELS.items()
        if kernel.kind == "triton"
    }
    assert {c.code.target for c in first.result.compilations} == {"sm_120a"}


def test_the_isa_is_that_of_the_assembler_in_use(first):
    """Read from the assembler's own bytes, by way of NVIDIA's table of ISA and CUDA versions."""
    (isa,) = {c.code.ptx_isa for c in first.result.compilations}
    site = Path(importlib.util.find_spec("triton").origin).parents[1]
    shipped = torch_facts.read_triton(str(site), first.result.triton)
    releases = {a.name: a.version for a in shipped.assemblers}
    release = releases.get("ptxas-blackwell", releases["ptxas"])
    assert PTX_ISA_CUDA[parse_version(isa)] == parse_version(release)


def test_registers_stack_and_shared_memory_are_those_that_cuobjdump_prints(first, triton_tools):
    pattern = re.compile(
        r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:0", re.MULTILINE
    )
    printed: Counter[tuple[str, int, int, int]] = Counter()
    for cubin in first.cache.rglob("*.cubin"):
        command = [str(triton_tools / "cuobjdump"), "-res-usage", str(cubin)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        (found,) = pattern.findall(done.stdout)
        # It counts the 1 KiB that every block of sm_90 and later reserves, where any is used.
        shared = max(int(found[3]) - 1024, 0)
        printed[found[0], int(found[1]), int(found[2]), shared] += 1
    assert printed == Counter(
        (c.function, c.code.registers, c.code.stack_bytes, c.code.static_shared)
        for c in first.result.compilations
    )


def test_a_second_pass_says_the_same_in_a_fraction_of_the_time(first):
    before = children_seconds()
    again = kernels.compile_kernels(request("sm_120", first.cache))
    seconds = children_seconds() - before

    def timeless(result: CompiledKernels) -> list[Compilation]:
        return [
            dataclasses.replace(c, outcome=dataclasses.replace(c.outcome, milliseconds=0))
            for c in result.compilations
        ]

    assert timeless(again) == timeless(first.result)
    assert seconds < first.seconds / 4


@pytest.mark.parametrize("target", LIMITS)
def test_shared_memory_of_a_matmul_is_its_tiles_times_its_buffers(matmul, target):
    """By hand: the copies ahead of sm_80 need a buffer less than those of sm_90."""
    if version() < (3, 4):
        pytest.skip("the pipeline of this Triton keeps other buffers")
    expected, found = {}, {}
    for dtype, config in KERNELS["matmul"].pairs():
        rows, columns, depth = (config.constants[f"BLOCK_{side}"] for side in "MNK")
        buffers = config.num_stages - (target != "sm_90")
        expected[dtype, config.label] = (rows + columns) * depth * BYTES[dtype] * buffers
    for one in matmul(target):
        found[one.dtype, one.config] = one.code.dynamic_shared + one.code.static_shared
    assert found == expected


def test_a_configuration_of_large_cards_outgrows_small_ones(matmul):
    """R09: 128 x 256 x 64 in four stages, for cards of 99 KiB and of 227 KiB a block."""
    label = "BLOCK_M=128 BLOCK_N=256 BLOCK_K=64 GROUP_M=8 num_warps=8 num_stages=4"
    for target, shared in {"sm_89": 147456, "sm_120": 147456, "sm_90": 196608}.items():
        (one,) = (c for c in matmul(target) if (c.dtype, c.config) == ("fp16", label))
        assert one.code.dynamic_shared == shared
        assert (shared <= LIMITS[target]) == (target == "sm_90")
        fitting = [c for c in matmul(target) if c.code.dynamic_shared <= LIMITS[target]]
        assert {c.dtype for c in fitting} == set(KERNELS["matmul"].dtypes)


def test_the_target_that_is_emitted_is_the_one_of_that_card_alone(matmul):
    assert {c.code.target for c in matmul("sm_89")} == {"sm_89"}
    assert {c.code.target for c in matmul("sm_90")} == {"sm_90a"}


def test_fp8_is_left_out_before_sm_89_and_fails_when_it_is_not(tmp_path):
    fp8 = {"fp8e4nv": KERNELS["matmul"].dtypes["fp8e4nv"]}
    configs = tuple(c for c in KERNELS["matmul"].configs if "fp8e4nv" in c.dtypes)[:1]
    only = dataclasses.replace(KERNELS["matmul"], dtypes=fp8, configs=configs)
    (one,) = kernels.compile_kernels(request("sm_86", tmp_path, only)).compilations
    assert (one.outcome.status, one.message) == ("not-applicable", "fp8e4nv needs sm_89")
    forced = {"fp8e4nv": dataclasses.replace(fp8["fp8e4nv"], min_sm="sm_75")}
    only = dataclasses.replace(only, dtypes=forced)
    (one,) = kernels.compile_kernels(request("sm_86", tmp_path, only)).compilations
    assert one.outcome.status == "raised"
    assert "type fp8e4nv not supported in this architecture" in one.message


def test_the_assemblers_of_triton_know_what_it_compiled_for(triton_tools):
    site = str(triton_tools.parents[3])
    probes = [p for p in assemblers.probe("sm_120", [site]) if p.origin == "triton"]
    used = "ptxas-blackwell" if (triton_tools / "ptxas-blackwell").exists() else "ptxas"
    assert [p.accepted for p in probes if p.name == used] == [True, True]
    shipped = torch_facts.read_triton(site, "")
    assert {(p.name, p.version) for p in probes} == {
        (a.name, a.version) for a in shipped.assemblers
    }
