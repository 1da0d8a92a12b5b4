"""What is found out about a host: from trees of the kernel's files, and from real file systems."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envcheck.core import codec
from envcheck.core.host import Disk, Host, HostMemory, SharedWrite
from envcheck.core.machine import Asked
from envcheck.guest import (
    bounds,
    cgroups,
    clock,
    disk,
    filesystems,
    host,
    host_memory,
    nodes,
    processors,
    shm_write,
    system,
)

MIB = 1 << 20


class Tree:
    """A process's view of its control groups, as files below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proc = folder / "proc"
        self.proc.mkdir()

    def own(self, groups: str, *mounts: tuple[str, str, str]) -> str:
        """Say which groups it is in; a mount is (root, name of its folder, type and options)."""
        (self.proc / "cgroup").write_text(groups)
        lines = ["22 27 0:21 / /proc rw,relatime - proc proc rw"]
        for root, name, kind in mounts:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            lines.append(f"35 31 0:32 {root} {self.folder / name} ro,nosuid shared:9 - {kind}")
        (self.proc / "mountinfo").write_text("\n".join(lines) + "\n")
        return str(self.proc)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


V2 = ("/", "cg", "cgroup2 cgroup2 rw,nsdelegate")


def test_of_version_2_the_smallest_limit_up_the_tree_counts(tree: Tree) -> None:
    proc = tree.own("0::/job.slice/mine\n", V2)
    tree.write("cg/job.slice/mine/memory.max", "max")
    tree.write("cg/job.slice/memory.max", "8589934592")
    tree.write("cg/job.slice/memory.current", "2147483648")
    tree.write("cg/job.slice/memory.stat", "anon 5\ninactive_file 1073741824\nactive_file 7")
    tree.write("cg/job.slice/mine/cpu.max", "400000 100000")
    tree.write("cg/job.slice/cpu.max", "250000 100000")
    tree.write("cg/job.slice/mine/pids.max", "64")
    tree.write("cg/job.slice/mine/pids.current", "3")
    tree.write("cg/job.slice/pids.max", "100")
    tree.write("cg/job.slice/pids.current", "90")
    assert cgroups.memory(proc) == (8 << 30, 1 << 30)
    assert cgroups.quota(proc) == 2.5
    # That of its own group is the smaller one, though the other leaves fewer.
    assert cgroups.tasks(proc) == (64, 3)


def test_without_limits_there_are_none(tree: Tree) -> None:
    proc = tree.own("0::/\n", V2)
    tree.write("cg/cpu.max", "max 100000")
    tree.write("cg/memory.max", "max")
    tree.write("cg/pids.max", "max")
    assert (cgroups.memory(proc), cgroups.quota(proc), cgroups.tasks(proc)) == (None, None, None)


def test_of_version_1_each_controller_has_its_own_tree(tree: Tree) -> None:
    proc = tree.own(
        "9:name=systemd:/\n8:pids:/a\n4:memory:/a/b\n2:cpu,cpuacct:/a/b\n0::/\n",
        ("/", "memory", "cgroup cgroup rw,memory"),
        ("/", "cpu", "cgroup cgroup rw,cpu,cpuacct"),
        ("/", "pids", "cgroup cgroup rw,pids"),
        V2,
    )
    tree.write("memory/memory.limit_in_bytes", "9223372036854771712")
    tree.write("memory/a/memory.limit_in_bytes", "1073741824")
    tree.write("memory/a/memory.usage_in_bytes", "314572800")
    tree.write("memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 104857600")
    tree.write("memory/a/b/memory.limit_in_bytes", "9223372036854771712")
    tree.write("cpu/a/b/cpu.cfs_quota_us", "-1")
    tree.write("cpu/a/b/cpu.cfs_period_us", "100000")
    tree.write("cpu/a/cpu.cfs_quota_us", "50000")
    tree.write("cpu/a/cpu.cfs_period_us", "100000")
    tree.write("pids/a/pids.max", "max")
    tree.write("cg/memory.max", "1")
    assert cgroups.memory(proc) == (1 << 30, 200 * MIB)
    assert cgroups.quota(proc) == 0.5
    assert cgroups.tasks(proc) is None


