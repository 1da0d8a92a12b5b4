"""The sizes of a user's job: what an operation is run with before the catalogue's own."""

from __future__ import annotations

from envcheck import meant
from envcheck.core.request import Sizes
from envcheck.guest.ops.catalogue import OPS
from envcheck.toml_table import Table


def sizes(row: Table) -> Sizes:
    """Read `[[sizes]]`: `op`, perhaps `dtypes`, and the operation's own names.

    Raises UsageError.
    """
    op = row.text("op")
    known = {each.name: each for each in OPS}
    if op not in known:
        reason = f"there is no operation {op!r}{meant.question(op or '', known)}"
        near = meant.nearest(op or "", known) or "mm"
        row.refuse("op", reason, remedy=f'op = "{near}"')
    names = tuple(known[op].cases[0].sizes)
    row.require_known(("op", "dtypes", *names))
    for name in names:
        size = row.data.get(name)
        if type(size) is not int or size < 1:
            remedy = f"{op} takes {', '.join(names)}, each a positive number"
            row.refuse(name, f"{size!r} is no size", remedy=remedy)
    dtypes = row.texts("dtypes")
    for number, dtype in enumerate(dtypes):
        if dtype not in known[op].dtypes:
            reason = f"{op} has no {dtype!r}"
            row.refuse(f"dtypes[{number}]", reason, remedy=f"of {', '.join(known[op].dtypes)}")
    return Sizes(op=op, sizes={name: row.data[name] for name in names}, dtypes=dtypes)
