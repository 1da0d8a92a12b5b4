"""The stretches of the pipeline that the commands are made of."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from envcheck import sources
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Inventory
from envcheck.guest.reading import read_place
from envcheck.inflate import inflate
from envcheck.sources import Progress


def scan(paths: list[str], progress: Progress) -> Inventory:
    """Read files, directories, wheels and archives; raises FileUnavailable when none is there."""
    files: dict[str, DeviceFile] = {}
    passed_over = 0
    for seen in sources.read_paths(paths, progress):
        if seen.file is None:
            passed_over += 1
        elif files.setdefault(seen.file.path, seen.file) != seen.file:
            # An archive may hold a name twice; which one an installer takes is its affair.
            files[seen.file.path] = DeviceFile(
                path=seen.file.path,
                format="other",
                size=0,
                problem="its archive holds several files of this name, and they differ",
            )
    return Inventory(source="files", files=tuple(files.values()), passed_over=passed_over)


def total_size(paths: list[str]) -> int:
    """Return the bytes of all files that a scan of the paths will come across, for a bar."""
    walked = (os.path.join(f, n) for p in paths for f, _, names in os.walk(p) for n in names)
    return sum(map(_size, [*filter(os.path.isfile, paths), *walked]))


def collect(python: str, progress: Progress, announce: Callable[[int], None]) -> Inventory:
    """Read the environment of an interpreter; raises FileUnavailable and EnvcheckError.

    `announce` is told the total bytes before the first file is read.
    """
    from envcheck.engine import local

    collected = local.collect(local.resolve(python))
    sizes = {place.absolute: _size(place.absolute) for place in collected.places}
    announce(sum(sizes.values()))
    files = []
    for place in collected.places:
        progress(place.path, 0)
        files.append(read_place(place.absolute, place.path, inflate))
        progress(place.path, sizes[place.absolute])
    return Inventory(source="environment", files=tuple(files), environment=collected.environment)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def collect_image(reference: str, note: Callable[[str], None]) -> Inventory:
    """Read the environment inside an image; raises FileUnavailable and EnvcheckError.

    The guest runs there with the image's own Python, and reads the device code too: nothing
    is installed in the image and nothing of it is copied out. `note` is told each step.
    """
    from contextlib import closing

    from envcheck.building import image
    from envcheck.core import codec
    from envcheck.core.request import Collected, Request
    from envcheck.engine import docker
    from envcheck.engine.protocol import Limits

    with closing(docker.connect()) as engine:
        facts = engine.inspect(reference, progress=lambda step: note(step.name))
        note(f"reading {reference}")
        answer = engine.run_guest(reference, Request(read=True), limits=Limits())
    collected = codec.loads(Collected, answer.document, name=f"inventory of {reference}")
    environment = replace(collected.environment, image=image(reference, facts))
    return Inventory(source="environment", files=collected.files, environment=environment)
