"""Extensions of one C file, which need nothing but a compiler."""

from __future__ import annotations

from pathlib import Path

BACKEND = """
import subprocess, sys, sysconfig, time, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "%(name)s"
    %(do)s
    include = sysconfig.get_paths()["include"]
    command = ["cc", "-shared", "-fPIC", "-I", include, "-o", name + ".so", name + ".c"]
    subprocess.run(command, check=True)
    info = name + "-1.0.dist-info"
    with zipfile.ZipFile(folder + "/" + name + "-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(name + ".so")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: " + name + "\\nVersion: 1.0\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: false\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return name + "-1.0-py3-none-any.whl"
"""
MODULE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", 0, -1, 0};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&module); }
"""


def extension(folder: Path, name: str, source: str, do: str = "pass") -> Path:
    """Write a package of one C file; `do` is a line of Python before it is compiled."""
    place = folder / name
    place.mkdir()
    (place / f"{name}.c").write_text(source)
    (place / "backend.py").write_text(BACKEND % {"name": name, "do": do})
    (place / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n'
    )
    return place


def module(folder: Path, name: str, more: str = "", do: str = "pass") -> Path:
    """Write a package whose C file is a module that can be imported."""
    return extension(folder, name, MODULE.replace("NAME", name) + more, do)
