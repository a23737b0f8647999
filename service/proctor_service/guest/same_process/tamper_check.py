"""Tamper check: detection of replaced test machinery, by references from before the submission."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

from ..origins import Origins

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
    """Original functions and classes of pytest, unittest, the builtins, and Proctor's own classes.

    For `libraries` that tests use, only functions are recorded, and tests may replace these by
    their own functions. `patching`: the tests use patches.
    """

    def __init__(
        self,
        ours: Iterable[type],
        libraries: Iterable[types.ModuleType],
        origins: Origins,
        patching: bool,
    ) -> None:
        self._origins = origins
        self._patching = patching
        self._replaceable = [
            (vars(module), name, value)
            for module in libraries
            for name, value in vars(module).items()
            if callable(value) and not isinstance(value, type) and not _is_to_be_set(name)
        ]
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
        """Tell whether a code object is recorded, by identity."""
        return any(code is own for _, own in self._codes)

    def changed(self) -> str | None:
        """Return the name of a replaced object, or None."""
        for owner, name, value in self._places:
            if owner.get(name) is not value:
                return name
        for function, code in self._codes:
            if function.__code__ is not code:
                return str(function.__name__)
        for owner, name, value in self._replaceable:
            found = owner.get(name)
            if found is not value and not self._by_tests(found):
                return name
        return None

    def _by_tests(self, value: Any) -> bool:
        """Tell whether the tests or pytest may have set this value, for example by monkeypatch."""
        function = getattr(value, "__func__", value)
        if not isinstance(function, types.FunctionType):
            return self._patching
        namespace = function.__globals__
        if self._origins.library(namespace):
            return self._patching or str(namespace["__name__"]).startswith("_pytest.")
        return self._origins.own(function.__code__, namespace)


def _is_to_be_set(name: str) -> bool:
    """Tell whether programs or the library itself commonly set this name."""
    return name.startswith("_") or name.endswith("hook") or name == "showwarning"
