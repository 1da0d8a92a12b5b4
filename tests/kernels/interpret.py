"""Run kernels through Triton's interpreter, on the CPU, and compare them with their references.

    interpret.py CASES ANSWERS

CASES is a JSON list of [name, kernel, dtype, index of the configuration, shape, pattern];
ANSWERS becomes a JSON object of {name: {output: worst element in units of its bound}}, with
a text instead where the interpreter failed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2]))

from envcheck import catalog
from envcheck.guest import kernels
from envcheck.guest.operands import Operands, difference


def main(cases: str, answers: str) -> None:
    """Run every case; one that fails does not hide the others."""
    root = catalog.shipped()
    described = {k.name: k for k in catalog.load_all([root])}
    modules = {name: kernels.load(name, str(root)) for name in described}
    found = {}
    for name, kernel, dtype, index, shape, pattern in json.loads(Path(cases).read_text()):
        config = described[kernel].configs[index].values
        rule = described[kernel].dtypes[dtype].tolerance
        module = modules[kernel]
        draw = Operands(dtype, seed=7, pattern=pattern, device="cpu")
        try:
            operands = module.inputs(shape, config, draw)
            outputs = module.launch(operands, config)
            expected = module.reference(operands, config)
            found[name] = {
                output: difference(outputs[output], expected[output], rule).worst
                for output in expected
            }
        except Exception as error:  # noqa: BLE001 - every case gets its answer
            found[name] = f"{type(error).__name__}: {error}"
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
