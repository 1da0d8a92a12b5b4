"""Small environments with one fault each, of recipes that tests/FAILURE_CLASSES.md names.

What each must come to is written here by hand; the whole report is kept beside it as a file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inventories import container, device_file, distribution, environment, judged

from envcheck.core import codec
from envcheck.core.device_file import DeviceFile
from envcheck.core.installed import (
    Differing,
    End,
    Installed,
    Interpreter,
    Overlap,
    Package,
    Records,
    Shadow,
)
from envcheck.core.linking import Choice, Linked, Opened, Unresolved
from envcheck.core.model import Assembler, Inventory, Torch, Triton
from envcheck.output import json

MARKERS = {
    "implementation_name": "cpython",
    "implementation_version": "3.11.7",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.7",
    "python_version": "3.11",
    "sys_platform": "linux",
}
CUDA = "torch/lib/libtorch_cuda.so"
OLD, NEW = "s50 s60 s70 s75 s80 s86 s90 s90a", "s75 s80 s86 s90 s100 s120"


@dataclass(frozen=True)
class Case:
    """What is judged for which card, and what has to come of it."""

    inventory: Inventory
    sm: str
    verdict: str
    failing: tuple[str, ...]
    """The checks with a fail."""
    driver: str | None = None

    def documents(self) -> dict[str, str]:
        """Return the files of the case by name."""
        report = judged(self.inventory, self.sm, self.driver)
        kept = {"inventory.json": codec.dumps(self.inventory), "report.json": json.render([report])}
        return {name: text.rstrip("\n") + "\n" for name, text in kept.items()}


def package(name: str, version: str, *requires: str) -> Package:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    return Package(name=name, version=version, info=info, installer="pip", requires=requires)


def with_torch(
    *files: DeviceFile,
    codes: str = NEW,
    packages: tuple[Package, ...] = (),
    linked: Linked | None = None,
    records: Records | None = None,
    assembler: str = "12.8",
    **installed: object,
) -> Inventory:
    """Return a whole environment of PyTorch 2.8.0, with what is added to it."""
    made = environment(
        device_file(CUDA, codes),
        *files,
        distributions=(
            distribution("torch", "2.8.0", CUDA),
            *(distribution("ext", "1.0", f.path) for f in files),
        ),
        torch=Torch(version="2.8.0", cuda="12.8", cxx11_abi=True),
        triton=Triton(version="3.4.0", assemblers=(Assembler(name="ptxas", version=assembler),)),
    )
    assert made.environment is not None
    facts = Installed(
        interpreter=Interpreter(markers=MARKERS, suffixes=(".abi3.so", ".so")),
        packages=(package("torch", "2.8.0"), *packages),
        records=records or Records(sized=100, hashed=10, hash_bound=1 << 20),
        **installed,  # type: ignore[arg-type]
    )
    linked = linked or Linked(looked_at=2, symbols=100)
    return replace(made, environment=replace(made.environment, installed=facts), linked=linked)


def damaged() -> Inventory:
    """torch/nn was deleted."""
    gone = Differing(
        owner="torch 2.8.0",
        how="missing",
        code=138,
        count=138,
        of=9000,
        paths=("torch/nn/__init__.py", "torch/nn/functional.py"),
    )
    end = End(
        owner="torch 2.8.0", path="torch/nn/__init__.py", how="missing", by="torch/__init__.py"
    )
    return with_torch(records=Records(sized=9000, hashed=10, differing=(gone,), ends=(end,)))


def clash() -> Inventory:
    old, new = "_ZN3c105ErrorC1ESs", "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcEE"
    symbol = Unresolved(name=old, by="ext/_C.so", near=new, near_in="torch/lib/libc10.so")
    opened = Opened(
        path="ext/_C.so", module=True, torch=True, imported=True, symbols=(symbol,), symbol_count=1
    )
    linked = Linked(looked_at=2, symbols=100, files=(opened,))
    return with_torch(device_file("ext/_C.so", "s120"), linked=linked)


def stub(path: str, refused: str = "") -> Inventory:
    choice = Choice(
        name="libcuda.so.1",
        path=path,
        how="LD_LIBRARY_PATH",
        opened="libcuda.so.1",
        torch=True,
        refused=refused,
    )
    return with_torch(linked=Linked(looked_at=2, symbols=100, choices=(choice,)))


def two_owners() -> Inventory:
    """The pair of pytorch/pytorch#188892."""
    pair = ("nvidia-cudnn-cu12 9.10", "nvidia-cudnn-cu13 9.12")
    packages = (
        package("needer", "1.0", "torch", "nvidia-cudnn-cu12"),
        *(package(*one.split()) for one in pair),
    )
    overlap = Overlap(
        owners=pair,
        differing=8,
        compiled=8,
        paths=("nvidia/cudnn/lib/libcudnn.so.9",),
        held={pair[1]: 8},
    )
    torch = package("torch", "2.8.0", "nvidia-cudnn-cu12==9.10")
    made = with_torch(packages=packages, overlaps=(overlap,))
    assert made.environment is not None
    assert made.environment.installed is not None
    installed = replace(made.environment.installed, packages=(torch, *packages))
    return replace(made, environment=replace(made.environment, installed=installed))


