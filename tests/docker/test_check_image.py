"""`envcheck check --image` as a process, of images as third parties make them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_driver import words
from running import envcheck

from envcheck.engine.docker import Docker

Make = Callable[..., str]


def check(image: str):
    return envcheck("check", "--image", image, "--arch", "blackwell", "--format", "json")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("no-pip", "RUN rm -rf /usr/share/python-wheels /usr/local/bin/pip*"),
        ("no-shell", "RUN rm -f /bin/bash /bin/dash /bin/sh"),
    ],
)
def test_an_image_needs_neither_pip_nor_a_shell(
    plain_base: str, make_image: Make, name: str, lines: str
) -> None:
    image = make_image(name, f"FROM {plain_base}\n{lines}\n")
    done = check(image)
    # There is nothing in it to judge, and that is no success.
    assert done.returncode == 11, done.stderr
    report = json.loads(done.stdout)
    assert (report["verdict"], report["assurance"]) == ("inconclusive", "scanned")
    assert "no device code was found" in report["summary"]["line"]


def test_an_image_without_python(make_image: Make) -> None:
    done = check(make_image("empty", "FROM scratch\nCOPY file /file\n"))
    assert (done.returncode, done.stdout) == (3, "")
    assert "no Python in the image (neither on PATH nor in the usual places)" in done.stderr
    assert "envcheck: try: --python PATH" in done.stderr


def test_an_image_with_an_old_python(old_python: str) -> None:
    done = check(old_python)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Python 3.8.20 is too old" in done.stderr
    assert "envcheck: try: an image with Python 3.10 or newer" in done.stderr


def test_an_image_for_another_cpu(engine: Docker, make_image: Make) -> None:
    other = "arm64" if engine._architecture == "amd64" else "amd64"
    text = "FROM scratch\nCOPY file /usr/bin/python3\n"
    done = check(make_image("other-cpu", text, "--platform", f"linux/{other}"))
    assert (done.returncode, done.stdout) == (3, "")
    assert f"an image for {other}, not {engine._architecture}" in done.stderr


def test_a_card_for_an_engine_that_can_give_none(plain_base: str, fake: Path) -> None:
    """No engine of the tests has the container toolkit; the driver that is asked is ours."""
    done = envcheck(
        *("check", "--image", plain_base, "--arch", "native", "--gpus", "all"), env=words(fake)
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "the engine cannot give a card to a container: could not select device" in done.stderr
    assert "NVIDIA container toolkit" in done.stderr


def test_an_image_that_is_nowhere(engine: Docker) -> None:
    done = check("localhost:9/envcheck-no-such-image:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "is not here and cannot be pulled" in done.stderr


def test_a_label_speaks_of_a_torch_that_is_not_there(plain_base: str, make_image: Make) -> None:
    text = f'FROM {plain_base}\nLABEL org.pytorch.version="2.8.0"\n'
    done = check(make_image("no-torch", text))
    assert done.returncode == 10, done.stderr
    assert "says 2.8.0, but no torch is installed" in json.loads(done.stdout)["summary"]["line"]


def test_the_caches_of_an_image_are_found_by_its_own_variables(
    plain_base: str, make_image: Make
) -> None:
    """What envcheck sets for itself in a container must not move the folders of the job."""
    target = {"backend": "cuda", "arch": 90, "warp_size": 32}
    kernel = json.dumps({"name": "k", "num_warps": 4, "shared": 0, "target": target})
    folder = f"/caches/triton/{'A' * 52}"
    info = "$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')/triton-3.8.0.dist-info"
    text = f"""
FROM {plain_base}
RUN mkdir -p {folder} && echo '{kernel}' > {folder}/k.json && echo .version 8.4 > {folder}/k.ptx
RUN mkdir -p {info} {info}/../triton && touch {info}/../triton/__init__.py && printf 'Name: triton\\nVersion: 3.8.0\\n' > {info}/METADATA
ENV TRITON_CACHE_DIR=/caches/triton TMPDIR=/scratch
"""
    done = check(make_image("caches", text))
    findings = json.loads(done.stdout)["findings"]
    (found,) = [f for f in findings if f["check"] == "caches-fit-target"]
    assert (found["status"], found["subject"]) == ("warn", "/caches/triton")
    assert "1 kernel(s) for sm_90, none for sm_120" in found["message"]
