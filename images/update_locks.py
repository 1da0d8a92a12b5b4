#!/usr/bin/env python3
"""Rewrite what follows from targets.toml: locks, base digests and docker-bake.hcl.

    update_locks.py                  keep pins that still fit, add what is new
    update_locks.py --upgrade        take the newest releases that fit
    update_locks.py --digests        also ask the registry for the digests of the bases
    update_locks.py --check          write nothing; exit 1 when a file does not fit its row
    update_locks.py ... NAME         only these architectures

Needs `uv` as a command (or `python -m uv`), for `--digests` also `docker buildx`. The index
is the one that uv is configured for (UV_DEFAULT_INDEX, SSL_CERT_FILE); its name is written
nowhere. A lock holds for Linux and every Python from 3.10 on, with the hashes of all wheels.
"""
# ruff: noqa: INP001, T201 - a script, not a module of the package

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HERE = Path(__file__).resolve().parent
_TARGETS = _HERE / "targets.toml"
_BAKE = _HERE / "docker-bake.hcl"
_LEAST_PYTHON = "3.10"
# No name of a target: equal locks are to be equal files, so that their layers are shared.
_HEADER = "# Written by images/update_locks.py from targets.toml.\n"
# torch works without numpy, most of what stands on torch does not.
_RUNTIME = ("torch=={torch}", "numpy")
# torch names the release of `cuda-toolkit` that it was built with: the lock beside this one
# pins it, and its extras bring the compiler of exactly that release.
_BUILDER = ("cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]", "ninja", "packaging", "setuptools", "wheel")

Rows = dict[str, dict[str, Any]]


