"""What a job compiles with: compilers, headers, nvcc, variables, folders (recipes R21, R25, R37, R38)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import ask, distribution, environment, scanned

from envcheck.core.distribution import Distribution
from envcheck.core.model import Finding, Inventory, Torch, Triton
from envcheck.core.tools import Compiler, Folder, Named, Nvcc, Tools

GCC = Compiler(
    language="c", origin="PATH", named="gcc", path="/usr/bin/gcc", family="gcc", version=12
)
GXX = replace(GCC, language="c++", named="g++", path="/usr/bin/g++")
NVCC = Nvcc(
    origin="PATH",
    home="/usr/local/cuda",
    path="/usr/local/cuda/bin/nvcc",
    release="13.0",
    newest_gcc=15,
)
FOLDER = Folder(
    role="triton",
    origin="default",
    path="/root/.triton/cache",
    exists=False,
    kind="folder",
    writable=True,
    free=1 << 40,
)
WHOLE = Tools(
    compilers=(GCC, GXX),
    python_header="/usr/include/python3.11/Python.h",
    python_header_exists=True,
    ldconfig=True,
    libcuda=("/usr/lib/x86_64-linux-gnu",),
    libcuda_link=("/usr/lib/x86_64-linux-gnu",),
    nvcc=NVCC,
    ninja="/usr/bin/ninja",
    folders=(FOLDER,),
)
TORCH = distribution("torch", "2.14.1")
LIGER = (TORCH, distribution("triton", "3.8.0"), distribution("liger-kernel", "0.8.5"))
GSPLAT = (TORCH, replace(distribution("gsplat", "1.5.3"), record_digest="0" * 64))


def made(
    tools: Tools, *distributions: Distribution, triton: str = "3.8.0", cuda: str = "13.0"
) -> Inventory:
    found = distributions or (TORCH, distribution("triton", triton))
    versions = {d.name: d.version for d in found}
    made = environment(
        distributions=found,
        torch=Torch(version="2.14.1+cu130", cuda=cuda),
        triton=Triton(version=versions["triton"]) if "triton" in versions else None,
    )
    assert made.environment is not None
    return replace(made, environment=replace(made.environment, tools=tools))


def found(
    check: str, tools: Tools, *distributions: Distribution, sm: str = "sm_120", **more: str
) -> dict[str, Finding]:
    return {f.subject: f for f in ask(check, made(tools, *distributions, **more), sm)}


def status(findings: dict[str, Finding]) -> dict[str, tuple[str, bool]]:
    return {s: (f.status.value, f.required) for s, f in findings.items()}


JIT = "jit-tools-are-there"


def test_a_whole_environment_for_development_passes() -> None:
    assert {f.status.value for f in found(JIT, WHOLE).values()} == {"pass"}


# R21, R21b: an image without a compiler, without the headers of its interpreter.
@pytest.mark.parametrize(
    ("tools", "subject", "remedy"),
    [
        (replace(WHOLE, compilers=(GXX,)), "C compiler", "apt-get install gcc"),
        (
            replace(WHOLE, python_header_exists=False),
            "Python.h",
            "apt-get install python3.11-dev",
        ),
    ],
)
def test_r21_fails_only_where_a_package_does_nothing_without(
    tools: Tools, subject: str, remedy: str
) -> None:
    always = found(JIT, tools, *LIGER)[subject]
    assert (always.status.value, always.required) == ("fail", True)
    assert "liger-kernel 0.8.5" in always.message
    assert always.remedy == remedy
    merely = found(JIT, tools)[subject]
    assert (merely.status.value, merely.required) == ("warn", True)
    assert "triton 3.8.0" in merely.message


# R21c: `libraries` of the published wheels: 'cuda' up to 3.5.1, 'libcuda.so.1' from 3.6.0 on.
@pytest.mark.parametrize(
    ("triton", "expected"), [("3.5.1", "warn"), ("3.4.0", "warn"), ("3.6.0", None), ("3.8.0", None)]
)
def test_r21c_the_link_name_counts_for_old_triton_alone(triton: str, expected: str | None) -> None:
    findings = found(JIT, replace(WHOLE, libcuda_link=()), triton=triton)
    finding = findings.get("libcuda.so")
    assert (finding.status.value if finding else None) == expected
    if finding is not None:
        assert finding.remedy == "ln -s libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so"


def test_r21c_fails_where_kernels_are_launched_in_any_case() -> None:
    old = (TORCH, distribution("triton", "3.4.0"), distribution("liger-kernel"))
    finding = found(JIT, replace(WHOLE, libcuda_link=()), *old)["libcuda.so"]
    assert (finding.status.value, finding.required) == ("fail", True)


def test_without_a_driver_its_link_name_is_nobodys_fault() -> None:
    findings = found(JIT, replace(WHOLE, libcuda=(), libcuda_link=()), triton="3.4.0")
    assert findings["libcuda.so"].status.value == "skip"


def test_a_package_that_builds_itself_needs_nvcc_and_ninja() -> None:
    findings = found(JIT, replace(WHOLE, nvcc=None, ninja=None, compilers=()), *GSPLAT)
    assert status(findings) == {
        "C++ compiler": ("warn", True),  # of torch.compile, which gsplat does not use
        "C++ compiler of extensions": ("fail", True),
        "Python.h": ("pass", True),
        "nvcc": ("fail", True),
        "gcc of nvcc": ("fail", True),
        "ninja": ("fail", True),
    }
    assert findings["nvcc"].remedy == "apt-get install cuda-nvcc-13-0"
    built = distribution("gsplat", "1.5.3", "gsplat/csrc.so")
    assert "nvcc" not in found(JIT, replace(WHOLE, nvcc=None), TORCH, built)


def told(variable: str, value: str, **more: object) -> Tools:
    """Tools of an environment in which one variable names the compiler."""
    language = {"CC": "c", "CXX": "c++", "NVCC_CCBIN": "nvcc"}[variable]
    path: dict[str, object] = {"path": "/usr/bin/gcc", "kind": "compiler"}
    one = replace(GCC, language=language, origin=variable, named=value, **(path | more))  # type: ignore[arg-type]
    found = [replace(c, kind="compiler") for c in (GCC, GXX, replace(GXX, named="c++"))]
    others = [c for c in found if c.language != language]
    return replace(WHOLE, compilers=(one, *others))


ONE = {"one_name": True, "as_words": False}
SPLIT = {"one_name": False, "as_words": True}
USERS = ("C compiler", "C++ compiler", "C++ compiler of extensions", "gcc of nvcc")


# What each of them does with such a value: tests/kernels/test_compilers_taken.py asks Triton and
# PyTorch 2.14.1; nvcc 13.5 was asked with -ccbin and with NVCC_CCBIN.
@pytest.mark.parametrize(
    ("tools", "bad"),
    [
        (told("CC", "gcc -m64", **SPLIT), {"C compiler"}),
        (told("CC", "ccache gcc", **SPLIT), {"C compiler", "gcc of nvcc"}),
        (told("CC", "/opt/my gcc/gcc", **ONE), {"gcc of nvcc"}),
        (told("CC", "python3", kind="other"), {"C compiler", "gcc of nvcc"}),
        (told("CC", "ccache", kind="launcher"), {"C compiler", "gcc of nvcc"}),
        (told("CC", "", path=None, kind=None), {"C compiler", "gcc of nvcc"}),
        (told("CC", "gcc-12"), set()),
        (told("CXX", "ccache g++", **SPLIT), {"C++ compiler of extensions"}),
        (told("CXX", "/opt/my gcc/g++", **ONE), {"C++ compiler"}),
        (told("CXX", "true", kind="other"), {"C++ compiler", "C++ compiler of extensions"}),
        (told("NVCC_CCBIN", "gcc -m64", **SPLIT), {"gcc of nvcc"}),
        (told("NVCC_CCBIN", "true", kind="other"), {"gcc of nvcc"}),
        (told("NVCC_CCBIN", "/usr/bin"), set()),
    ],
)
def test_each_user_takes_a_variable_in_its_own_way(tools: Tools, bad: set[str]) -> None:
    packages = (*LIGER, GSPLAT[1])
    findings = found(JIT, tools, *packages)
    said = {subject: findings[subject].status.value for subject in USERS}
    always = {"C++ compiler": "warn"}  # no package here compiles for the CPU in any case
    assert said == {s: always.get(s, "fail") if s in bad else "pass" for s in USERS}
    for subject in bad:
        assert findings[subject].remedy


def test_a_command_of_several_words_is_mended_by_its_program() -> None:
    finding = found(JIT, told("CC", "ccache gcc", **SPLIT), *LIGER)["C compiler"]
    assert finding.remedy == "export CC=/usr/bin/gcc"
    assert finding.message.startswith("CC='ccache gcc' is taken whole, as the name of one program")


@pytest.mark.parametrize(
    ("torch", "bad"),
    [
        ("2.12.0", {"C++ compiler"}),
        ("2.13.0+cpu", {"C++ compiler", "C++ compiler of extensions"}),
        ("2.14.1", {"C++ compiler of extensions"}),
    ],
)
def test_releases_of_pytorch_differ_in_it(torch: str, bad: set[str]) -> None:
    """As read in cpp_builder.py and cpp_extension.py of 2.13.0 and 2.14.1."""
    inventory = made(told("CXX", "g++ -m64", **SPLIT), *GSPLAT)
    assert inventory.environment is not None
    other = replace(inventory.environment, torch=Torch(version=torch, cuda="13.0"))
    findings = ask(JIT, replace(inventory, environment=other), "sm_120")
    wrong = {f.subject for f in findings if f.status.value in ("warn", "fail")}
    assert wrong == bad


def test_a_script_that_names_no_compiler_is_no_failure_and_no_pass() -> None:
    finding = found(JIT, told("CC", "/opt/cc-of-ours", kind="script"), *LIGER)["C compiler"]
    assert (finding.status.value, finding.required) == ("warn", True)


def test_clang_alone_is_for_triton_alone() -> None:
    """Inductor asks for g++ and cpp_extension for c++ where CXX is not set, nvcc for gcc."""
    clang = replace(GCC, named="clang", path="/usr/bin/clang", family="clang", kind="compiler")
    tools = replace(WHOLE, compilers=(clang, replace(clang, language="c++", named="clang++")))
    findings = found(JIT, tools, *LIGER, GSPLAT[1])
    said = {subject: findings[subject].status.value for subject in USERS}
    assert list(said.values()) == ["pass", "warn", "fail", "fail"]


def test_documents_from_before_the_kinds_were_noted_are_judged_as_they_were() -> None:
    findings = found(JIT, replace(WHOLE, compilers=(GCC, GXX)), *GSPLAT)
    assert {f.status.value for f in findings.values()} == {"pass"}


def test_files_that_are_not_known_are_not_missing() -> None:
    _, whole = GSPLAT
    in_place = replace(whole, direct_url="file:///home/me/gsplat")
    for unknown in (in_place, replace(whole, record_digest=None)):
        found_ = found(JIT, replace(WHOLE, nvcc=None), TORCH, unknown)["nvcc"]
        assert found_.status.value == "warn"
    wheel = replace(whole, direct_url="file:///tmp/gsplat-1.5.3-py3-none-any.whl")
    assert found(JIT, replace(WHOLE, nvcc=None), TORCH, wheel)["nvcc"].status.value == "fail"


def test_a_package_that_can_build_only_warns() -> None:
    findings = found(JIT, replace(WHOLE, nvcc=None), TORCH, distribution("deepspeed", "0.19.8"))
    assert status(findings)["nvcc"] == ("warn", True)
    assert "deepspeed 0.19.8" in findings["nvcc"].message


def test_where_nothing_compiles_nothing_is_said() -> None:
    plain = environment(distributions=(distribution("numpy"),))
    assert plain.environment is not None
    plain = replace(plain, environment=replace(plain.environment, tools=Tools()))
    for check in (JIT, "caches-are-writable", "nvcc-fits-torch-and-compiler"):
        for inventory in (plain, scanned()):
            (finding,) = ask(check, inventory, "sm_120")
            assert (finding.status.value, finding.required) == ("skip", False)


FITS = "nvcc-fits-torch-and-compiler"


def only(findings: dict[str, Finding]) -> Finding:
    (finding,) = findings.values()
    return finding


def test_an_nvcc_of_the_same_release_fits() -> None:
    assert only(found(FITS, WHOLE, *GSPLAT)).status.value == "pass"


# DeepSpeed's own report: toolkit 12.1 beside a torch for CUDA 11.8; and the newer twin of it.
@pytest.mark.parametrize(("nvcc", "torch"), [("12.1", "11.8"), ("12.8", "13.0")])
def test_another_cuda_major_is_refused(nvcc: str, torch: str) -> None:
    tools = replace(WHOLE, nvcc=replace(NVCC, release=nvcc))
    finding = only(found(FITS, tools, *GSPLAT, sm="sm_90", cuda=torch))
    assert (finding.status.value, finding.required) == ("fail", True)
    assert f"CUDA {nvcc} where torch was built with {torch}" in finding.message
    finding = only(found(FITS, tools, TORCH, sm="sm_90", cuda=torch))
    assert (finding.status.value, finding.required) == ("warn", False)  # nobody builds here


# R37: nvcc 13.0 answers compute_70 with "Unsupported gpu architecture"; 11.3 knows no compute_89.
@pytest.mark.parametrize(
    ("release", "sm", "expected"),
    [
        ("13.0", "sm_70", "CUDA 12.9 is the last"),
        ("12.9", "sm_70", None),
        ("11.3", "sm_89", "CUDA 11.8 is the first"),
        ("12.4", "sm_120", "CUDA 12.8 is the first"),
        ("12.8", "sm_120", None),
    ],
)
def test_r37_the_card_must_be_known_to_nvcc(release: str, sm: str, expected: str | None) -> None:
    tools = replace(WHOLE, nvcc=replace(NVCC, release=release))
    finding = only(found(FITS, tools, *GSPLAT, sm=sm, cuda=release))
    assert finding.status.value == ("pass" if expected is None else "fail")
    assert expected is None or expected in finding.message


# R38: the limit of host_config.h below the gcc that is there.
@pytest.mark.parametrize(("gcc", "expected"), [(15, "pass"), (16, "fail"), (12, "pass")])
def test_r38_a_gcc_above_the_limit_is_refused(gcc: int, expected: str) -> None:
    tools = replace(WHOLE, compilers=(replace(GCC, version=gcc), GXX))
    finding = only(found(FITS, tools, *GSPLAT))
    assert finding.status.value == expected
    if expected == "fail":
        assert finding.remedy == "apt-get install g++-15; export CC=gcc-15 CXX=g++-15"


NAMED = "variables-name-what-exists"


def named(variable: str, value: str, kind: str = "text") -> Tools:
    return replace(WHOLE, named=(Named(variable=variable, value=value, found=kind),))


@pytest.mark.parametrize(
    ("tools", "distributions", "expected"),
    [
        # R25c: variables that name what is not there.
        (named("CUDA_HOME", "/opt/cuda", "absent"), GSPLAT, ("fail", True)),
        (named("CUDA_HOME", "/opt/cuda", "absent"), (TORCH,), ("warn", True)),
        (named("CUDA_HOME", "/opt/cuda", "file"), (TORCH,), ("warn", True)),
        (named("CUDA_HOME", "/opt/cuda", "folder"), (TORCH,), ("pass", False)),
        (named("TRITON_PTXAS_PATH", "/x/ptxas", "absent"), (TORCH,), ("warn", True)),
        (named("TRITON_LIBDEVICE_PATH", "/x/l.bc", "absent"), LIGER, ("fail", True)),
        (named("LD_PRELOAD", "/x/libjemalloc.so", "absent"), (TORCH,), ("warn", True)),
        (named("LD_PRELOAD", "libjemalloc.so.2"), (TORCH,), ("pass", False)),
        (named("CC", "gcc-99", "absent"), (TORCH,), ("warn", True)),
        (named("CC", "gcc", "program"), (TORCH,), ("pass", False)),
        # R25d: tested for presence, so that 0 turns them on (llama.cpp's ggml-cuda.cu).
        (named("GGML_CUDA_P2P", "0"), (TORCH,), ("warn", True)),
        (named("GGML_CUDA_P2P", ""), (TORCH,), ("warn", True)),
        (named("GGML_CUDA_P2P", "1"), (TORCH,), ("pass", False)),
        (named("TORCH_INDUCTOR_INSTALL_GXX", "0"), (TORCH,), ("warn", True)),
        (named("TORCH_INDUCTOR_INSTALL_GXX", ""), (TORCH,), ("pass", False)),
        # TORCH_CUDA_ARCH_LIST
        (named("TORCH_CUDA_ARCH_LIST", "12.0"), (TORCH,), ("pass", False)),
        (named("TORCH_CUDA_ARCH_LIST", "8.0 9.0+PTX"), (TORCH,), ("pass", False)),
        (named("TORCH_CUDA_ARCH_LIST", "8.0;8.6"), (TORCH,), ("warn", True)),
        (named("TORCH_CUDA_ARCH_LIST", "8.0,12.0"), (TORCH,), ("warn", True)),
        (named("TORCH_CUDA_ARCH_LIST", "8.0,12.0"), GSPLAT, ("fail", True)),
    ],
)
def test_variables(
    tools: Tools, distributions: tuple[Distribution, ...], expected: tuple[str, bool]
) -> None:
    finding = only(found(NAMED, tools, *distributions))
    assert (finding.status.value, finding.required) == expected
    assert bool(finding.remedy) == (expected[0] != "pass")


def test_r25c_bitsandbytes_must_have_the_library_that_is_forced() -> None:
    package = distribution("bitsandbytes", "0.50", "bitsandbytes/libbitsandbytes_cuda128.so")
    finding = only(found(NAMED, named("BNB_CUDA_VERSION", "124"), TORCH, package))
    assert (finding.status.value, finding.required) == ("fail", True)
    assert "libbitsandbytes_cuda124.so" in finding.message
    assert only(found(NAMED, named("BNB_CUDA_VERSION", "128"), package)).status.value == "pass"
    assert only(found(NAMED, named("BNB_CUDA_VERSION", "124"), TORCH)).status.value == "pass"


CACHES = "caches-are-writable"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"read_only": True, "writable": False}, "mounted read-only"),
        ({"writable": False}, "no permission"),
        ({"noexec": True}, "noexec"),
        ({"free": 0}, "0 MB are free"),
        ({"kind": "other", "writable": False}, "not a folder"),
        ({"kind": "absent", "writable": False}, "a link to nothing"),
        ({"path": "~/.triton/cache"}, "no home folder"),
    ],
)
def test_a_cache_that_cannot_be_used(changes: dict[str, object], cause: str) -> None:
    tools = replace(WHOLE, folders=(replace(FOLDER, **changes),))  # type: ignore[arg-type]
    finding = only(found(CACHES, tools, *LIGER))
    assert (finding.status.value, finding.required) == ("fail", True)
    assert cause in finding.message
    assert finding.remedy == "export TRITON_CACHE_DIR=/path/that/can/be/written"
    finding = only(found(CACHES, tools))
    assert (finding.status.value, finding.required) == ("warn", True)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"filesystem": "proc", "writable": True}, "on proc, where no file can be made"),
        ({"refused": "ENOSPC", "writable": False}, "its file system is full (ENOSPC)"),
        ({"refused": "EDQUOT", "writable": False}, "its file system is full (EDQUOT)"),
        ({"refused": "EROFS", "writable": False}, "mounted read-only"),
        ({"refused": "EPERM", "writable": False}, "no permission"),
    ],
)
def test_what_root_may_write_to_may_take_no_file(changes: dict[str, object], cause: str) -> None:
    tools = replace(WHOLE, folders=(replace(FOLDER, **changes),))  # type: ignore[arg-type]
    finding = only(found(CACHES, tools, *LIGER))
    assert (finding.status.value, finding.required) == ("fail", True)
    assert cause in finding.message


# What gcc 12 and nvcc 13.5 do with such a TMPDIR was tried: gcc goes to /tmp where there is no
# folder and where `access` refuses it, and aborts in /proc as root; nvcc ends with all of them.
@pytest.mark.parametrize(
    ("changes", "triton", "builder"),
    [
        ({"exists": False}, "warn", "fail"),
        ({"kind": "other", "writable": False}, "warn", "fail"),
        ({"read_only": True, "refused": "EROFS", "writable": False}, "warn", "fail"),
        ({"filesystem": "proc"}, "fail", "fail"),
        ({"refused": "ENOSPC", "writable": False}, "fail", "fail"),
        ({"exists": False, "filesystem": "proc"}, "warn", "fail"),
    ],
)
def test_a_tmpdir_is_judged_as_its_users_take_it(
    changes: dict[str, object], triton: str, builder: str
) -> None:
    base = replace(FOLDER, role="temporary", origin="TMPDIR", path="/scratch", exists=True)
    tools = replace(WHOLE, folders=(replace(base, **changes),))  # type: ignore[arg-type]
    assert only(found(CACHES, tools, *LIGER)).status.value == triton
    finding = only(found(CACHES, tools, *GSPLAT))
    assert (finding.status.value, finding.subject) == (builder, "/scratch")
    assert finding.remedy == "export TMPDIR=/path/that/can/be/written"


def test_folders_that_nobody_here_uses_are_said_not_to_be_looked_at() -> None:
    tools = replace(WHOLE, folders=(replace(FOLDER, role="extensions"),))
    finding = only(found(CACHES, tools))
    assert (finding.status.value, finding.required) == ("skip", False)


def test_the_drivers_cache_is_never_a_fault() -> None:
    tools = replace(WHOLE, folders=(replace(FOLDER, role="cuda", writable=False, noexec=True),))
    finding = only(found(CACHES, tools, *LIGER))
    assert (finding.status.value, finding.required) == ("warn", True)


def test_folders_that_can_be_written_are_one_pass() -> None:
    assert only(found(CACHES, WHOLE)).status.value == "pass"
