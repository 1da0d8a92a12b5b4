"""The kernel, the container, and where the cards hang, as far as files of the kernel tell."""

from __future__ import annotations

import glob
import os
import re

from envcheck.core.host import PciCard, System
from envcheck.guest.kernel_files import named, number, text

_NVIDIA, _DISPLAY = "0x10de", "0x03"
_IOMMU_WORD = re.compile(r"iommu|acs_override|amd_iommu|disable_acs_redir")


def look(sys: str = "/sys", proc: str = "/proc") -> System:
    """Return what they tell; what they do not is None."""
    status = named(f"{proc}/self/status")
    filtered = status.get("Seccomp", "")
    words = (text(f"{proc}/cmdline") or "").split()
    nodes = _nodes(sys)
    return System(
        kernel=os.uname().release,
        container=_container(),
        user=os.geteuid(),
        user_namespace=_mapped(text(f"{proc}/self/uid_map")),
        seccomp=int(filtered) if filtered.isdecimal() else None,
        huge_pages=_chosen(text(f"{sys}/kernel/mm/transparent_hugepage/enabled")),
        huge_reserved=_reserved(named(f"{proc}/meminfo").get("HugePages_Total", "")),
        numa_nodes=tuple(nodes),
        own_nodes=tuple(n for n, cpus in nodes.items() if cpus & os.sched_getaffinity(0)),
        cards=tuple(_cards(sys, proc)),
        iommu=tuple(word for word in words if _IOMMU_WORD.search(word)),
        iommus=_count(f"{sys}/class/iommu"),
    )


def _container() -> str | None:
    """Return what kind of container this is in, None where nothing tells of one."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    # Set by systemd-nspawn, LXC and podman for the first process; systemd keeps it there.
    return os.environ.get("container") or text("/run/systemd/container") or None  # noqa: SIM112


def _mapped(uid_map: str | None) -> bool | None:
    if uid_map is None:
        return None
    return uid_map.split() != ["0", "0", "4294967295"]


def _chosen(modes: str | None) -> str | None:
    found = re.search(r"\[(\w+)\]", modes or "")
    return found[1] if found else None


def _reserved(said: str) -> int | None:
    return int(said) if said.isdecimal() else None


def _nodes(sys: str) -> dict[int, set[int]]:
    """Return the processors of each NUMA node: `0-3,8` is what the kernel writes."""
    found: dict[int, set[int]] = {}
    for folder in glob.glob(f"{sys}/devices/system/node/node[0-9]*"):
        cpus: set[int] = set()
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", text(f"{folder}/cpulist") or ""):
            cpus |= set(range(int(first), int(last or first) + 1))
        found[int(os.path.basename(folder)[4:])] = cpus
    return dict(sorted(found.items()))


def _cards(sys: str, proc: str) -> list[PciCard]:
    found = []
    for folder in sorted(glob.glob(f"{sys}/bus/pci/devices/*")):
        if text(f"{folder}/vendor") != _NVIDIA:
            continue
        if not (text(f"{folder}/class") or "").startswith(_DISPLAY):
            continue  # the card's own sound device, or a switch
        address, node = os.path.basename(folder), number(f"{folder}/numa_node")
        # A container is shown the bus of the whole host, and of the driver's list its own cards.
        told = named(f"{proc}/driver/nvidia/gpus/{address}/information").get("Device Minor", "")
        found.append(
            PciCard(
                address=address,
                minor=int(told) if told.isdecimal() else None,
                node=node if node is not None and node >= 0 else None,
                iommu=text(f"{folder}/iommu_group/type"),
            )
        )
    return found


def _count(folder: str) -> int | None:
    try:
        return len(os.listdir(folder))
    except OSError:
        return None
