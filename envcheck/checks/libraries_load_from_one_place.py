"""The libraries of CUDA are the environment's own, of one version, and libcuda is the driver's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import commands, pins
from envcheck.checks import linking_words as words
from envcheck.checks.check import Check, Question
from envcheck.core.enforced import cudnn_is_refused
from envcheck.core.linking import Choice, Linked
from envcheck.core.model import Domain, Finding, Status

_FROM_OUTSIDE = {
    "LD_PRELOAD": ("LD_PRELOAD names it", "unset LD_PRELOAD"),
    "LD_LIBRARY_PATH": ("LD_LIBRARY_PATH names its folder", "unset LD_LIBRARY_PATH"),
    "ld.so.cache": ("/etc/ld.so.cache has it", ""),
    "default folder": ("it lies in a default folder of the loader", ""),
}
_COMPILERS = ("libstdc++.so", "libgomp.so", "libgcc_s.so")
# Forward compatibility is for data center GPUs (NVIDIA, CUDA Compatibility, "Forward
# Compatibility"); on a GeForce the compat libcuda ends in error 804.
_DATA_CENTER = frozenset({70, 80, 90, 100, 103})
_NO_COMPAT = ("rtx-3", "rtx-4", "rtx-5", "geforce")


def _run(question: Question) -> Iterator[Finding]:
    linked = question.inventory.linked
    if linked is None or linked.skipped:
        reason = linked.skipped if linked is not None else words.NO_ENVIRONMENT
        yield CHECK.skip("libraries", reason)
        return
    if not linked.looked_at:
        yield CHECK.skip("libraries", "there are no compiled files")
        return
    found = [
        *_shadowed(linked),
        *_older_cudnn(question, linked),
        *_passed_over(question, linked),
        *_majors(linked),
        *_cudnn(linked),
        *(_driver(question, c) for c in linked.choices if c.name.startswith("libcuda.so")),
    ]
    yield from found
    yield from _from_system(question, linked)
    if not found:
        yield CHECK.finding(
            "libraries",
            Status.PASS,
            f"{linked.looked_at} files load each library of CUDA from one place",
        )


def _shadowed(linked: Linked) -> Iterator[Finding]:
    for choice in linked.choices:
        own = _copies(choice)
        outside = choice.path.startswith("/") and choice.how in _FROM_OUTSIDE
        if not own or not outside or not _own(choice):
            continue
        why, remedy = _FROM_OUTSIDE[choice.how]
        message = f"{choice.path} is loaded instead of the environment's {own[0]}: {why}"
        yield CHECK.finding(
            choice.name,
            Status.WARN,
            message,
            remedy=remedy or f"put the folder of {own[0]} first on LD_LIBRARY_PATH",
            domain=Domain.IMAGE,
            evidence={"asked_by": choice.asked_by, "opened": choice.opened},
        )


def _own(choice: Choice) -> bool:
    """Say whether a library is one of CUDA's that is neither the driver's nor the compiler's."""
    return not words.is_drivers(choice.name) and not choice.name.startswith(_COMPILERS)


def _copies(choice: Choice) -> list[str]:
    """Return the environment's copies that what asks for the library could have got.

    What lies in the folder of another package, such as Triton's own CUPTI, is for that one alone.
    """
    askers = {(path or "").partition("/")[0] for path in (choice.opened, choice.asked_by)}
    tops = {"nvidia", "torch", *askers}
    return [path for path in choice.others if path.partition("/")[0] in tops - {""}]


def _from_system(question: Question, linked: Linked) -> Iterator[Finding]:
    """Name the libraries that the environment has no copy of, and the system has."""
    for choice in linked.choices:
        if _copies(choice) or not choice.path.startswith("/") or not _own(choice):
            continue
        why, _ = _FROM_OUTSIDE.get(choice.how, (f"by {choice.how}", ""))
        brings = commands.for_torchs_library(choice.name, question) if choice.torch else ""
        message = f"{choice.path} is loaded, and the environment has none: {why}"
        yield CHECK.finding(
            choice.name,
            Status.WARN if brings else Status.PASS,
            message + ("; PyTorch pins a package that brings it" if brings else ""),
            remedy=brings,
            domain=Domain.IMAGE,
            required=bool(brings),
            evidence={"asked_by": choice.asked_by, "opened": choice.opened},
        )


def _older_cudnn(question: Question, linked: Linked) -> Iterator[Finding]:
    """Fail a cuDNN of the system that PyTorch refuses; the name of its file tells its release."""
    environment = question.inventory.environment
    compiled = pins.compared_cudnn(environment) if environment is not None else ""
    for choice in linked.choices:
        found = re.search(r"/libcudnn\.so\.(\d+\.\d+)[.\d]*$", choice.path)
        if not choice.torch or found is None or not cudnn_is_refused(compiled, found[1]):
            continue
        why, remedy = _FROM_OUTSIDE.get(choice.how, (f"by {choice.how}", ""))
        message = (
            f"PyTorch was compiled with cuDNN {compiled}, and refuses {choice.path} at the first"
        )
        yield CHECK.finding(
            choice.name,
            Status.FAIL,
            f"{message} RNN: {why}",
            remedy=remedy or commands.for_torchs_library(choice.name, question),
            domain=Domain.IMAGE,
        )


