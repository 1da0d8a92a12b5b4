"""Where importing a damaged package ends, against what Python itself says when it imports it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import packages
import pytest
from data.dist_info import install

from envcheck.guest import installed

FILES = {
    "x/__init__.py": (
        "from x.version import __version__\n"
        "from . import layers as layers, shadow\n"
        "from .functional import *\n"
        "import x.deep.inner as inner\n"
        "from x.named import name\n"
        "try:\n    from x import optional\nexcept ImportError:\n    optional = None\n"
        "if not __version__:\n    import x.never\n"
        "def lazy():\n    import x.late\n"
        "shadow = 1\n"
    ),
    "x/version.py": "__version__ = '1'\n",
    "x/layers/__init__.py": "from .linear import Linear\n",
    "x/layers/linear.py": "import math\n\n\nclass Linear: pass\n",
    "x/functional.py": "from x.layers.linear import Linear\n",
    "x/deep/__init__.py": "from .. import version\n",
    "x/named/__init__.py": "name = 1\n",
    "x/deep/inner.py": "from ..layers import Linear\n",
    "x/shadow.py": "value = 1\n",
    "x/optional.py": "value = 1\n",
    "x/never.py": "value = 1\n",
    "x/late.py": "value = 1\n",
    "x/tests/__init__.py": "import x\n",
    "x/tests/test_x.py": "import x\n",
}


def ends(site: Path) -> list[tuple[str, str, str]]:
    return [(e.path, e.how, e.by) for e in installed.read([str(site)]).records.ends]


def imports(site: Path, module: str = "x") -> bool:
    """Say whether Python imports it."""
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import {module}"
    command = [sys.executable, "-I", "-S", "-B", "-c", code]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(tmp_path, "x", files={path: text.encode() for path, text in FILES.items()})
    return tmp_path


def test_a_whole_package_is_imported(site: Path) -> None:
    assert ends(site) == []
    assert imports(site)


# What Python cannot import is found; `shadow` is bound by the package too, which is not told apart.
@pytest.mark.parametrize("path", [p for p in FILES if p not in ("x/shadow.py", "x/__init__.py")])
def test_the_end_is_told_where_python_ends(site: Path, path: str) -> None:
    (site / path).unlink()
    assert bool(ends(site)) is not imports(site)
    assert all(end[:2] == (path, "missing") for end in ends(site))


@pytest.mark.parametrize(
    ("path", "by"),
    [
        ("x/version.py", "x/__init__.py"),
        ("x/layers/linear.py", "x/layers/__init__.py"),
        ("x/deep/inner.py", "x/__init__.py"),
        ("x/__init__.py", ""),
    ],
)
@pytest.mark.parametrize("content", [b"", b"def (", b"\0" * 9, b"\xff\xfe", None])
def test_an_empty_or_unreadable_module_ends_it_too(
    site: Path, path: str, by: str, content: bytes | None
) -> None:
    (site / path).unlink()
    if content is not None:
        (site / path).write_bytes(content)
    how = "missing" if content is None else "syntax" if content else "empty"
    assert ends(site) == [(path, how, by)]


def test_what_is_bound_by_other_means_is_not_missed(site: Path) -> None:
    """`from . import shadow` fails here, and would not where `shadow` was bound before."""
    (site / "x/shadow.py").unlink()
    assert ends(site) == []


@pytest.mark.parametrize("suffix", [".pyc", EXTENSION_SUFFIXES[0]])
def test_a_module_in_another_form_is_there(site: Path, suffix: str) -> None:
    (site / "x/version.py").rename(site / f"x/version{suffix}")
    found = installed.read([str(site)]).records
    assert found.ends == ()
    assert [(d.how, d.paths) for d in found.differing] == [("form", ("x/version.py",))]


def test_a_package_in_bytecode_alone_is_imported(site: Path) -> None:
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", str(site)], check=True)
    for path in site.glob("x/**/*.py"):
        path.unlink()
    assert imports(site)
    assert ends(site) == []


def test_a_patched_module_is_no_end(site: Path) -> None:
    (site / "x/version.py").write_text("__version__ = '1+mine'\n")
    assert imports(site)
    assert ends(site) == []


def test_a_template_that_is_no_python_is_of_another_size_alone(tmp_path: Path) -> None:
    install(tmp_path, "x", files={"x/__init__.py": b"", "x/templates/a.py": b"{% a %}"})
    (tmp_path / "x/templates/a.py").write_text("{% changed %}")
    assert [d.how for d in installed.read([str(tmp_path)]).records.differing] == ["size"]


def test_a_folder_of_a_namespace_is_begun_with_too(tmp_path: Path) -> None:
    files = {"space/x/__init__.py": b"from . import a\n", "space/x/a.py": b"1\n"}
    install(tmp_path, "space-x", files=files)
    (tmp_path / "space/x/a.py").unlink()
    assert not imports(tmp_path, "space.x")
    assert ends(tmp_path) == [("space/x/a.py", "missing", "space/x/__init__.py")]


def test_a_module_without_a_package_is_begun_with(tmp_path: Path) -> None:
    install(tmp_path, "six", files={"six.py": b"1\n"})
    (tmp_path / "six.py").unlink()
    assert ends(tmp_path) == [("six.py", "missing", "")]


def test_tests_at_the_top_that_are_gone_are_no_end(tmp_path: Path) -> None:
    files = {"x/__init__.py": b"1\n", "tests/__init__.py": b"1\n", "setup.py": b"1\n"}
    install(tmp_path, "x", files=files)
    for path in ("tests/__init__.py", "setup.py"):
        (tmp_path / path).unlink()
    assert ends(tmp_path) == []


@pytest.mark.parametrize(("name", "number"), [("torch", 0), ("gen", 1), ("other", 0)])
def test_a_second_package_that_was_taken_out_is_no_end(
    tmp_path: Path, name: str, number: int
) -> None:
    """torchgen is not needed to run; what is called as the distribution is."""
    install(tmp_path, name, files={"torch/__init__.py": b"1\n", "gen/__init__.py": b"1\n"})
    (tmp_path / "gen/__init__.py").unlink()
    (tmp_path / "gen").rmdir()
    assert len(ends(tmp_path)) == number


def test_modules_that_import_each_other_are_followed_once(tmp_path: Path) -> None:
    files = {
        "x/__init__.py": b"from x import a\n",
        "x/a.py": b"import x.b\n",
        "x/b.py": b"import x.a",
    }
    install(tmp_path, "x", files={**files, "x/c.py": b"1"})
    (tmp_path / "x/c.py").unlink()
    assert ends(tmp_path) == []


def test_damage_to_what_an_earlier_folder_hides_is_none(tmp_path: Path) -> None:
    """As in a venv that sees the packages of the system."""
    for folder in ("venv", "system"):
        install(tmp_path / folder, "x", files={"x/__init__.py": b"1\n", "x/_C.abi3.so": b"1"})
    for name in ("__init__.py", "_C.abi3.so"):
        (tmp_path / "system/x" / name).unlink()
    found = installed.read([str(tmp_path / "venv"), str(tmp_path / "system")]).records
    assert (found.ends, found.differing) == ((), ())
    found = installed.read([str(tmp_path / "system"), str(tmp_path / "venv")]).records
    assert [end.path for end in found.ends] == ["x/__init__.py"]


NATIVE = f"x/_fast{EXTENSION_SUFFIXES[0]}"


@pytest.mark.parametrize(
    "first",
    [
        "try:\n    from ._fast import f\nexcept ImportError:\n    f = None\n",  # markupsafe
        "try:\n    from .cfast import *\n    fast = True\nexcept ImportError:\n    fast = False\n",
        "try:\n    import x._fast\nexcept:\n    pass\n",
        "import os\nif os.name:\n    try:\n        from . import _fast\n    except Exception:\n        pass\n",
        "from ._fast import f\n",
        "from . import cfast\n",
        "try:\n    import x._fast\nfinally:\n    f = None\n",
        "try:\n    import x._fast\nexcept AttributeError:\n    f = None\n",
        # numpy/_core/__init__.py
        "try:\n    from ._fast import f\nexcept ImportError as e:\n    raise ImportError('no') from e\n",
        "try:\n    from ._fast import f\nexcept ImportError:\n    f = None\nimport x.cfast\n",
    ],
)
def test_an_extension_that_is_gone_is_optional_where_python_goes_on_without(
    tmp_path: Path, first: str
) -> None:
    files = {
        "x/__init__.py": first.encode(),
        "x/cfast.py": b"from x._fast import f\n",
        NATIVE: b"1",
    }
    install(tmp_path, "x", files=files)
    assert installed.read([str(tmp_path)]).records.differing == ()
    (tmp_path / NATIVE).unlink()
    records = installed.read([str(tmp_path)]).records
    (differing,) = records.differing
    assert differing.optional == ((NATIVE,) if imports(tmp_path) else ())
    assert bool(records.ends) is not imports(tmp_path)
    assert [f.status.value for f in packages.ask("files-match-record", tmp_path)] == [
        "warn" if imports(tmp_path) else "fail"
    ]


def test_an_extension_that_nothing_is_seen_to_import_is_not_optional(tmp_path: Path) -> None:
    lazy = b"def f():\n    try:\n        import x._fast\n    except ImportError:\n        pass\n"
    install(tmp_path, "x", files={"x/__init__.py": lazy, NATIVE: b"1"})
    (tmp_path / NATIVE).unlink()
    (differing,) = installed.read([str(tmp_path)]).records.differing
    assert differing.optional == ()


NAMED = b"entry_points().select(group='triton.backends')\n"
LISTED = b"for name in os.listdir(root): load(name)\n"


@pytest.mark.parametrize(
    ("discovery", "gone", "end"),
    [
        (NAMED, ("amd/driver.py",), "amd/driver.py"),
        (NAMED, ("nvidia/compiler.py",), "nvidia/compiler.py"),
        (NAMED, ("amd/driver.py", "amd/compiler.py"), "amd/compiler.py"),
        (LISTED, ("amd/driver.py",), "amd/driver.py"),
        # Until 3.3 a backend that was taken out as a whole is not missed.
        (LISTED, ("amd/driver.py", "amd/compiler.py"), None),
    ],
)
def test_triton_imports_its_backends_by_names_that_no_statement_has(
    tmp_path: Path, discovery: bytes, gone: tuple[str, ...], end: str | None
) -> None:
    inner = {f"{b}/{m}.py": b"1\n" for b in ("nvidia", "amd") for m in ("compiler", "driver")}
    files = {f"triton/backends/{path}": content for path, content in inner.items()}
    files |= {"triton/__init__.py": b"", "triton/backends/__init__.py": discovery}
    install(tmp_path, "triton", files=files)
    for path in gone:
        (tmp_path / "triton/backends" / path).unlink()
    assert ends(tmp_path) == ([(f"triton/backends/{end}", "missing", "")] if end else [])
