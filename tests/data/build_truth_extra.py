#!/usr/bin/env python3
"""Build the small device-code files of ``truth-extra/objects`` with nvcc.

The files cover what ``truth`` does not: relocatable device code, several objects in
one library, headers that disagree with their payload, LTO-IR, several containers in
one image, unusual PTX text. What a card did with each is measured by
``run_truth.py`` and kept in ``truth-extra/<card>.json``.

Needs nvcc 13.0 (``--cuda``). Cubins of older toolkits need only those toolkits'
``ptxas``; name each as ``--toolkit VERSION=DIRECTORY`` (the directory that holds
``ptxas``). Objects whose toolkit is not named are left as they are.

Libraries link the CUDA runtime as a shared library, which keeps each at 15 kB. With
``--cudart static`` the same libraries carry the runtime inside, at 0.7 MB each; the
device code is the same. Both were run on the card and behaved alike.

Every library exports ``int launch(int which)`` (0, a ``cudaError``, 1000 + error where
the set-up failed, -1 for wrong numbers) and ``const char *launch_name(int which)``,
which gives the kernel's name or NULL past the last one.

File names: ``sNN`` is a cubin for sm_NN, ``pNN`` is PTX, ``lNN`` is LTO-IR; ``__``
separates containers or objects, ``_`` separates entries of one container.
"""

from __future__ import annotations

import argparse
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent

CONTAINER = struct.Struct("<IHHQ")
CONTAINER_MAGIC = 0xBA55ED50
FLAG_A, FLAG_F = 0x100000, 0x200000

# One kernel per file. The numbers that a kernel writes are checked by RUN.
HARNESS = r"""
#include <cuda_runtime_api.h>
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED 0
#endif
static int run_kernel(const void *kernel, int mul, int add)
{
    enum { N = 64 };
    int n = N, host[N], *device = 0;
    void *args[2] = {&device, &n};
    dim3 blocks(2, 1, 1), threads(32, 1, 1);
    cudaError_t error = cudaMalloc((void **)&device, sizeof host);
    if (error != cudaSuccess) return 1000 + (int)error;
    cudaMemset(device, 0xff, sizeof host);
    error = cudaLaunchKernel(kernel, blocks, threads, args, DYNAMIC_SHARED, 0);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return (int)error;
    for (int i = 0; i < N; i++)
        if (host[i] != i * mul + add) return -1;
    cudaFree(device);
    return 0;
}
#define RUN(name, kernel, mul, add) \
    extern "C" int run_##name(void) { return run_kernel((const void *)kernel, mul, add); }
"""

# The kernel of every image that is loaded without the runtime.
PROBE = r"""
extern "C" __global__ void probe(int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i * 3 + 1;
}
"""
ADD2 = PROBE.replace("probe", "add2").replace("i * 3 + 1", "i * 5 + 2")
SAME_A = PROBE.replace('extern "C"', "static") + "RUN(first, probe, 3, 1)\n"
SAME_B = (
    PROBE.replace('extern "C"', "static").replace("i * 3 + 1", "i * 5 + 2")
    + "RUN(second, probe, 5, 2)\n"
)
RUN_PROBE = "RUN(probe, probe, 3, 1)\n"
RUN_ADD2 = "RUN(add2, add2, 5, 2)\n"
CALLS_HELPER = "extern __device__ int helper(int);\n" + PROBE.replace("i * 3 + 1", "helper(i)")
HELPER = "__device__ int helper(int i) { return i * 3 + 1; }\n"
TRAPS_BELOW_100 = PROBE.replace(
    "    if (i < n)", '#if __CUDA_ARCH__ < 1000\n    asm("trap;");\n#endif\n    if (i < n)'
)
EMPTY_BELOW_100 = PROBE.replace(
    "    if (i < n)", "#if __CUDA_ARCH__ >= 1000\n    if (i < n)"
).replace("+ 1;", "+ 1;\n#endif")

