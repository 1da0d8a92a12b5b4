"""What the guest does with the packages of an environment, in a venv of small stand-ins.

Most are one module that misbehaves in one way. Real compilers are in tests/kernels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from envcheck import bundle, catalog
from envcheck.core import codec
from envcheck.core.compiled import Compiled, Extension
from envcheck.core.kernels import Kernel
from envcheck.core.model import Environment
from envcheck.core.request import Collected, CompileRequest, Request
from envcheck.guest import compiling, working

Run = Callable[..., Collected]

MODULES = {
    "fine": "",
    "raises": "raise ValueError('first line,\\n   second line')",
    "panics": "class Panic(BaseException): pass\nraise Panic('from Rust')",
    "leaves": "import sys; sys.exit(1)",
    "says_why": "import sys; sys.exit('no licence')",
    "ends_well": "import os; os._exit(0)",
    "traces": "import traceback, sys\ntry: 1 / 0\nexcept Exception: traceback.print_exc(); sys.exit(1)",
    "crashes": "import ctypes, tempfile; tempfile.mkstemp(); ctypes.string_at(0)",
    "crashes_late": "import atexit, ctypes; atexit.register(ctypes.string_at, 0)",
    "hangs": "import tempfile, time; tempfile.mkstemp('.ptx'); time.sleep(600)",
    "lacks": "import ctypes; ctypes.CDLL('libgone.so.9')",
    "reads": "assert input('well?') == 'yes'",
    "speaks": "print('error: of no account'); raise KeyError('k')",
    # The guest has modules of these names; those of the environment are to be found.
    "words": "import elf, reading; assert (elf.MINE, reading.MINE) == (1, 1)",
    "elf": "MINE = 1",
    "reading": "MINE = 1",
    "envcheck": "MINE = 1",
    "uses_envcheck": "import envcheck; assert envcheck.MINE == 1",
    "is_alone": "import os, sys; assert os.listdir() == [] and sys.path[0] == '', sys.path",
    "knows_job": "import os; assert 'TMPDIR' in os.environ; import from_pythonpath, from_pth",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a venv that holds the modules."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for name, source in MODULES.items():
        (site / f"{name}.py").write_text(source)
    # Before anything else of the environment: what came first would win.
    (site / "early.pth").write_text(f"import envcheck\n{folder / 'linked'}\n")
    for place, name in (("linked", "from_pth"), ("path", "from_pythonpath")):
        (folder / place).mkdir()
        (folder / place / f"{name}.py").write_text("")
    return folder


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Run:
    """Return what runs the guest in that environment with one request."""

    def guest(*, variables: dict[str, str] | None = None, **fields: object) -> Collected:
        asked = {"target": "sm_120", "root": str(tmp_path), "cache": str(tmp_path / "cache")}
        control = Path(tempfile.mkdtemp(dir=tmp_path))
        request = Request(compile=CompileRequest(**{**asked, **fields}))
        (control / "request.json").write_text(codec.dumps(request))
        python = str(environment / "venv" / "bin" / "python")
        done = subprocess.run(
            [python, "-E", "-S", "-B", str(bundle.stage(control / "bundle")), str(control)],
            capture_output=True,
            check=False,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(environment / "path"),
                "TMPDIR": str(tmp_path / "tmp"),
                **(variables or {}),
            },
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return codec.loads(Collected, (control / "inventory.json").read_bytes(), name="inventory")

    return guest


def imported(collected: Collected) -> dict[str, Extension]:
    compiled = collected.compiled
    assert compiled is not None
    assert (compiled.target, compiled.outcome.status, compiled.message) == ("sm_120", "ok", "")
    return {e.name: e for e in compiled.extensions}


def test_each_import_ends_in_its_own_way(run: Run) -> None:
    names = (*MODULES, "gone", "gone.deeper", "not a name")
    found = imported(run(imports=names, import_deadline=3, parallel=4))
    assert tuple(found) == names
    ended = {n: (e.imported.status, e.imported.signal or e.imported.code) for n, e in found.items()}
    bad = {
        "raises": ("raised", None),
        "panics": ("raised", None),
        "leaves": ("exited", 1),
        "says_why": ("exited", 1),
        "ends_well": ("exited", 0),
        "traces": ("exited", 1),
        "crashes": ("crashed", "SIGSEGV"),
        "crashes_late": ("crashed", "SIGSEGV"),
        "hangs": ("timed-out", None),
        "lacks": ("raised", None),
        "reads": ("raised", None),
        "speaks": ("raised", None),
        "gone": ("raised", None),
        "gone.deeper": ("raised", None),
        "not a name": ("raised", None),
    }
    assert ended == {name: bad.get(name, ("ok", None)) for name in names}
    said = {name: found[name].message for name in names if found[name].message}
    assert said.keys() == bad.keys()
    assert said["raises"] == "ValueError: first line, second line"
    assert said["panics"] == "Panic: from Rust"
    assert said["leaves"] == "ended with code 1"
    assert said["says_why"] == "ended with code 1: no licence"
    assert said["ends_well"] == "ended with code 0"
    assert said["crashes"] == "killed by SIGSEGV"
    assert said["hangs"] == "not done after 3 s"
    assert said["lacks"].startswith("OSError: libgone.so.9: cannot open shared object file")
    assert said["reads"].startswith("EOFError")
    assert said["speaks"] == "KeyError: 'k'"
    assert said["gone"] == "ModuleNotFoundError: No module named 'gone'"
    assert all((e.origin, e.built) == ("", None) for e in found.values())


def test_an_extension_that_needs_torch_first_is_imported_after_it(
    run: Run, environment: Path
) -> None:
    """As in PyTorch's tutorial: `import torch` loads libc10.so, `import lltm_cpp` needs it."""
    lost = "libc10.so: cannot open shared object file: No such file or directory"
    site = environment / "path"
    source = f"import sys\nif 'torch' not in sys.modules: raise ImportError({lost!r})\n"
    (site / "lltm_cpp.py").write_text(source)
    found = imported(run(imports=("lltm_cpp",)))
    assert found["lltm_cpp"].message == f"ImportError: {lost}"
    (site / "torch.py").write_text("")
    found = imported(run(imports=("lltm_cpp",)))
    assert found["lltm_cpp"].imported.status == "ok"


