"""What a class is, read past its metaclass."""

from __future__ import annotations

from typing import Any

_type, _str, _tuple = type, str, tuple
_type_mro = type.__dict__["__mro__"].__get__
_type_dict = type.__dict__["__dict__"].__get__
_type_name = type.__dict__["__qualname__"].__get__
_type_module = type.__dict__["__module__"].__get__


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


def describe_class(cls: type) -> dict[str, Any]:
    """A class's name, and that its instances are true where nothing can say otherwise."""
    info: dict[str, Any] = {"type": class_name(cls)}
    for base in class_mro(cls):
        members = _type_dict(base)
        if "__bool__" in members or "__len__" in members:
            return info
    info["truth"] = True
    return info
