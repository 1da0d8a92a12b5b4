"""Build an environment, compile for its target inside, and gather the facts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from envcheck import catalog, extension_results, remembered
from envcheck.asking import Wish, parallel
from envcheck.core import codec
from envcheck.core.compiled import Compiled, CudaKernels, Outcome
from envcheck.core.device_file import DeviceFile
from envcheck.core.executed import Executed
from envcheck.core.model import Environment, Image, Inventory, Rebuilt
from envcheck.core.request import Collected, CompileRequest, Request
from envcheck.core.variables import OF_AN_IMAGE
from envcheck.engine import build_log, content_digest
from envcheck.engine.content_digest import Content
from envcheck.engine.protocol import Built, Engine, ImageFacts, Limits, Progress
from envcheck.engine.recipe import Recipe
from envcheck.extension_results import Result
from envcheck.guest.reading import read_place
from envcheck.inflate import inflate
from envcheck.plan import Plan

_KINDS = ("triton", "cuda")
_NO_NVCC = CudaKernels(
    torch=None,
    nvcc=None,
    outcome=Outcome(status="not-applicable"),
    message="no nvcc belongs to this lock: --builder-lock brings one",
)
LIMITS = Limits(seconds=3600, memory=16 << 30, processes=4096)
_SHOWN_DIFFERENCES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Who is told how it goes."""

    step: Progress
    """Steps of a build."""
    phase: Callable[[str], None]
    """What begins now."""


@dataclass(slots=True, kw_only=True)
class Made:
    """What came of a plan."""

    inventory: Inventory
    reference: str
    log: Path
    size: int
    """Bytes."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each part of the work, in its order."""
    known: bool = False
    """Whether the facts are those of an earlier time, about the same image."""


def build(
    engine: Engine,
    plan: Plan,
    *,
    log: Path,
    watch: Watch,
    twice: bool = False,
    wish: Wish | None = None,
) -> Made:
    """Build what is planned and gather the facts; raises FileUnavailable and EnvcheckError.

    With `twice` it is built once more without a cache, and the second build is what the facts
    are about. With a `wish` all of it is run on the card that is here, too.
    """
    work = _Work(engine=engine, plan=plan, watch=watch)
    recipe, first = plan.recipe, None
    if twice:
        watch.phase("building the first time")
        first = work.content(engine.build(recipe, log=log, progress=watch.step))
        recipe = replace(recipe, no_cache=True)
    watch.phase("building without a cache" if recipe.no_cache else "building")
    final = engine.build(recipe, log=log, progress=watch.step)
    work.seconds.update(build_log.phases(final.steps))
    builder = _build_builder(engine, recipe, log, watch)
    second = work.content(final) if first is not None else None
    inventory, known = work.facts(final, builder, second, anew=recipe.no_cache)
    if first is not None and second is not None:
        inventory = replace(inventory, rebuilt=_rebuilt(first, second))
    if wish is not None:
        inventory = replace(inventory, executed=work.execute(final, builder, wish))
    described = engine.inspect(final.reference)
    return Made(
        inventory=_named(inventory, engine, plan, described),
        reference=final.reference,
        log=log,
        size=described.size,
        seconds=work.seconds,
        known=known,
    )