def test_nothing_to_do_is_done_and_the_environment_is_told_as_ever(run: Run) -> None:
    collected = run()
    assert imported(collected) == {}
    assert collected.compiled == Compiled(
        target="sm_120",
        outcome=collected.compiled.outcome,
        assemblers=collected.compiled.assemblers,
    )
    assert collected.environment.python == ".".join(map(str, sys.version_info[:3]))


def test_no_temporary_file_stays(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    found = imported(run(imports=("crashes", "hangs"), import_deadline=1))
    assert [e.imported.status for e in found.values()] == ["crashed", "timed-out"]
    assert [*(tmp_path / "cache").iterdir(), *(tmp_path / "tmp").iterdir()] == []


def test_a_relative_cache_is_one_below_the_folder_of_the_guest(run: Run, tmp_path: Path) -> None:
    imported(run(cache="deep/cache", root=".", imports=("fine",)))
    assert (tmp_path / "deep" / "cache").is_dir()


def test_a_cache_that_cannot_be_made_is_the_outcome(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    collected = run(cache=str(tmp_path / "file" / "cache"))
    assert collected.compiled.outcome.status == "raised"
    assert collected.compiled.message.startswith("NotADirectoryError: ")


@pytest.mark.parametrize(
    ("source", "ended", "message"),
    [
        ("import os; os._exit(0)", ("exited", 0), "ended with code 0"),
        ("import os; os._exit(7)", ("exited", 7), "ended with code 7"),
        ("import os; os.abort()", ("crashed", "SIGABRT"), "killed by SIGABRT"),
        (
            "import sys; sys.modules['json'] = sys",
            ("exited", 1),
            "ended with code 1: AttributeError: module 'sys' has no attribute",
        ),
    ],
)
def test_an_environment_that_breaks_its_interpreter_costs_what_was_compiled_alone(
    run: Run, tmp_path: Path, source: str, ended: tuple[str, object], message: str
) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text(textwrap.dedent(source))
    collected = run(imports=("fine",), variables={"PYTHONPATH": str(tmp_path / "start")})
    outcome = collected.compiled.outcome
    assert (outcome.status, outcome.signal or outcome.code) == ended
    assert collected.compiled.message.startswith(message)
    assert collected.compiled.extensions == ()
    assert collected.environment.implementation == "cpython"


def triton_kernel() -> Kernel:
    return catalog.load(catalog.shipped() / "vector_add")


def test_no_triton_and_one_that_cannot_be_imported_are_told_apart(
    run: Run, environment: Path
) -> None:
    asked = {"kernels": (triton_kernel(),), "root": str(catalog.shipped())}
    assert run(**asked).compiled.triton is None
    (site,) = (environment / "venv" / "lib").glob("python*/site-packages")
    broken = site / "triton.py"
    broken.write_text("import gone")
    try:
        compiled = run(**asked).compiled
    finally:
        broken.unlink()
    assert compiled.outcome.ok
    assert (compiled.triton.triton, compiled.triton.outcome.status) == (None, "raised")
    assert compiled.triton.message == "ModuleNotFoundError: No module named 'gone'"
    assert compiled.cuda is None


HANGS_BEFORE_TRITON = """
import sys, time
class Finder:
    def find_spec(name, *_):
        if name == "triton":
            time.sleep(600)
sys.meta_path.insert(0, Finder)
"""


def test_what_was_done_stays_when_the_rest_never_ends(tmp_path, monkeypatch) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text(HANGS_BEFORE_TRITON)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"))
    monkeypatch.setattr(compiling, "patience", lambda _: 3)
    asked = CompileRequest(
        target="sm_120",
        root=str(catalog.shipped()),
        cache=str(tmp_path / "cache"),
        kernels=(triton_kernel(),),
        imports=("json",),
    )
    request = Request(compile=asked)
    (tmp_path / "request.json").write_text(codec.dumps(request))
    compiled = working.work(str(tmp_path), request, seen).compiled
    assert (compiled.outcome.status, compiled.message) == ("timed-out", "not done after 3 s")
    assert [(e.name, e.imported.status) for e in compiled.extensions] == [("json", "ok")]
    assert compiled.triton is None


def seen() -> Collected:
    """Return what a look at an empty environment gives."""
    environment = Environment(
        python="3.12.1", implementation="cpython", platform="linux", libc="glibc 2.36", digest=""
    )
    return Collected(environment=environment)
