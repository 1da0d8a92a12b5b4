"""The stretches of the pipeline that the commands are made of."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck import extension_results, sources
from envcheck.core.artefacts import Adapter, Artefact, grouped
from envcheck.core.compiled import Compiled
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Inventory
from envcheck.core.request import Collected
from envcheck.guest.later import Later
from envcheck.guest.reading import read_place
from envcheck.inflate import inflate
from envcheck.sources import Progress

if TYPE_CHECKING:
    from envcheck.asking import Wish


def scan(paths: list[str], progress: Progress) -> Inventory:
    """Read files, directories, wheels and archives; raises FileUnavailable when none is there."""
    files: dict[str, DeviceFile] = {}
    made: list[Artefact] = []
    adapters: list[Adapter] = []
    passed_over = 0
    for seen in sources.read_paths(paths, progress):
        if seen.artefact is not None:
            made.append(seen.artefact)
        elif seen.adapter is not None:
            adapters.append(seen.adapter)
        elif seen.file is None:
            passed_over += 1
        elif files.setdefault(seen.file.path, seen.file) != seen.file:
            # An archive may hold a name twice; which one an installer takes is its affair.
            files[seen.file.path] = DeviceFile(
                path=seen.file.path,
                format="other",
                size=0,
                problem="its archive holds several files of this name, and they differ",
            )
    return Inventory(
        source="files",
        files=tuple(files.values()),
        passed_over=passed_over,
        artefacts=grouped(made),
        adapters=tuple(adapters),
    )


def total_size(paths: list[str]) -> int:
    """Return the bytes of all files that a scan of the paths will come across, for a bar."""
    walked = (os.path.join(f, n) for p in paths for f, _, names in os.walk(p) for n in names)
    return sum(map(_size, [*filter(os.path.isfile, paths), *walked]))


def collect(
    python: str, progress: Progress, announce: Callable[[int], None], wish: Wish | None = None
) -> Inventory:
    """Read the environment of an interpreter; raises FileUnavailable and EnvcheckError.

    `announce` is told the total bytes before the first file is read. With a `wish` it is
    compiled for the card that is here, and run on it.
    """
    from envcheck.engine import local, named_python

    interpreter = named_python.resolve(python)

    def look() -> tuple[Collected, tuple[DeviceFile, ...]]:
        collected = local.collect(interpreter)
        return collected, _read(collected, progress, announce)

    if wish is None:
        collected, files = look()
        ran = None
    else:
        progress(f"running on {wish.target.card}", 0)
        # What takes a card's time need not wait for what takes the disk's.
        looking = Later(look)
        looking.start()
        ran = _execute_here(interpreter, wish)
        collected, files = looking.value()
    return Inventory(
        source="environment",
        files=files,
        environment=collected.environment,
        compiled=_with_kernels(ran.compiled, wish) if ran is not None else None,
        executed=ran.executed if ran is not None else None,
        linked=collected.linked,
    )


def _read(
    collected: Collected, progress: Progress, announce: Callable[[int], None]
) -> tuple[DeviceFile, ...]:
    sizes = {place.absolute: _size(place.absolute) for place in collected.places}
    announce(sum(sizes.values()))
    files = []
    for place in collected.places:
        progress(place.path, 0)
        files.append(read_place(place.absolute, place.path, inflate))
        progress(place.path, sizes[place.absolute])
    return tuple(files)


def _execute_here(python: str, wish: Wish) -> Collected:
    from envcheck import remembered
    from envcheck.engine import local

    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        folders = wish.stage(Path(folder))
        # What was built for the same torch and nvcc serves again: it is the slowest part.
        cache = remembered.writable(remembered.cache_folder() / "built") or Path(folder, "built")
        request = wish.request(folders, lambda _, path: str(path), cache=str(cache), read=False)
        return local.collect(python, request)


def _with_kernels(compiled: Compiled | None, wish: Wish | None) -> Compiled | None:
    """Say which kernels were compiled, and what was named of extensions."""
    if compiled is None or wish is None:
        return compiled
    cuda = compiled.cuda
    return replace(
        compiled,
        cuda=None if cuda is None else replace(cuda, own=False),
        kernels={kernel.name: kernel.digest for kernel in wish.kernels},
        extensions=extension_results.join(wish.extensions, (), compiled.extensions),
    )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def collect_image(
    reference: str, note: Callable[[str], None], wish: Wish | None = None
) -> Inventory:
    """Read the environment inside an image; raises FileUnavailable and EnvcheckError.

    The guest runs there with the image's own Python, and reads the device code too: nothing
    is installed in the image and nothing of it is copied out. `note` is told each step. With a
    `wish` it is given cards, compiles for the one that is here, and runs on it.
    """
    from contextlib import closing

    from envcheck.building import LIMITS, image
    from envcheck.core import codec
    from envcheck.core.request import Request
    from envcheck.engine import docker
    from envcheck.engine.protocol import Limits

    with closing(docker.connect()) as engine:
        facts = engine.inspect(reference, progress=lambda step: note(step.name))
        note(f"reading {reference}")
        if wish is None:
            answer = engine.run_guest(reference, Request(read=True), limits=Limits())
        else:
            note(f"running on {wish.target.card} in {reference}")
            with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
                folders = wish.stage(Path(folder))
                cache = f"{engine.scratch}/envcheck"
                request = wish.request(folders, engine.seen, cache=cache, read=True)
                limits = replace(LIMITS, gpus=wish.gpus)
                answer = engine.run_guest(reference, request, limits=limits, folders=folders)
    collected = codec.loads(Collected, answer.document, name=f"inventory of {reference}")
    return Inventory(
        source="environment",
        files=collected.files,
        environment=replace(collected.environment, image=image(reference, facts)),
        compiled=_with_kernels(collected.compiled, wish),
        executed=collected.executed,
        linked=collected.linked,
    )
