"""Every extension finds its libraries, and in them every symbol that it wants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from envcheck.checks import commands, pins, torch_family_commands
from envcheck.checks import linking_words as words
from envcheck.checks.check import Check, Question
from envcheck.checks.remedies import owner
from envcheck.core.linking import MissingLibrary, Opened, Unresolved
from envcheck.core.model import Finding, Json, Status

# One of several builds in a package, of which it loads the one for the CUDA that is there.
_VARIANT = re.compile(r"cu(?:da)?_?1\d")
# Of which the releases pin their PyTorch, and a build takes hours.
_FROM_WHEELS = ("vllm",)


def _run(question: Question) -> Iterator[Finding]:
    linked = question.inventory.linked
    if linked is None or linked.skipped:
        reason = linked.skipped if linked is not None else words.NO_ENVIRONMENT
        yield CHECK.skip("symbols", reason)
        return
    groups: dict[tuple[str, str], list[Finding]] = {}
    optional = []
    for opened in linked.files:
        finding = _judge(question, opened)
        if finding is None:
            optional.append(opened)
        else:
            key = (words.whose(opened.path, question), _kind(finding))
            groups.setdefault(key, []).append(finding)
    faults = [_merged(alike) for alike in groups.values()]
    yield from faults
    yield from _optional(question, optional)
    if not any(f.status == Status.FAIL for f in faults):
        message = (
            f"{linked.symbols} symbols of {linked.looked_at} files looked up: each is found where "
            "the loader looks"
        )
        status = Status.PASS if linked.looked_at else Status.SKIP
        message = message if linked.looked_at else "there are no compiled files"
        yield CHECK.finding("symbols", status, message, required=linked.looked_at > 0)


def _kind(finding: Finding) -> str:
    """Return what a finding has in common with others of its package: the cause, not the names."""
    return finding.message.partition(": ")[2].partition(":")[0].partition(",")[0][:40]


def _merged(alike: list[Finding]) -> Finding:
    """Return one finding for all files of a package that fail for the same cause."""
    first = alike[0]
    if len(alike) == 1:
        return first
    paths = tuple(finding.subject for finding in alike)
    return replace(
        first,
        message=f"{first.message}; likewise {len(alike) - 1} other file(s) of the package",
        evidence={**first.evidence, "files": paths},
    )


def _judge(question: Question, opened: Opened) -> Finding | None:
    """Return what is wrong with one file; None where that only is so when nothing loads it."""
    evidence: dict[str, Json] = {
        "symbols": tuple(s.name for s in opened.symbols),
        "near": tuple(s.near for s in opened.symbols),
        "symbol_count": opened.symbol_count,
        "libraries": tuple(library.name for library in opened.libraries),
    }
    who = words.whose(opened.path, question)
    if opened.refused:
        required = opened.imported is not False and opened.module
        status = Status.FAIL if required else Status.WARN
        message = f"{who}: the loader refuses it: {opened.refused}"
        remedy = _put_back(opened.path, question)
        return CHECK.finding(
            opened.path, status, message, remedy=remedy, required=required, evidence=evidence
        )
    lacking = words.lacking(opened)
    variant = _VARIANT.search(opened.path.rpartition("/")[2]) is not None
    torchs = opened.torch and not variant
    other = next((lib for lib in lacking if torchs and lib.others), None)
    symbol = words.first_of(opened.symbols)
    version = next((v for v in opened.versions if not words.is_libc(v.library)), None)
    stopped = next(filter(words.is_end, opened.libraries), None)
    if stopped is not None and (opened.torch or (opened.module and opened.imported)):
        message, remedy = words.end(opened, stopped), _put_back(stopped.refused, question)
    elif symbol is not None and _decides(opened):
        message, remedy = _symbol(question, opened, symbol)
    elif version is not None and _decides(opened):
        message = f"wants {version.name} of {version.library}, and {version.found} does not have it"
        remedy = _reinstall(question, opened)
    elif other is not None:
        message = f"built for another CUDA: needs {other.name}, and here is {other.others[0]}"
        remedy = _reinstall(question, opened)
    elif lacking and opened.module and opened.imported:
        if all(map(words.in_other_package, lacking)):
            return _brought(opened, lacking, who)
        message, remedy = _library(question, opened, lacking)
    else:
        return None
    if lacking and symbol is not None and words.clash(symbol):
        message += f"; it also needs {lacking[0].name}, which is not there"
    return CHECK.finding(
        opened.path, Status.FAIL, f"{who}: {message}", remedy=remedy, evidence=evidence
    )


def _put_back(path: str, question: Question) -> str:
    """Say how a whole file comes where a damaged one is, or how to get that out of the way."""
    package = owner(path, question)
    linked = question.inventory.linked
    folder = path.rpartition("/")[0]
    if package:
        return commands.again(package, question)
    if linked is not None and folder in (p.rstrip("/") for p in linked.library_path):
        return f"take {folder} off LD_LIBRARY_PATH"
    return f"remove {path}, which no distribution owns, or put a whole one there"


def _brought(opened: Opened, lacking: list[MissingLibrary], who: str) -> Finding | None:
    """Say that a module works only where something has loaded a library of NVIDIA's before.

    Of other packages' libraries it is known that they are opened before: that is how packages
    of libraries work that do not lie where the loader looks.
    """
    first = lacking[0]
    if not first.elsewhere[0].startswith("nvidia/"):
        return None
    message = f"needs {first.name}, which is only found once something has loaded "
    return CHECK.finding(
        opened.path,
        Status.WARN,
        f"{who}: {message}{first.elsewhere[0]}",
        remedy="import first what loads it, such as torch",
        required=False,
        evidence={"libraries": tuple(library.name for library in lacking)},
    )


def _decides(opened: Opened) -> bool:
    """Say whether what a file lacks can be held against the environment.

    Libraries that are neither modules nor PyTorch's clients may be loaded by programs that
    bring the rest, and of PyTorch's own what `import torch` loads is what counts.
    """
    if opened.path.startswith("torch/"):
        return opened.path.startswith("torch/_C")
    return opened.torch or (opened.module and opened.imported is not False)


def _symbol(question: Question, opened: Opened, symbol: Unresolved) -> tuple[str, str]:
    environment = question.inventory.environment
    torch = environment.torch if environment is not None else None
    here = f"torch {torch.version}" if torch is not None else "the PyTorch here"
    name, by = words.demangled(symbol.name), ""
    if symbol.by != opened.path:
        by = f" (wanted by {symbol.by})"
    more = f" (and {opened.symbol_count - 1} more)" if opened.symbol_count > 1 else ""
    kind = words.clash(symbol)
    near = words.demangled(symbol.near) if symbol.near is not None else ""
    undefined = f"undefined symbol {name}{more}"
    copy = words.from_variable(question.inventory.linked, symbol, commands.library_of(symbol.name))
    mend = _shadow(question, symbol) or _reinstall(question, opened)
    if kind in ("old", "new"):
        mine, other = ("old", "new") if kind == "old" else ("new", "old")
        what = (
            f"C++11 ABI clash: built for the {mine} one, and {symbol.near_in} has the {other} one"
        )
        return f"{what}: {undefined}, there is {near}{by}", mend
    if copy is not None:
        return f"{undefined}: {copy.path} does not have it{by}", mend
    if kind == "other":
        torchs = words.is_torchs(symbol.name)
        of = f"against another PyTorch than {here}" if torchs else f"for another {symbol.near_in}"
        return f"built {of}: {undefined}, there is {near}{by}", mend
    if owner(opened.path, question) == "torch" and not _shadow(question, symbol):
        # No build of its own clashes with itself.
        if brings := commands.for_torchs_symbol(symbol.name, question):
            that = symbol.near_in or commands.library_of(symbol.name)
            message = f"the {that} that is loaded is not the one that {here} was built with"
            return f"{message}: {undefined}{by}", brings
        message = f"its files do not fit together: {undefined}{by}"
        return f"{message}; one is damaged, or of another release", mend
    if words.is_torchs(symbol.name):
        return f"built against another PyTorch than {here}: {undefined}{by}", mend
    if words.is_pythons(symbol.name):
        python = environment.python if environment is not None else ""
        return f"built for another Python than {python}: {undefined}{by}", mend
    if symbol.near_in is not None:
        return f"{undefined}: {symbol.near_in} does not have it{by}", mend
    return f"{undefined}: no library that it loads has it{by}", mend


def _shadow(question: Question, symbol: Unresolved) -> str:
    """Say how to get rid of a copy that a variable brings in."""
    linked = question.inventory.linked
    if choice := words.from_variable(linked, symbol, commands.library_of(symbol.name)):
        return f"unset {choice.how}"
    paths = linked.library_path if linked is not None else ()
    near = symbol.near_in or ""
    inside = near.startswith("/") and any(near.startswith(p.rstrip("/") + "/") for p in paths)
    return "unset LD_LIBRARY_PATH" if inside else ""


def _library(question: Question, opened: Opened, lacking: list[MissingLibrary]) -> tuple[str, str]:
    # One that is nowhere says more than one that the loader only does not see.
    first = next((lib for lib in lacking if not lib.elsewhere), lacking[0])
    more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
    by = f" (needed by {first.by})" if first.by != opened.path else ""
    if first.elsewhere:
        where = f"it is in {first.elsewhere[0]}, where the loader does not look"
        folder = first.elsewhere[0].rpartition("/")[0]
        return f"needs {first.name}{more}: {where}{by}", (
            f"put the folder {folder} into LD_LIBRARY_PATH, or import first what loads it"
        )
    package = owner(opened.path, question)
    remedy = f"install what has {first.name}"
    torchs = [lib for lib in lacking if "torch" in (package, owner(lib.by, question))]
    brings = dict.fromkeys(commands.for_torchs_library(lib.name, question) for lib in torchs)
    if first in torchs and "" not in brings:
        remedy = "; ".join(brings)
    elif package:
        remedy = f"pip install --upgrade --force-reinstall {package}, or {remedy}"
    return f"needs {first.name}{more}, which is not there{by}", remedy


def _reinstall(question: Question, opened: Opened) -> str:
    package = owner(opened.path, question)
    if not package:
        return "build it again in this environment"
    if package == "torch":
        return commands.again(package, question)
    environment = question.inventory.environment
    if package in pins.FAMILY and environment is not None:
        return torch_family_commands.of_torch(package, environment)
    if package in _FROM_WHEELS:
        return f"pip install --upgrade --force-reinstall {package}"
    return torch_family_commands.build(package)


def _optional(question: Question, files: list[Opened]) -> Iterator[Finding]:
    """Say for each distribution which of its files nothing here could load, and no more."""
    groups: dict[str, list[Opened]] = {}
    for opened in files:
        if words.lacking(opened) or opened.symbols:
            groups.setdefault(words.whose(opened.path, question), []).append(opened)
    for who, every in groups.items():
        names = dict.fromkeys(lib.name for opened in every for lib in words.lacking(opened))
        named = ", ".join(list(names)[:4]) + (", ..." if len(names) > 4 else "")
        what = f"for want of {named}" if names else "by themselves"
        message = (
            f"{len(every)} file(s) could not be loaded {what}; nothing imports them unconditionally"
        )
        yield CHECK.finding(
            who,
            Status.SKIP,
            message,
            required=False,
            evidence={"files": tuple(opened.path for opened in every)},
        )


CHECK = Check(
    id="extension-symbols-resolve",
    claim="Each extension finds its libraries, and in them every symbol that it wants.",
    how=(
        "Works out from the bytes which libraries the loader would map for each compiled file, in "
        "its own order, after `import torch` for those that need PyTorch, and looks up every "
        "symbol there. Finds extensions built for the other C++11 ABI, against another PyTorch or "
        "for another CUDA, and libraries replaced by older copies: they end in an ImportError or "
        "`undefined symbol`. Nothing is imported. The driver's libraries are the host's and are "
        "not missed (classes C1 and D3)."
    ),
    classes=("C1", "D3"),
    remedy="Install the extension's build for this PyTorch and CUDA, or build it here.",
    run=_run,
)