# The host half that nvcc would write, for device code that nvcc would not.
HAND_HOST = r"""
#include <crt/host_defines.h>
extern "C" void **__cudaRegisterFatBinary(void *);
extern "C" void __cudaRegisterFatBinaryEnd(void **);
extern "C" void __cudaUnregisterFatBinary(void **);
extern "C" void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *,
                                       int *);
asm(".section .nv_fatbin,\"a\"\n.balign 8\nfatbin_image:\n.incbin \"image.fatbin\"\n.balign 8\n.text\n");
extern "C" const char fatbin_image[] __attribute__((visibility("hidden")));
static const struct { int magic, version; const void *data; void *extra; } wrapper
    __attribute__((section(".nvFatBinSegment"), used)) = {0x466243b1, 1, fatbin_image + IMAGE_OFFSET, 0};
static void **handle;
static char probe_host;
static char probe_name[] = "probe";
__attribute__((constructor)) static void enter(void)
{
    handle = __cudaRegisterFatBinary((void *)&wrapper);
    __cudaRegisterFunction(handle, &probe_host, probe_name, probe_name, -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
}
__attribute__((destructor)) static void leave(void) { __cudaUnregisterFatBinary(handle); }
RUN(probe, &probe_host, 3, 1)
"""


def gencode(*images: str) -> list[str]:
    """Turn ``s90a``, ``p80``, ``l90`` into the options of nvcc."""
    kinds = {"s": "sm_", "p": "compute_", "l": "lto_"}
    options = []
    for image in images:
        arch = image[1:]
        options += ["-gencode", f"arch=compute_{arch},code={kinds[image[0]]}{arch}"]
    return options


def split(container: bytes) -> list[bytes]:
    """Return the entries of one fatbin container."""
    magic, _, size, total = CONTAINER.unpack_from(container)
    if magic != CONTAINER_MAGIC:
        message = "not a fatbin container"
        raise ValueError(message)
    entries, at = [], size
    while at < size + total:
        header, payload = struct.unpack_from("<IQ", container, at + 4)
        entries.append(container[at : at + header + payload])
        at += header + payload
    return entries


def join(*entries: bytes) -> bytes:
    """Return one fatbin container that holds the entries."""
    body = b"".join(entries)
    return CONTAINER.pack(CONTAINER_MAGIC, 1, CONTAINER.size, len(body)) + body


def relabel(
    entry: bytes,
    *,
    arch: int | None = None,
    isa: tuple[int, int] | None = None,
    set_flags: int = 0,
    clear_flags: int = 0,
) -> bytes:
    """Change what an entry's header says, and nothing in its payload."""
    data = bytearray(entry)
    if arch is not None:
        struct.pack_into("<I", data, 0x1C, arch)
    if isa is not None:
        struct.pack_into("<HH", data, 0x18, isa[1], isa[0])
    (flags,) = struct.unpack_from("<Q", data, 0x28)
    struct.pack_into("<Q", data, 0x28, (flags | set_flags) & ~clear_flags)
    return bytes(data)


def retext(entry: bytes, old: bytes, new: bytes) -> bytes:
    """Change an uncompressed PTX payload in place; both texts have the same length."""
    if len(old) != len(new) or entry.count(old) != 1:
        message = f"cannot replace {old!r}"
        raise ValueError(message)
    return entry.replace(old, new)