def _build_builder(engine: Engine, recipe: Recipe, log: Path, watch: Watch) -> Built | None:
    """Build the stage with compilers, where there is anything to compile."""
    if recipe.builder_lock is None and not recipe.extensions and recipe.extension_lock is None:
        return None
    return engine.build(
        replace(recipe, no_cache=False),  # the final stage has just built all of it
        log=log.with_suffix(".builder.log"),
        progress=watch.step,
        stage="builder",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One plan on its way: who does it, who is told, and how long its parts took."""

    engine: Engine
    plan: Plan
    watch: Watch
    seconds: dict[str, float] = field(default_factory=dict)

    def facts(
        self, final: Built, builder: Built | None, content: Content | None, *, anew: bool
    ) -> tuple[Inventory, bool]:
        """Return the facts, and whether they are of an earlier time; only images can be known.

        `content` is what is in `final`, where that was read already.
        """
        name = None
        if self.engine.name == "docker":
            asked = [codec.dumps(self.request(kind, Path("kernels"))) for kind in _KINDS]
            ids = (final.reference, builder.reference if builder is not None else "")
            name = remembered.key((*ids, *asked))
        found = remembered.load(name) if name is not None and not anew else None
        if found is not None:
            return found, True
        inventory = self.gather(final, builder, content)
        if name is not None and remembered.is_lasting(inventory):
            remembered.keep(name, inventory)
        return inventory, False

    def gather(self, final: Built, builder: Built | None, content: Content | None) -> Inventory:
        """Ask the guest in what was built, and in its builder."""
        recipe = self.plan.recipe
        with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
            staged = Path(folder, "kernels")
            catalog.stage(self.plan.kernel_folders, staged)
            self.watch.phase(f"compiling Triton kernels for {recipe.sm}, importing extensions")
            seen = self.ask(final, "triton", staged)
            built = None
            if builder is not None:
                self.watch.phase(f"compiling CUDA kernels for {recipe.sm}")
                built = self.ask(builder, "cuda", staged).compiled
        compiled = self.merge(seen.compiled, built, builder)
        content = self.content(final) if content is None else content
        return Inventory(
            source="environment",
            files=_files(seen),
            environment=replace(seen.environment, content=content.digest),
            compiled=compiled,
        )

    def request(self, kind: str, staged: Path) -> Request:
        """Return what the guest is asked: Triton's part in what is built, nvcc's in its builder."""
        recipe, is_final = self.plan.recipe, kind == "triton"
        return Request(
            read=is_final and self.engine.name == "docker",
            compile=CompileRequest(
                target=recipe.sm,
                arch_list=recipe.torch_cuda_arch_list,
                root=self.engine.seen("kernels", staged),
                kernels=tuple(k for k in self.plan.kernels if k.kind == kind),
                imports=tuple(e.name for e in self.plan.extensions) if is_final else (),
                cache=f"{self.engine.scratch}/envcheck",
                parallel=parallel(),
            ),
        )

    def ask(self, built: Built, kind: str, staged: Path) -> Collected:
        """Run the guest once."""
        answer = self.engine.run_guest(
            built.reference,
            self.request(kind, staged),
            limits=LIMITS,
            folders={"kernels": staged},
        )
        self.seconds[kind] = answer.seconds
        return codec.loads(Collected, answer.document, name=f"inventory of {built.reference}")

    def execute(self, final: Built, builder: Built | None, wish: Wish) -> Executed | None:
        """Run everything on the card that is here: CUDA kernels where they can be built."""
        self.watch.phase(f"running on {wish.target.card}")
        parts = tuple(p for p in wish.parts if p != "cuda")
        done = self.run(final, replace(wish, parts=parts)) if parts else None
        if builder is None or "cuda" not in wish.parts:
            return done
        more = self.run(builder, replace(wish, parts=("cuda",)), compiling=True)
        if done is None or more is None:
            return done or more
        return replace(
            done,
            parts=(*done.parts, *more.parts),
            seconds=done.seconds + more.seconds,
            runs=(*done.runs, *more.runs),
            groups=(*done.groups, *more.groups),
        )

    def run(self, built: Built, wish: Wish, *, compiling: bool = False) -> Executed | None:
        """Run the guest once with the card, for its part in executing alone."""
        with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
            folders = wish.stage(Path(folder))
            cache = f"{self.engine.scratch}/envcheck"
            request = wish.request(folders, self.engine.seen, cache=cache, read=False)
            request = request if compiling else replace(request, compile=None)
            limits = replace(LIMITS, gpus=wish.gpus)
            answer = self.engine.run_guest(built.reference, request, limits=limits, folders=folders)
        name = "+".join(wish.parts)
        self.seconds[f"run {name}"] = answer.seconds
        seen = codec.loads(Collected, answer.document, name=f"what ran in {built.reference}")
        return seen.executed

    def content(self, built: Built) -> Content:
        """Read everything that was built."""
        self.watch.phase("reading everything for the content digest")
        start = time.monotonic()
        content = self.engine.content(built.reference)
        self.seconds["content"] = self.seconds.get("content", 0) + time.monotonic() - start
        return content

    def merge(
        self, seen: Compiled | None, built: Compiled | None, builder: Built | None
    ) -> Compiled | None:
        """Put together what was compiled in the environment and in its builder."""
        if seen is None:
            return None
        results: tuple[Result, ...] = ()
        if builder is not None and self.plan.extensions:
            path = f"{self.engine.toolchain}/extensions.json"
            document = self.engine.read_file(builder.reference, path)
            results = extension_results.read(document, path)
        merged = replace(
            seen,
            extensions=extension_results.join(self.plan.extensions, results, seen.extensions),
            kernels={kernel.name: kernel.digest for kernel in self.plan.kernels},
        )
        if built is None:
            return replace(merged, cuda=_NO_NVCC)
        probed = {(p.path, p.target) for p in seen.assemblers}
        more = tuple(p for p in built.assemblers if (p.path, p.target) not in probed)
        worse = seen if built.outcome.ok else built
        return replace(
            merged,
            cuda=built.cuda,
            assemblers=seen.assemblers + more,
            outcome=worse.outcome,
            message=worse.message,
        )


def _files(seen: Collected) -> tuple[DeviceFile, ...]:
    """Return the files that the guest read, or read them here where it only says where they lie."""
    return seen.files or tuple(read_place(p.absolute, p.path, inflate) for p in seen.places)


def _rebuilt(first: Content, second: Content) -> Rebuilt:
    differing = list(content_digest.differences(first, second))
    return Rebuilt(
        first=first.digest,
        differing=len(differing),
        differences=tuple(f"{d.path}: {d.reason}" for d in differing[:_SHOWN_DIFFERENCES]),
    )


def _named(inventory: Inventory, engine: Engine, plan: Plan, facts: ImageFacts) -> Inventory:
    """Say which image the facts are about, by the name that it has now."""
    environment = inventory.environment
    if environment is None or engine.name != "docker":
        return inventory
    reference = f"envcheck-{plan.recipe.target}:latest"
    named: Environment = replace(environment, image=image(reference, facts))
    return replace(inventory, environment=named)


def image(reference: str, facts: ImageFacts) -> Image:
    """Return what a report says of an image."""
    return Image(
        reference=reference,
        id=facts.id,
        digests=facts.digests,
        labels=facts.labels,
        variables={k: v for k, v in facts.variables.items() if k in OF_AN_IMAGE},
    )
