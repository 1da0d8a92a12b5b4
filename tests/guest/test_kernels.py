"""What becomes of kernels under a Triton that refuses, aborts, hangs or warns.

The Triton here is a stand-in with the interface of three releases, so that these tests run
everywhere; tests/kernels compiles with the real one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from envcheck import catalog
from envcheck.core import codec
from envcheck.core.compiled import CompiledKernels
from envcheck.core.request import CompileRequest
from envcheck.guest import kernels

CUBIN = Path(__file__).parent / "data" / "resources" / "13.3-sm_120a.cubin"

TRITON = """
import collections, os, sys, time
__version__ = "VERSION"

class _Function:
    def __init__(self, fn):
        self.fn, self.__name__ = fn, fn.__name__
        self.arg_names = list(fn.__code__.co_varnames[: fn.__code__.co_argcount])

def jit(fn):
    return _Function(fn)

class PTXASError(Exception):
    pass

class CompilationError(Exception):
    pass

def compile(src, target, options):
    name = src.fn.__name__
    os.makedirs(os.environ["TRITON_CACHE_DIR"], exist_ok=True)
    if name == "aborts":
        print("LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32", file=sys.stderr)
        sys.stderr.flush()
        os.abort()
    if name == "hangs":
        time.sleep(600)
    if name == "leaves":
        os._exit(1)
    if name == "refused":
        print("// a whole PTX file\\n" * 5000)
        raise PTXASError(
            "PTXAS error: Internal Triton PTX codegen error\\n`ptxas` stderr:\\n"
            f"ptxas /tmp/tmpk3j2h.ptx, line 5; error   : Value 'sm_{target.arch}' is not defined\\n\\n"
            "Repro command: ptxas ...\\n"
        )
    if name == "misspelt":
        raise CompilationError("at 3:4:\\n    x = tl.lod(y)\\n    ^\\nmodule has no attribute 'lod'")
    memo = os.path.join(os.environ["TRITON_CACHE_DIR"], "seen-" + name)
    if name == "warns" and not os.path.exists(memo):
        print("'sm_999' is not a recognized processor for this target (ignoring processor)",
              file=sys.stderr)
    open(memo, "w").close()
    shared = 64 * options["num_stages"] + (1 if SEEN(src) else 0)
    Metadata = collections.namedtuple("Metadata", "name shared num_warps num_stages")
    return collections.namedtuple("Kernel", "asm metadata hash")(
        {"cubin": open(CUBIN, "rb").read(), "ptx": "// c\\n.version 8.7\\n.target sm_120a\\n"},
        Metadata("fixed", shared, options["num_warps"], options["num_stages"]),
        "hash-of-" + name,
    )
"""
NEW = """
class ASTSource:
    def __init__(self, fn, signature, constexprs=None, attrs=None):
        assert list(signature) == fn.arg_names, signature
        self.fn = fn
        self.seen = (
            signature["BLOCK"] == "constexpr" and constexprs == {"BLOCK": 7}
            and attrs == {(0,): [["tt.divisibility", 16]]}
        )
"""
OLD = """
class AttrsDescriptor:
    def __init__(self, divisible_by_16=(), equal_to_1=()):
        self.divisible = tuple(divisible_by_16)
    @classmethod
    def from_hints(cls, hints):
        return cls([i for i, value in hints.items() if value == 16])

class ASTSource:
    def __init__(self, fn, signature, constants=None, attrs=None):
        self.fn = fn
        self.seen = signature == {"x": "*fp32"} and constants == {"BLOCK": 7} and (
            attrs.divisible == (0,)
        )
"""
KERNEL = """
import triton

FUNCTIONS

def compilations(dtype, config):
    return [
        {"fn": fn, "signature": {"x": "*" + dtype}, "constexprs": {"BLOCK": config["BLOCK"]},
         "divisible": ("x",)}
        for fn in (NAMES,)
    ]
"""
DESCRIPTION = """\
kind = "triton"
purpose = "Something."
[dtypes.fp32]
min_sm = "sm_75"
tolerance = { accumulate = "fp32", source = "a book" }
[[configs]]
constants = { BLOCK = 7 }
num_warps = 4
num_stages = 2
[[shapes]]
N = 5
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")


