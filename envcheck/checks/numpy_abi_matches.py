"""Extension modules were compiled for the NumPy that is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import pins
from envcheck.checks.check import Check, Question
from envcheck.core.installed import NumpyUse
from envcheck.core.model import Finding, Status


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.installed is None:
        yield CHECK.skip("numpy", "no installed packages were looked at")
        return
    installed = environment.installed
    numpy = pins.active(installed).get("numpy")
    numbers = _numbers(numpy[0].version) if numpy else ()
    if not numpy or len(numbers) < 2:
        yield CHECK.skip("numpy", "NumPy is not installed in what was looked at")
        return
    version = numpy[0].version
    found = [f for use in installed.numpy if (f := _of(use, version, numbers)) is not None]
    yield from found
    if found:
        return
    count = sum(use.count for use in installed.numpy)
    left = f"; {installed.numpy_unread} were not looked at" if installed.numpy_unread else ""
    if count:
        message = f"{count} extension modules take NumPy {version}{left}"
        yield CHECK.finding(f"numpy {version}", Status.PASS, message)
    else:
        yield CHECK.skip(f"numpy {version}", f"no extension module uses its C API{left}")


def _of(use: NumpyUse, version: str, numbers: tuple[int, ...]) -> Finding | None:
    others = f" and {use.count - 1} more" if use.count > 1 else ""
    path = f"{use.paths[0]}{others}"
    name = use.owner.partition(" ")[0]
    evidence = {"headers": use.headers, "least": use.least, "paths": use.paths}
    if use.headers == 1 and numbers[0] >= 2:
        message = f"{path}: compiled for NumPy 1, which NumPy {version} refuses"
        remedy = f"pip install 'numpy<2', or a newer {name}: pip install --upgrade {name}"
        # PyTorch goes on without NumPy, with a warning; others cannot be imported.
        status = Status.WARN if name == "torch" else Status.FAIL
        if name == "torch":
            message += ": tensors cannot be turned into arrays and back"
        return CHECK.finding(use.owner, status, message, remedy=remedy, evidence=evidence)
    if use.least is not None and numbers[:2] < _numbers(use.least):
        message = f"{path}: compiled for NumPy {use.least} and newer, this is {version}"
        remedy = f"pip install 'numpy>={use.least}'"
        return CHECK.finding(use.owner, Status.FAIL, message, remedy=remedy, evidence=evidence)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match is not None else ()


CHECK = Check(
    id="numpy-abi-matches",
    claim="Extension modules were compiled for the NumPy that is installed.",
    how=(
        "NumPy's headers leave the texts of their own version test in each module that uses its C "
        "API. By them it is told whether they were those of NumPy 1, which NumPy 2 refuses "
        "(`_ARRAY_API not found`, `numpy.core.multiarray failed to import`), or of NumPy 2, and "
        "then which is the oldest release that is taken. Modules that go through pybind11 "
        "have no such text: nothing is said of them. PyTorch made for NumPy 1 warns, since it "
        "goes on without NumPy. Class C4."
    ),
    classes=("C4",),
    remedy="Install a NumPy that the modules were compiled for, or newer builds of them.",
    run=_run,
)
