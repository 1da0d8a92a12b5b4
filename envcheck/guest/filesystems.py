"""What file system a path is on, and what it has left."""

from __future__ import annotations

import errno
import os

from envcheck.core.names import visible

# Those that `stat -f` of GNU coreutils counts as remote and Linux has, and clients over FUSE.
_REMOTE = frozenset(
    (
        *("afs", "auristorfs", "beegfs", "ceph", "cifs", "coda", "gfs", "gfs2", "gpfs", "ibrix"),
        *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "panfs", "smb3", "snfs", "wekafs", "9p"),
        *("fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys", "fuse.juicefs"),
        *("fuse.mfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)


def kind(path: str) -> str | None:
    """Return the type of the file system that a path is on, by the device of its mount."""
    try:
        device = os.stat(path).st_dev
        with open("/proc/self/mountinfo", "rb") as handle:
            lines = handle.read().splitlines()
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    for line in lines:
        mount, _, rest = line.partition(b" - ")
        if mount.split()[2:3] == [number] and rest:
            return visible(os.fsdecode(rest.split()[0]))
    return None


def remote(name: str | None) -> bool:
    """Say whether file systems of this type are served over a network."""
    return name in _REMOTE


def free(path: str) -> int | None:
    """Return how many bytes this user may still write; None where nothing tells."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize if status.f_blocks else None


def nearest(path: str) -> str:
    """Return the folder, or the nearest above it that is there."""
    found = os.path.abspath(path)
    while not os.path.lexists(found) and found != os.path.dirname(found):
        found = os.path.dirname(found)
    return found


def refusal(error: OSError) -> str:
    """Return `ENOSPC` for the error of that number."""
    return errno.errorcode.get(error.errno or 0, str(error.errno))
