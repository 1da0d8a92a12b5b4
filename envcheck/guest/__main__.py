"""The guest: run by path, with the interpreter of the environment that is looked at.

    python -E -S -B guest/__main__.py CONTROL

CONTROL is a folder. The host writes CONTROL/request.json: {"schema":
"envcheck/request/v1", "read": false, "compile": null, "execute": null, "cards": false}, where
`read` has the guest read device code too, `compile` says what to compile and import, `execute`
what to run on a card, and `cards` has it ask the driver for its cards. The guest writes
CONTROL/inventory.json and exits 0 whenever it did; any other exit is a crash. It never speaks
on stdout: what stands there or on stderr is evidence, not an answer.

It is started without `site`, so no code of the environment runs: no `.pth` line, no
`sitecustomize`. While it works, `sys.path` holds the bundle and the standard library alone;
the environment's own is worked out, so nothing of it can be imported, not even a module that
has the name of one of the standard library. Where something is to be compiled or executed, the
environment does run, though in other processes (inside.py), while it is looked at.
"""

from __future__ import annotations

import os
import sys


def main(control: str) -> None:
    """Read the request, observe, write the answer."""
    here = os.path.dirname(os.path.abspath(__file__))
    library = _standard_library()
    sys.path[:] = [os.path.dirname(os.path.dirname(here)), *library]
    import json  # noqa: PLC0415 - not before sys.path is safe, nor are the others
    from dataclasses import replace  # noqa: PLC0415

    from envcheck.core import codec  # noqa: PLC0415
    from envcheck.core.request import REQUEST_SCHEMA, Collected, Request  # noqa: PLC0415
    from envcheck.guest import site_paths  # noqa: PLC0415
    from envcheck.guest.collect import collect  # noqa: PLC0415

    with open(os.path.join(control, "request.json"), encoding="utf-8") as handle:
        asked = json.load(handle)
    if asked.get("schema") != REQUEST_SCHEMA:
        message = f"unknown request schema: {asked.get('schema')!r}"
        raise SystemExit(message)
    request = codec.from_json(Request, asked, "request")
    told = None
    if request.cards:
        from envcheck.guest import cards  # noqa: PLC0415

        told = cards.look()

    def look() -> Collected:
        return replace(collect(site_paths.job_path(library), read=request.read), cards=told)

    if request.compile is not None or request.execute is not None:
        from envcheck.guest.working import work  # noqa: PLC0415

        collected = work(control, request, look)
    else:
        collected = look()
    text = codec.dumps(collected)
    partial = os.path.join(control, "inventory.json.partial")
    # A file name in another encoding comes out as the JSON escape of its lone surrogates.
    with open(partial, "w", encoding="utf-8", errors="backslashreplace") as handle:
        handle.write(text)
    os.replace(partial, os.path.join(control, "inventory.json"))


def _standard_library() -> list[str]:
    folder = os.path.dirname(os.path.abspath(os.__file__))
    names = ("lib-dynload", f"python{sys.version_info[0]}{sys.version_info[1]}.zip")
    return [p for p in sys.path if os.path.basename(p) in names or os.path.abspath(p) == folder]


if __name__ == "__main__":
    main(sys.argv[1])
