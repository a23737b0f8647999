"""Reading values and classes past metaclasses, and without running code of theirs."""

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
    """``module.qualname`` of a class, whatever its metaclass says."""
    try:
        module, name = _type_module(cls), _type_name(cls)
    except AttributeError:
        return "?"
    name = name if _type(name) is _str else "?"
    if _type(module) is not _str or module == "builtins":
        return name[:200]
    return f"{module}.{name}"[:200]


def class_mro(cls: type) -> tuple[type, ...]:
    """The real method resolution order, whatever the metaclass says."""
    mro = _type_mro(cls)
    return mro if _type(mro) is _tuple else (cls, object)


def derives(cls: type, *bases: type) -> bool:
    """``issubclass`` without asking a class: its metaclass may say that it equals any other."""
    for each in class_mro(cls):
        for base in bases:
            if each is base:
                return True
    return False


def loaded(module: str, name: str) -> Any:
    """``module.name`` if that module is loaded, else None."""
    found = _modules.get(module)
    return _module_dict(found).get(name) if _type(found) is ModuleType else None


class Content:
    """An instance of a subclass, to be encoded as its built-in base."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def content_of(value: Any) -> Any:
    """The instance, if it came wrapped as ``Content``."""
    return value.value if _type(value) is Content else value
