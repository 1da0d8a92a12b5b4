"""Commands that look at files, environments and saved facts, and judge them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from envcheck import document
from envcheck.commands.documents import save
from envcheck.commands.judging import answer, judged
from envcheck.commands.sealing import load_key, now, seal
from envcheck.core import codec
from envcheck.core.model import INVENTORY_SCHEMA, Inventory
from envcheck.errors import DocumentInvalid, UsageError

if TYPE_CHECKING:
    from envcheck.asking import Wish


def scan(options: argparse.Namespace) -> int:
    """Judge files by their bytes."""
    from envcheck import pipeline
    from envcheck.output.progress import bar

    with bar(quiet=options.quiet) as shown:
        if shown.shown:
            shown.announce(pipeline.total_size(options.paths))
        inventory = pipeline.scan(options.paths, shown.step)
    save(options, inventory)
    return answer(options, judged(options, inventory))


def check(options: argparse.Namespace) -> int:
    """Judge the environment of an interpreter, and seal the manifest when asked to."""
    key = load_key(options)
    from envcheck import pipeline
    from envcheck.output.progress import bar

    started, wish = now(), _wish(options)
    with bar(quiet=options.quiet) as shown:
        if options.image is not None:
            inventory = pipeline.collect_image(
                options.image, lambda name: shown.step(name, 0), wish
            )
        else:
            python = sys.executable if options.python is None else options.python
            inventory = pipeline.collect(python, shown.step, shown.announce, wish)
    save(options, inventory)
    reports = judged(options, inventory)
    if key is not None:
        for report in reports:
            seal(options, inventory, report, key, started)
    return answer(options, reports)


def _wish(options: argparse.Namespace) -> Wish | None:
    """Return what is to be run on the card that is here; None where nobody asked for that."""
    from envcheck import choosing

    asked = choosing.chosen(options.only, options.skip)
    target = next((t for t in options.arch if t.card is not None), None)
    if target is None:
        given = {"--gpus": options.gpus, "--budget": options.budget}
        for name, value in given.items():
            if value is not None:
                message = f"{name} is about what is run on a card, and nothing is"
                raise UsageError(message, remedy="--arch native runs on the card that is here")
        return None
    if options.image is None and options.gpus is not None:
        message = "--gpus names cards of a container, and there is none"
        raise UsageError(message, remedy="CUDA_VISIBLE_DEVICES names cards of this machine")
    parts = choosing.parts(asked)
    if not parts or (options.image is not None and options.gpus is None):
        return None
    from envcheck import asking

    return asking.of_settings(
        options.settings,
        target,
        parts=parts,
        budget=options.budget or asking.BUDGET,
        seed=options.seed,
        gpus=options.gpus or "all",
    )


def judge(options: argparse.Namespace) -> int:
    """Judge a saved inventory again."""
    name = str(options.inventory)
    data = codec.parse(document.read(options.inventory), name=name)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != INVENTORY_SCHEMA:
        message = (
            f"{name}.schema: {schema!r} is not {INVENTORY_SCHEMA!r}, which is all that is read"
        )
        raise DocumentInvalid(message, remedy="--save-inventory FILE of this version writes one")
    return answer(options, judged(options, codec.from_json(Inventory, data, name)))
