"""Inspection of values and classes without running their code or their metaclasses' code."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

_type, _str, _tuple = type, str, tuple
_modules = sys.modules
_module_dict = vars(ModuleType)["__dict__"].__get__
_type_mro = type.__dict__["__mro__"].__get__
_type_name = type.__dict__["__qualname__"].__get__
_type_module = type.__dict__["__module__"].__get__
class_members = type.__dict__["__dict__"].__get__


def class_name(cls: type) -> str:
    """Return ``module.qualname`` of a class, past its metaclass; "?" if unknown."""
    try:
        module, name = _type_module(cls), _type_name(cls)
    except AttributeError:
        return "?"
    name = name if _type(name) is _str else "?"
    if _type(module) is not _str or module == "builtins":
        return name[:200]
    return f"{module}.{name}"[:200]


def class_mro(cls: type) -> tuple[type, ...]:
    """Return the real method resolution order of a class, past its metaclass."""
    mro = _type_mro(cls)
    return mro if _type(mro) is _tuple else (cls, object)


def derives(cls: type, *bases: type) -> bool:
    """Compute ``issubclass`` by identity: a metaclass may claim equality with any class."""
    for each in class_mro(cls):
        for base in bases:
            if each is base:
                return True
    return False


def loaded(module: str, name: str) -> Any:
    """Return ``module.name`` if the module is loaded, else None."""
    found = _modules.get(module)
    return _module_dict(found).get(name) if _type(found) is ModuleType else None


class Content:
    """Wrapper that marks an instance of a subclass for encoding as its built-in base."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def content_of(value: Any) -> Any:
    """Unwrap a ``Content``; return any other value unchanged."""
    return value.value if _type(value) is Content else value
