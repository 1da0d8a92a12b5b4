"""Requirements to a lock with hashes: a real uv, and a tiny index with a password."""

from __future__ import annotations

import base64
import hashlib
import http.server
import importlib.util
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from building import tarred, wheel

from envcheck.engine import locking, pip_config
from envcheck.errors import FileUnavailable, UsageError

PASSWORD = "correct%2Dhorse-battery"
PLAIN = "correct-horse-battery"


@dataclass
class Index:
    port: int
    files: dict[str, list[Path]]
    asked: list[str] = field(default_factory=list)

    def address(self, password: str = PASSWORD) -> str:
        return f"http://me:{password}@127.0.0.1:{self.port}/simple"

    def digest(self, name: str) -> str:
        (path,) = self.files[name]
        return hashlib.sha256(path.read_bytes()).hexdigest()


def link(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    fragment = "" if path.name.startswith("unhashed") else f"#sha256={digest}"
    return f'<a href="/{path.name}{fragment}">{path.name}</a>'


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("index")
    made = [
        wheel(folder, "tiny", "1.0", {"tiny.py": b"value = 1\n"}),
        wheel(folder, "tiny", "2.0", {"tiny.py": b"value = 2\n"}),
        wheel(folder, "torch", "2.14.1", {"torch/version.py": b""}, requires=("little>=1",)),
        wheel(folder, "little", "1.5", {"little.py": b""}),
        folder / "source_only-1.0.tar.gz",
    ]
    script = f"open({str(folder / 'was-run')!r}, 'w')\n".encode()
    metadata = b"Metadata-Version: 2.1\nName: source-only\nVersion: 1.0\n"
    stem = "source_only-1.0"
    made[-1].write_bytes(
        tarred({f"{stem}/PKG-INFO": metadata, f"{stem}/setup.py": script}, mode="w:gz")
    )
    made.append(shutil.copy(made[-1], folder / "unhashed-1.0.tar.gz"))
    files: dict[str, list[Path]] = {}
    for path in made:
        files.setdefault(path.name.split("-")[0].replace("_", "-"), []).append(path)
    allowed = "Basic " + base64.b64encode(f"me:{PLAIN}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            name = self.path.rstrip("/").rsplit("/", 1)[-1]
            if self.headers.get("Authorization") != allowed:
                self.answer(401, b"", **{"WWW-Authenticate": "Basic"})
            elif name in files:
                links = "".join(link(path) for path in files[name])
                self.answer(200, links.encode(), **{"Content-Type": "text/html"})
            elif (folder / name).is_file():
                self.answer(200, (folder / name).read_bytes())
            else:
                self.answer(404, b"")

        do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

        def answer(self, code: int, body: bytes, **headers: str) -> None:
            self.send_response(code)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index = Index(port=server.server_address[1], files=files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield index
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def index(served: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Return the index, with nothing of it in uv's cache and nothing of the user's settings."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    served.asked.clear()
    return served


@pytest.fixture
def config(index: Index, tmp_path: Path) -> Path:
    path = tmp_path / "pip.conf"
    path.write_text(f"[global]\nindex-url = {index.address()}\n")
    return path


def requirements(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    return path


def pins(path: Path) -> list[str]:
    return re.findall(r"^([\w-]+==\S+)", path.read_text(), re.MULTILINE)


def test_a_lock_has_hashes_and_torch_and_no_address(index, tmp_path, config):
    wanted = requirements(tmp_path, "tiny<2  # the old one\n")
    made = locking.lock(wanted, torch="2.14.1", python="3.11", pip_config=config)
    assert made == tmp_path / "requirements.txt.lock"
    assert pins(made) == ["little==1.5", "tiny==1.0", "torch==2.14.1"]
    text = made.read_text()
    assert text.startswith("# Written by envcheck for sha256:")
    assert f"--hash=sha256:{index.digest('torch')}" in text
    assert not re.search(f"://|{PASSWORD}|{PLAIN}|127.0.0.1", text)
    assert sorted(p.name for p in tmp_path.iterdir() if p != tmp_path / "cache") == [
        *("pip.conf", "requirements.txt", "requirements.txt.lock")
    ]


def test_a_lock_is_made_again_only_when_what_it_is_made_from_changes(index, tmp_path, config):
    wanted = requirements(tmp_path, "tiny\n-r more.txt\n")
    (tmp_path / "more.txt").write_text("little\n-r requirements.txt\n")

    def asked(python: str = "3.11") -> bool:
        index.asked.clear()
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        locking.lock(wanted, torch="2.14.1", python=python, pip_config=config)
        return bool(index.asked)

    assert [asked(), asked()] == [True, False]
    (tmp_path / "more.txt").write_text("little>1\n-r requirements.txt\n")
    assert [asked(), asked()] == [True, False]
    assert [asked("3.12"), asked("3.12")] == [True, False]
    wanted.write_text("tiny<=2\n-r more.txt\n")
    assert [asked("3.12"), asked("3.12")] == [True, False]


def test_pins_that_still_fit_are_kept(index, tmp_path, config):
    wanted = requirements(tmp_path, "tiny<2\n")
    made = locking.lock(wanted, torch="2.14.1", pip_config=config)
    wanted.write_text("tiny\n")
    locking.lock(wanted, torch="2.14.1", pip_config=config)
    assert "tiny==1.0" in pins(made)
    made.unlink()
    locking.lock(wanted, torch="2.14.1", pip_config=config)
    assert "tiny==2.0" in pins(made)


@pytest.mark.parametrize(
    "line", ["torch", "Torch>=2", "torch==2.14.1", "torch ; python_version>'3'"]
)
def test_a_torch_of_the_users_own_is_left_alone(index, tmp_path, config, line):
    wanted = requirements(tmp_path, f"{line}\n")
    assert "torch==2.14.1" in pins(locking.lock(wanted, torch="9.9", pip_config=config))


def test_a_name_that_begins_as_torch_is_another(index, tmp_path, config):
    wanted = requirements(tmp_path, "torch-tiny\n")
    with pytest.raises(FileUnavailable, match="torch-tiny"):
        locking.lock(wanted, torch="2.14.1", pip_config=config)


def test_a_constraint_on_torch_does_not_take_it_away(index, tmp_path, config):
    (tmp_path / "limits.txt").write_text("torch<3\n")
    wanted = requirements(tmp_path, "-c limits.txt\ntiny\n")
    assert "torch==2.14.1" in pins(locking.lock(wanted, torch="9.9", pip_config=config))


def test_a_lock_of_somebody_else_is_not_written_over(index, tmp_path, config):
    wanted = requirements(tmp_path, "tiny\n")
    other = tmp_path / "requirements.txt.lock"
    other.write_text("tiny==1.0\n")
    with pytest.raises(UsageError) as error:
        locking.lock(wanted, torch="2.14.1", pip_config=config)
    assert error.value.message == f"{other}: is there, and was not written by envcheck"
    assert error.value.remedy == 'lock = "requirements.txt.lock", or move it away'
    assert other.read_text() == "tiny==1.0\n"


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("tiny==7\n", r"not resolved: No solution found .*tiny==7", "correct "),
        ("gone\n", r"not resolved: .*gone was not found in the package registry", "correct "),
        ("source-only\n", r"source-only.* has no usable wheels", "what has no wheel is built as"),
    ],
)
def test_what_the_index_lacks_is_named(index, tmp_path, config, text, message, remedy):
    with pytest.raises(FileUnavailable, match=message) as error:
        locking.lock(requirements(tmp_path, text), torch="2.14.1", pip_config=config)
    assert error.value.message.startswith(f"{tmp_path / 'requirements.txt'}: not resolved: ")
    assert "\n" not in error.value.message
    assert error.value.remedy.startswith(remedy)
    assert not (tmp_path / "requirements.txt.lock").exists()


def test_a_line_that_is_no_requirement_is_named(index, tmp_path, config):
    with pytest.raises(UsageError, match="Couldn't parse requirement") as error:
        locking.lock(requirements(tmp_path, "tiny=>>1\n"), torch="2.14.1", pip_config=config)
    assert error.value.remedy == f"correct {tmp_path / 'requirements.txt'}"


def test_an_index_that_refuses_or_is_away_is_named_without_its_password(index, tmp_path):
    wanted, config = requirements(tmp_path, "tiny\n"), tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = {index.address('wrong-secret')}\n")
    with pytest.raises(FileUnavailable, match="401") as error:
        locking.lock(wanted, torch="2.14.1", pip_config=config)
    assert "wrong-secret" not in f"{error.value.message} {error.value.remedy}"
    assert error.value.remedy.startswith("an index-url with user and password")
    config.write_text(f"[global]\nindex-url = http://me:{PASSWORD}@127.0.0.1:1/simple\n")
    with pytest.raises(FileUnavailable, match="Connection refused") as error:
        locking.lock(wanted, torch="2.14.1", pip_config=config)
    assert PASSWORD not in error.value.message


def test_what_no_image_could_install_is_refused(index, tmp_path, config):
    (tmp_path / "mine").mkdir()
    project = '[project]\nname = "mine"\nversion = "1"\n'
    (tmp_path / "mine" / "pyproject.toml").write_text(project)
    local = index.files["little"][0].as_uri()
    for line in ("./mine", "-e ./mine", f"little @ {local}"):
        with pytest.raises(UsageError, match="comes from no index") as error:
            locking.lock(requirements(tmp_path, f"{line}\n"), torch="2.14.1", pip_config=config)
        assert error.value.remedy.startswith('source = "..." in [[extensions]]')


def test_a_password_in_a_requirement_does_not_reach_the_lock(index, tmp_path, config):
    address = index.address().replace("/simple", f"/{index.files['little'][0].name}")
    with pytest.raises(UsageError, match="its address holds a password") as error:
        locking.lock(
            requirements(tmp_path, f"little @ {address}\n"), torch="2.14.1", pip_config=config
        )
    assert PASSWORD not in error.value.message
    assert not (tmp_path / "requirements.txt.lock").exists()


def test_an_index_named_in_the_requirements_is_not_repeated(index, tmp_path):
    text = f"--index-url {index.address()}\ntiny==1.0\n"
    made = locking.lock(requirements(tmp_path, text), torch="2.14.1")
    assert "://" not in made.read_text()


def test_released_extensions_get_their_hashes_and_are_not_run(index, tmp_path, config):
    output = tmp_path / "extensions.lock"
    hashed = "flash-attn==2.8.3 --hash=sha256:" + "5" * 64
    locking.lock_extensions([hashed, "source-only==1.0"], output, pip_config=config)
    digest = index.digest("source-only")
    assert output.read_text() == (f"{hashed}\nsource-only==1.0 \\\n    --hash=sha256:{digest}\n")
    assert not (index.files["tiny"][0].parent / "was-run").exists()
    index.asked.clear()
    locking.lock_extensions([hashed], output, pip_config=config)
    assert index.asked == []
    with pytest.raises(UsageError, match=r"^extensions: unhashed==1\.0: the index") as error:
        locking.lock_extensions(["unhashed==1.0"], output, pip_config=config)
    assert error.value.remedy == "write unhashed==1.0 --hash=sha256:..."
    with pytest.raises(FileUnavailable, match=r"^extensions: not resolved: .*gone"):
        locking.lock_extensions(["gone==1"], output, pip_config=config)


def test_without_uv_the_remedy_is_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileUnavailable, match="uv is not installed") as error:
        locking.lock(requirements(tmp_path, "tiny\n"), torch="2.14.1")
    assert error.value.remedy == "pip install uv"
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert locking._command()[1:] == ["-m", "uv"]


def test_requirements_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"requirements\.txt: cannot be read: is no UTF-8"):
        locking.lock(path, torch="2.14.1")


def test_what_older_releases_of_uv_draw_becomes_one_line():
    said = "  \u00d7 No solution found when resolving dependencies:\n  ╰─▶ Because a, b.\n"
    fault = locking._fault(said, Path("r.txt"))
    assert fault.message == (
        "r.txt: not resolved: No solution found when resolving dependencies: Because a, b."
    )


def test_pips_configuration_becomes_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_INDEX_URL", "http://old")
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", "http://older")
    path = tmp_path / "pip.conf"
    path.write_text(
        "[global]\nindex_url = http://a:%40@b/simple\nextra-index-url =\n  http://c\n  http://d\n"
        "cert = ~/ca.pem\n[install]\nindex-url = http://e\n"
    )
    monkeypatch.setenv("HOME", "/home/me")
    made = pip_config.variables(path, None)
    assert made["UV_DEFAULT_INDEX"] == "http://e"
    assert made["UV_INDEX"] == "http://c http://d"
    assert made["SSL_CERT_FILE"] == "/home/me/ca.pem"
    assert not {"UV_INDEX_URL", "UV_EXTRA_INDEX_URL"} & made.keys()
    assert pip_config.variables(path, Path("/x.pem"))["SSL_CERT_FILE"] == "/x.pem"
    assert pip_config.variables(None, None)["UV_INDEX_URL"] == "http://old"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"index-url = http://a:secret@b\n", "MissingSectionHeaderError in line 1"),
        (b"[global]\nhttp//a secret\n", "ParsingError in line 2"),
        (b"[global]\nindex-url = secret\nindex-url = x\n", "DuplicateOptionError in line 3"),
        (b"[global]\nindex-url = secret\xff\n", "UnicodeDecodeError"),
    ],
)
def test_a_broken_configuration_is_named_without_its_text(tmp_path, text, reason):
    path = tmp_path / "pip.conf"
    path.write_bytes(text)
    with pytest.raises(UsageError) as error:
        pip_config.variables(path, None)
    assert error.value.message == f"{path}: is no pip configuration: {reason}"
    assert "secret" not in repr(error.value)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "Looking in indexes: http://***@mirror.corp:8080/x",
            "Looking in indexes: http://***@(index)/x",
        ),
        (
            "HTTPConnectionPool(host='mirror.corp', port=1)",
            "HTTPConnectionPool(host='(index)', port=1)",
        ),
        ("from https://OTHER.corp/a.whl", "from https://(index)/a.whl"),
        ("not-mirror.corp, mirror.corporation", "not-mirror.corp, mirror.corporation"),
        ("https://pypi.org/simple", "https://pypi.org/simple"),
    ],
)
def test_hosts_of_a_pip_configuration_are_taken_out_of_a_log(
    tmp_path: Path, line: str, shown: str
) -> None:
    config = tmp_path / "pip.conf"
    address = "http://me:p@ss@mirror.corp:8080/simple"
    config.write_text(f"[global]\nindex-url = {address}\nfind-links = https://other.corp\n")
    assert pip_config.hider(config)(line) == shown


def test_nothing_is_taken_out_without_a_pip_configuration(tmp_path: Path) -> None:
    assert pip_config.hider(None)("http://mirror.corp/") == "http://mirror.corp/"
    assert pip_config.hider(tmp_path / "none")("http://mirror.corp/") == "http://mirror.corp/"
