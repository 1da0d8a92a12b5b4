"""The arrows of the architecture: who may import whom, who may print, who may start a process."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import envcheck
from envcheck import checks, errors
from envcheck.core.model import Verdict

ROOT = Path(envcheck.__file__).parent
MODULES = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py"))

# A folder or module -> what of envcheck it may import. Whatever is not named here stands above
# all of them, below the command line.
ARROWS = {
    "errors": set(),
    "core": {"core", "errors"},
    "guest": {"core", "guest", "errors"},
    "checks": {"checks", "core"},
    "judge": {"checks", "core"},
    "comparison": {"comparison", "core"},
    "inflate": set(),
    "statement": {"core", "errors"},
    "attest": {"core", "errors", "statement"},
    "output": {"core", "checks", "comparison", "output", "targets"},
}
TOP = {"cli", "commands", "pipeline", "preflight"}

# Third-party packages -> the only places that may import them, at whatever depth.
ONLY = {
    "rich": {
        *("output/text.py", "output/catalogue.py", "output/progress.py", "output/building.py"),
        *("output/selftest.py", "output/steps.py", "output/comparison.py", "output/drawing.py"),
    },
    "rich_argparse": {"cli.py"},
    "securesystemslib": {"sign.py"},
    "cryptography": {"sign.py"},
    "zstandard": {"inflate.py", "unpack.py"},
    "lz4": {"inflate.py"},
    "pynvml": {"guest/nvml.py"},
}
STDLIB_ONLY = ("core", "guest")
STDLIB = {*sys.stdlib_module_names, "compression", "tomllib"}  # with what newer Pythons add
# The environment's own, looked at from inside and never at the top of a module; and envcheck's
# own binding of NVML, for what runs in its interpreter alone.
GUEST_INSIDE_FUNCTIONS = {"torch", "triton", "numpy", "pynvml"}

PROCESS_MODULES = {"subprocess", "multiprocessing", "pty", "concurrent"}
PROCESS_CALLS = ("fork", "system", "exec", "spawn", "posix_spawn", "popen")
MAY_START_PROCESSES = ("engine/", "guest/trial.py", "guest/forked.py")
# A forked child ends as the interpreter does: SystemExit with a text prints it.
MAY_PRINT = ("cli.py", "commands/", "__main__.py", "output/", "guest/forked.py")

# Pure code has no clock, no chance and no world.
PURE = ("core", "checks", "judge", "comparison")
IMPURE = {
    *("io", "os", "pathlib", "socket", "shutil", "tempfile", "time", "datetime", "random"),
    *("subprocess", "threading", "urllib", "http", "ctypes", "platform", "sys", "secrets"),
}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def layer(module: str) -> str:
    """Return the folder of a module, or its own name at the top."""
    return module.partition("/")[0].removesuffix(".py")


def late(block: ast.AST) -> bool:
    """Say whether importing a module leaves this block alone: a function, or types alone."""
    if isinstance(block, ast.If):
        return ast.unparse(block.test) == "TYPE_CHECKING"
    return isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def imports(module: str) -> Iterator[tuple[str, bool]]:
    """Yield (absolute name, whether it is left for later) of everything a module imports."""
    inside = {id(n) for block in ast.walk(tree(module)) if late(block) for n in ast.walk(block)}
    for node in ast.walk(tree(module)):
        deep = id(node) in inside
        if isinstance(node, ast.Import):
            yield from ((alias.name, deep) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            assert node.module is not None
            if node.module == "envcheck":
                yield from ((f"envcheck.{alias.name}", deep) for alias in node.names)
            else:
                yield node.module, deep


def own(module: str) -> set[str]:
    """Return the layers of envcheck that a module imports."""
    names = (name.split(".") for name, _ in imports(module))
    return {parts[1] for parts in names if parts[0] == "envcheck" and len(parts) > 1}


def foreign(module: str) -> Iterator[tuple[str, bool]]:
    """Yield the third-party packages that a module imports."""
    for name, deep in imports(module):
        package = name.partition(".")[0]
        if package not in STDLIB and package not in ("envcheck", "__future__"):
            yield package, deep


def calls(module: str) -> Iterator[str]:
    """Yield the dotted names that a module calls."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_the_walk_sees_imports_at_every_depth() -> None:
    seen = dict(imports("sign.py"))
    assert seen["securesystemslib.signer"] is True
    assert seen["json"] is False
    assert "core" in own("judge.py")
    assert len(MODULES) > 40