@dataclass
class Builder:
    """Run the compilers in a scratch directory and write objects."""

    out: Path
    cuda: Path
    toolkits: dict[str, Path]
    cudart: str
    work: Path
    shared_only: bool
    done: list[str] = field(default_factory=list)

    def call(self, *command: str) -> None:
        """Run one compiler; its words reach the user only if it fails."""
        result = subprocess.run(command, cwd=self.work, capture_output=True, text=True, check=False)
        if result.returncode:
            message = f"{' '.join(command)}\n{result.stdout}{result.stderr}"
            raise RuntimeError(message)

    def nvcc(self, *options: str) -> None:
        """Run nvcc."""
        self.call(str(self.cuda / "bin" / "nvcc"), *options)

    def text(self, name: str, content: str) -> str:
        """Write one source file."""
        (self.work / name).write_text(content)
        return name

    def write(self, name: str, content: bytes) -> None:
        """Write one finished object."""
        if self.shared_only and not name.endswith(".so"):
            return
        (self.out / name).write_bytes(content)
        self.done.append(name)

    # -- pieces ---------------------------------------------------------------------

    def ptx(self, arch: str, *options: str, source: str = PROBE, isa: str | None = None) -> str:
        """Return the PTX text for one virtual architecture."""
        self.text("k.cu", source)
        self.nvcc("-ptx", f"-arch=compute_{arch}", *options, "k.cu", "-o", "k.ptx")
        text = (self.work / "k.ptx").read_text()
        return text if isa is None else re.sub(r"\.version \d+\.\d+", f".version {isa}", text)

    def fatbin(
        self, *images: str, mode: str = "none", options: tuple[str, ...] = (), source: str = PROBE
    ) -> bytes:
        """Return the container that nvcc makes for the images."""
        self.text("k.cu", source)
        self.nvcc(
            "-fatbin",
            *gencode(*images),
            f"--compress-mode={mode}",
            *options,
            "k.cu",
            "-o",
            "k.fatbin",
        )
        return (self.work / "k.fatbin").read_bytes()

    def entry(self, image: str, *, options: tuple[str, ...] = ()) -> bytes:
        """Return one entry, uncompressed."""
        (entry,) = split(self.fatbin(image, options=options))
        return entry

    def old_cubin(self, toolkit: str, arch: str) -> bytes:
        """Return the cubin that an older ptxas makes."""
        isa = {"11.8": "7.8", "12.4": "8.4", "12.8": "8.7"}[toolkit]
        self.text("old.ptx", self.ptx(arch, isa=isa))
        self.call(
            str(self.toolkits[toolkit] / "ptxas"), f"-arch=sm_{arch}", "old.ptx", "-o", "old.cubin"
        )
        return (self.work / "old.cubin").read_bytes()

    def wrap_cubin(self, arch: str, cubin: bytes) -> bytes:
        """Return a container around a finished cubin."""
        (self.work / "wrap.cubin").write_bytes(cubin)
        self.call(
            str(self.cuda / "bin" / "fatbinary"),
            "-64",
            "--create=wrap.fatbin",
            f"--image3=kind=elf,sm={arch},file=wrap.cubin",
            "--compress-mode=none",
        )
        return (self.work / "wrap.fatbin").read_bytes()

    # -- libraries ------------------------------------------------------------------

    def table(self, kernels: list[str]) -> str:
        """Compile the exported launcher; return its object file."""
        lines = [f"int run_{name}(void);" for name in kernels]
        lines += ["int launch(int which) {"]
        lines += [f"    if (which == {at}) return run_{name}();" for at, name in enumerate(kernels)]
        lines += ["    return -2;", "}", "const char *launch_name(int which) {"]
        lines += [f'    if (which == {at}) return "{name}";' for at, name in enumerate(kernels)]
        lines += ["    return 0;", "}"]
        self.text("table.c", "\n".join(lines) + "\n")
        self.call("gcc", "-O1", "-fPIC", "-c", "table.c", "-o", "table.o")
        return "table.o"

    def link(self, name: str, objects: list[str], *, device_link: tuple[str, ...] | None) -> None:
        """Link a library; ``device_link`` holds nvcc's options, or None for the host linker alone."""
        small = ["-z", "noseparate-code", "-s", "--build-id=none", "--as-needed"]
        output = str(self.work / name)
        if device_link is not None:
            extra = [item for option in small for item in ("-Xlinker", option)]
            self.nvcc(
                "-shared", "-cudart", self.cudart, *device_link, *extra, *objects, "-o", output
            )
        else:
            runtime = (
                ["-lcudart"]
                if self.cudart == "shared"
                else ["-lcudart_static", "-lpthread", "-ldl", "-lrt"]
            )
            extra = ["-Wl," + ",".join(small)]
            lib = next(path for part in ("lib64", "lib") if (path := self.cuda / part).is_dir())
            self.call("g++", "-shared", *extra, *objects, f"-L{lib}", *runtime, "-o", output)
        self.write(name, (self.work / name).read_bytes())

    def compile(self, name: str, source: str, *options: str, harness: str = HARNESS) -> str:
        """Compile one .cu file for a library; return its object file."""
        self.text(f"{name}.cu", harness + source)
        self.nvcc("-Xcompiler", "-fPIC", *options, f"{name}.cu", "-o", f"{name}.o")
        return f"{name}.o"

    def plain(
        self,
        name: str,
        *units: tuple[str, str, list[str]],
        options: tuple[str, ...] = (),
        harness: str = HARNESS,
    ) -> None:
        """Build a library of whole-program objects: (kernel, source, images) each."""
        objects = [
            self.compile(f"u{at}", source, "-c", *gencode(*images), *options, harness=harness)
            for at, (_, source, images) in enumerate(units)
        ]
        self.link(name, [*objects, self.table([kernel for kernel, _, _ in units])], device_link=())

    def rdc(
        self,
        name: str,
        kernels: list[str],
        *units: tuple[str, list[str]],
        linked: str,
        options: tuple[str, ...] = (),
        patch: tuple[bytes, bytes] | None = None,
    ) -> None:
        """Build a library of relocatable objects, device-linked for ``linked`` alone."""
        objects = []
        for at, (source, images) in enumerate(units):
            made = self.compile(f"u{at}", source, "-dc", *gencode(*images), *options)
            if patch is not None:
                path = self.work / made
                path.write_bytes(retext(path.read_bytes(), *patch))
            objects.append(made)
        lto = ["-dlto"] if any(image[0] == "l" for _, images in units for image in images) else []
        self.nvcc(
            "-dlink", *lto, "-Xcompiler", "-fPIC", *gencode(linked), *objects, "-o", "dlink.o"
        )
        self.link(name, [*objects, "dlink.o", self.table(kernels)], device_link=None)

    def by_hand(self, name: str, image: bytes, *, offset: int = 0) -> None:
        """Build a library around any bytes; its wrapper points ``offset`` into them."""
        (self.work / "image.fatbin").write_bytes(image)
        self.text("hand.cpp", HARNESS + HAND_HOST.replace("IMAGE_OFFSET", str(offset)))
        self.call(
            "g++",
            "-O1",
            "-fPIC",
            "-fno-exceptions",
            f"-I{self.cuda}/include",
            "-c",
            "hand.cpp",
            "-o",
            "hand.o",
        )
        self.link(name, ["hand.o", self.table(["probe"])], device_link=None)


