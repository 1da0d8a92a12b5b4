#!/usr/bin/env python3
"""Build small environments of shared objects, each with one thing wrong in what it loads.

    python tests/data/build_linking.py FOLDER

makes every recipe below in FOLDER, with the C compiler that is installed: a site directory, and
`variables.json` where the fault needs a variable. Names are those of the recipes they stand for;
one that ends in `-right` is the same without the fault. C++ names are given to C functions, so
that no C++ compiler is needed and the names are exactly those of the reports.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

CC = shutil.which("cc")
# The new and the old constructor of c10::Error, and both forms of c10::cuda::SetDevice.
NEW_ERROR = (
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
)
OLD_ERROR = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
SET_DEVICE_INT, SET_DEVICE_CHAR = "_ZN3c104cuda9SetDeviceEi", "_ZN3c104cuda9SetDeviceEa"


def library(
    path: Path,
    source: str = "",
    *,
    needs: tuple[Path, ...] = (),
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    versions: str | None = None,
    flags: tuple[str, ...] = (),
) -> Path:
    """Compile C into a shared object; what it needs and does not find is left to the loader."""
    assert CC is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [CC, "-shared", "-fPIC", "-O0", "-x", "c", "-", "-o", str(path), *flags]
    command += ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", "-x", "none"]
    command += [f"-Wl,-soname,{path.name if soname is None else soname}"]
    if versions is not None:
        script = path.with_suffix(".map")
        script.write_text(versions)
        command.append(f"-Wl,--version-script={script}")
    if rpath is not None:
        command += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"]
    if runpath is not None:
        command += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"]
    command += map(str, needs)
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return path


def exports(*names: str) -> str:
    """Return C that defines functions of these names, whatever characters they have."""
    return "".join(
        f'void f{n}(void) __asm__("{name}"); void f{n}(void) {{}}\n' for n, name in enumerate(names)
    )


def module(name: str, *wants: str) -> str:
    """Return C of an extension module that calls functions of these names."""
    calls = "".join(
        f'extern void w{n}(void) __asm__("{want}");\n' for n, want in enumerate(wants)
    ) + "".join(f"void c{n}(void) {{ w{n}(); }}\n" for n in range(len(wants)))
    return f"{calls}void *PyInit_{name}(void) {{ return 0; }}\n"


@dataclass
class Made:
    """One environment."""

    site: Path
    variables: dict[str, str] = field(default_factory=dict)


def torch(site: Path, *, set_device: str = SET_DEVICE_CHAR) -> Path:
    """Make a PyTorch of a few symbols, with the loads of a real one; return its lib folder."""
    lib = site / "torch" / "lib"
    c10 = library(lib / "libc10.so", exports(NEW_ERROR, "_ZN3c106Device3strEv"))
    cuda = library(lib / "libc10_cuda.so", exports(set_device), needs=(c10,), runpath="$ORIGIN")
    library(lib / "libtorch_global_deps.so")
    library(site / "torch" / "_C.so", module("_C"), needs=(cuda,), runpath="$ORIGIN/lib")
    (site / "torch" / "__init__.py").write_text(
        "def _load_global_deps():\n    try:\n        pass\n    except OSError:\n        pass\n"
    )
    (site / "torch" / "version.py").write_text("__version__ = '2.14.1+cu130'\ncuda = '13.0'\n")
    return lib


def distribution(site: Path, name: str, version: str, *files: Path) -> None:
    """Write the dist-info of a package that owns these files."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    rows = [f"{path.relative_to(site)},," for path in files]
    (info / "RECORD").write_text("\n".join(rows) + "\n")


def extension(site: Path, *wants: str, needs: tuple[Path, ...] = (), **paths: str) -> Path:
    """Make the package `ext`, whose `__init__` imports `ext._C`."""
    made = library(site / "ext" / "_C.so", module("_C", *wants), needs=needs, **paths)
    (site / "ext" / "__init__.py").write_text("from ext import _C\n")
    distribution(site, "ext", "1.0", made)
    return made


def r12(folder: Path) -> Made:
    """The C++ ABI before C++11, against a PyTorch with the new one."""
    lib = torch(folder / "site")
    extension(folder / "site", OLD_ERROR, needs=(lib / "libc10.so",))
    return Made(folder / "site")


def r12_right(folder: Path) -> Made:
    lib = torch(folder / "site")
    extension(folder / "site", NEW_ERROR, needs=(lib / "libc10.so",))
    return Made(folder / "site")


