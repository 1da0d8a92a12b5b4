"""Commands that look at files, environments and saved facts, and judge them."""

from __future__ import annotations

import argparse
import sys

from envcheck.commands.documents import read_document, save
from envcheck.commands.judging import answer, judged
from envcheck.commands.sealing import load_key, now, seal
from envcheck.core import codec
from envcheck.core.model import INVENTORY_SCHEMA, Inventory
from envcheck.errors import DocumentInvalid


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

    started = now()
    with bar(quiet=options.quiet) as shown:
        if options.image is not None:
            inventory = pipeline.collect_image(options.image, lambda name: shown.step(name, 0))
        else:
            python = sys.executable if options.python is None else options.python
            inventory = pipeline.collect(python, shown.step, shown.announce)
    save(options, inventory)
    reports = judged(options, inventory)
    if key is not None:
        for report in reports:
            seal(options, inventory, report, key, started)
    return answer(options, reports)


def judge(options: argparse.Namespace) -> int:
    """Judge a saved inventory again."""
    name = str(options.inventory)
    data = codec.parse(read_document(options.inventory), name=name)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != INVENTORY_SCHEMA:
        message = (
            f"{name}.schema: {schema!r} is not {INVENTORY_SCHEMA!r}, which is all that is read"
        )
        raise DocumentInvalid(message, remedy="--save-inventory FILE of this version writes one")
    return answer(options, judged(options, codec.from_json(Inventory, data, name)))
