"""The guest of `envcheck guard`: run by path, with the interpreter that a job would use.

    python -E -S -B guest/present.py FD

It begins at once, so that it works while the host verifies the manifest: it reads the
distributions and asks for the card. Then it reads a PresentRequest as JSON from stdin, looks at
the files, and writes a Present as JSON to the descriptor FD. As in `envcheck.guest.__main__`
nothing of the environment is imported or run. It is not staged, which would cost a fifth of
the time that there is: the standard library comes first on its `sys.path`, and after it the
folder that envcheck lies in, of which it imports nothing else.
"""

from __future__ import annotations

import gc
import os
import sys


def main(descriptor: int) -> None:
    """Observe, read what is asked, answer."""
    gc.disable()  # nothing lives long enough here to be collected, and a job waits
    library = sys.path[1:]  # -E and -S leave this file's own folder, and the standard library
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [*library, os.path.dirname(os.path.dirname(here))]
    import json  # noqa: PLC0415 - not before sys.path is safe, nor are the others
    import platform  # noqa: PLC0415
    import sysconfig  # noqa: PLC0415

    from envcheck.core import codec  # noqa: PLC0415
    from envcheck.core.present import Present, PresentDistribution, PresentRequest  # noqa: PLC0415
    from envcheck.guest import (  # noqa: PLC0415
        cards,
        distributions,
        only_card,
        recorded_files,
        site_paths,
    )

    folders = site_paths.site_folders(site_paths.job_path(library))
    found = distributions.read_rows(folders)
    if any(one.distribution.direct_url is not None for one in found):
        from envcheck.guest import editable  # noqa: PLC0415 - reads Python, which takes its time

        folders = list(editable.roots(folders))
    only = only_card.look()
    told = cards.look() if only is None else None
    asked = codec.from_json(PresentRequest, json.loads(sys.stdin.readline()), "request")
    compared = recorded_files.compare(found, since=asked.since, deep=asked.deep)
    answer = Present(
        python=platform.python_version(),
        implementation=sys.implementation.name,
        platform=sysconfig.get_platform(),
        libc=" ".join(platform.libc_ver()).strip() or "unknown",
        digest=distributions.environment_digest(one.distribution for one in found),
        distributions=tuple(
            PresentDistribution(name=d.name, version=d.version, record_digest=d.record_digest)
            for d, _, _ in found
        ),
        sizes={path: recorded_files.size_below(folders, path) for path in asked.files},
        sized=compared.sized,
        hashed=compared.hashed,
        differing=compared.differing,
        only=only,
        cards=told,
    )
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(codec.dumps(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]))