def build_headers(b: Builder) -> None:
    """Entries whose header and payload disagree."""
    e = b.entry
    s80, s89, s90, s90a, s100 = e("s80"), e("s89"), e("s90"), e("s90a"), e("s100")
    p80, p90, p90a, p120 = e("p80"), e("p90"), e("p90a"), e("p120")
    cases = {
        "h80_is_s90": [relabel(s90, arch=80)],
        "h89_is_s90": [relabel(s90, arch=89)],
        "h100_is_s90": [relabel(s90, arch=100)],
        "h90_is_s80": [relabel(s80, arch=90)],
        "h90_is_s89": [relabel(s89, arch=90)],
        "h90_is_s100": [relabel(s100, arch=90, clear_flags=0x1000000)],
        "h90_is_s80__p80": [relabel(s80, arch=90), p80],
        "h90_is_s90a": [relabel(s90a, clear_flags=FLAG_A)],
        "h90a_is_s90": [relabel(s90, set_flags=FLAG_A)],
        "h90f_is_s90": [relabel(s90, set_flags=FLAG_F)],
        "hp80_is_p120": [relabel(p120, arch=80)],
        "hp120_is_p80": [relabel(p80, arch=120)],
        "hp90_is_p90a": [relabel(p90a, clear_flags=FLAG_A)],
        "hp90a_is_p90": [relabel(p90, set_flags=FLAG_A)],
        "hp100a_is_p90a": [relabel(p90a, arch=100)],
        "hisa9.0_is_isa9.1": [retext(p80, b".version 9.0", b".version 9.1")],
        "hisa9.1_is_isa9.0": [relabel(p80, isa=(9, 1))],
        "s90_zeroed_p80": [s90[:0x40] + bytes(len(s90) - 0x40), p80],
    }
    for name, entries in cases.items():
        b.write(f"head_{name.replace('__', '_')}.fatbin", join(*entries))
    for name in ("h80_is_s90", "h90_is_s80__p80", "h90a_is_s90", "hp120_is_p80"):
        b.by_hand(f"head_{name.replace('__', '_')}.so", join(*cases[name]))


