"""The guest: run by path, with the interpreter of the environment that is looked at.

    python guest/__main__.py CONTROL

CONTROL is a folder. The host writes CONTROL/request.json: {"schema":
"envcheck/request/v1", "collect": true}. The guest writes CONTROL/inventory.json and exits
0 whenever it did; any other exit is a crash. It never speaks on stdout: what stands there
or on stderr is evidence, not an answer. The folder it was started from is taken off
`sys.path` once its own modules are loaded, so that it shadows nothing.
"""

from __future__ import annotations

import json
import os
import sys


def main(control: str) -> None:
    """Read the request, observe, write the answer."""
    bundle = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path[0] = bundle
    from envcheck.core import codec  # noqa: PLC0415 - the bundle is on sys.path only now
    from envcheck.guest.collect import collect  # noqa: PLC0415

    del sys.path[0]
    with open(os.path.join(control, "request.json"), encoding="utf-8") as handle:
        request = json.load(handle)
    if request.get("schema") != "envcheck/request/v1":
        message = f"unknown request schema: {request.get('schema')!r}"
        raise SystemExit(message)
    text = codec.dumps(collect())
    partial = os.path.join(control, "inventory.json.partial")
    with open(partial, "w", encoding="utf-8") as handle:
        handle.write(text)
    os.replace(partial, os.path.join(control, "inventory.json"))


if __name__ == "__main__":
    main(sys.argv[1])
