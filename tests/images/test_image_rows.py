"""The rows of targets.toml, their locks, the bake file and the Dockerfile fit each other."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from envcheck import targets
from envcheck.core import cuda
from envcheck.core.sm import Sm
from envcheck.engine import recipe
from envcheck.errors import DocumentInvalid

IMAGES = targets.data_file().parent
ROWS = [a for a in targets.catalogue().architectures if a.image is not None]
LOCKS = sorted(IMAGES.glob("locks/*.txt"))


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def update_locks():
    return load(IMAGES / "update_locks.py")


def test_the_generations_that_are_promised_have_a_row() -> None:
    assert {"ada", "hopper", "blackwell"} <= {a.name for a in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda a: a.name)
def test_the_driver_of_a_row_is_the_least_that_serves_it(row: targets.Architecture) -> None:
    version = cuda.parse_version(row.image.cuda)
    branch = cuda.driver_of_sm(Sm.parse(row.sm)) or (0,)
    least = max(cuda.MAJOR_DRIVER[version[0]], branch)
    assert row.image.driver == cuda.driver_text(least)
    newest = cuda.cuda_of_driver(least)
    assert newest is not None
    assert row.image.nvidia_require_cuda == f"cuda>={newest[0]}.{newest[1]}"


@pytest.mark.parametrize("row", ROWS, ids=lambda a: a.name)
def test_a_row_compiles_for_its_own_sm(row: targets.Architecture) -> None:
    major, minor = row.image.torch_cuda_arch_list.split(".")
    assert f"sm_{major}{minor}" == row.sm


@pytest.mark.parametrize("row", ROWS, ids=lambda a: a.name)
def test_the_compiler_is_of_torchs_cuda(row: targets.Architecture) -> None:
    builder = (IMAGES / row.image.builder_lock).read_text()
    pins = dict(re.findall(r"^(nvidia-[\w-]+)==(\d+\.\d+)", builder, re.MULTILINE))
    tools = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime")
    assert {pins[name] for name in (*tools, "nvidia-cuda-cccl")} == {row.image.cuda}
    runtime = (IMAGES / row.image.lock).read_text()
    assert re.search(rf"^torch=={re.escape(row.image.torch)} ", runtime, re.MULTILINE)
    # Both locks are installed into one environment: what both pin, they pin alike.
    for name, version in re.findall(r"^(nvidia-\S+)==(\S+)", builder, re.MULTILINE):
        assert f"\n{name}==" not in runtime or f"\n{name}=={version} " in runtime


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.name)
def test_every_pin_of_a_lock_has_hashes_and_no_host(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    entries = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", "").splitlines()
    assert len(entries) > 5
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==[\w.+]+( ;[^#]*?)?( +--hash=sha256:[0-9a-f]{64})+$", entry), (
            entry
        )


def test_locks_and_bake_file_are_up_to_date(update_locks) -> None:
    assert update_locks.problems(update_locks.read_rows()) == []
    assert update_locks.bake_problems() == []


def test_the_bake_file_gives_every_argument_that_the_dockerfile_takes() -> None:
    wanted = set(re.findall(r"^ARG (\w+)", (IMAGES / "Dockerfile").read_text(), re.MULTILINE))
    given = set(
        re.findall(r"^    (\w+) += ", (IMAGES / "docker-bake.hcl").read_text(), re.MULTILINE)
    )
    assert wanted == given
    assert wanted == recipe.arguments(recipe.of_architecture(ROWS[0]), "x").keys()


def test_a_lock_that_does_not_fit_its_row_is_named(
    update_locks, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(update_locks, "_HERE", tmp_path)
    (tmp_path / "a.txt").write_text("torch==1.0 \\\n    --hash=sha256:00\nsix==1.0\n# http://x/\n")
    row = {"torch": "2.0", "lock": "a.txt", "builder_lock": "b.txt"}
    assert update_locks.problems({"ada": row}) == [
        "a.txt: does not pin torch==2.0; run update_locks.py ada",
        "a.txt: names a host",
        "a.txt: no hash for six==1.0",
        "b.txt: missing; run update_locks.py ada",
    ]


def test_a_digest_that_is_none_is_refused() -> None:
    text = targets.data_file().read_text().replace('base_digest = "sha256:', 'base_digest = "')
    with pytest.raises(DocumentInvalid, match=r"architectures\.ada\.image\.base_digest"):
        targets.load(text)


def test_the_dockerfile_needs_nothing_from_a_registry_but_the_base() -> None:
    text = (IMAGES / "Dockerfile").read_text()
    assert not re.search(r"^# *syntax *=", text, re.MULTILINE)
    sources = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    assert sources == {"scratch", "${BASE}", "environment"}


# --- the steps


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(IMAGES / "steps"))
    return lambda name: load(IMAGES / "steps" / f"{name}.py")


def test_a_cuda_tree_gets_the_names_that_linkers_ask_for(
    steps, tmp_path: Path, monkeypatch
) -> None:
    toolchain = steps("toolchain")
    tree, cuda_home = tmp_path / "cu13", tmp_path / "cuda"
    for path in ("bin/nvcc", "include/cuda.h", "lib/libcudart.so.13", "lib/libcudadevrt.a"):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(path)
    cuda_home.mkdir()
    monkeypatch.setattr(toolchain, "_CUDA", cuda_home)
    toolchain.link_tree(tree)
    assert (cuda_home / "bin" / "nvcc").read_text() == "bin/nvcc"
    assert (cuda_home / "lib64" / "libcudart.so").read_text() == "lib/libcudart.so.13"
    assert (cuda_home / "lib" / "libcudadevrt.a").read_text() == "lib/libcudadevrt.a"
    assert not (cuda_home / "nvvm").exists()
    assert (tree / "lib64" / "libcudadevrt.a").exists()


def test_a_lock_is_cut_into_its_requirements(steps) -> None:
    text = (
        "# comment\na==1 \\\n    --hash=sha256:0 \\\n    --hash=sha256:1\n\nb==2 --hash=sha256:2\n"
    )
    assert [line.split() for line in steps("extensions").requirements(text)] == [
        ["a==1", "--hash=sha256:0", "--hash=sha256:1"],
        ["b==2", "--hash=sha256:2"],
    ]


def test_the_cause_is_dug_out_from_under_the_traceback(steps) -> None:
    lines = ["x.cu(3): error: identifier undefined", *["noise"] * 100, "the end"]
    excerpt = steps("extensions").excerpt(lines)
    assert (excerpt[0], excerpt[-1]) == ("x.cu(3): error: identifier undefined", "the end")
    assert len(excerpt) < 50
    looked = ["Looking in indexes: https://index.example/simple", "  Looking in links: /x", "end"]
    assert steps("extensions").excerpt(looked) == ["end"]


def test_where_a_wheel_lay_is_forgotten(steps, tmp_path: Path) -> None:
    info = tmp_path / "lib" / "python3.12" / "site-packages" / "a-1.dist-info"
    info.mkdir(parents=True)
    (info / "direct_url.json").write_text('{"url": "file:///run/build/wheels/a.whl"}')
    (info / "RECORD").write_text("a.py,,\na-1.dist-info/direct_url.json,sha256=x,5\n")
    steps("final").forget_wheels(tmp_path)
    assert sorted(p.name for p in info.iterdir()) == ["RECORD"]
    assert (info / "RECORD").read_text() == "a.py,,\n"


def test_only_what_is_new_gets_a_new_time(steps, tmp_path: Path, monkeypatch) -> None:
    """Setting the time of a file of a lower layer would copy it: 5 GB for torch."""
    import os

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    (tmp_path / "old").write_text("")
    os.utime(tmp_path / "old", (1767225600, 1767225600))
    before = (tmp_path / "old").stat().st_ctime_ns
    (tmp_path / "new").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    steps("environment").normalise(str(tmp_path))
    assert (tmp_path / "old").stat().st_ctime_ns == before
    assert (tmp_path / "new").stat().st_mtime == 1767225600
    assert (tmp_path / "link").lstat().st_mtime == 1767225600