def main() -> int:
    """Write or check; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    for flag in ("--upgrade", "--digests", "--check"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    rows = {n: r for n, r in read_rows().items() if not given.names or n in given.names}
    if given.check:
        found = [*problems(rows), *bake_problems()]
        print("\n".join(found) or "locks and docker-bake.hcl fit targets.toml")
        return 1 if found else 0
    if given.digests:
        refresh_digests(rows)
    for row in rows.values():
        lock(row, upgrade=given.upgrade)
    _BAKE.write_text(bake(read_rows()), encoding="utf-8")
    return 0


def read_rows() -> Rows:
    """Return the `image` table of every architecture that has one, with its sm."""
    data = tomllib.loads(_TARGETS.read_text(encoding="utf-8"))["architectures"]
    return {n: dict(row["image"], sm=row["sm"]) for n, row in data.items() if "image" in row}


def lock(row: dict[str, Any], *, upgrade: bool) -> None:
    """Write both locks of one architecture."""
    runtime, builder = _HERE / row["lock"], _HERE / row["builder_lock"]
    compile_lock([line.format(**row) for line in _RUNTIME], runtime, upgrade=upgrade)
    compile_lock(list(_BUILDER), builder, "-c", str(runtime), upgrade=upgrade)


def compile_lock(wanted: list[str], path: Path, *arguments: str, upgrade: bool) -> None:
    """Resolve `wanted` with the pins of `path`, if there are any, and write them back."""
    command = [*uv(), "pip", "compile", "-q", "-", "--universal", "--generate-hashes"]
    command += ["--python-version", _LEAST_PYTHON, "--no-header", "--no-annotate", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "lock.txt")
        if path.exists() and not upgrade:
            shutil.copy(path, output)
        command += ["--output-file", str(output)]
        done = subprocess.run(  # noqa: S603
            command, input="\n".join(wanted).encode(), stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            sys.exit(f"{path.name}: uv found no set of releases")
        text = output.read_text(encoding="utf-8")
    pins = re.sub(r"\A(#.*\n)+", "", text)
    path.parent.mkdir(exist_ok=True)
    path.write_text(_HEADER + pins, encoding="utf-8")
    print(f"{path.name}: {len(re.findall('^[a-z]', pins, re.MULTILINE))} pins")


def uv() -> list[str]:
    """Return the command for uv."""
    found = shutil.which("uv")
    return [found] if found else [sys.executable, "-m", "uv"]


def refresh_digests(rows: Rows) -> None:
    """Ask the registry for each base's digest and write it into targets.toml."""
    text = _TARGETS.read_text(encoding="utf-8")
    for base, old in {(r["base"], r["base_digest"]) for r in rows.values() if "base_digest" in r}:
        command = ["docker", "buildx", "imagetools", "inspect", base]
        command += ["--format", "{{.Manifest.Digest}}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603
        new = done.stdout.decode("ascii", "replace").strip()
        if done.returncode or not re.fullmatch(r"sha256:[0-9a-f]{64}", new):
            sys.exit(f"{base}: the registry gave no digest")
        text = text.replace(old, new)
        print(f"{base}: {new} (note its source in targets.toml)")
    _TARGETS.write_text(text, encoding="utf-8")


def problems(rows: Rows) -> list[str]:
    """Return what is wrong with the locks, read without a network."""
    found = []
    for name, row in rows.items():
        for key, wanted in (
            ("lock", f"torch=={row['torch']}"),
            ("builder_lock", "nvidia-cuda-nvcc=="),
        ):
            path = _HERE / row[key]
            if not path.exists():
                found.append(f"{path.name}: missing; run update_locks.py {name}")
                continue
            text = path.read_text(encoding="utf-8")
            if not re.search(rf"^{re.escape(wanted)}", text, re.MULTILINE):
                found.append(f"{path.name}: does not pin {wanted}; run update_locks.py {name}")
            if "://" in text:
                found.append(f"{path.name}: names a host")
            bare = re.findall(r"^([a-z][^\n]*[^\\\n])$", text, re.MULTILINE)
            found.extend(f"{path.name}: no hash for {pin}" for pin in bare)
    return found


def bake_problems() -> list[str]:
    """Say whether docker-bake.hcl is what the rows make of it."""
    fits = _BAKE.exists() and _BAKE.read_text(encoding="utf-8") == bake(read_rows())
    return [] if fits else ["docker-bake.hcl: does not fit targets.toml; run update_locks.py"]


def bake(rows: Rows) -> str:
    """Return docker-bake.hcl."""
    groups = ", ".join(f'"{name}"' for name in rows)
    text = _BAKE_HEAD.replace("GROUPS", groups)
    for name, row in rows.items():
        values = {
            "BASE": row["base"] + (f"@{row['base_digest']}" if "base_digest" in row else ""),
            "LOCK": row["lock"],
            "BUILDER_LOCK": row["builder_lock"],
            # The kernels that an image is verified with: `envcheck build` knows them.
            "KERNELS": "",
            "TARGET": name,
            "SM": row["sm"],
            "TORCH": row["torch"],
            "CUDA": row["cuda"],
            "TORCH_CUDA_ARCH_LIST": row["torch_cuda_arch_list"],
            "NVIDIA_REQUIRE_CUDA": row["nvidia_require_cuda"],
        }
        width = max(map(len, values))
        lines = "".join(f'    {key.ljust(width)} = "{value}"\n' for key, value in values.items())
        text += f'\ntarget "{name}" {{\n  inherits = ["_common"]\n  args = {{\n{lines}  }}\n'
        text += f'  tags = ["envcheck-{name}:latest"]\n}}\n'
    return text


_BAKE_HEAD = """\
# Written by images/update_locks.py from targets.toml. From the root of the repository:
#
#   docker buildx bake -f images/docker-bake.hcl blackwell
#   PIP_CONFIG=pip.conf CA_FILE=ca.pem docker buildx bake -f images/docker-bake.hcl
#
# PIP_CONFIG and CA_FILE are passed as secrets and stay in no layer. With BuildKit 0.13 or
# newer, --set '*.output=type=docker,rewrite-timestamp=true' makes the image digest repeatable.

variable "PIP_CONFIG" {
  default = ""
}

variable "CA_FILE" {
  default = ""
}

variable "SOURCE_DATE_EPOCH" {
  default = "1767225600"
}

group "default" {
  targets = [GROUPS]
}

target "_common" {
  context = "images"
  target  = "final"
  secret = concat(
    PIP_CONFIG == "" ? [] : ["id=pip-config,src=${PIP_CONFIG}"],
    CA_FILE == "" ? [] : ["id=ca,src=${CA_FILE}"]
  )
  args = {
    SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH
  }
}
"""


if __name__ == "__main__":
    sys.exit(main())