def r13(folder: Path) -> Made:
    """SetDevice(int), as in older releases, against one that has SetDevice(signed char)."""
    lib = torch(folder / "site")
    extension(folder / "site", SET_DEVICE_INT, needs=(lib / "libc10_cuda.so",))
    return Made(folder / "site")


def r13_right(folder: Path) -> Made:
    lib = torch(folder / "site", set_device=SET_DEVICE_INT)
    extension(folder / "site", SET_DEVICE_INT, needs=(lib / "libc10_cuda.so",))
    return Made(folder / "site")


def r13_lazy(folder: Path) -> Made:
    """The same in a module that is imported when it is used."""
    made = r13(folder)
    (made.site / "ext" / "__init__.py").write_text("def use():\n    from ext import _C\n")
    return made


def r14(folder: Path) -> Made:
    """A version of libstdc++ that the copy which the loader finds does not define."""
    newer = library(
        folder / "newer" / "libstdc++.so.6",
        exports("_ZSt3newv"),
        versions="GLIBCXX_3.4.99 { global: *; };",
    )
    library(
        folder / "older" / "libstdc++.so.6",
        exports("_ZSt3oldv"),
        versions="GLIBCXX_3.4.30 { global: *; };",
    )
    extension(folder / "site", "_ZSt3newv", needs=(newer,))
    return Made(folder / "site", {"LD_LIBRARY_PATH": str(folder / "older")})


def r14_right(folder: Path) -> Made:
    made = r14(folder)
    return Made(made.site, {"LD_LIBRARY_PATH": str(folder / "newer")})


def r15(folder: Path) -> Made:
    """LD_LIBRARY_PATH has an older nvJitLink, which comes before that of RUNPATH."""
    made = r15_right(folder)
    library(
        folder / "other" / "libnvJitLink.so.12",
        exports("__nvJitLinkAddData_12_1"),
        versions="libnvJitLink.so.12 { global: *; };",
    )
    return Made(made.site, {"LD_LIBRARY_PATH": str(folder / "other")})


def r15_right(folder: Path) -> Made:
    good = library(
        folder / "site" / "nvidia" / "nvjitlink" / "lib" / "libnvJitLink.so.12",
        exports("__nvJitLinkAddData_12_1", "__nvJitLinkAddData_12_4"),
        versions="libnvJitLink.so.12 { global: *; };",
    )
    where = "$ORIGIN/../nvidia/nvjitlink/lib"
    extension(folder / "site", "__nvJitLinkAddData_12_4", needs=(good,), runpath=where)
    return Made(folder / "site")


def r15_nccl(folder: Path) -> Made:
    """PyTorch wants a function of NCCL that the copy on LD_LIBRARY_PATH is too old for."""
    site = folder / "site"
    lib = torch(site)
    where = site / "nvidia" / "nccl" / "lib"
    nccl = library(where / "libnccl.so.2", exports("ncclCommInitRank", "ncclCommRegister"))
    cuda = library(
        lib / "libtorch_cuda.so",
        module("libtorch_cuda", "ncclCommRegister"),
        needs=(nccl,),
        runpath="$ORIGIN/../../nvidia/nccl/lib",
    )
    library(site / "torch" / "_C.so", module("_C"), needs=(cuda,), runpath="$ORIGIN/lib")
    library(folder / "other" / "libnccl.so.2", exports("ncclCommInitRank"))
    return Made(site, {"LD_LIBRARY_PATH": str(folder / "other")})


def r15_nccl_right(folder: Path) -> Made:
    return Made(r15_nccl(folder).site)


def with_nvidias(folder: Path, name: str, wanted: str, *, has: tuple[str, ...]) -> Made:
    """Make a PyTorch that needs a function of one of NVIDIA's libraries, and its wheel's copy."""
    site = folder / "site"
    lib = torch(site)
    part = name.removeprefix("lib").partition(".")[0]
    copy = library(site / "nvidia" / part / "lib" / name, exports(wanted))
    needs = (lib / "libc10_cuda.so", copy)
    where = f"$ORIGIN/lib:$ORIGIN/../nvidia/{part}/lib"
    library(site / "torch" / "_C.so", module("_C", wanted), needs=needs, runpath=where)
    library(copy, exports(*has))
    return Made(site)


