"""Where importing a package ends for want of a file of its own, by its import statements alone.

Only statements that run whatever happens are followed: those of a module's body, outside of `if`,
`with`, functions, classes, and of a `try` that goes on without. So what is found to end an import
does end it, and what a package imports in any other way is not found. Nothing is run.
"""

from __future__ import annotations

import ast
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from envcheck.guest.reading import open_regular

_MAX_MODULES = 4000
_MAX_SOURCE = 1 << 22
_CATCHES = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_Statements = Callable[[list[ast.stmt]], Iterator[ast.AST]]
_OWN = "."
"""Behind the name of a package: what its first file has to define, not its folder alone."""


def parse(path: str) -> ast.Module | None:
    """Return a file as this interpreter reads it; raises SyntaxError for what is no Python.

    None is what cannot be told: absent, unreadable, or too much for the parser.
    """
    try:
        with open_regular(path) as handle:
            source = handle.read(_MAX_SOURCE + 1) or b""
        if len(source) > _MAX_SOURCE:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError:
        raise
    except ValueError as error:  # NUL bytes, until Python 3.12
        raise SyntaxError(str(error)) from None
    except (OSError, RecursionError, MemoryError):
        return None


def end(folder: str, roots: list[str], broken: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the broken module that importing `roots` comes to, and the file that imports it.

    `broken` are paths below `folder` by the names of their modules. The file is empty where a
    root itself is broken. None is returned where no import is known to end.
    """
    package = _Package(folder, roots, broken)
    left = deque((root, "") for root in roots)
    seen = set(roots)
    while left and len(seen) < _MAX_MODULES:
        module, by = left.popleft()
        name = module.removesuffix(_OWN)
        if name in broken and (not by or name != module or not package.is_namespace(name)):
            return name, by
        for target in package.imports(module):
            if target not in seen:
                seen.add(target)
                left.append((target, package.path(module)))
    return None


def tried(folder: str, roots: list[str], broken: Mapping[str, str]) -> set[str]:
    """Return those broken modules that importing `roots` tries to import, and goes on without."""
    package = _Package(folder, roots, broken)
    certain = _reached(roots, package.imports)
    inside = {t for m in certain for t in package.imports(m, _attempted)} - certain
    beyond = _reached(sorted(inside), lambda module: package.imports(module, _anywhere))
    return (beyond - certain) & broken.keys()


def _reached(begin: list[str], onward: Callable[[str], Iterator[str]]) -> set[str]:
    left, seen = deque(begin), set(begin)
    while left and len(seen) < _MAX_MODULES:
        new = set(onward(left.popleft())) - seen
        seen |= new
        left += sorted(new)
    return seen


def _certain(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what runs whatever happens, in a `try` too that ends where an import in it does."""
    for node in body:
        yield node
        if isinstance(node, ast.Try) and not _goes_on(node):
            yield from _certain(node.body)


def _attempted(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what stands in a `try` that goes on without it."""
    for node in _anywhere(body):
        if isinstance(node, ast.Try) and _goes_on(node):
            yield from _anywhere(node.body)


def _anywhere(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield every statement that importing a module may run, in any block of it."""
    left: deque[ast.AST] = deque(body)
    while left:
        node = left.popleft()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            left += ast.iter_child_nodes(node)


def _goes_on(node: ast.Try) -> bool:
    """Say whether a `try` may catch that something cannot be imported, and not raise."""
    catching = (h for h in node.handlers if _CATCHES & _names(h.type))
    return any(not isinstance(handler.body[-1], ast.Raise) for handler in catching)


def _names(kind: ast.expr | None) -> set[str]:
    """Return the names of the exceptions that a handler catches."""
    if kind is None:
        return {"BaseException"}
    return {n.id for n in ast.walk(kind) if isinstance(n, ast.Name)} or {"BaseException"}


class _Package:
    """The modules below some roots, each read once."""

    def __init__(self, folder: str, roots: list[str], broken: Mapping[str, str]) -> None:
        self.folder, self.roots, self.broken = folder, tuple(roots), broken
        self.trees: dict[str, ast.Module | None] = {}
        self.bound: dict[str, tuple[set[str], set[str]]] = {}

    def path(self, module: str) -> str:
        """Return the source of a module, below the folder; empty where there is none."""
        base = module.replace(".", "/")
        both = (f"{base}/__init__.py", f"{base}.py")
        return next((p for p in both if os.path.isfile(os.path.join(self.folder, p))), "")

    def tree(self, module: str) -> ast.Module | None:
        if module not in self.trees:
            path = self.path(module)
            try:
                self.trees[module] = parse(os.path.join(self.folder, path)) if path else None
            except SyntaxError:
                self.trees[module] = None
        return self.trees[module]

    def is_namespace(self, module: str) -> bool:
        """Say whether a folder without a first file is imported, as one without names."""
        inside = os.path.join(self.folder, module.replace(".", "/"))
        return not self.path(module) and os.path.isdir(inside)

    def imports(self, module: str, statements: _Statements = _certain) -> Iterator[str]:
        """Yield the modules below the roots that some statements of one import."""
        tree = self.tree(module)
        for node in statements(tree.body) if tree is not None else ():
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._with_parents(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node, module)
                yield from self._with_parents(base)
                names = [alias.name for alias in node.names if alias.name != "*"]
                yield from filter(self._is_ours, self._of_names(base, names))

    def _of_names(self, base: str, names: list[str]) -> Iterator[str]:
        for name in names:
            inner = f"{base}.{name}"
            if inner in self.broken or self.path(inner):
                if not self._binds(base, name):
                    yield inner
            elif base in self.broken and not self.is_namespace(inner):
                yield base + _OWN

    def _base(self, node: ast.ImportFrom, module: str) -> str:
        """Return the module that a `from` names, in full."""
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        if not self.path(module).endswith("/__init__.py"):
            parts.pop()
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *filter(None, [node.module])])

    def _with_parents(self, module: str) -> Iterator[str]:
        parts = module.split(".")
        names = (".".join(parts[: n + 1]) for n in range(len(parts)))
        yield from filter(self._is_ours, names)

    def _is_ours(self, module: str) -> bool:
        return any(module == root or module.startswith(f"{root}.") for root in self.roots)

    def _binds(self, package: str, name: str) -> bool:
        """Say whether a package may have a name by other means than its submodule.

        A `__getattr__` gives what is imported late, and a star nothing that begins with `_`. It is
        taken that no compiled module gives names of submodules.
        """
        left, seen = [package], set()
        while left:
            one = left.pop()
            seen.add(one)
            names, stars = self._bound(one)
            if name in names:
                return True
            left += [] if name.startswith("_") else sorted(stars - seen)
        return False

    def _bound(self, module: str) -> tuple[set[str], set[str]]:
        """Return the names that a module binds anywhere, and the modules of which it takes all."""
        if module not in self.bound:
            names: set[str] = set()
            stars: set[str] = set()
            tree = self.tree(module)
            for node in ast.walk(tree) if tree is not None else ():
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    names.add(node.name)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add(node.id)
                elif isinstance(node, ast.Import):
                    own = f"{module}."
                    named = [a for a in node.names if not a.name.startswith(own)]
                    names |= {a.asname or a.name.partition(".")[0] for a in named}
                elif isinstance(node, ast.ImportFrom):
                    base = self._base(node, module)
                    # What it takes of itself under the same name is a submodule.
                    pairs = [(a.name, a.asname or a.name) for a in node.names]
                    names |= {new for old, new in pairs if base != module or old != new}
                    stars |= {base for a in node.names if a.name == "*"}
            self.bound[module] = names, stars
        return self.bound[module]