def build_containers(b: Builder) -> None:
    """Images of several containers, and several entries in one container."""
    e = b.entry
    s80, s90, s120, p80, p90 = e("s80"), e("s90"), e("s120"), e("p80"), e("p90")
    s90a, p90a = e("s90a"), e("p90a")
    p90_91 = relabel(retext(p90, b".version 9.0", b".version 9.1"), isa=(9, 1))
    p80_91 = relabel(retext(p80, b".version 9.0", b".version 9.1"), isa=(9, 1))
    stub = split(b.fatbin("s75", source="/* no kernel */\n"))[0]
    cases = {
        "s80__s90": join(s80) + join(s90),
        "s90__s80": join(s90) + join(s80),
        "s80__p80": join(s80) + join(p80),
        "empty__s90": join() + join(s90),
        "stub75__s90": join(stub) + join(s90),
    }
    for name, image in cases.items():
        b.write(f"cc_{name}.fatbin", image)
        b.by_hand(f"cc_{name}.so", image)
    # The wrapper decides where the runtime looks, not the section.
    b.by_hand("cc_s80__s90_wrapper2.so", join(s80) + join(s90), offset=len(join(s80)))
    b.by_hand("cc_s90__s80_wrapper2.so", join(s90) + join(s80), offset=len(join(s90)))
    entries = {
        "s120_s80_s90": [s120, s80, s90],
        "s90_s90a": [s90, s90a],
        "p80isa9.1": [p80_91],
        "s80_p80isa9.1": [s80, p80_91],
        "p80_p90isa9.1": [p80, p90_91],
        "p90isa9.1_p80": [p90_91, p80],
        "p80_p80isa9.1": [p80, p80_91],
        "p80isa9.1_p80": [p80_91, p80],
        "p90isa9.1_p80_s120": [p90_91, p80, s120],
        "s90_p90isa9.1": [s90, p90_91],
        "p80_p90a": [p80, p90a],
        "stub75": [stub],
        "stub75_s90": [stub, s90],
        "empty": [],
    }
    for name, items in entries.items():
        b.write(f"one_{name}.fatbin", join(*items))
    for name in ("p80isa9.1", "p80_p90isa9.1", "p90isa9.1_p80", "stub75", "empty"):
        b.by_hand(f"one_{name}.so", join(*entries[name]))
    # Two fitting entries, one of which computes other numbers: which does the driver take?
    wrong_s90, wrong_p80 = (
        split(b.fatbin(image, source=PROBE.replace("i * 3 + 1", "i * 7 + 7")))[0]
        for image in ("s90", "p80")
    )
    order = {
        "s90_s90wrong": [s90, wrong_s90],
        "s90wrong_s90": [wrong_s90, s90],
        "p80_p80wrong": [p80, wrong_p80],
        "p80wrong_p80": [wrong_p80, p80],
        "s90wrong_p90": [wrong_s90, p90],
        "p90_p80wrong": [p90, wrong_p80],
        "s90wrong_s90a": [wrong_s90, s90a],
        "s90a_s90wrong": [s90a, wrong_s90],
        "p90a_p80wrong": [p90a, wrong_p80],
        "s90other_p80": [split(b.fatbin("s90", source=ADD2))[0], p80],
    }
    for name, items in order.items():
        b.write(f"notarch_order_{name}.fatbin", join(*items))
    debug = ("-G",)
    b.write("one_s90_debug.fatbin", b.fatbin("s90", options=debug))
    b.write("one_p80_debug.fatbin", b.fatbin("p80", options=debug))
    b.write("one_s90_lineinfo.fatbin", b.fatbin("s90", options=("-lineinfo",)))
    for name in ("s90", "p80", "s80", "s80_p80"):
        made = b.fatbin(*name.split("_"), options=("-rdc=true",))
        b.write(f"reloc_{name}.fatbin", made)


def build_lto(b: Builder) -> None:
    """LTO-IR alone and beside other kinds, loaded as an image."""
    rdc = ("-rdc=true",)
    lto = {arch: b.entry(f"l{arch}", options=rdc) for arch in ("80", "90", "120")}
    e = b.entry
    cases = {
        "l80": [lto["80"]],
        "l90": [lto["90"]],
        "l120": [lto["120"]],
        "l90_s80": [lto["90"], e("s80")],
        "l90_s90": [lto["90"], e("s90")],
        "l90_p80": [lto["90"], e("p80")],
        "l120_p80": [lto["120"], e("p80")],
    }
    for name, entries in cases.items():
        b.write(f"lto_{name}.fatbin", join(*entries))
    b.by_hand("lto_l90.so", join(lto["90"]))
    b.by_hand("lto_l90_p80.so", join(lto["90"], e("p80")))


