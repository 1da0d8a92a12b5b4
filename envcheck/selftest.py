"""The scan's word against the card's: every object of a folder is judged, loaded and compared."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envcheck.core import agreement, codec, cuda, tally, unusable
from envcheck.core.agreement import Launch, Needs, Prediction
from envcheck.core.cuda import Version
from envcheck.core.device_file import DeviceFile
from envcheck.core.driver_facts import DriverCard, DriverFacts
from envcheck.core.model import Inventory, Target
from envcheck.core.sm import Sm
from envcheck.core.tally import Selftest
from envcheck.errors import DocumentInvalid, FileUnavailable
from envcheck.guest import cards, driver, launch_needs, loading
from envcheck.guest.elf import Malformed
from envcheck.guest.reading import open_regular, read_code
from envcheck.inflate import inflate
from envcheck.judge import judge

_LOADABLE = (".cubin", ".fatbin", ".ptx", ".so")
_IMAGES = ("cubin", "fatbin", "ptx")
_GROUPS = {".ptx": "PTX text", ".so": "library"}
# Each holds a context of some hundred megabytes on the card.
_PARALLEL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """One object of a folder, and how its kernel is launched."""

    path: Path
    name: str
    """Relative to the folder of objects."""
    group: str
    """The folder that it lies in, or else what its name says that it is."""
    launch: Launch


def objects(folder: Path) -> tuple[Object, ...]:
    """Find the objects of a folder, or of its `objects`; raises FileUnavailable and DocumentInvalid.

    `launches.json` beside them says how kernels are launched, by name of the object.
    """
    if not folder.is_dir():
        reason = "not a folder" if folder.exists() else "no such folder"
        message = f"{folder}: {reason}"
        raise FileUnavailable(message, remedy="name a folder of cubins, fatbins, PTX and libraries")
    root = folder / "objects" if (folder / "objects").is_dir() else folder
    launches = _launches(folder / "launches.json")
    found = sorted(p for p in root.rglob("*") if p.suffix in _LOADABLE and p.is_file())
    if not found:
        message = f"{root}: no file there ends in {', '.join(_LOADABLE)}"
        raise FileUnavailable(message, remedy="name a folder of cubins, fatbins, PTX and libraries")
    made = tuple(_object(path, root, launches) for path in found)
    if unknown := launches.keys() - {each.name for each in made}:
        message = f"{folder / 'launches.json'}: {min(unknown)}: there is no such object"
        raise DocumentInvalid(message, remedy=f"name objects as they are called below {root}")
    return made


def _object(path: Path, root: Path, launches: Mapping[str, Launch]) -> Object:
    name = path.relative_to(root).as_posix()
    kind = _GROUPS.get(path.suffix, path.suffix.removeprefix("."))
    group = name.rpartition("/")[0] or kind
    return Object(path=path, name=name, group=group, launch=launches.get(name, Launch()))


def _launches(path: Path) -> dict[str, Launch]:
    if not path.exists():
        return {}
    rows: Any = codec.parse(path.read_bytes(), name=str(path))
    return codec.from_json(dict[str, Launch], rows, str(path))


def card(library: str = driver.LIBRARY) -> tuple[DriverCard, DriverFacts]:
    """Return the first card of this machine; raises FileUnavailable that names the cause."""
    seen = cards.look(library)
    cause = unusable.unusable(seen)
    if cause is not None or seen.driver is None:
        message, remedy = (cause.message, cause.remedy) if cause is not None else (seen.said, "")
        raise FileUnavailable(message, remedy=remedy)
    return seen.driver.cards[0], seen.driver


def judged_driver(facts: DriverFacts) -> Version:
    """Return the driver to judge for; raises FileUnavailable where nothing tells it.

    It is the kernel module's, unless libcuda says another CUDA version (a compatibility package,
    or no file that names the module): then the first driver of that version stands for it.
    """
    module = None if facts.module is None else cuda.parse_version(facts.module)
    own = None if facts.cuda is None else cuda.parse_version(facts.cuda)
    if module is not None and own in (None, cuda.cuda_of_driver(module)):
        return module
    found = None if own is None else cuda.driver_of_cuda(own)
    if found is None and module is None:
        message = "no card: the driver tells no version that is known here"
        raise FileUnavailable(message, remedy="nvidia-smi, on the same machine")
    return found or module or ()


def run(
    found: Sequence[Object],
    *,
    library: str = driver.LIBRARY,
    cudart: str | None = None,
    parallel: int | None = None,
) -> Selftest:
    """Judge, load and compare objects on the first card; raises FileUnavailable without one."""
    about, facts = card(library)
    version = judged_driver(facts)
    predictions = [_predict(each, _read(each), about, version) for each in found]
    results = loading.load_all(
        [(str(each.path), each.launch) for each in found],
        library=library,
        cudart=cudart,
        parallel=parallel or min(_PARALLEL, os.cpu_count() or 1),
    )
    compared = tuple(
        agreement.compare(
            each.name,
            each.group,
            prediction,
            kernels,
            library=each.path.suffix == ".so",
        )
        for each, prediction, kernels in zip(found, predictions, results, strict=True)
    )
    return Selftest(
        schema=tally.SCHEMA,
        card=about,
        driver=cuda.driver_text(version),
        groups=tally.count(compared),
        objects=compared,
    )


def _read(each: Object) -> DeviceFile:
    with open_regular(str(each.path)) as handle:
        return read_code(handle, each.name, inflate)


def _predict(each: Object, file: DeviceFile, about: DriverCard, version: Version) -> Prediction:
    target = Target(name=about.sm, sm=about.sm)
    report = judge(target, Inventory(source="files", files=(file,)), version)
    try:
        needs = _needs(each, file, Sm.parse(about.sm))
    except Malformed:  # a payload that only its kernel's launch made anybody open
        return Prediction(expected=agreement.UNKNOWN, reason=agreement.DAMAGED)
    return agreement.predict(report, file, each.launch, needs, about.shared_memory_per_block)


def _needs(each: Object, file: DeviceFile, sm: Sm) -> Needs | None:
    """Return what an image's kernel fixes for its launch; raises Malformed."""
    if file.format not in _IMAGES or file.problem or file.skipped:
        return None
    with (
        open(each.path, "rb") as handle,
        mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as view,
    ):
        return launch_needs.read(view, file, each.launch.kernel, sm, inflate)
