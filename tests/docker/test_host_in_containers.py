"""What the guest finds out about a host in containers of which it is known what they were given.

It runs there with the image's own Python, standard library alone, as it would on a rental.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from docker.types import Ulimit
from inventories import ask

from envcheck import bundle
from envcheck.core import codec
from envcheck.core.cards import Cards
from envcheck.core.host import Host
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Finding, Inventory
from envcheck.engine import docker

MIB = 1 << 20
LOOK = """
import json, sys
sys.path.insert(0, "/guest")
from envcheck.core import codec
from envcheck.core.machine import Asked
from envcheck.guest import host
asked = codec.from_json(Asked, json.loads(sys.argv[1]), "asked")
print(codec.dumps(host.look(asked, 8)))
"""


class Place:
    """Runs the guest in containers of one image."""

    def __init__(self, engine: docker.Docker, image: str, folder: Path) -> None:
        self.engine, self.image, self.folder = engine, image, folder
        bundle.stage(folder)

    def run(self, *command: str, **options: object) -> str:
        volumes = {str(self.folder): {"bind": "/guest", "mode": "ro"}}
        said = self.engine._client.containers.run(
            self.image, list(command), volumes=volumes, network_mode="none", remove=True, **options
        )
        return said.decode()

    def look(self, asked: Asked, before: str = ":", **options: object) -> Machine:
        """Look in a container, after a command of the shell."""
        script = f'{before} && exec python3 -B -c "$0" "$1"'
        told = self.run("sh", "-c", script, LOOK, json.dumps(codec.to_json(asked)), **options)
        host = codec.loads(Host, told, name="host")
        assert host.unread == {}
        return Machine(asked=asked, cards=Cards(driver=None), host=host)


@pytest.fixture(scope="module")
def place(engine: docker.Docker, plain_base: str) -> Iterator[Place]:
    # Not pytest's own folder, which no other user may enter.
    with tempfile.TemporaryDirectory(prefix="envcheck-guest-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Place(engine, plain_base, Path(folder))


def host_of(machine: Machine) -> Host:
    assert machine.host is not None
    return machine.host


def found(check: str, machine: Machine) -> list[Finding]:
    return ask(check, Inventory(source="environment", machine=machine), "sm_90")


def statuses(check: str, machine: Machine) -> list[str]:
    return [finding.status.value for finding in found(check, machine)]


def test_r24_docker_s_own_size_of_64_mib_fails_for_8_workers(place: Place) -> None:
    machine = place.look(Asked(workers=8))
    shared = host_of(machine).shared
    assert shared is not None
    assert (shared.folder.size, shared.filesystem, shared.refused) == (64 * MIB, "tmpfs", "ENOSPC")
    # Steps of 16 MiB: the file of some pages that cannot be allocated is the last one.
    assert 48 * MIB <= shared.written <= 64 * MIB
    assert statuses("dev-shm-is-large-enough", machine) == ["fail"]
    nobody_said = replace(machine, asked=Asked())
    assert statuses("dev-shm-is-large-enough", nobody_said) == ["warn"]


def test_r24_shm_size_lets_8_workers_write(place: Place) -> None:
    machine = place.look(Asked(workers=8), shm_size="512m")
    shared = host_of(machine).shared
    assert shared is not None
    # 8 workers x 2 batches x 32 images x 3 x 224 x 224 x 4 bytes
    assert (shared.written, shared.refused) == (308_281_344, None)
    assert statuses("dev-shm-is-large-enough", machine) == ["pass"]


def test_of_memory_with_a_limit_half_is_written_at_most_and_nothing_is_killed(place: Place) -> None:
    machine = place.look(Asked(shm=1 << 30), shm_size="2g", mem_limit="512m")
    host = host_of(machine)
    assert host.memory is not None
    assert host.shared is not None
    assert host.memory.limit == 512 * MIB
    assert 0 < (host.memory.used or 0) < 512 * MIB
    assert 128 * MIB < host.shared.written <= 256 * MIB
    assert (host.shared.written, host.shared.refused) == (host.shared.tried, None)
    (finding,) = found("dev-shm-is-large-enough", machine)
    assert finding.status.value == "fail"
    assert "512 MiB may be taken" in finding.message
    # This machine has more than twice of that.
    assert statuses("memory-is-what-it-seems", machine) == ["warn"]


def test_half_a_processor_is_seen_as_what_it_is(place: Place) -> None:
    machine = place.look(Asked(workers=2), nano_cpus=500_000_000)
    processors = host_of(machine).processors
    assert processors is not None
    assert (processors.quota, processors.seen) == (0.5, os.cpu_count())
    quota = next(f for f in found("processors-are-what-they-seem", machine) if f.subject == "quota")
    assert quota.status.value == "warn"
    assert "OMP_NUM_THREADS=1" in quota.remedy


def test_one_processor_of_several_is_what_may_be_used(place: Place) -> None:
    processors = host_of(place.look(Asked(), cpuset_cpus="0")).processors
    assert processors is not None
    assert (processors.allowed, processors.quota, processors.seen) == (1, None, os.cpu_count())


def test_a_disk_of_20_mib_has_no_room_for_more(place: Place) -> None:
    machine = place.look(Asked(folder="/data", disk=10**9), tmpfs={"/data": "size=20m"})
    disk = host_of(machine).disk
    assert disk is not None
    assert (disk.folder, disk.filesystem, disk.free) == ("/data", "tmpfs", 20 * MIB)
    assert (disk.written, disk.refused, disk.network) == (10 * MIB, None, False)
    (finding,) = found("disk-takes-the-data", machine)
    assert finding.status.value == "fail"
    assert "0.0 GB free of the 1.0 GB" in finding.message
    assert statuses("disk-takes-the-data", replace(machine, asked=Asked(disk=10 * MIB))) == ["pass"]


def test_a_full_disk_is_met(place: Place) -> None:
    fill = "head -c 20m /dev/zero > /data/full"
    machine = place.look(Asked(folder="/data"), before=fill, tmpfs={"/data": "size=20m"})
    disk = host_of(machine).disk
    assert disk is not None
    assert (disk.refused, disk.free, disk.written) == ("ENOSPC", 0, 0)
    assert statuses("disk-takes-the-data", machine) == ["fail"]


def test_a_read_only_root_is_met_and_all_else_is_looked_at(place: Place) -> None:
    machine = place.look(Asked(folder="/srv/data"), read_only=True)
    disk = host_of(machine).disk
    assert disk is not None
    # That folder is not there: the nearest above it is looked at.
    assert (disk.folder, disk.read_only, disk.refused) == ("/srv", True, "EROFS")
    (finding,) = found("disk-takes-the-data", machine)
    assert finding.status.value == "fail"
    assert "read-only" in finding.message


def test_a_user_without_a_home_who_may_write_nowhere(place: Place) -> None:
    machine = place.look(Asked(folder="/srv"), before="unset HOME", user="1000:1000")
    host = host_of(machine)
    assert host.system is not None
    assert host.disk is not None
    assert (host.system.user, host.system.container) == (1000, "docker")
    assert (host.disk.refused, host.disk.read_only) == ("EACCES", False)
    assert statuses("disk-takes-the-data", machine) == ["fail"]
    assert host.shared is not None
    assert host.shared.folder.writable


def test_limits_are_those_that_docker_was_asked_for(place: Place) -> None:
    limits = [
        Ulimit(name="nofile", soft=256, hard=4096),
        Ulimit(name="memlock", soft=1 << 16, hard=1 << 16),
    ]
    machine = place.look(Asked(workers=16), pids_limit=24, ulimits=limits)
    bounds = host_of(machine).bounds
    assert bounds is not None
    assert (bounds.files, bounds.files_hard, bounds.locked) == (256, 4096, 1 << 16)
    assert bounds.tasks == 24
    assert 1 <= (bounds.tasks_now or 0) <= 4
    told = {f.subject: f for f in found("limits-leave-room", machine)}
    assert set(told) == {"open files", "processes"}
    assert told["open files"].remedy == "ulimit -n 4096"


NODES = """
import json, os, sys
sys.path.insert(0, "/guest")
from envcheck.guest import nodes
seen = [nodes.nodes()]
os.remove("/dev/nvidia1")
print(json.dumps([*seen, nodes.nodes(), nodes.forbidden()]))
"""
MAKE = 'mknod /dev/nvidia0 c 195 0 && mknod /dev/nvidia1 c 195 1 && exec python3 -B -c "$0"'


def test_r23e_nodes_that_vanish_and_nodes_that_the_control_group_forbids(place: Place) -> None:
    command = ("sh", "-c", MAKE, NODES)
    before, after, no = json.loads(place.run(*command, device_cgroup_rules=["c 195:* rwm"]))
    assert (before, after, no) == (["/dev/nvidia0", "/dev/nvidia1"], ["/dev/nvidia0"], [])
    cards = Cards(driver=None, nodes=tuple(before))
    machine = Machine(asked=Asked(), cards=cards, nodes_after=tuple(after))
    (finding,) = found("device-nodes-stay", machine)
    assert finding.status.value == "fail"
    assert finding.message.startswith("/dev/nvidia1 could be opened at the start")
    # A node may be made there without a rule for it, and then not be opened: that of a container
    # whose rules were rewritten.
    assert json.loads(place.run(*command)) == [[], [], ["/dev/nvidia0"]]


NOW = """
import json, sys
sys.path.insert(0, "/guest")
from envcheck.guest import nodes
print(json.dumps([nodes.nodes(), nodes.forbidden()]))
"""


def test_r23e_rules_that_are_rewritten_while_a_container_runs(place: Place) -> None:
    """What a reload of systemd does (NVIDIA/nvidia-container-toolkit#48), by hand."""
    volumes = {str(place.folder): {"bind": "/guest", "mode": "ro"}}
    container = place.engine._client.containers.run(
        place.image, ["sleep", "120"], volumes=volumes, network_mode="none", detach=True,
        device_cgroup_rules=["c 195:* rwm"],
    )  # fmt: skip

    def seen() -> list[list[str]]:
        code, said = container.exec_run(["python3", "-B", "-c", NOW])
        assert code == 0, said
        told: list[list[str]] = json.loads(said)
        return told

    try:
        assert container.exec_run(["mknod", "/dev/nvidia0", "c", "195", "0"])[0] == 0
        assert seen() == [["/dev/nvidia0"], []]
        # Of version 2 of control groups no file takes rules: there the test above must do.
        rules = Path(f"/sys/fs/cgroup/devices/docker/{container.id}/devices.deny")
        if rules.exists():
            rules.write_text("c 195:* rwm\n")
            assert seen() == [[], ["/dev/nvidia0"]]
    finally:
        container.remove(force=True)