def build_ptx(b: Builder) -> None:
    """PTX text: versions, targets and unusual spelling."""
    texts = {
        "isa8.0_90a": b.ptx("90a", isa="8.0"),
        "isa7.8_90a": b.ptx("90a", isa="7.8"),
        "isa9.0_90a": b.ptx("90a"),
        "isa9.1_90a": b.ptx("90a", isa="9.1"),
        "isa9.0_90": b.ptx("90"),
        "isa7.0_80": b.ptx("80", isa="7.0"),
        "isa6.5_80": b.ptx("80", isa="6.5"),
        "isa9.0_100": b.ptx("100"),
        "isa8.7_120": b.ptx("120", isa="8.7"),
    }
    base = b.ptx("75")
    body = base[base.index(".version") :]
    old = body.replace(".target sm_75", ".target sm_52")
    texts["isa6.0_52"] = re.sub(r"\.version \d+\.\d+", ".version 6.0", old)
    texts["isa4.0_30"] = re.sub(
        r"\.version \d+\.\d+", ".version 4.0", old.replace("sm_52", "sm_30")
    )
    p80 = b.ptx("80", isa="8.0")
    body = p80[p80.index(".version") :]
    one_line = re.sub(
        r"\A(\.version \d+\.\d+)\s+(\.target sm_\d+)\s+(\.address_size 64)", r"\1 \2 \3", body
    )
    texts |= {
        "comments": "// a line\n/* a block\n   of two */ // both\n" + body,
        "decoy": "// .version 9.9\n/* .version 9.9\n.target sm_120a\n*/\n" + body,
        "crlf": p80.replace("\n", "\r\n"),
        "blanklines": "\n" * 3000 + " \t\n" * 500 + body,
        "oneline": one_line,
        "tabs": re.sub(
            r"\A\.version (\d+\.\d+)\s+\.target sm", r".version\t\1\n\t.target\t\tsm", body
        ),
        "debug_80": b.ptx("80", "-G"),
        "texmode": body.replace(".target sm_80", ".target sm_80, texmode_independent"),
        "comment_inside": body.replace(".target sm_80", ".target /* sm_120 */ sm_80"),
        "no_address_size": body.replace(".address_size 64", ""),
        "two_targets": body.replace(".target sm_80", ".target sm_80\n.target sm_90"),
        "no_target": body.replace(".target sm_80", ""),
        "no_version": re.sub(r"\.version \d+\.\d+", "", body),
        "smem160k": body.replace("{", "{\n\t.shared .align 4 .b8 big[163840];", 1),
        "wgmma_90": b.ptx("90").replace("ret;", "wgmma.fence.sync.aligned;\n\tret;"),
    }
    for name, text in texts.items():
        b.write(f"ptx_{name}.ptx", text.encode())
    b.write("ptx_bom.ptx", b"\xef\xbb\xbf" + body.encode())
    b.write("ptx_leading_space.ptx", b"  \n\t" + body.encode())
    # Not a matter of architecture: sound targets, and yet no working launch.
    other = {
        "debug_noinfo": body.replace(".target sm_80", ".target sm_80, debug"),
        "smem300k": body.replace("{", "{\n\t.shared .align 4 .b8 big[307200];", 1),
        "wgmma_one_warp": b.ptx("90a").replace("ret;", "wgmma.fence.sync.aligned;\n\tret;"),
    }
    for name, text in other.items():
        b.write(f"notarch_ptx_{name}.ptx", text.encode())


