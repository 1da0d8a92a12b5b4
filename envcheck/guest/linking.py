"""Everything that the loader would make of one environment, from its bytes.

Each compiled file is opened in a simulated process of this interpreter: those that need
PyTorch's libraries in one that has imported it, the others in a fresh one, and in the other
kind too where that fails. Nothing is loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES

from envcheck.core.linking import Linked, Opened
from envcheck.core.names import visible
from envcheck.core.request import Place
from envcheck.guest import jax_process, link_choices, link_faults, loader_system, named_libraries
from envcheck.guest.linked_files import LinkedFile, LinkedFiles
from envcheck.guest.loader import Loaded, Opening, Process
from envcheck.guest.symbols import Closure
from envcheck.guest.torch_process import import_torch, torch_folder

_SHARED = re.compile(r"\.so(\.\d+)*$")
_OTHER_PYTHON = re.compile(r"\.(?:cpython|pypy|abi)[\w-]*\.so$")
_TORCH = re.compile(r"lib(?:torch|c10)[\w]*\.so")
# More files than any environment of its kind has; the largest known has a few thousand.
_MAX_FILES = 20_000


def link(
    program: str,
    places: tuple[Place, ...],
    folders: list[str],
    *,
    cuda: str | None = None,
    variables: Mapping[str, str] = os.environ,
) -> Linked:
    """Work out what the loader would make of the compiled files of an environment.

    `program` is the interpreter, `folders` those of its `sys.path` that hold packages.
    """
    files = LinkedFiles()
    try:
        return _Environment(files, program, places, folders, cuda, variables).link()
    except Exception as error:
        if os.environ.get("ENVCHECK_DEBUG"):
            raise
        reason = f"envcheck failed at it, please report: {type(error).__name__}: {error}"
        return Linked(skipped=reason)
    finally:
        files.close()


class _Environment:
    def __init__(
        self,
        files: LinkedFiles,
        program: str,
        places: tuple[Place, ...],
        folders: list[str],
        cuda: str | None,
        variables: Mapping[str, str],
    ) -> None:
        self.files, self.program = files, os.path.realpath(program)
        self.places = [p for p in places if _SHARED.search(p.path)][:_MAX_FILES]
        self.folders, self.cuda, self.variables = folders, cuda, variables
        self.closure = Closure()
        self.by_name: dict[str, list[Place]] = {}
        for place in self.places:
            self.by_name.setdefault(os.path.basename(place.path), []).append(place)
        self.shown: dict[str, str] = {}
        """Real path -> the path that the inventory knows a file by."""
        self.torch: Process | None = None
        self.torch_names: set[str] = set()
        self.loaded: set[str] = set()
        """What some process maps without a fault."""

    def link(self) -> Linked:
        """Open everything, and say what came of it."""
        file = self.files.read(self.program)
        if file is None or file.problem:
            return Linked(skipped=f"{self.program}: the interpreter is no program to read")
        interpreter = file.dynamic.interpreter
        if interpreter is None or "ld-linux" not in os.path.basename(interpreter):
            who = interpreter or "no loader: it is statically linked"
            return Linked(skipped=f"the interpreter is loaded by {who}, not by glibc's loader")
        system = loader_system.read(interpreter, file.machine, file.bits, self.variables)
        bare = Process(system, self.files)
        bare.start(self.program)
        self.shown = {os.path.realpath(p.absolute): p.path for p in self.places}
        choices = link_choices.Choices(self.show, self.files, [p.absolute for p in self.places])
        found = []
        torch = torch_folder(self.folders)
        if torch is not None:
            process = bare.fork()
            opening = import_torch(process, torch, self.folders, self.cuda)
            self.torch = process
            self.torch_names = {n for m in process.maps for n in m.names if _TORCH.fullmatch(n)}
            if opening.root is not None:
                path = self.show(opening.root.file.real)
                fault = self._fault(path, opening.root.file, process, opening, torch=True)
                found += [fault] if fault is not None else []
                if fault is None:
                    self.loaded.update(one.file.real for one in process.maps)
                choices.add(process, opening.root.path, torch=True)
        for place in self._roots_first():
            if os.path.realpath(place.absolute) in self.loaded:
                continue  # others bring it, with all that it needs
            self.files.release(one.file.identity for one in self._stays(bare))
            opened, process = self._open(place, bare)
            torch_there = "libc10.so" in process.names
            # What is no module is opened by something else, which has its own libraries by then.
            if opened is None and (torch_there or _is_named_module(place)):
                choices.add(process, place.absolute, torch=torch_there)
            if opened is not None and all(opened.path != other.path for other in found):
                found.append(opened)
        main = self.torch or bare
        choices.add_driver(main)
        return Linked(
            looked_at=len(self.places),
            symbols=self.closure.looked_up,
            library_path=tuple(map(visible, system.library_path)),
            passed_over={visible(n): visible(why) for n, why in bare.passed_over.items()},
            files=tuple(found),
            choices=tuple(choices.found()),
            by_name=(
                *named_libraries.named(main, self.show),
                *jax_process.asked(bare, self.folders, self.show),
            ),
            defined=link_choices.defined(main),
            majors=tuple(choices.majors()),
        )

    def _stays(self, bare: Process) -> list[Loaded]:
        return [*bare.maps, *(self.torch.maps if self.torch is not None else ())]

    def show(self, real: str) -> str:
        """Return how the inventory names a file."""
        known = self.shown.get(real)
        if known is None:
            known = self.shown.get(os.path.realpath(real), real)
        return visible(known)

    def _roots_first(self) -> Iterator[Place]:
        """Yield the modules of this interpreter, then what else there is to load."""
        later = []
        for place in self.places:
            if place.path.endswith(tuple(EXTENSION_SUFFIXES)):
                yield place
            elif not _OTHER_PYTHON.search(place.path):
                later.append(place)
        yield from later

    def _open(self, place: Place, bare: Process) -> tuple[Opened | None, Process]:
        file = self.files.read(place.absolute)
        named = _is_named_module(place)
        if file is None or (file.problem and not file.bits and not file.blank and not named):
            # Links that lead nowhere, linker scripts and the like are told of by their own facts.
            return None, bare
        system = bare.system
        if file.bits and (file.machine, file.bits) != (system.machine, system.bits) and not named:
            return None, bare  # for another machine, such as code that runs on a device
        needs_torch = bool(self.torch_names & set(file.dynamic.needed))
        order = [self.torch] if needs_torch and self.torch else [bare, self.torch]
        faults: list[Opened] = []
        for base, helped in self._bases(place, [one for one in order if one is not None]):
            process = base.fork()
            opening = process.open(place.absolute)
            fault = self._fault(place.path, file, process, opening, torch=needs_torch)
            if fault is None and not helped:
                self.loaded.update(one.file.real for one in process.maps)
                return None, process
            # With help it is right, so what it lacks are the libraries alone.
            faults.append(fault or replace(faults[0], symbols=(), symbol_count=0, versions=()))
        # The fewer libraries are missing, the more is known of the symbols.
        best = min(faults, key=lambda f: (len(f.libraries), f.symbol_count))
        return replace(best, libraries=faults[0].libraries), bare

    def _bases(self, place: Place, bases: list[Process]) -> Iterator[tuple[Process, bool]]:
        """Yield the processes to open a file in, at last those that have opened what it lacks.

        Packages open libraries of their own, or of packages that they need, by full path.
        """
        yield from ((base, False) for base in bases)
        for base in bases:
            missed = base.fork().open(place.absolute).missed
            paths = [p for m in missed for p in self._elsewhere(place, m.name)]
            if paths:
                process = base.fork()
                for path in paths:
                    process.open(path)
                yield process, True

    def _elsewhere(self, place: Place, name: str) -> list[str]:
        """Return files of a name: those of the same package, else those of others."""
        top = place.path.partition("/")[0]
        named = [p for p in self.by_name.get(name, ()) if p is not place]
        own = [p.absolute for p in named if p.path.partition("/")[0] == top]
        return own or [p.absolute for p in named[:1]]

    def _fault(
        self, path: str, file: LinkedFile, process: Process, opening: Opening, *, torch: bool
    ) -> Opened | None:
        needs = torch or bool(_torch_needs(file))
        reach = [*opening.scope, *(self.torch.maps if self.torch is not None and needs else ())]
        return link_faults.fault(
            link_faults.Case(
                path=path,
                absolute=file.real,
                file=file,
                process=process,
                opening=opening,
                torch=needs,
                reach=reach,
                folders=self.folders,
                places=self.places,
                named=self.by_name,
                show=self.show,
            ),
            self.closure,
        )


def _is_named_module(place: Place) -> bool:
    return place.path.endswith(tuple(EXTENSION_SUFFIXES[:-1]))


def _torch_needs(file: LinkedFile) -> list[str]:
    return [name for name in file.dynamic.needed if _TORCH.fullmatch(name)]
