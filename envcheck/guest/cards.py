"""Which cards this process would see, asked of the driver in a child: it may hang or crash."""

from __future__ import annotations

import os

from envcheck.core import codec
from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverFacts
from envcheck.guest import driver, nodes, nvidia_module, trial, words

_SECONDS = 60


def look(library: str = driver.LIBRARY) -> Cards:
    """Return what the driver tells; never raises."""
    ended = trial.run(lambda: codec.to_json(driver.describe(library)), deadline=_SECONDS)
    told = ended.value if isinstance(ended.value, dict) else None
    return Cards(
        driver=codec.from_json(DriverFacts, told, "driver") if told is not None else None,
        said=words.reason(ended.outcome),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        nodes=nodes.nodes(),
        forbidden=nodes.forbidden(),
        module=nvidia_module.version(),
        in_container=any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))),
    )
