"""Objects that are in neither folder of measured ones, made on the spot by nvcc and Triton.

Each is a name, its group, a function that builds it, and how its kernel is launched. What is
said of them is said by envcheck from their bytes; nothing here knows what a card will do.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from build_truth_extra import ADD2, CALLS_HELPER, HELPER, PROBE, RUN_ADD2, RUN_PROBE, Builder

from envcheck.core.agreement import Launch

Build = Callable[[Builder, str], None]
_PROBE, _ADD2, _CALLS = PROBE + RUN_PROBE, ADD2 + RUN_ADD2, CALLS_HELPER + RUN_PROBE


@dataclass(frozen=True)
class Combination:
    name: str
    group: str
    build: Build
    launch: Launch = field(default_factory=Launch)


def all_of(shared_limit: int) -> list[Combination]:
    """Return every combination of nvcc; some are sized by what a block of the card may use."""
    return [
        *_two_files(),
        *_suffixes(),
        *_lto(),
        *_shared_memory(shared_limit),
        *_clusters(),
        *_compressed(),
        *_ptx(),
        *_debug(),
    ]


def toolkit() -> Path | None:
    """Return the folder of the CUDA toolkit whose nvcc is on PATH; nvcc itself knows it."""
    if shutil.which("nvcc") is None:
        return None
    done = subprocess.run(
        ["nvcc", "--dryrun", "-c", "none.cu"], capture_output=True, text=True, check=False
    )
    top = re.search(r"^#\$ TOP=(.+)$", done.stdout + done.stderr, re.MULTILINE)
    return Path(top[1].strip()).resolve() if top else None


def build(found: list[Combination], folder: Path) -> dict[str, str]:
    """Build combinations into `objects/GROUP/` of a folder, and say how they are launched.

    Returns why some could not be built: toolkits differ in what they know and bring.
    """
    cuda = toolkit()
    assert cuda is not None

    def one(each: Combination) -> str:
        out = folder / "objects" / each.group
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            # With the runtime inside, so that a shared one need not be found to load it.
            try:
                each.build(Builder(out, cuda, {}, "static", Path(work), False), each.name)
            except RuntimeError as error:
                return str(error)
        return ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = list(pool.map(one, found))
    note(found, folder)
    return {f"{c.group}/{c.name}": why for c, why in zip(found, failed, strict=True) if why}


def note(found: list[Combination], folder: Path) -> None:
    """Write down how the kernels of combinations are launched, beside those that are noted."""
    path = folder / "launches.json"
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows |= {f"{c.group}/{c.name}": asdict(c.launch) for c in found if c.launch != Launch()}
    path.write_text(json.dumps(rows))


# How one object is built.


def _fatbin(*images: str, mode: str = "none", options: tuple[str, ...] = ()) -> Build:
    return lambda b, name: b.write(name, b.fatbin(*images, mode=mode, options=options))


def _library(*images: str, options: tuple[str, ...] = ()) -> Build:
    return lambda b, name: b.plain(name, ("probe", _PROBE, [*images]), options=options)


def _cubin(arch: str, source: str = PROBE, *options: str) -> Build:
    def build(b: Builder, name: str) -> None:
        b.text("k.cu", source)
        b.nvcc("-cubin", f"-arch=sm_{arch}", *options, "k.cu", "-o", "k.cubin")
        b.write(name, (b.work / "k.cubin").read_bytes())

    return build


def _text(arch: str, *options: str, isa: str | None = None, source: str = PROBE) -> Build:
    return lambda b, name: b.write(name, b.ptx(arch, *options, source=source, isa=isa).encode())


def _two_files() -> Iterator[Combination]:
    """Two relocatable objects, in both orders: a caller with its callee, or two kernels apart."""
    both = [
        ("90", "s90", "s90"), ("80", "s80_p80", "s80_p80"), ("80", "s80", "s80"),
        ("100", "s90_s100", "s90_s100"), ("80", "s80_p80", "s80_s90"), ("86", "s86_p86", "s86"),
        ("86", "s86", "s86_p86"), ("90a", "s90a", "s90a"), ("80", "s80_s90a", "s80_s90"),
        ("86", "s86_p75", "s86_p90"), ("89", "s89_p120", "s89_s90"), ("120a", "s120a_p90a", "s120a_s90"),
    ]  # fmt: skip
    for linked, caller, callee in both:
        units = [(_CALLS, caller.split("_")), (HELPER, callee.split("_"))]
        for order, made in (("ab", units), ("ba", units[::-1])):
            name = f"call_{order}_link{linked}_{caller}__{callee}.so"
            yield Combination(name, "two-file rdc", _rdc(["probe"], made, f"s{linked}"))
    for linked, first, second in (
        ("86", "s86_p86", "s86_s90"),
        ("100", "s100_s90", "s100"),
        ("80", "s80_p80", "s80_p120"),
    ):
        units = [(_PROBE, first.split("_")), (_ADD2, second.split("_"))]
        for order, made in (("ab", units), ("ba", units[::-1])):
            name = f"apart_{order}_link{linked}_{first}__{second}.so"
            yield Combination(name, "two-file rdc", _rdc(["probe", "add2"], made, f"s{linked}"))


def _rdc(kernels: list[str], units: list[tuple[str, list[str]]], linked: str) -> Build:
    return lambda b, name: b.rdc(name, kernels, *units, linked=linked)


def _suffixes() -> Iterator[Combination]:
    for images in (
        "s90a_s100a_s120a", "s100f_s120f", "s100a_s103a_p100f", "p90a_p120", "s80_p90a",
        "s90a_s100f_p80", "p100a_p80", "p120f_p90", "p103f", "s90_s90a_s120f", "p90a_p90",
    ):  # fmt: skip
        yield Combination(f"{images}.fatbin", "a and f", _fatbin(*images.split("_")))
    for arch in ("90a", "100a", "100f", "120f"):
        yield Combination(f"s{arch}.cubin", "a and f", _cubin(arch))
    for first, second in (("s90a", "s90"), ("s90", "s100a"), ("s90a", "s120f"), ("p90a", "s90a")):
        name = f"{first}__{second}.so"
        units = ("probe", _PROBE, [first]), ("add2", _ADD2, [second])
        yield Combination(name, "a and f", lambda b, n, u=units: b.plain(n, *u))


def _lto() -> Iterator[Combination]:
    relocatable = ("-rdc=true",)
    for images in ("l75", "l100", "l86_s90", "l90_p90", "l80_s86_p86", "l100_p90", "l120_s120"):
        made = _fatbin(*images.split("_"), options=relocatable)
        yield Combination(f"{images}.fatbin", "LTO-IR", made)
    for linked, caller, callee in (
        ("90", "l90", "l90"),
        ("80", "l80", "l80"),
        ("90", "l80", "l80"),
        ("80", "l80_p80", "l80_p80"),
        ("80", "l80_s90", "l80_s90"),
    ):
        units = [(_CALLS, caller.split("_")), (HELPER, callee.split("_"))]
        name = f"link{linked}_{caller}__{callee}.so"
        yield Combination(name, "LTO-IR", _rdc(["probe"], units, f"s{linked}"))


def _shared_memory(limit: int) -> Iterator[Combination]:
    fixed = 40960
    for name, static, dynamic in (
        ("s48k", 49152, 0),
        ("d48k", 0, 49152),
        ("d_limit", 0, limit),
        ("d_limit_1", 0, limit + 1),
        ("d_limit_1k", 0, limit + 1024),
        ("s40k_d_rest", fixed, limit - fixed),
        ("s40k_d_rest_1", fixed, limit - fixed + 1),
        ("s40k_d_limit", fixed, limit),
        ("s48k_d1m", 49152, 1 << 20),
    ):
        launch = Launch(dynamic_shared=dynamic)
        source = _with_shared(static)
        for form, made in (("cubin", _cubin("90", source)), ("ptx", _text("80", source=source))):
            yield Combination(f"{name}.{form}", "shared memory", made, launch)
    for name, images, dynamic in (
        ("both_d_limit", "s90_p90", limit),
        ("both_d_limit_1", "s90_p90", limit + 1),
        ("other_d_limit_1", "s80", limit + 1),
    ):
        launch = Launch(dynamic_shared=dynamic)
        yield Combination(f"{name}.fatbin", "shared memory", _fatbin(*images.split("_")), launch)
    # More static shared memory than nvcc's own assembler takes, which the driver's does.
    for name, static in (("160k", 163840), ("limit", limit), ("limit_1k", limit + 1024)):
        yield Combination(f"static_{name}.ptx", "shared memory", _static_text(static))


def _with_shared(size: int) -> str:
    """Return the probe with a fixed array of shared memory that it really goes through."""
    if not size:
        return PROBE
    body = f"    __shared__ int big[{size // 4}];\n    int i ="
    through = "big[threadIdx.x] = i; __syncthreads();\n    if (i < n) out[i] = big[threadIdx.x] * 3"
    return PROBE.replace("    int i =", body).replace("if (i < n) out[i] = i * 3", through)


def _static_text(size: int) -> Build:
    def build(b: Builder, name: str) -> None:
        text = b.ptx("80", isa="8.0", source=_with_shared(4096))
        b.write(name, re.sub(r"\[4096\]", f"[{size}]", text).encode())

    return build


def _clusters() -> Iterator[Combination]:
    for blocks, allowed in (
        (1, False), (2, False), (3, False), (4, False), (8, False), (16, False), (16, True),
        (12, False), (12, True), (32, False), (32, True),
    ):  # fmt: skip
        launch = Launch(blocks=2 * blocks, nonportable_cluster=allowed)
        source = PROBE.replace("void probe", f"void __cluster_dims__({blocks}, 1, 1) probe")
        name = f"c{blocks}{'_allowed' if allowed else ''}"
        yield Combination(f"{name}.cubin", "clusters", _cubin("90", source), launch)
        yield Combination(f"{name}.ptx", "clusters", _text("90", source=source), launch)


def _compressed() -> Iterator[Combination]:
    for mode in ("none", "speed", "balance", "size"):
        for images in ("s90_p90_s120", "s80_s86", "p75_p100"):
            made = _fatbin(*images.split("_"), mode=mode)
            yield Combination(f"{images}_{mode}.fatbin", "compressed", made)


def _ptx() -> Iterator[Combination]:
    for arch, isas in (
        ("75", "6.3 7.8 8.8 9.0 9.1 9.5"),
        ("86", "7.0 7.1 8.4"),
        ("87", "7.4"),
        ("89", "7.7 7.8 8.6"),
        ("90", "7.7 7.8 8.5 9.2"),
        ("100", "8.6"),
    ):
        for isa in isas.split():
            yield Combination(f"isa{isa}_{arch}.ptx", "PTX versions", _text(arch, isa=isa))
    for images in ("p75_p80_p86_p89_p90", "p100_p120", "p80_p120", "p75_p90a", "p86_p87_s86"):
        yield Combination(f"{images}.fatbin", "several PTX", _fatbin(*images.split("_")))


def _debug() -> Iterator[Combination]:
    for word in ("-G", "-lineinfo"):
        plain = word.strip("-")
        for images in ("p86", "s80_p80", "s90a", "s86"):
            made = _library(*images.split("_"), options=(word,))
            yield Combination(f"{plain}_{images}.so", "-G and -lineinfo", made)
        yield Combination(f"{plain}_75.ptx", "-G and -lineinfo", _text("75", word))
        made = _cubin("90", PROBE, word)
        yield Combination(f"{plain}_90.cubin", "-G and -lineinfo", made)


# Triton compiles for cards that are not there.

_TRITON = """\
import triton, triton.language as tl
@triton.jit
def probe(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, i * 3 + 1, mask=i < n)
"""


def build_triton(folder: Path) -> list[Combination]:
    """Compile one Triton kernel for several cards; write cubin and PTX of each."""
    import importlib.util

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = folder / "triton_probe.py"
    source.write_text(_TRITON)
    spec = importlib.util.spec_from_file_location("triton_probe", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = folder / "objects" / "Triton"
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for number in (75, 80, 86, 89, 90, 100, 120):
        signature = {"out": "*i32", "n": "i32", "BLOCK": "constexpr"}
        asked = ASTSource(fn=module.probe, signature=signature, constexprs={"BLOCK": 64})
        with contextlib.suppress(Exception):  # an assembler that does not know the card
            made = triton.compile(asked, target=GPUTarget("cuda", number, 32))
            launch = Launch(
                blocks=1,
                threads=32 * made.metadata.num_warps,
                dynamic_shared=made.metadata.shared,
            )
            for form in ("cubin", "ptx"):
                content = made.asm[form]
                name = f"triton_{number}.{form}"
                data = content if isinstance(content, bytes) else content.encode()
                (out / name).write_bytes(data)
                found.append(Combination(name, "Triton", _fatbin(), launch))
    note(found, folder)
    return found
