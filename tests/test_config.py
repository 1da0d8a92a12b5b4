"""The user's own settings: what is taken, where from, and how each mistake is named."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from envcheck import config
from envcheck.config import Config, Extension
from envcheck.core.model import Assurance
from envcheck.errors import FileUnavailable, UsageError

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
DIGEST = "sha256:" + "5" * 64
WHOLE = f"""\
base = "python:3.12-slim-bookworm@{DIGEST}"
lock = "lock.txt"
builder_lock = "builder.txt"
kernels = ["kernels"]
architectures = ["blackwell", "rtx-4090", "sm_90"]
require = "compiled"
pip_config = "pip.conf"
ca_file = "ca.pem"
network = "host"

[[extensions]]
name = "mine.ops"
source = "ops"
smoke = "mine.ops.smoke:check"

[[extensions]]
name = "flash_attn"
requirement = "flash-attn==2.8.3 --hash={DIGEST}"

[[extensions]]
name = "xformers"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with everything that WHOLE names."""
    for name in ("lock.txt", "builder.txt"):
        (tmp_path / name).write_text(f"tiny==1.0 --hash={DIGEST}\n")
    for name in ("pip.conf", "ca.pem", "requirements.txt"):
        (tmp_path / name).write_text("")
    for name in ("kernels", "ops", "bare"):
        (tmp_path / name).mkdir()
    (tmp_path / "ops" / "setup.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return Path()


def refused(folder: Path, text: str) -> UsageError:
    (folder / "envcheck.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        config.load(None, folder)
    assert error.value.exit_code == 2
    assert "\n" not in error.value.message
    return error.value


def test_everything_is_read(folder):
    (folder / "envcheck.toml").write_text(WHOLE)
    read = config.load(None, folder)
    assert read == Config(
        file=Path("envcheck.toml"),
        base=f"python:3.12-slim-bookworm@{DIGEST}",
        lock=Path("lock.txt"),
        builder_lock=Path("builder.txt"),
        extensions=(
            Extension(name="mine.ops", source=Path("ops").resolve(), smoke="mine.ops.smoke:check"),
            Extension(name="flash_attn", requirement=f"flash-attn==2.8.3 --hash={DIGEST}"),
            Extension(name="xformers"),
        ),
        kernels=(Path("kernels"),),
        architectures=("blackwell", "rtx-4090", "sm_90"),
        require=Assurance.COMPILED,
        pip_config=Path("pip.conf"),
        ca_file=Path("ca.pem"),
        network="host",
    )
    assert (read.base_name, read.base_digest) == ("python:3.12-slim-bookworm", DIGEST)


def test_a_folder_without_a_file_has_an_empty_configuration(folder):
    assert config.load(None, folder) == Config()
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.ruff]\n')
    assert config.load(None, folder) == Config()
    assert Config().base_digest is None
    assert Config().require is Assurance.SCANNED


def test_the_table_of_a_pyproject_is_read_too(folder):
    (folder / "pyproject.toml").write_text('[tool.envcheck]\nbase = "debian:12"\n')
    read = config.load(None, folder)
    assert read == Config(file=Path("pyproject.toml"), base="debian:12")
    assert (read.base_name, read.base_digest) == ("debian:12", None)


def test_the_own_file_wins_as_a_whole_and_the_other_is_named(folder):
    (folder / "pyproject.toml").write_text('[tool.envcheck]\nnetwork = "host"\n')
    (folder / "envcheck.toml").write_text('base = "debian:12"\n')
    expected = Config(file=Path("envcheck.toml"), base="debian:12")
    assert config.load(None, folder) == dataclasses.replace(
        expected, passed_over=Path("pyproject.toml")
    )
    (folder / "pyproject.toml").write_text("[tool.ruff]\n")
    assert config.load(None, folder) == expected


def test_a_named_file_is_of_either_kind_and_its_folder_counts(folder):
    for name in ("envcheck.toml", "pyproject.toml"):
        (folder / name).write_text("wrong = 1\n")
    (folder / "ops" / "gpu.toml").write_text('requirements = "../requirements.txt"\n')
    read = config.load(folder / "ops" / "gpu.toml", folder)
    assert read.requirements == Path("ops/../requirements.txt")
    (folder / "bare" / "pyproject.toml").write_text('[tool.envcheck]\nnetwork = "none"\n')
    assert config.load(folder / "bare" / "pyproject.toml", folder).network == "none"


def test_a_named_file_must_have_something(folder):
    with pytest.raises(FileUnavailable, match=r"^gone\.toml: No such file or directory$"):
        config.load(folder / "gone.toml", folder)
    (folder / "pyproject.toml").write_text("[tool.ruff]\n")
    with pytest.raises(UsageError, match=r"^pyproject\.toml: has no \[tool\.envcheck\]$"):
        config.load(folder / "pyproject.toml", folder)


def test_the_source_of_an_extension_may_be_the_folder_itself(folder):
    (folder / "pyproject.toml").write_text(
        '[tool.envcheck]\nextensions = [{ name = "mine", source = "." }]\n'
    )
    (extension,) = config.load(None, folder).extensions
    assert extension.source is not None
    assert extension.source.name == folder.resolve().name


def test_a_home_is_understood(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.resolve()))
    (folder / "envcheck.toml").write_text('pip_config = "~/pip.conf"\n')
    assert config.load(None, folder).pip_config == folder.resolve() / "pip.conf"


@pytest.mark.parametrize(
    "base",
    [
        *("debian", "debian:12", "nvcr.io/nvidia/pytorch:25.01-py3", "localhost:5000/a/b-c_d:x.Y"),
        *("[::1]:5000/a", f"a/b@{DIGEST}", f"Registry.Example:443/a:1@{DIGEST}"),
    ],
)
def test_references_of_images_are_taken(folder, base):
    (folder / "envcheck.toml").write_text(f'base = "{base}"\n')
    read = config.load(None, folder)
    digest = DIGEST if "@" in base else None
    assert (read.base_name, read.base_digest) == (base.partition("@")[0], digest)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source =", "sorce =", "extensions[0].sorce: unknown key; did you mean source?"),
        ("network =", "netwrok =", "netwrok: unknown key; did you mean network?"),
        ("network =", "colour =", "colour: unknown key"),
        ("network =", "file =", "file: unknown key"),
        ("network =", '"a\\nb" =', '"a\\nb": unknown key'),
        ('"host"', "5", "network: expected a string, got an integer"),
        ('"host"', "1979-05-27", "network: expected a string, got a date or time"),
        ('"host"', '" "', "network: empty"),
        ('"host"', '"a\\u0000"', "network: holds a NUL"),
        ('"host"', '"bridge"', "network: 'bridge' is none of default, host, none"),
        ('["kernels"]', '"kernels"', "kernels: expected an array, got a string"),
        ('["kernels"]', "[1]", "kernels[0]: expected a string, got an integer"),
        ('["kernels"]', '["kernels", "k"]', "kernels[1]: k: no such folder"),
        ('["kernels"]', '["lock.txt"]', "kernels[0]: lock.txt: is no folder"),
        ('"compiled"', '"run"', "require: 'run' is none of scanned, compiled, executed"),
        ('"compiled"', "true", "require: expected a string, got a boolean"),
        ('"sm_90"', '"5090"', "architectures[2]: unknown target '5090': not an architecture, a"),
        ('"sm_90"', '"sm_90a"', "architectures[2]: unknown target 'sm_90a': a card has no suffix"),
        ('"lock.txt"', '"x.txt"', "lock: x.txt: no such file"),
        ('"lock.txt"', '"ops"', "lock: ops: is no file"),
        ('"lock.txt"', '"pip.conf"', "lock: pip.conf: has no hashes"),
        ('"builder.txt"', '"pip.conf"', "builder_lock: pip.conf: has no hashes"),
        ('"pip.conf"', '"x.conf"', "pip_config: x.conf: no such file"),
        ('"ca.pem"', '"x.pem"', "ca_file: x.pem: no such file"),
        ("network =", 'requirements = "requirements.txt" #', "requirements: there is a lock"),
        ('"python:', '"Python:', f"base: 'Python:3.12-slim-bookworm@{DIGEST}' is no image ref"),
        ("55555", "5", f"base: 'python:3.12-slim-bookworm@{DIGEST[:-4]}' is no image reference"),
        ('name = "mine.ops"', "", "extensions[0].name: missing"),
        ('name = "mine.ops"', 'name = "mine-ops"', "extensions[0].name: 'mine-ops' is no import"),
        ('"xformers"', '"mine.ops"', "extensions[2].name: mine.ops stands there twice"),
        ('"ops"', '"gone"', "extensions[0].source: gone: no such folder"),
        ('"ops"', '"bare"', "extensions[0].source: bare: has neither pyproject.toml nor setup.py"),
        ('"ops"', '"ops"\nrequirement = "x==1"', "extensions[0].requirement: there is a source"),
        (".smoke:check", "", "extensions[0].smoke: 'mine.ops' is neither module:callable"),
        ("==2.8.3 ", ">=2 ", f"extensions[1].requirement: 'flash-attn>=2 --hash={DIGEST}' pins"),
        ("==2.8.3 ", "==2.* ", f"extensions[1].requirement: 'flash-attn==2.* --hash={DIGEST}'"),
        ("5" * 64 + '"\n\n[[', '1"\n\n[[', "extensions[1].requirement: 'flash-attn==2.8.3 --hash"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(folder, old, new, message):
    assert old in WHOLE
    said = refused(folder, WHOLE.replace(old, new, 1)).message
    assert said.startswith(f"envcheck.toml: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extensions = 5\n", "extensions: expected an array, got an integer"),
        ("extensions = [5]\n", "extensions[0]: expected a table, got an integer"),
        ('[extensions]\nname = "x"\n', "extensions: expected an array, got a table"),
        ("base =\n", "not valid TOML: Invalid value (at line 1, column 7)"),
        ('base = "x"\nbase = "y"\n', "not valid TOML: Cannot overwrite a value (at line 2"),
        ('base = "x"\nlock = [\n', "not valid TOML: Invalid value (at line 3, the end of the"),
        ("base = " + "[" * 10000, "not valid TOML: "),
    ],
)
def test_what_is_no_table_or_no_toml_is_named_too(folder, text, message):
    assert refused(folder, text).message.startswith(f"envcheck.toml: {message}")


def test_a_pyproject_is_named_with_its_table(folder):
    pyproject = folder / "pyproject.toml"
    for text, message in (
        ("[tool.envcheck]\nlok = 1\n", "tool.envcheck.lok: unknown key; did you mean lock?"),
        ("[[tool.envcheck]]\n", "tool.envcheck: expected a table, got an array"),
        ("tool = 5\n", "tool: expected a table, got an integer"),
        ("[tool.envcheck\n", "not valid TOML: Expected ']' at the end of a table declaration"),
    ):
        pyproject.write_text(text)
        with pytest.raises(UsageError, match="^" + re.escape(f"pyproject.toml: {message}")):
            config.load(None, folder)
    pyproject.write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"^pyproject\.toml: not valid TOML: byte 0 is no UTF-8$"):
        config.load(None, folder)


def test_a_remedy_for_a_pyproject_names_the_whole_table(folder):
    (folder / "pyproject.toml").write_text("[tool]\nenvcheck = 5\n")
    with pytest.raises(UsageError) as error:
        config.load(None, folder)
    assert error.value.remedy == "[tool.envcheck]"


@pytest.mark.parametrize("name", ["envcheck.toml", "pyproject.toml"])
def test_a_link_to_nothing_is_not_taken_for_no_settings(folder, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("nowhere")
    with pytest.raises(FileUnavailable, match=re.escape(name)):
        config.load(None, folder)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("colour = 1\n", "known here: base, lock, builder_lock, requirements, extensions, kernels"),
        ('lock = "requirements.txt"\n', "requirements = ... resolves such a file and makes the"),
        ('lock = "gone"\n', "name a file, relative to /"),
        ('architectures = ["sm_120a"]\n', "sm_120"),
        ('architectures = ["x"]\n', "envcheck targets (architectures: turing, ampere,"),
        ('[[extensions]]\nsource = "ops"\n', 'name = "..." (as the extension is imported)'),
        ("[extensions]\n", "write [[extensions]]"),
        ("base = 5\n", 'base = "..."'),
        ("architectures = [89]\n", 'architectures = ["sm_89"]'),
        ("architectures = 89\n", 'architectures = ["..."]'),
        ("architectures = [true]\n", 'architectures = ["..."]'),
        ('architectures = ["native"]\n', "--arch native on the command line"),
        ('requirements = "requirements.txt"\nlock = "x"\n', "keep lock, or keep requirements"),
    ],
)
def test_a_remedy_says_what_to_write(folder, text, remedy):
    assert refused(folder, text).remedy.startswith(remedy)


def test_the_example_and_the_table_of_the_readme_are_what_is_read(folder):
    part = README.partition("\n## Configuration\n")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```toml\n(.*?)```", part, re.DOTALL)
    (folder / "envcheck.toml").write_text(example)
    (folder / "tests").mkdir()
    (folder / "tests" / "smoke_ops.py").write_text("")
    assert [e.name for e in config.load(None, folder).extensions] == [
        *("mine.ops", "flash_attn", "xformers")
    ]
    keys = {field.name for field in dataclasses.fields(Config)} - {"file", "passed_over"}
    assert set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == keys
    message = part.rsplit("`", 2)[1]
    assert refused(folder, example.replace("source =", "sorce =")).message == message


SIZES = '[[sizes]]\nop = "mm"\ndtypes = ["bf16"]\nM = 4096\nN = 14336\nK = 4096\n'


def test_sizes_of_a_job_are_read(folder):
    (folder / "envcheck.toml").write_text(SIZES)
    (read,) = config.load(None, folder).sizes
    assert (read.op, read.dtypes) == ("mm", ("bf16",))
    assert read.sizes == {"M": 4096, "N": 14336, "K": 4096}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"mm"', '"mmm"', "sizes[0].op: there is no operation 'mmm'"),
        ("M = 4096\n", "", "sizes[0].M: None is no size"),
        ("M = 4096", "M = 0", "sizes[0].M: 0 is no size"),
        ("M = 4096", "M = true", "sizes[0].M: True is no size"),
        ("M = 4096", "M = 4096\nL = 1", "sizes[0].L: unknown key"),
        ('"bf16"', '"fp8"', "sizes[0].dtypes[0]: mm has no 'fp8'"),
    ],
)
def test_a_mistake_in_sizes_is_named(folder, old, new, message):
    assert refused(folder, SIZES.replace(old, new, 1)).message.startswith(
        f"envcheck.toml: {message}"
    )


def test_a_smoke_test_in_a_file_is_named_by_its_path(folder):
    text = '[[extensions]]\nname = "mine.ops"\nsmoke = "smoke.py:checks.forward"\n'
    said = refused(folder, text).message
    assert said == "envcheck.toml: extensions[0].smoke: smoke.py: no such file"
    (folder / "smoke.py").write_text("")
    (read,) = config.load(None, folder).extensions
    assert read.smoke == f"{(folder / 'smoke.py').resolve()}:checks.forward"