def build_plain(b: Builder) -> None:
    """Libraries of whole-program objects."""
    probe, add2 = PROBE + RUN_PROBE, ADD2 + RUN_ADD2
    for images in (
        "s90", "p90", "s80", "s80_s90", "s89_p89", "s90a", "p90a", "s90a_p90a", "s80_p90", "s120_p120",
        "s120_p80", "s80_p120", "s100f_p100f", "p100f", "s120f", "s75_s120_p86",
    ):  # fmt: skip
        b.plain(f"so_{images}.so", ("probe", probe, images.split("_")))
    b.plain("so_s90_debug.so", ("probe", probe, ["s90"]), options=("-G",))
    for mode in ("none", "speed", "balance", "size"):
        b.plain(
            f"cmp_{mode}_s80_p80.so",
            ("probe", probe, ["s80", "p80"]),
            options=(f"--compress-mode={mode}",),
        )
    b.plain("cmp_all_s90.so", ("probe", probe, ["s90"]), options=("-Xfatbin", "-compress-all"))
    b.plain("two_add80__add2_80_90.so", ("probe", probe, ["s80"]), ("add2", add2, ["s80", "s90"]))
    b.plain("two_add2_80_90__add80.so", ("add2", add2, ["s80", "s90"]), ("probe", probe, ["s80"]))
    b.plain("two_add120__add2_90.so", ("probe", probe, ["s120"]), ("add2", add2, ["s90"]))
    b.plain("two_add2_90__add120.so", ("add2", add2, ["s90"]), ("probe", probe, ["s120"]))
    b.plain("two_add80__add2_p80.so", ("probe", probe, ["s80"]), ("add2", add2, ["s80", "p80"]))
    b.plain("two_add80_120__add2_80.so", ("probe", probe, ["s80", "s120"]), ("add2", add2, ["s80"]))
    b.plain("same_80__90.so", ("first", SAME_A, ["s80"]), ("second", SAME_B, ["s90"]))
    b.plain("same_90__80.so", ("first", SAME_A, ["s90"]), ("second", SAME_B, ["s80"]))
    b.plain(
        "nokernel_cudart.so",
        ("nothing", 'extern "C" int run_nothing(void) { return (int)cudaFree(0); }\n', ["s80"]),
    )
    # Not a matter of architecture: the code is there, the launch cannot work.
    b.plain(
        "notarch_smem300k.so",
        ("probe", probe, ["s90"]),
        harness="#define DYNAMIC_SHARED 307200\n" + HARNESS,
    )
    b.plain("notarch_emptybody_s90.so", ("probe", EMPTY_BELOW_100 + RUN_PROBE, ["s90", "s100"]))
    b.plain("notarch_trap_s90.so", ("probe", TRAPS_BELOW_100 + RUN_PROBE, ["s90", "s100"]))


def build_rdc(b: Builder) -> None:
    """Libraries of relocatable objects: one linked image, the objects' own images beside it."""
    probe, add2 = PROBE + RUN_PROBE, ADD2 + RUN_ADD2
    calls = CALLS_HELPER + RUN_PROBE
    for linked, images in (
        ("s90", "s90"), ("s80", "s80_s90"), ("s120", "s90_s120"), ("s80", "s80_p80"), ("s120", "p80_s120"),
        ("s120", "p90_s120"), ("s120", "s120_p120"), ("s80", "s80_p90"), ("s80", "s80_p90a"), ("s80", "s80_p120"),
        ("s80", "s80_s90_p80"), ("s90a", "s90a"), ("s80", "s80_s90a"),
    ):  # fmt: skip
        b.rdc(
            f"rdc_link{linked[1:]}_rel_{images}.so",
            ["probe"],
            (probe, images.split("_")),
            linked=linked,
        )
    # Two objects that call each other, and two that do not.
    for tag, a_images, b_images in (
        ("p80__none", "s120_p80", "s120"),
        ("none__p80", "s120", "s120_p80"),
        ("p80__p80", "s120_p80", "s120_p80"),
        ("p80__s90", "s120_p80", "s120_s90"),
        ("p80__p90", "s120_p80", "s120_p90"),
        ("s90__s90", "s120_s90", "s120_s90"),
        ("s90__none", "s120_s90", "s120"),
        ("s90__s90a", "s120_s90", "s120_s90a"),
        ("s90__p120", "s120_s90", "s120_p120"),
    ):
        units = (calls, a_images.split("_")), (HELPER, b_images.split("_"))
        b.rdc(f"rdc2_call_link120_{tag}.so", ["probe"], *units, linked="s120")
    for tag, a_images, b_images in (
        ("p80__none", "s120_p80", "s120"),
        ("none__p80", "s120", "s120_p80"),
    ):
        units = (probe, a_images.split("_")), (add2, b_images.split("_"))
        b.rdc(f"rdc2_apart_link120_{tag}.so", ["probe", "add2"], *units, linked="s120")
    # PTX newer than the driver, only in the relocatable part; its header still says 9.0.
    b.rdc(
        "head_rdc_link80_rel_hisa9.0_is_isa9.1.so",
        ["probe"],
        (probe, ["s80", "p80"]),
        linked="s80",
        options=("--compress-mode=none",),
        patch=(b".version 9.0", b".version 9.1"),
    )
    # LTO-IR in the relocatable part.
    for linked, images in (
        ("s80", "l80"),
        ("s90", "l90"),
        ("s90", "l80"),
        ("s120", "l80"),
        ("s80", "l80_p80"),
    ):
        b.rdc(
            f"rdc_link{linked[1:]}_rel_{images}.so",
            ["probe"],
            (probe, images.split("_")),
            linked=linked,
        )
    # Relocatable and whole-program objects in one library.
    whole = b.compile("whole", add2, "-c", *gencode("s80", "s90"))
    part = b.compile("part", probe, "-dc", *gencode("s80"))
    b.nvcc("-dlink", "-Xcompiler", "-fPIC", *gencode("s80"), part, whole, "-o", "dlink.o")
    b.link(
        "mix_rdc80__plain_80_90.so",
        [part, whole, "dlink.o", b.table(["probe", "add2"])],
        device_link=None,
    )


