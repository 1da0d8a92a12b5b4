"""What one kernel of an image fixes for its launch, in the code that a driver would take."""

from __future__ import annotations

import math
import re

from envcheck.core import coverage
from envcheck.core.agreement import Needs
from envcheck.core.device_file import DeviceFile
from envcheck.core.sm import Sm
from envcheck.guest import containers, cubin, device_code, elf
from envcheck.guest.device_code import Inflate
from envcheck.guest.elf import Buffer, Malformed
from envcheck.guest.resources import resources_of

_WIDTHS = {"v2": 2, "v4": 4, "v8": 8}
# `.shared .align 16 .b8 name[1024];` without those that the launch sizes, which are `.extern`.
_SHARED = re.compile(
    rb"(\.extern\s+)?\.shared\s+(?:\.align\s+\d+\s+)?(?:\.(v[248])\s+)?"
    rb"\.[bsuf](\d{1,3})\s+[\w$%]+((?:\s*\[\s*\d{0,12}\s*\])*)\s*[;=]"
)
_CLUSTER = re.compile(rb"\.reqnctapercluster\s+(\d{1,9})(?:\s*,\s*(\d{1,9}))?(?:\s*,\s*(\d{1,9}))?")
_ENTRY = re.compile(rb"\.entry\s+([\w$%]+)")
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


def read(
    buffer: Buffer, file: DeviceFile, kernel: str, target: Sm, inflate: Inflate
) -> Needs | None:
    """Return the needs of a kernel, None where no code for `target` holds it.

    `file` is what the image was read as; a library is no image. Raises Malformed.
    """
    usable = tuple(c for part in file.containers for c in coverage.loadable(file, part))
    taken = coverage.machine_code(usable, target)
    if taken is not None:
        return _of_cubin(_payload(buffer, file, "sass", str(taken), inflate), kernel)
    ptx = coverage.nearest_ptx(usable, target)
    if ptx is None:
        return None
    return of_ptx(_payload(buffer, file, "ptx", ptx.sm, inflate), kernel)


def _payload(buffer: Buffer, file: DeviceFile, kind: str, sm: str, inflate: Inflate) -> bytes:
    """Return the first code of that kind and SM: among equals a driver takes the first."""
    if file.format != "fatbin":
        return bytes(buffer[:])
    for found in containers.find(buffer, file.format):
        for entry in found.entries if found.section != coverage.UNREAD else ():
            if (entry.code.kind, entry.code.sm) == (kind, sm):
                return device_code.unpack(buffer, entry, inflate)
    message = f"fatbin: no {kind} for {sm}"
    raise Malformed(message)


def _of_cubin(image: bytes, kernel: str) -> Needs | None:
    read_image = elf.read(image)
    if kernel not in cubin.cubin_kernels(image, read_image):
        return None
    found = resources_of(image, read_image, kernel)
    return Needs(static_shared=found.static_shared, cluster_blocks=found.cluster_blocks)


def of_ptx(text: bytes, kernel: str) -> Needs | None:
    """Return what a kernel of a PTX text declares, None where there is none of that name.

    The blocks of a cluster stand between the kernel's name and its body. Shared memory counts that is declared in the kernel or outside of any function.
    """
    bare = _COMMENT.sub(b" ", text)
    body, outside, depth, begin, owner = b"", [], 0, 0, b""
    head = None
    for brace in re.finditer(rb"[{}]", bare):
        if brace[0] == b"{":
            if depth == 0:
                outside.append(bare[begin : brace.start()])
                named = _ENTRY.findall(outside[-1])
                owner, begin = (named[-1] if named else b""), brace.end()
                if owner == kernel.encode():
                    head = outside[-1].rpartition(b".entry")[2]
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                body += bare[begin : brace.start()] if owner == kernel.encode() else b""
                begin = brace.end()
    if head is None:
        return None
    shared = sum(map(_bytes, _SHARED.finditer(b"\n".join([*outside, body]))))
    cluster = _CLUSTER.search(head)
    blocks = math.prod(int(n) for n in cluster.groups(b"1")) if cluster else 1
    return Needs(static_shared=shared, cluster_blocks=blocks, compiled=False)


def _bytes(found: re.Match[bytes]) -> int:
    """Return the size of one declaration."""
    if found[1]:
        return 0
    size = _WIDTHS.get((found[2] or b"").decode(), 1) * int(found[3]) // 8
    for count in re.findall(rb"\d+", found[4]):
        size *= int(count)
    return size