def r15_missing(folder: Path) -> Made:
    """An extension for CUDA 12 in an environment with the runtime of CUDA 13."""
    site = folder / "site"
    lib = torch(site)
    runtime = library(lib / "libcudart.so.13", exports("cudaMalloc"))
    other = library(folder / "elsewhere" / "libcudart.so.12", exports("cudaMalloc"))
    library(
        site / "torch" / "_C.so",
        module("_C"),
        needs=(lib / "libc10_cuda.so", runtime),
        runpath="$ORIGIN/lib",
    )
    extension(site, "cudaMalloc", needs=(lib / "libc10.so", other))
    return Made(site)


CUDNN = r"""
const char *const names[] = {"libcudnn_ops.so", "libcudnn_graph.so"};
void cudnnCreate(void) {}
"""


def r16_right(folder: Path) -> Made:
    """A cuDNN that opens two parts by name, and an nvrtc that opens its builtins."""
    site = folder / "site"
    where = site / "nvidia" / "cudnn" / "lib"
    cudnn = library(where / "libcudnn.so.9", CUDNN, runpath="$ORIGIN")
    for part in ("ops", "graph"):
        library(where / f"libcudnn_{part}.so.9", exports(f"cudnn_{part}"))
    nvrtc = library(
        where / "libnvrtc.so.12",
        'const char *const name[] = {"", "libnvrtc-builtins.so.12.8"}; void nvrtcVersion(void) {}',
        runpath="$ORIGIN",
    )
    library(where / "libnvrtc-builtins.so.12.8", exports("builtins"))
    lib = torch(site)
    library(
        site / "torch" / "_C.so",
        module("_C"),
        needs=(lib / "libc10_cuda.so", cudnn, nvrtc),
        runpath="$ORIGIN/lib:$ORIGIN/../nvidia/cudnn/lib",
    )
    distribution(site, "nvidia-cudnn-cu12", "9.1", *sorted(where.glob("libcudnn*.so.9")))
    distribution(site, "nvidia-cuda-nvrtc-cu12", "12.8", *sorted(where.glob("libnvrtc*.so.1*")))
    return Made(site)


def r16_cudnn(folder: Path) -> Made:
    """One part of cuDNN is gone."""
    made = r16_right(folder)
    (made.site / "nvidia" / "cudnn" / "lib" / "libcudnn_ops.so.9").unlink()
    return made


def r16_nvrtc(folder: Path) -> Made:
    """The builtins of nvrtc are gone."""
    made = r16_right(folder)
    (made.site / "nvidia" / "cudnn" / "lib" / "libnvrtc-builtins.so.12.8").unlink()
    return made


def r17_mixed(folder: Path) -> Made:
    """A part of another cuDNN comes first."""
    made = r16_right(folder)
    library(folder / "other" / "libcudnn_ops.so.9", exports("cudnn_ops"))
    return Made(made.site, {"LD_LIBRARY_PATH": str(folder / "other")})


def r20(folder: Path) -> Made:
    """The libcuda of forward compatibility on the loader's path."""
    where = folder / "usr" / "local" / "cuda" / "compat"
    library(where / "libcuda.so.1", exports("cuInit"))
    torch(folder / "site")
    return Made(folder / "site", {"LD_LIBRARY_PATH": str(where)})


def r20b(folder: Path) -> Made:
    """The libcuda that is for linking only on the loader's path."""
    where = folder / "usr" / "local" / "cuda" / "lib64" / "stubs"
    library(where / "libcuda.so.1", exports("cuInit"))
    torch(folder / "site")
    return Made(folder / "site", {"LD_LIBRARY_PATH": str(where)})


RECIPES: dict[str, Callable[[Path], Made]] = {
    "R12": r12,
    "R12-right": r12_right,
    "R13": r13,
    "R13-right": r13_right,
    "R13-lazy": r13_lazy,
    "R14": r14,
    "R14-right": r14_right,
    "R15": r15,
    "R15-right": r15_right,
    "R15-missing": r15_missing,
    "R15-nccl": r15_nccl,
    "R15-nccl-right": r15_nccl_right,
    "R16-right": r16_right,
    "R16-cudnn": r16_cudnn,
    "R16-nvrtc": r16_nvrtc,
    "R17-mixed": r17_mixed,
    "R20": r20,
    "R20b": r20b,
}


def main() -> None:
    for name, build in RECIPES.items():
        folder = Path(sys.argv[1]) / name
        made = build(folder)
        (folder / "variables.json").write_text(json.dumps(made.variables))


if __name__ == "__main__":
    main()
