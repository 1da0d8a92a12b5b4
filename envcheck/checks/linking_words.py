"""What the checks of linking have in common: names as people read them, and whose fault it is."""

from __future__ import annotations

from collections.abc import Iterable

from envcheck.checks.check import Question
from envcheck.checks.remedies import owner
from envcheck.core.linking import Choice, Linked, MissingLibrary, Opened, Unresolved

# What the driver brings: installed with it (its README, chapter "Installed Components"), and
# mounted into containers from the host. An image without them is whole.
DRIVER = (
    *("libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so", "libnvidia-nvvm.so"),
    *("libnvcuvid.so", "libnvidia-encode.so", "libnvidia-opticalflow.so", "libnvoptix.so"),
    *("libnvidia-opencl.so", "libnvidia-fbc.so", "libnvidia-cfg.so", "libcudadebugger.so"),
)
LIBC = ("libc.so", "libm.so", "libstdc++.so", "libgomp.so", "libgcc_s.so", "ld-linux")
NO_ENVIRONMENT = "only an environment is looked at so"
"""Why files alone are not judged by these checks."""
_MAX_NAME = 1024
_SHOWN = 120
# A name is any bytes that a file holds, and the parser promises nothing about those.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def is_drivers(name: str) -> bool:
    """Say whether a library comes with the driver, and so from the host."""
    return name.startswith(DRIVER)


def is_libc(name: str) -> bool:
    """Say whether a library belongs to libc or to the compiler's run time."""
    return name.startswith(LIBC)


def of_same_package(opened: Opened, library: MissingLibrary) -> bool:
    """Say whether the package brings a library itself, where only it looks."""
    top = opened.path.partition("/")[0]
    return any(path.partition("/")[0] == top for path in library.elsewhere)


def is_end(library: MissingLibrary) -> bool:
    """Say whether the loader ends at a damaged file that nothing loaded before makes good.

    Where the sound file lies where the loader does not look, the package opens it by itself
    before. An engine leaves empty files where it mounts the driver's.
    """
    if not library.refused or (is_drivers(library.name) and library.reason.endswith("too short")):
        return False
    known = library.refused in library.elsewhere or library.behind or not library.elsewhere
    return bool(known)


def end(opened: Opened, library: MissingLibrary) -> str:
    """Say at which file the loader ends, and what for."""
    problem = library.reason.partition(": ")[2]
    by = f" (needed by {library.by})" if library.by != opened.path else ""
    rest = f", and does not come to {library.behind}" if library.behind else ""
    return f"{library.refused} is damaged: {problem}; the loader ends there{rest}{by}"


def lacking(opened: Opened) -> list[MissingLibrary]:
    """Return the libraries that neither the driver nor the package itself brings."""
    return [
        library
        for library in opened.libraries
        if not is_drivers(library.name) and not of_same_package(opened, library)
    ]


def in_other_package(library: MissingLibrary) -> bool:
    """Say whether the environment has a library where only those who know of it look."""
    return bool(library.elsewhere) and not library.reason


def whose(path: str, question: Question) -> str:
    """Return the distribution that a file belongs to, with its version; its folder else."""
    name = owner(path, question)
    environment = question.inventory.environment
    for distribution in environment.distributions if environment is not None else ():
        if distribution.name == name:
            return f"{name} {distribution.version}"
    return path.partition("/")[0]


def demangled(name: str) -> str:
    """Return a C++ name as its source has it, the mangled one where it cannot be read."""
    from itanium_demangler import parse

    if not name.startswith("_Z") or len(name) > _MAX_NAME:
        return _short(name)
    try:
        read = parse(name)
    except _UNREADABLE:
        return _short(name)
    return _short(str(read)) if read is not None else _short(name)


def _short(text: str) -> str:
    text = "".join(c if c.isprintable() else "?" for c in text)
    plain = text.replace(
        "std::__cxx11::basic_string<char, std::char_traits<char>, ", "std::string<"
    )
    plain = plain.replace("std::string<std::allocator<char> >", "std::__cxx11::string")
    plain = plain.replace("std::string<std::allocator<char>>", "std::__cxx11::string")
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 3] + "..."


def clash(symbol: Unresolved) -> str:
    """Name what two names that differ in their arguments alone differ in.

    `old` where the file has std::string as it was before C++11 and the library has the new
    one, `new` for the reverse, `other` for anything else, empty without a near name.
    """
    if symbol.near is None or symbol.near == symbol.name:
        return ""
    mine, theirs = (_is_cxx11(name) for name in (symbol.name, symbol.near))
    if mine != theirs:
        return "new" if mine else "old"
    return "other"


def _is_cxx11(name: str) -> bool:
    return "__cxx11" in name or "B5cxx11" in name


def is_torchs(name: str) -> bool:
    """Say whether a symbol can only come from PyTorch's libraries."""
    nested = name.startswith("_Z") and any(part in name[:24] for part in ("3c10", "2at", "5torch"))
    return nested or name.startswith(("aoti_torch_", "torch_", "THPVariable"))


def is_pythons(name: str) -> bool:
    """Say whether a symbol can only come from the interpreter."""
    return name.startswith(("Py", "_Py")) and not name.startswith("PyInit_")


def from_variable(linked: Linked | None, symbol: Unresolved, library: str) -> Choice | None:
    """Return the copy that a variable brings of the library that ought to have a symbol.

    `library` is how its name begins, empty where only the copy that was looked in is known.
    """
    names: tuple[str, ...] = (f"{library}.so",) if library else ()
    if is_torchs(symbol.name):
        names = ("libtorch", "libc10")
    for choice in linked.choices if linked is not None else ():
        named = choice.torch and choice.name.startswith(names)
        if choice.how in ("LD_PRELOAD", "LD_LIBRARY_PATH") and (
            choice.path == symbol.near_in or (named and choice.path.startswith("/"))
        ):
            return choice
    return None


def first_of(symbols: Iterable[Unresolved]) -> Unresolved | None:
    """Return the symbol that says most: one that differs by the ABI, then by its arguments."""
    order = {"old": 0, "new": 0, "other": 1, "": 2}
    return min(symbols, key=lambda s: (order[clash(s)], len(s.name)), default=None)