def untold() -> Inventory:
    """The METADATA of an installed package is gone."""
    made = with_torch(packages=(replace(package("ext", "1.0"), problem="METADATA is missing"),))
    assert made.environment is not None
    ext = replace(distribution("ext", "1.0"), record_digest="0" * 64)
    distributions = (*made.environment.distributions, ext)
    return replace(made, environment=replace(made.environment, distributions=distributions))


PINNED = package("ext", "1.0", "torch==2.4.1")
LEFT_OUT = device_file("ext/_C.so", container("s80", ("add",)), container("s80 s120", ("add2",)))
SHADOW = Shadow(owner="torch 2.8.0", module="torch", path="/srv/job/torch/__init__.py")
CODE, TORCH = "device-code-runs-on-target", "torch-has-code-for-target"
OWNED, APART = "one-distribution-owns-each-file", "exclusive-packages-are-apart"
PLACE, RECORD = "libraries-load-from-one-place", "files-match-record"
DISTRIBUTION, DRIVER = "distribution-runs-on-target", "driver-supports-target"

CASES = {
    "whole": Case(with_torch(), "sm_120", "compatible", ()),
    "R03b-card-newer-than-torch": Case(
        with_torch(codes=OLD), "sm_120", "incompatible", (CODE, DISTRIBUTION, TORCH)
    ),
    "R36-card-older-than-torch": Case(
        with_torch(codes=NEW), "sm_61", "incompatible", (CODE, DISTRIBUTION, TORCH)
    ),
    "R04-kernel-left-out": Case(
        with_torch(LEFT_OUT), "sm_120", "incompatible", ("every-kernel-runs-on-target",)
    ),
    "R12-old-abi": Case(clash(), "sm_120", "incompatible", ("extension-symbols-resolve",)),
    "R17-two-cudnns": Case(two_owners(), "sm_120", "incompatible", (APART, OWNED)),
    "R18-pin-of-another-torch": Case(
        with_torch(device_file("ext/_C.so", "s120"), packages=(PINNED,)),
        "sm_120",
        "incompatible",
        ("requirements-are-installed",),
    ),
    "R20b-stub-of-libcuda": Case(
        stub("/usr/local/cuda/lib64/stubs/libcuda.so.1"), "sm_120", "incompatible", (PLACE,)
    ),
    "R22-driver-too-old": Case(
        with_torch(), "sm_120", "incompatible", (DRIVER,), driver="535.54.03"
    ),
    "broken-libcuda": Case(
        stub("/opt/lib/libcuda.so.1", "file too short"), "sm_120", "incompatible", (PLACE,)
    ),
    "missing-part-of-torch": Case(damaged(), "sm_120", "incompatible", (RECORD,)),
    "metadata-missing": Case(untold(), "sm_120", "inconclusive", ()),
    "torch-hidden": Case(with_torch(shadows=(SHADOW,)), "sm_120", "compatible", ()),
}