def _passed_over(question: Question, linked: Linked) -> Iterator[Finding]:
    """Name what LD_PRELOAD names in vain, but for paths to nothing, of which another check tells."""
    environment = question.inventory.environment
    tools = environment.tools if environment is not None else None
    absent = {
        one.value for one in (tools.named if tools is not None else ()) if one.found == "absent"
    }
    for name, why in linked.passed_over.items():
        if name not in absent:
            yield CHECK.finding(
                "LD_PRELOAD",
                Status.WARN,
                f"{name} cannot be preloaded, and the loader goes on without it: {why}",
                remedy="unset LD_PRELOAD, or name a library that is there",
                domain=Domain.JOB,
                evidence={"named": name},
            )


def _majors(linked: Linked) -> Iterator[Finding]:
    for paths in linked.majors:
        message = f"two versions of the CUDA runtime are in one process: {' and '.join(paths)}"
        yield CHECK.finding(
            "libcudart.so",
            Status.WARN,
            message,
            remedy="install the packages' builds for one CUDA",
            evidence={"paths": paths},
        )


def _cudnn(linked: Linked) -> Iterator[Finding]:
    for one in linked.by_name:
        folder, _, opener = one.opener.rpartition("/")
        mixed = one.path is not None and one.path.rpartition("/")[0] != folder
        if one.name.startswith("libcudnn") and opener.startswith("libcudnn") and mixed:
            message = f"{one.opener} opens {one.path}, which belongs to another cuDNN ({one.how})"
            remedy = _FROM_OUTSIDE.get(one.how, ("", ""))[1]
            yield CHECK.finding(one.name, Status.FAIL, message, remedy=remedy, domain=Domain.IMAGE)


def _driver(question: Question, choice: Choice) -> Finding:
    parts = choice.path.split("/")
    why = _FROM_OUTSIDE.get(choice.how, (choice.how, ""))[0]
    remedy = f"take {choice.path.rpartition('/')[0]} off the loader's path"
    if choice.refused:
        return _ended(choice, f"{choice.refused}: {why}", remedy)
    if "stubs" in parts:
        message = f"{choice.path} is the stub for linking, which ends in error 34: {why}"
        return CHECK.finding(choice.name, Status.FAIL, message, remedy=remedy, domain=Domain.IMAGE)
    if not any(part.startswith("compat") for part in parts):
        return CHECK.finding(choice.name, Status.PASS, f"the driver's: {choice.path}")
    message = f"{choice.path} of forward compatibility comes before the driver's: {why}"
    target = question.target
    geforce = target.name.startswith(_NO_COMPAT) or "GeForce" in (target.card or "")
    if geforce:
        message += f"; {target.card or target.name} refuses it (error 804)"
        return CHECK.finding(choice.name, Status.FAIL, message, remedy=remedy, domain=Domain.IMAGE)
    if question.sm.number in _DATA_CENTER:
        return CHECK.finding(choice.name, Status.PASS, message + "; data center cards take it")
    message += "; a GeForce refuses it (error 804)"
    return CHECK.finding(choice.name, Status.WARN, message, remedy=remedy, domain=Domain.IMAGE)


def _ended(choice: Choice, why: str, remedy: str) -> Finding:
    """Judge a libcuda that is none: the loader ends there and does not look for the driver's.

    Empty ones where the system's lie are what an engine mounts the host's over, and what stays in
    an image that was made from a running container.
    """
    folder = choice.how in ("ld.so.cache", "default folder")
    empty = folder and choice.refused == "file too short"
    message = f"{choice.path} is no library, and the loader looks no further: {why}"
    message += "; an empty one is left over from a container with a GPU" if empty else ""
    return CHECK.finding(
        choice.name,
        Status.WARN if empty else Status.FAIL,
        message,
        remedy=f"delete {choice.path}" if empty else remedy,
        domain=Domain.IMAGE,
    )


CHECK = Check(
    id="libraries-load-from-one-place",
    claim="The libraries of CUDA come from the environment itself, and libcuda from the driver.",
    how=(
        "Follows the loader's order (LD_PRELOAD, RPATH, LD_LIBRARY_PATH, RUNPATH, /etc/ld.so.cache, "
        "default folders, and what PyTorch loads first) and says which copy of each library of CUDA "
        "and of PyTorch a process gets, and where from. A copy from elsewhere before the "
        "environment's own, two CUDA runtimes in one process, parts of two cuDNNs, a cuDNN of the "
        "system that PyTorch refuses, and a libcuda that is a stub or for forward "
        "compatibility on a card that refuses it are faults (classes D1, D2 and E3), as is a file "
        "of that name that is no library: the loader ends there."
    ),
    classes=("D1", "D2", "E3"),
    remedy="Take the folder that brings the other copy off LD_LIBRARY_PATH.",
    run=_run,
)