@pytest.fixture
def triton(tmp_path, monkeypatch) -> Callable[[str], None]:
    """Return what installs a stand-in for one release of Triton."""

    def install(version: str) -> None:
        site = tmp_path / "site"
        source = TRITON.replace("VERSION", version).replace("CUBIN", repr(str(CUBIN)))
        write(site / "triton" / "__init__.py", source.replace("SEEN(src)", "src.seen"))
        backend = (
            "import collections\nGPUTarget = collections.namedtuple('T', 'backend arch warp')\n"
        )
        old = "" if version == "3.8.0" else OLD
        if version == "3.2.0":  # moved, and the other interface has gone
            moved, _, sources = old.partition("\nclass ASTSource")
            write(site / "triton" / "backends" / "compiler.py", backend + moved)
            write(site / "triton" / "compiler" / "__init__.py", "class ASTSource" + sources)
        else:
            write(site / "triton" / "backends" / "compiler.py", backend)
            write(site / "triton" / "compiler" / "__init__.py", old or NEW)
        monkeypatch.syspath_prepend(str(site))

    return install


@pytest.fixture
def compiled(tmp_path) -> Callable[..., CompiledKernels]:
    """Return what compiles a kernel of some functions."""

    def compile_them(*names: str, **fields: object) -> CompiledKernels:
        root = tmp_path / "kernels"
        functions = "".join(f"@triton.jit\ndef {n}(x, BLOCK):\n    pass\n\n" for n in names)
        source = fields.pop("source", None)
        text = KERNEL.replace("FUNCTIONS", functions).replace("NAMES", ", ".join(names))
        write(root / "some_kernel" / "kernel.py", source or text)
        write(root / "some_kernel" / "kernel.toml", fields.pop("toml", DESCRIPTION))
        request = CompileRequest(
            target=fields.pop("target", "sm_120"),
            root=str(root),
            kernels=catalog.load_all([root]),
            cache=str(tmp_path / "cache"),
            **fields,
        )
        return kernels.compile_kernels(request)

    return compile_them


@pytest.mark.parametrize("version", ["3.1.0", "3.2.0", "3.8.0"])
def test_what_was_compiled_is_read_from_its_cubin(triton, compiled, version):
    triton(version)
    result = compiled("good")
    assert (result.target, result.triton, result.outcome.status) == ("sm_120", version, "ok")
    (one,) = result.compilations
    assert (one.kernel, one.function, one.dtype) == ("some_kernel", "good", "fp32")
    assert one.config == "BLOCK=7 num_warps=4 num_stages=2"
    assert (one.outcome.status, one.message, one.warnings) == ("ok", "", ())
    assert one.code.target == "sm_120a"
    assert one.code.ptx_isa == "8.7"
    # Of the kernel `fixed`, whose numbers `ptxas -v` printed.
    assert (one.code.registers, one.code.stack_bytes, one.code.static_shared) == (10, 0, 400)
    # 64 for each stage; the odd one says that the compiler was given what it takes.
    assert one.code.dynamic_shared == 129
    assert (one.code.num_warps, one.code.num_stages) == (4, 2)
    assert codec.loads(CompiledKernels, codec.dumps(result), name="result") == result


def test_each_failure_is_one_entry_with_its_reason(triton, compiled):
    triton("3.8.0")
    names = ("aborts", "refused", "misspelt", "leaves", "hangs", "good")
    result = compiled(*names, deadline=2)
    assert result.outcome.ok
    found = {c.function: c for c in result.compilations}
    assert tuple(found) == names
    assert (found["aborts"].outcome.status, found["aborts"].outcome.signal) == (
        "crashed",
        "SIGABRT",
    )
    assert found["aborts"].message.startswith("LLVM ERROR: Cannot select: intrinsic")
    assert found["refused"].outcome.status == "raised"
    assert found["refused"].message == "ptxas <ptx>, line 5; error : Value 'sm_120' is not defined"
    assert len(found["refused"].outcome.stdout) < 50
    assert found["misspelt"].message == "module has no attribute 'lod'"
    assert (found["leaves"].outcome.status, found["leaves"].outcome.code) == ("exited", 1)
    assert found["leaves"].message == "ended with code 1"
    assert found["hangs"].outcome.status == "timed-out"
    assert found["hangs"].message == "not done after 2 s"
    assert found["good"].outcome.ok
    assert all(found[name].code is None for name in names[:-1])