@pytest.mark.parametrize("module", MODULES)
def test_arrows(module: str) -> None:
    allowed = ARROWS.get(layer(module))
    if allowed is not None:
        # `from envcheck import __version__` is a fact, not a layer.
        assert own(module) - {"__version__"} <= allowed
    elif layer(module) not in {"cli", "commands", "__main__", "preflight"}:
        assert not own(module) & (TOP - {layer(module)}), "below the command line"


@pytest.mark.parametrize("module", MODULES)
def test_third_parties_stay_where_they_belong(module: str) -> None:
    for package, deep in foreign(module):
        assert module in ONLY.get(package, {module}), f"{module} imports {package}"
        if layer(module) in STDLIB_ONLY:
            assert layer(module) == "guest"
            assert deep, f"{module} imports {package} at its top"
            assert package in GUEST_INSIDE_FUNCTIONS, f"{module} imports {package}"
        if layer(module) == "checks":
            assert package in ("packaging", "itanium_demangler")


@pytest.mark.parametrize("module", MODULES)
def test_only_engines_and_trials_start_processes(module: str) -> None:
    if module.startswith(MAY_START_PROCESSES):
        return
    assert not {name.partition(".")[0] for name, _ in imports(module)} & PROCESS_MODULES
    started = [c for c in calls(module) if c.startswith(tuple(f"os.{p}" for p in PROCESS_CALLS))]
    assert not started


@pytest.mark.parametrize("module", MODULES)
def test_only_the_command_line_and_output_speak(module: str) -> None:
    if module.startswith(MAY_PRINT):
        return
    spoken = {"print", "sys.stdout.write", "sys.stderr.write", "input"} & set(calls(module))
    assert not spoken


@pytest.mark.parametrize("module", MODULES)
def test_nothing_that_is_read_is_ever_run(module: str) -> None:
    names = {name.partition(".")[0] for name, _ in imports(module)}
    assert not names & {"pickle", "marshal", "shelve", "dill"}
    assert not {"eval", "exec", "compile", "__import__"} & set(calls(module))


@pytest.mark.parametrize("module", [m for m in MODULES if layer(m) in PURE])
def test_pure_code_has_no_world(module: str) -> None:
    assert not {name.partition(".")[0] for name, _ in imports(module)} & IMPURE
    assert not {"open", "print", "input"} & set(calls(module))


@pytest.mark.parametrize("module", MODULES)
def test_modules_stay_small(module: str) -> None:
    lines = (ROOT / module).read_text(encoding="utf-8").count("\n")
    assert lines < (250 if module == "cli.py" else 300)
    assert Path(module).stem not in ("utils", "helpers", "util", "helper", "misc", "common")


def test_each_check_has_a_file_of_its_own_name_and_is_registered() -> None:
    files = {
        Path(m).stem
        for m in MODULES
        if layer(m) == "checks"
        and any(
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHECK"
            for node in tree(m).body
        )
    }
    assert files == {check.id.replace("-", "_") for check in checks.CHECKS}
    assert len({check.id for check in checks.CHECKS}) == len(checks.CHECKS)
    assert any(check.required for check in checks.CHECKS)
    for check in checks.CHECKS:
        assert all((check.claim, check.how, check.remedy)), check.id
        assert check.claim.endswith(".")


def _errors() -> list[type[errors.EnvcheckError]]:
    found, left = [], [errors.EnvcheckError]
    while left:
        kind = left.pop()
        found.append(kind)
        left += kind.__subclasses__()
    return [kind for kind in found if kind.__module__.startswith("envcheck")]


def test_exit_codes_of_the_tree_are_unique_and_none_is_a_verdicts() -> None:
    for module in MODULES:
        if module not in ("__main__.py", "guest/__main__.py"):
            name = "envcheck." + module.removesuffix(".py").replace("/", ".")
            __import__(name.removesuffix(".__init__"))
    codes = [kind.exit_code for kind in _errors() if "exit_code" in vars(kind)]
    assert sorted(codes) == sorted(set(codes))
    verdicts = {v.exit_code for v in Verdict}
    assert verdicts == {0, 10, 11}
    assert not verdicts & set(codes)
    # The numbers that the documentation promises.
    promised = {"EnvcheckError": 1, "UsageError": 2, "FileUnavailable": 3, "SignatureInvalid": 12}
    known = {kind.__name__: kind.exit_code for kind in _errors()}
    assert promised.items() <= known.items()


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    text = errors.__doc__ or ""
    for kind in _errors():
        if kind.__module__ == "envcheck.errors":
            (line,) = (row for row in text.splitlines() if kind.__name__ in row.split())
            assert str(kind.exit_code) in line.split()