def test_in_a_container_the_mount_may_begin_at_the_process_s_own_group(tree: Tree) -> None:
    # Docker with version 1: the path is the host's, and the mount begins at that very group.
    path = "/docker/0123"
    proc = tree.own(f"4:memory:{path}\n", (path, "memory", "cgroup cgroup ro,memory"))
    tree.write("memory/memory.limit_in_bytes", "536870912")
    tree.write("memory/memory.usage_in_bytes", "1048576")
    assert cgroups.memory(proc) == (512 * MIB, MIB)


def test_of_a_path_that_is_outside_the_mount_the_mount_is_looked_at(tree: Tree) -> None:
    # A namespace that was entered from elsewhere: `/../sibling`.
    proc = tree.own("0::/../sibling\n", V2)
    tree.write("cg/memory.max", "4194304")
    assert cgroups.memory(proc) == (4 * MIB, None)


@pytest.mark.parametrize("cgroup", ["", "nonsense", "0::\n", "4:memory\n"])
def test_without_groups_or_with_nonsense_nothing_is_known(tree: Tree, cgroup: str) -> None:
    proc = tree.own(cgroup)
    assert (cgroups.memory(proc), cgroups.quota(proc), cgroups.tasks(proc)) == (None, None, None)
    assert cgroups.find("memory", f"{proc}/gone") is None


@pytest.mark.parametrize("said", ["", "max", "100000", "a b", "100000 0", "-1 100000"])
def test_a_quota_that_is_none(tree: Tree, said: str) -> None:
    proc = tree.own("0::/\n", V2)
    tree.write("cg/cpu.max", said)
    assert cgroups.quota(proc) is None


def test_memory_is_what_meminfo_says(tree: Tree) -> None:
    proc = tree.own("0::/\n", V2)
    tree.write("cg/memory.max", "1048576000")
    tree.write("cg/memory.current", "48576000")
    tree.write("meminfo", "MemTotal:       24683584 kB\nMemAvailable:   20000000 kB\n"
               "SwapTotal:             0 kB\nHugePages_Total:       4")  # fmt: skip
    found = host_memory.look(str(tree.folder / "meminfo"), proc)
    assert found == HostMemory(
        total=24683584 * 1024, available=20000000 * 1024, limit=1048576000, used=48576000,
        swap=0, swap_free=None,
    )  # fmt: skip
    assert (found.room, found.bound) == (1_000_000_000, 1_048_576_000)
    assert host_memory.look("/proc/no-such-file", f"{proc}/gone") == HostMemory()


def test_steal_is_a_share_of_what_was_wanted() -> None:
    #        user nice system idle iowait irq softirq steal
    before = (100, 0, 50, 900, 10, 0, 0, 5)
    after = (160, 0, 70, 990, 20, 0, 0, 25)
    # 60 + 20 used and 20 stolen of 100 wanted ticks of 10 ms; 80 used of 200 in all.
    assert processors.shares(before, after) == (1.0, 0.2, 0.4)
    assert processors.shares(before, before) == (None, None, None)


