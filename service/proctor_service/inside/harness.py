"""What runs a test, as it was before a submission was imported: to see whether it was replaced."""

import builtins
import sys
import types
from collections.abc import Mapping
from typing import Any

_PACKAGES = ("pytest", "_pytest", "pluggy", "unittest")
_OFTEN_PATCHED = frozenset(["__import__", "exit", "input", "open", "print", "quit"])
_PARTS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    classmethod,
    staticmethod,
    property,
)


class Original:
    """References to every function and class of pytest and unittest, of the builtins, and of ours."""

    def __init__(self, *ours: type) -> None:
        import unittest.mock  # noqa: F401  tests may, after the submission did

        self._places: list[tuple[Any, str, Any]] = []
        self._codes: list[tuple[Any, Any]] = []
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in _PACKAGES:
                self._note(vars(module), name)
        for own in ours:
            self._note(vars(own), own.__module__)
        for name, value in vars(builtins).items():
            if isinstance(value, _PARTS) and name not in _OFTEN_PATCHED:
                self._places.append((vars(builtins), name, value))

    def _note(self, owner: Mapping[str, Any], module: str) -> None:
        for name, value in owner.items():
            if not isinstance(value, _PARTS):
                continue
            self._places.append((owner, name, value))
            if isinstance(value, type):
                if value.__module__ == module and owner is not vars(value):
                    self._note(vars(value), module)
            else:
                inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(inner, types.FunctionType):
                    self._codes.append((inner, inner.__code__))

    def has(self, code: types.CodeType) -> bool:
        """Whether this is the code of one of them, and not of one that is like it."""
        return any(code is own for _, own in self._codes)

    def changed(self) -> str | None:
        """The name of something that is no longer what it was, None when all is."""
        for owner, name, value in self._places:
            if owner.get(name) is not value:
                return name
        for function, code in self._codes:
            if function.__code__ is not code:
                return str(function.__name__)
        return None