def test_a_warning_is_kept_and_remembered_with_the_cache(triton, compiled):
    triton("3.8.0")
    warning = "'sm_999' is not a recognized processor for this target (ignoring processor)"
    first, second = compiled("warns"), compiled("warns")
    assert first.compilations[0].warnings == (warning,)
    assert second.compilations[0].warnings == (warning,)  # from the cache, compiled silently
    assert second.compilations[0].outcome.stderr == ()


def test_a_dtype_that_the_target_has_no_instructions_for_is_not_tried(triton, compiled):
    triton("3.8.0")
    toml = DESCRIPTION.replace("sm_75", "sm_89")
    (one,) = compiled("aborts", target="sm_86", toml=toml).compilations
    assert (one.outcome.status, one.outcome.error) == ("not-applicable", "fp32 needs sm_89")
    assert one.message == "fp32 needs sm_89"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise SystemExit(4)", "ended with code 4"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import gone", "ModuleNotFoundError: No module named 'gone'"),
        ("def compilations(dtype, config): return [1]", "TypeError: 'int' object"),
        ("def compilations(dtype, config): return []", "ValueError: compilations returns nothing"),
    ],
)
def test_a_kernel_that_cannot_be_asked_is_one_entry(triton, compiled, source, message):
    triton("3.8.0")
    (one,) = compiled("good", source=source).compilations
    assert (one.kernel, one.function) == ("some_kernel", "")
    assert one.message.startswith(message)
    assert not one.outcome.ok


def test_a_kernel_that_hangs_while_it_is_loaded_does_not_hang_the_rest(
    triton, compiled, monkeypatch
):
    triton("3.8.0")
    monkeypatch.setattr(kernels, "_LOAD_SECONDS", 1)
    (one,) = compiled("good", source="import time; time.sleep(600)").compilations
    assert one.outcome.signal == "SIGALRM"
    assert one.message == "not loaded after 1 s"


def test_what_one_kernel_does_to_its_process_does_not_reach_the_next(triton, compiled, tmp_path):
    triton("3.8.0")
    other = tmp_path / "kernels" / "a_kernel"
    write(other / "kernel.toml", DESCRIPTION)
    write(other / "kernel.py", "import triton; triton.compile = None; 1 / 0")
    found = {c.kernel: c for c in compiled("good").compilations}
    assert found["a_kernel"].message == "ZeroDivisionError: division by zero"
    assert found["some_kernel"].outcome.ok


def test_no_triton_is_said_and_nothing_is_compiled(compiled, monkeypatch, tmp_path):
    write(tmp_path / "site" / "triton" / "__init__.py", "raise ImportError('no libtriton.so')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    result = compiled("good")
    assert (result.triton, result.compilations) == (None, ())
    assert result.outcome.status == "raised"
    assert result.message == "ImportError: no libtriton.so"


def test_a_triton_that_crashes_when_imported_crashes_nothing_else(compiled, monkeypatch, tmp_path):
    write(tmp_path / "site" / "triton" / "__init__.py", "import os; os.abort()")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    result = compiled("good")
    assert (result.outcome.status, result.outcome.signal) == ("crashed", "SIGABRT")
    assert result.message.startswith("killed by SIGABRT")


def test_variables_that_change_what_is_compiled_are_kept(triton, compiled, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    triton("3.8.0")
    assert compiled("good").variables["TRITON_DEFAULT_FP_FUSION"] == "0"


def test_the_folder_of_kernels_shadows_no_package(triton, compiled, tmp_path):
    triton("3.8.0")
    source = "import sys\nimport some_kernel\n"
    (one,) = compiled("good", source=source).compilations
    assert one.message == "ModuleNotFoundError: No module named 'some_kernel'"
    assert not (tmp_path / "kernels" / "some_kernel" / "__pycache__").exists()
