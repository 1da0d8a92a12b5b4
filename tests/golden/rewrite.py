#!/usr/bin/env python3
"""Write the kept documents of every case anew, after a change that is meant to change them.

    python tests/golden/rewrite.py

Look at the difference before it is committed: that is what the files are for.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]


def main() -> None:
    from golden.cases import CASES

    for name, case in CASES.items():
        (HERE / name).mkdir(exist_ok=True)
        for file, text in case.documents().items():
            (HERE / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