def build_old(b: Builder) -> None:
    """Cubins of older assemblers inside libraries."""
    for toolkit in sorted(b.toolkits):
        arches = {"11.8": ["80", "90"], "12.4": ["80", "90", "90a"], "12.8": ["90", "90a", "120"]}[
            toolkit
        ]
        for arch in arches:
            b.by_hand(f"cu{toolkit}_s{arch}.so", b.wrap_cubin(arch, b.old_cubin(toolkit, arch)))


def build_parser_only(b: Builder) -> None:
    """Objects and archives that nothing loads: for readers of files only."""
    probe = PROBE + RUN_PROBE
    plain = b.compile("plain_s80_p80", probe, "-c", *gencode("s80", "p80"))
    rdc = b.compile("rdc_s90_p90", CALLS_HELPER + RUN_PROBE, "-dc", *gencode("s90", "p90"))
    for made in (plain, rdc):
        b.write(made, (b.work / made).read_bytes())
    for archive, members in {"one.a": [plain], "both.a": [plain, rdc, b.table(["probe"])]}.items():
        (b.work / archive).unlink(missing_ok=True)
        b.call("ar", "rcsD", archive, *members)
        b.write(archive, (b.work / archive).read_bytes())


GROUPS = {
    "headers": build_headers,
    "containers": build_containers,
    "lto": build_lto,
    "ptx": build_ptx,
    "plain": build_plain,
    "rdc": build_rdc,
    "old": build_old,
    "parser": build_parser_only,
}


def named_directory(text: str) -> tuple[str, Path]:
    """Read ``12.4=/path``."""
    name, _, path = text.partition("=")
    return name, Path(path)


def main() -> int:
    """Build every group, or the named ones."""
    default_cuda = shutil.which("nvcc")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "groups", nargs="*", choices=[[], *GROUPS], metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument("--out", type=Path, default=HERE / "truth-extra" / "objects")
    parser.add_argument(
        "--cuda", type=Path, default=default_cuda and Path(default_cuda).resolve().parent.parent
    )
    parser.add_argument(
        "--toolkit", type=named_directory, action="append", default=[], metavar="VERSION=DIR"
    )
    parser.add_argument("--cudart", choices=["shared", "static"], default="shared")
    parser.add_argument("--only-libraries", action="store_true", help="write the .so files alone")
    options = parser.parse_args()
    if options.cuda is None:
        parser.error("nvcc is not on PATH; name its toolkit with --cuda")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        builder = Builder(
            out=options.out,
            cuda=options.cuda,
            toolkits=dict(options.toolkit),
            cudart=options.cudart,
            work=Path(scratch),
            shared_only=options.only_libraries,
        )
        for group in options.groups or GROUPS:
            GROUPS[group](builder)
            sys.stderr.write(f"{group}: {len(builder.done)} files so far\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