def test_the_time_that_it_works_is_wanted_itself(tmp_path: Path) -> None:
    found = processors.look(seconds=0.6)
    assert found.wanted is not None
    assert found.wanted >= 0.5
    assert found.steal is not None
    assert 0 <= found.steal <= 1
    assert (found.seen, found.allowed) == (os.cpu_count(), len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("text", ["", "intr 5", "cpu 1 2 3", "cpu a b c d e f g h"])
def test_without_numbers_no_share_is_made_up(tmp_path: Path, text: str) -> None:
    (tmp_path / "stat").write_text(text)
    found = processors.look(seconds=0, stat=str(tmp_path / "stat"))
    assert (found.wanted, found.steal, found.busy) == (None, None, None)


def test_pressure_is_that_of_the_last_minute(tmp_path: Path) -> None:
    line = "some avg10=0.37 avg60=1.21 avg300=0.50 total=2104632005\nfull avg10=9 avg60=9 total=1\n"
    (tmp_path / "cpu").write_text(line)
    assert processors.pressure(str(tmp_path)) == {"cpu": 1.21}


def test_where_cards_hang_is_read_from_the_bus(tmp_path: Path) -> None:
    def device(address: str, vendor: str, kind: str, node: str) -> Path:
        folder = tmp_path / "sys" / "bus" / "pci" / "devices" / address
        folder.mkdir(parents=True)
        for name, text in (("vendor", vendor), ("class", kind), ("numa_node", node)):
            (folder / name).write_text(text + "\n")
        return folder

    group = device("0000:41:00.0", "0x10de", "0x030200", "1") / "iommu_group"
    group.mkdir()
    (group / "type").write_text("DMA-FQ\n")
    device("0000:01:00.0", "0x10de", "0x030000", "-1")
    device("0000:01:00.1", "0x10de", "0x040300", "0")  # its sound
    device("0000:02:00.0", "0x8086", "0x030000", "0")
    mine = min(os.sched_getaffinity(0))
    for node, cpus in ((0, "9000-9003,9008"), (1, f"{mine}"), (10, f"{mine}-{mine},9001"), (2, "")):
        folder = tmp_path / "sys" / "devices" / "system" / "node" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    driver = tmp_path / "proc" / "driver" / "nvidia" / "gpus" / "0000:41:00.0"
    driver.mkdir(parents=True)
    told = "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-1\nBus Location: \t 0000:41:00.0\nDevice Minor: \t 3\n"
    (driver / "information").write_text(told)
    pages = tmp_path / "sys" / "kernel" / "mm" / "transparent_hugepage"
    pages.mkdir(parents=True)
    (pages / "enabled").write_text("always [madvise] never\n")
    own = tmp_path / "proc" / "self"
    own.mkdir(parents=True)
    (tmp_path / "proc" / "cmdline").write_text("quiet intel_iommu=on iommu=pt pci=noaer\n")
    (own / "status").write_text("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n")
    (own / "uid_map").write_text("         0     100000      65536\n")
    found = system.look(str(tmp_path / "sys"), str(tmp_path / "proc"))
    assert [(c.address, c.node, c.minor, c.iommu) for c in found.cards] == [
        ("0000:01:00.0", None, None, None),
        ("0000:41:00.0", 1, 3, "DMA-FQ"),
    ]
    assert (found.numa_nodes, found.own_nodes) == ((0, 1, 2, 10), (1, 10))
    assert found.iommu == ("intel_iommu=on", "iommu=pt")
    assert (found.huge_pages, found.seccomp, found.user_namespace) == ("madvise", 2, True)
    assert (found.huge_reserved, found.iommus) == (None, None)


def test_a_clock_that_was_set_back_since_files_were_written(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    # As a packer in another time zone may leave it: that says nothing of this clock.
    os.utime(tmp_path / "a.py", (time.time() + 9 * 3600,) * 2)
    found = clock.look(str(tmp_path))
    assert found.own is not None
    assert -60 < found.own <= 0.1
    assert found.boot is not None
    assert abs(found.boot) < 5
    earlier = clock.look(str(tmp_path), lambda: time.time() - 3600)
    assert earlier.own is not None
    assert 3500 < earlier.own <= 3600.1
    assert clock.look(str(tmp_path / "gone")).own is None


def test_compiled_modules_are_of_the_run_and_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "c.pyc").write_text("")
    assert clock.look(str(tmp_path)).own is None


def test_limits_are_those_of_the_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(soft, 300) if soft > 0 else 300
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    try:
        found = bounds.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (found.files, found.files_hard) == (lower, hard)


def made(dev: Path, name: str, minor: int, *, linked: bool) -> str:
    node = dev / name
    node.parent.mkdir(exist_ok=True)
    try:
        # The minor numbers of /dev/mem's driver: null, zero, full. They may be opened anywhere.
        os.mknod(node, 0o666 | 0o020000, os.makedev(1, minor))
    except PermissionError:
        pytest.skip("no device nodes can be made here")
    if linked:
        (dev / "char").mkdir(exist_ok=True)
        (dev / "char" / f"1:{minor}").symlink_to(f"../{name}")
    return str(node)


def test_nodes_are_those_that_may_be_opened(tmp_path: Path) -> None:
    first = made(tmp_path, "nvidia0", 3, linked=True)
    caps = made(tmp_path, "nvidia-caps/nvidia-cap1", 5, linked=True)
    (tmp_path / "nvidia-none").write_text("a file is no node")
    assert nodes.nodes(str(tmp_path)) == (caps, first)
    assert nodes.forbidden(str(tmp_path)) == ()
    assert nodes.unlinked(str(tmp_path)) == ()
    last = made(tmp_path, "nvidiactl", 7, linked=False)
    assert nodes.nodes(str(tmp_path)) == (caps, first, last)
    assert nodes.unlinked(str(tmp_path)) == (last,)
    os.remove(first)
    assert nodes.nodes(str(tmp_path)) == (caps, last)


def test_without_links_nothing_is_said_of_them(tmp_path: Path) -> None:
    made(tmp_path, "nvidia0", 3, linked=False)
    assert nodes.unlinked(str(tmp_path)) is None


def in_mount(folder: Path, options: str, code: str, before: str = ":") -> dict[str, object]:
    """Run code where `folder` is a file system in memory of its own; returns what it printed."""
    mount = f"mount -t tmpfs -o size=40m none {folder} || exit 77"
    script = f'{mount}; {before} && {options} && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, sys.executable, code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()[-100:]}")
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def looked_at(folder: Path, options: str = ":", before: str = ":") -> Disk:
    code = (
        "from envcheck.core import codec; from envcheck.guest import disk;"
        f"print(codec.dumps(disk.look({str(folder)!r}, seconds=8)[0]))"
    )
    return codec.from_json(Disk, in_mount(folder, options, code, before), "disk")


def test_a_small_disk_is_half_written(tmp_path: Path) -> None:
    found = looked_at(tmp_path)
    assert (found.filesystem, found.free, found.written) == ("tmpfs", 40 * MIB, 20 * MIB)
    assert found.refused is None
    assert (found.write_rate or 0) > 0
    assert (found.read_rate or 0) > 0
    assert (found.files_rate or 0) > 0
    assert abs(found.ahead or 0) < 1


def test_a_full_disk_refuses(tmp_path: Path) -> None:
    found = looked_at(tmp_path, before=f"head -c 40m /dev/zero > {tmp_path}/full")
    assert (found.refused, found.free, found.written) == ("ENOSPC", 0, 0)


def test_a_disk_without_inodes_refuses(tmp_path: Path) -> None:
    # One for the root, one for the file without a name: none is left for the small files.
    found = looked_at(tmp_path, options=f"mount -o remount,nr_inodes=2 {tmp_path}")
    assert (found.refused, found.inodes, found.written) == ("ENOSPC", 1, 20 * MIB)


def test_a_read_only_disk_refuses(tmp_path: Path) -> None:
    found = looked_at(tmp_path, options=f"mount -o remount,ro {tmp_path}")
    assert (found.refused, found.read_only) == ("EROFS", True)


def test_nothing_is_left_and_the_nearest_folder_stands_for_one_that_is_not_there(
    tmp_path: Path,
) -> None:
    found, why = disk.look(str(tmp_path / "not" / "there"), seconds=8)
    assert (found.folder, found.missing, why) == (str(tmp_path), True, "")
    assert disk.look(str(tmp_path), seconds=8)[0].missing is False
    assert found.refused is None
    assert list(tmp_path.iterdir()) == []
    whole = os.statvfs(tmp_path)
    assert found.free is not None
    assert abs(found.free - whole.f_bavail * whole.f_frsize) < 2 << 30


def test_a_disk_that_hangs_is_left_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(60))
    monkeypatch.setattr(disk, "_PATIENCE", 3.0)
    started = time.monotonic()
    found, why = disk.look(str(tmp_path), seconds=2)
    assert time.monotonic() - started < 20
    assert why == "not done after 5 s"
    assert (found.written, found.refused) == (0, None)
    assert found.free is not None
    assert list(tmp_path.iterdir()) == []


