"""`envcheck build`: build an environment for an architecture, verify it inside, leave a manifest."""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck.commands.documents import require_writable, save
from envcheck.commands.judging import answer, driver
from envcheck.commands.sealing import load_key, now, seal
from envcheck.core.model import Report, Target
from envcheck.errors import EnvcheckError, FileUnavailable, UsageError

if TYPE_CHECKING:
    from envcheck.asking import Wish
    from envcheck.building import Made
    from envcheck.config import Config
    from envcheck.output.building import Shown
    from envcheck.plan import Plan
    from envcheck.sign import SigningKey


def build(options: argparse.Namespace) -> int:
    """Build and verify for each architecture; the exit code is that of the worst."""
    settings = _settings(options)
    options.arch = list({t.name: t for t in options.arch}.values())
    _require_folder(options)
    key = load_key(options)
    for path in (options.output, options.save_inventory, options.log):
        require_writable(path)
    from envcheck.output import building as output

    with output.build(quiet=options.quiet) as shown, tempfile.TemporaryDirectory() as work:
        reports: list[Report] = []
        try:
            reports.extend(
                _one(options, settings, target, key, shown, Path(work)) for target in options.arch
            )
        except EnvcheckError:
            if reports:
                answer(options, reports)  # what was verified before counts
            raise
    return answer(options, reports)


def _settings(options: argparse.Namespace) -> Config:
    """Put what the command line says about the build over the configuration."""
    from envcheck import config

    given = {
        name: value
        for name in ("base", "lock", "builder_lock", "pip_config", "ca_file", "network")
        if (value := getattr(options, name)) is not None
    }
    if options.base is not None:
        config.require_reference(options.base)
        if options.engine == "venv":
            message = "--base names an image, and --engine venv uses none"
            raise UsageError(message, remedy="leave one of them out; --python names an interpreter")
    if "lock" in given:
        given["requirements"] = None
    settings: Config = options.settings
    return replace(settings, **given)


def _require_folder(options: argparse.Namespace) -> None:
    """Make the folder for the facts of several architectures, each of which has its own."""
    path: Path | None = options.save_inventory
    if path is None or len(options.arch) == 1 or path.is_dir():
        return
    if path.exists() or path.suffix:
        message = f"{path}: with several --arch, --save-inventory must be a folder"
        raise UsageError(message, remedy="--save-inventory inventories/")
    path.mkdir(parents=True)


def _one(
    options: argparse.Namespace,
    settings: Config,
    target: Target,
    key: SigningKey | None,
    shown: Shown,
    work: Path,
) -> Report:
    """Build for one target, judge what came of it, and write what is asked for."""
    from envcheck import building, choosing, remembered
    from envcheck.engine import choice
    from envcheck.judge import judge
    from envcheck.plan import plan

    started, start = now(), time.monotonic()
    (work / target.name).mkdir()
    planned = plan(target, settings, work / target.name)
    planned = replace(planned, recipe=replace(planned.recipe, no_cache=options.no_cache))
    name = planned.recipe.target
    folder: Path = options.directory / name
    log: Path = options.log or remembered.cache_folder() / "logs" / f"{name}.log"
    if options.log is not None and len(options.arch) > 1:
        log = log.with_name(f"{log.stem}.{name}{log.suffix}")
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{log}: the log cannot be written: {error.strerror}"
        raise FileUnavailable(message, remedy="--log FILE") from None
    engine = choice.choose(
        options.engine,
        builder=options.builder,
        folder=folder,
        python=options.python,
        note=shown.note,
    )
    wish = _wish(options, settings, planned, shown)
    watch = building.Watch(step=shown.step, phase=lambda text: shown.phase(f"{name}: {text}"))
    with closing(engine):
        made = building.build(
            engine, planned, log=log, watch=watch, twice=options.check_reproducible, wish=wish
        )
    judging = time.monotonic()
    report = judge(
        target,
        made.inventory,
        driver(options, target, made.inventory),
        require=options.require,
        asked=choosing.chosen(options.only, options.skip),
    )
    made.seconds["judge"] = time.monotonic() - judging
    _tell(shown, name, made, time.monotonic() - start)
    save(options, made.inventory, target.name)
    if key is not None:
        seal(options, made.inventory, report, key, started)
    return report


def _wish(
    options: argparse.Namespace, settings: Config, planned: Plan, shown: Shown
) -> Wish | None:
    """Return what is run on the card that is here, where it is one of the target."""
    from envcheck import asking, choosing, native

    target, card = planned.target, native.card()
    parts = choosing.parts(choosing.chosen(options.only, options.skip))
    if card is None or not parts:
        return None
    if card.sm != target.sm:
        text = f"the card here is {card.name} ({card.sm}): what it does says nothing about"
        shown.note(f"{target.name}: {text} {target.sm}, so nothing is run")
        return None
    return asking.Wish(
        target=replace(target, card=card.name),
        parts=parts,
        budget=options.budget or asking.BUDGET,
        seed=options.seed,
        kernels=planned.kernels,
        kernel_folders=planned.kernel_folders,
        extensions=planned.extensions,
        sizes=settings.sizes,
    )


def _tell(shown: Shown, name: str, made: Made, seconds: float) -> None:
    """Say what there is now, how long it took, and where its log lies."""
    from envcheck.output.building import spent

    environment = made.inventory.environment
    content = environment.content if environment is not None else None
    parts = "its facts are known from before" if made.known else spent(made.seconds)
    size = f"{made.size / 1e9:.2f} GB"
    shown.note(f"{name}: {made.reference} ({size}) in {seconds:.1f} s: {parts}")
    shown.note(f"{name}: content {content}; log: {made.log}")
