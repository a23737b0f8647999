"""The names that test code sees: its own, then what the submission imported, then the submission's.

Pasted after the submission, tests would see the submission's globals; here these are asked for when
they are used. A built-in name is the test side's own, whatever the submission binds to it, unless
the submission is tested for exactly that name. What the submission imports from the standard
library is imported afresh.
"""

import ast
import builtins
from collections.abc import Iterable
from typing import Any

from . import names
from .mentions import Mentions, unknown
from .peer import Peer
from .refusals import Malformed


class Namespace(dict[str, Any]):
    """The globals of test code."""

    def __init__(self, peer: Peer) -> None:
        super().__init__({"__name__": "__main__", "__builtins__": builtins})
        self._peer = peer
        self._imports: dict[str, tuple[str, str]] = {}
        self._overrides: set[str] = set()
        # Built-in names of which nobody can say whether the tests mean the submission's.
        self._unclear: set[str] = set()
        # Whether anything that the submission chose has come into it.
        self.touched = False

    def __missing__(self, name: str) -> Any:
        if name in self._unclear:
            self.touched = True
            raise NameError(f"name {name!r} is defined by the submission, like others")
        imported = self._imports.get(name)
        if imported is not None:
            self.touched = True
            try:
                module, attribute = imported
                value = names.resolve_any(module, attribute)
            except Malformed:
                del self._imports[name]
            else:
                self[name] = value
                return value
        if hasattr(builtins, name) and name not in self._overrides:
            raise KeyError(name)
        return self.ask(name)

    def ask(self, name: str) -> Any:
        """What the submission has under a name; ``KeyError`` if nothing."""
        self.touched = True
        try:
            return self._peer.request("name", name)
        except LookupError:
            raise KeyError(name) from None

    def prepare(self, found: Mentions, entry_point: str | None, imports: Iterable[str]) -> set[int]:
        """Find out what the names mean; returns the numbers of those meant and made as classes."""
        wanted = sorted(found.loaded | ({entry_point} if entry_point else set()))
        kinds: dict[str, str] = {}
        classes: set[int] = set()
        for name, kind, number in self._peer.request("names", tuple(wanted)):
            if type(name) is str and type(kind) is str:
                kinds[name] = kind
                meant = name in found.classes
                meant = meant or (name == entry_point and "candidate" in found.classes)
                if kind == "class" and type(number) is int and meant:
                    classes.add(number)
        self._take_imports(imports)
        for name in wanted:
            usual = names.usual_module(name)
            if usual and name != entry_point and self._is_module(name, kinds, found):
                self._imports[name] = (usual, "")
        self._choose_overrides(found, entry_point, kinds)
        return classes

    def _is_module(self, name: str, kinds: dict[str, str], found: Mentions) -> bool:
        module, attribute = self._imports.get(name, ("", ""))
        if module and attribute == name:
            return False
        return (
            bool(module) or kinds.get(name) == "module" or (name in kinds and name in found.bases)
        )

    def _choose_overrides(
        self, found: Mentions, entry_point: str | None, kinds: dict[str, str]
    ) -> None:
        if entry_point is not None:
            self._overrides = {entry_point}
            return
        # The tests decide, not what the submission says it has: where they name anything else that
        # only the submission can have, a built-in name means the built-in.
        others = {name for name in unknown(found) if names.usual_module(name) is None}
        own = {name for name, kind in kinds.items() if kind != "module" and name not in others}
        own = {name for name in own & found.called if hasattr(builtins, name)}
        if not others and len(own) == 1:
            self._overrides = own
        elif not others:
            self._unclear = own

    def _take_imports(self, imports: Iterable[str]) -> None:
        """Note what the submission's import statements bind, as far as it can be had here."""
        for statement in imports:
            for name, module, attribute in bindings(statement):
                top = module.partition(".")[0]
                if hasattr(builtins, name) or top in names.NEVER_MODULES or top.startswith("_"):
                    continue
                # Renamed, a name means whatever the submission wants it to.
                if attribute and attribute != name:
                    continue
                self._imports[name] = (module, attribute)


def bindings(statement: str) -> list[tuple[str, str, str]]:
    """(name, module, attribute) for what an import statement binds; attribute "" for a module."""
    try:
        body = ast.parse(statement).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found.append((name, alias.name if alias.asname else name, ""))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found.append((alias.asname or alias.name, node.module, alias.name))
    return found


def import_statements(source: str) -> list[str]:
    """The import statements at the top level of source text."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
