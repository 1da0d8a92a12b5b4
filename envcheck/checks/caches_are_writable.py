"""The folders that compilers of a job write to can be written, and loaded from."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import jit_needs
from envcheck.core.jit_needs import Need
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.tools import Folder

# A kernel in Triton's cache takes 152 kB with all its stages (measured, Triton 3.8): room for
# a hundred of them.
_LEAST_FREE = 16 << 20
# Windows into the kernel: root may write to their folders, and no file can be made there.
# Source: filesystems/*.rst of the Linux documentation.
_NO_FILES = frozenset(
    {
        *("proc", "sysfs", "cgroup", "cgroup2", "devpts", "securityfs", "debugfs", "tracefs"),
        *("configfs", "pstore", "bpf", "efivarfs", "selinuxfs", "fusectl", "binfmt_misc", "autofs"),
    }
)
_FULL = {"ENOSPC", "EDQUOT"}
_RIGHTS = {None, "EACCES", "EPERM", "EROFS"}
_ROLES = {
    "triton": "Triton's cache",
    "inductor": "the cache of torch.compile",
    "extensions": "where torch.utils.cpp_extension builds",
    "cuda": "the driver's cache of compiled PTX",
    "temporary": "the folder for temporary files",
}
_MENDS = {
    "triton": "export TRITON_CACHE_DIR=/path/that/can/be/written",
    "inductor": "export TORCHINDUCTOR_CACHE_DIR=/path/that/can/be/written",
    "extensions": "export TORCH_EXTENSIONS_DIR=/path/that/can/be/written",
    "cuda": "export CUDA_CACHE_PATH=/path/that/can/be/written",
    "temporary": "export TMPDIR=/path/that/can/be/written",
}


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    tools = environment.tools if environment is not None else None
    if environment is None or tools is None:
        yield CHECK.skip("caches", "only files were looked at, not where a job would run")
        return
    if environment.image is not None:
        yield CHECK.skip("caches", "which folders can be written is settled when the image is run")
        return
    needs = jit_needs.needs(environment)
    if not needs:
        yield CHECK.skip("caches", "nothing that is installed compiles while a job runs")
        return
    fine: list[str] = []
    looked_at = False
    for folder in tools.folders:
        users = _users(folder.role, needs)
        if not users:
            continue
        looked_at = True
        wrong = _wrong(folder)
        if wrong is None:
            fine.append(folder.path)
        else:
            yield _finding(folder, wrong, users)
    if fine:
        message = f"can be written: {', '.join(fine)}"
        evidence = {"folders": tuple(fine)}
        yield CHECK.finding("caches", Status.PASS, message, domain=Domain.HOST, evidence=evidence)
    if not looked_at:
        yield CHECK.skip("caches", "no folder was looked at")


def _users(role: str, needs: tuple[Need, ...]) -> tuple[Need, ...]:
    """Return who writes to a folder."""
    if role in ("cuda", "temporary"):
        return needs
    tool = {"triton": jit_needs.C, "inductor": jit_needs.CXX, "extensions": jit_needs.NVCC}[role]
    return jit_needs.who_needs(needs, tool)


def _wrong(folder: Folder) -> str | None:
    if folder.path.startswith("~"):
        return "this user has no home folder, so a folder called ~ is made where the job starts"
    if folder.role == "temporary" and not folder.exists:
        return "there is no such folder"  # which nobody makes, other than a cache
    if folder.kind == "other":
        return "it, or something above it, is not a folder"
    if folder.kind == "absent":
        return "a link to nothing"
    if folder.filesystem in _NO_FILES:
        return f"on {folder.filesystem}, where no file can be made, not even by root"
    if folder.read_only or folder.refused == "EROFS":
        return "on a file system that is mounted read-only"
    if folder.refused in _FULL:
        return f"its file system is full ({folder.refused})"
    if not folder.writable:
        return "no permission to write there"
    if folder.noexec and folder.role not in ("cuda", "temporary"):
        return "on a file system mounted noexec: no library that is built there can be loaded"
    if folder.free is not None and folder.free < _LEAST_FREE:
        return f"{folder.free >> 20} MB are free on its file system"
    return None


def _passed_over(folder: Folder) -> bool:
    """Say whether Python and gcc would take another folder, as they do where TMPDIR has no rights.

    Measured: gcc 12 asks `access`, ends where that is wrong (/proc, as root), and goes to /tmp where
    it is right; nvcc 13.5 asks nothing. clang asks nothing either (llvm/lib/Support/Unix/Path.inc).
    """
    if folder.role != "temporary" or folder.origin != "TMPDIR":
        return False
    refused = folder.filesystem in _NO_FILES or folder.refused not in _RIGHTS
    return not folder.exists or (not folder.writable and not refused)


def _finding(folder: Folder, wrong: str, users: tuple[Need, ...]) -> Finding:
    passed_over = _passed_over(folder)
    broken = jit_needs.who_needs(users, jit_needs.NVCC) if passed_over else users
    # Without the driver's cache PTX is compiled again at each start: slow, and no fault.
    ends = next((n.who for n in broken if n.always), None) if folder.role != "cuda" else None
    evidence: dict[str, Json] = {
        "role": folder.role,
        "named_by": folder.origin,
        "needed_by": tuple(n.who for n in users),
        "free": folder.free,
        "refused": folder.refused,
        "filesystem": folder.filesystem,
    }
    who = ends or ", ".join(n.who for n in users[:3])
    tail = "PTX is compiled anew at each start" if folder.role == "cuda" else f"for {who}"
    if passed_over:
        wrong += "; Python and gcc take another one, nvcc and clang end with it"
    return CHECK.finding(
        folder.path,
        Status.WARN if ends is None else Status.FAIL,
        f"{_ROLES[folder.role]}: {wrong} ({tail})",
        remedy=_MENDS[folder.role],
        domain=Domain.HOST,
        evidence=evidence,
    )


CHECK = Check(
    id="caches-are-writable",
    claim="Folders in which installed packages keep compiled code can be written.",
    how=(
        "Finds the folders of Triton, torch.compile, torch.utils.cpp_extension and the driver by "
        "the variables that move them, and asks the kernel whether this user may write there, "
        "whether the file system is mounted read-only or noexec, whether it is full, and for a "
        "file without a name, which is in no folder and gone at once: root is refused it too "
        "where no file can be made. A TMPDIR that is absent is named: nvcc and clang end with it. "
        "It fails where an installed package cannot work without."
    ),
    classes=("B3",),
    remedy="Name a folder that can be written, by the variable that moves it.",
    run=_run,
)