def shm(folder: Path, size: int) -> SharedWrite:
    code = (
        "from envcheck.core import codec; from envcheck.guest import shm_write;"
        "from envcheck.core.machine import Asked; from envcheck.core.host import HostMemory;"
        f"memory = HostMemory(total=1 << 40, available=1 << 40); asked = Asked(shm={size});"
        f"print(codec.dumps(shm_write.look(asked, memory, seconds=8, path={str(folder)!r})))"
    )
    return codec.from_json(SharedWrite, in_mount(folder, ":", code), "shared")


def test_r24_memory_is_written_until_it_is_refused(tmp_path: Path) -> None:
    found = shm(tmp_path, 64 * MIB)
    assert (found.wanted, found.tried, found.refused) == (64 * MIB, 64 * MIB, "ENOSPC")
    assert 24 * MIB <= found.written <= 40 * MIB
    assert (found.filesystem, found.folder.size, found.free) == ("tmpfs", 40 * MIB, 40 * MIB)
    enough = shm(tmp_path, 40 * MIB)
    assert (enough.written, enough.refused) == (40 * MIB, None)


def test_no_more_than_half_of_the_memory_left_is_written(tmp_path: Path) -> None:
    memory = HostMemory(total=1 << 40, available=1 << 40, limit=64 * MIB, used=32 * MIB)
    found = shm_write.look(Asked(shm=64 * MIB), memory, seconds=8, path=str(tmp_path))
    assert (found.wanted, found.tried, found.written) == (64 * MIB, 16 * MIB, 16 * MIB)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_shared_memory_that_is_not_there(tmp_path: Path) -> None:
    found = shm_write.look(Asked(workers=2), None, seconds=2, path=str(tmp_path / "gone"))
    assert (found.folder.exists, found.written, found.filesystem) == (False, 0, None)
    # 2 workers x 2 batches x 32 images of 3 x 224 x 224 in float32
    assert found.wanted == 2 * 2 * 32 * 3 * 224 * 224 * 4


def test_a_writer_that_is_killed_is_a_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: os.kill(os.getpid(), 9))
    memory = HostMemory(available=1 << 40)
    found = shm_write.look(Asked(shm=MIB), memory, seconds=2, path=str(tmp_path))
    assert (found.written, found.refused) == (0, "SIGKILL")


def test_file_systems_over_a_network_are_named() -> None:
    assert filesystems.remote("nfs4")
    assert filesystems.remote("fuse.juicefs")
    assert not filesystems.remote("ext4")
    assert not filesystems.remote(None)


def test_the_whole_look_is_bounded_and_comes_back_as_json(tmp_path: Path) -> None:
    started = time.monotonic()
    found = host.look(Asked(folder=str(tmp_path), shm=8 * MIB), 4.0)
    assert time.monotonic() - started < 12
    assert found.unread == {}
    assert codec.loads(Host, codec.dumps(found), name="host") == found
    assert found.disk is not None
    assert found.disk.folder == str(tmp_path)


def test_a_part_that_fails_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        message = "no such thing"
        raise OSError(message)

    monkeypatch.setattr(system, "look", broken)
    found = host.look(Asked(shm=MIB), 2.0)
    assert found.system is None
    assert found.unread == {"system": "OSError: no such thing"}
    assert found.memory is not None
