"""Importable globals: names of the standard library that an endpoint may send for its objects.

The tests' endpoint is trusted: its functions and classes cross by their importable names. The
submission's endpoint may only name exception classes and data classes from a fixed list.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

from ...codec.builtin_encoders import BUILTIN_TYPES
from ...codec.introspection import class_mro, class_name, derives
from ...codec.limits import Malformed

_words = str.split

_type, _str, _id = type, str, id
_modules = sys.modules
_import_module = importlib.import_module
_module_dict = vars(types.ModuleType)["__dict__"].__get__
_BUILTIN_IDS = frozenset(map(id, BUILTIN_TYPES.values()))

_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_DATA_CLASSES = {
    "collections": ("deque", "Counter", "OrderedDict", "defaultdict"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
}
_EXCEPTION_MODULES = frozenset(
    _words(
        "builtins asyncio.exceptions json.decoder decimal unittest.case subprocess queue _queue "
        "socket ssl struct binascii zlib lzma zipfile tarfile shutil statistics graphlib copy pickle "
        "_pickle csv _csv argparse configparser getopt gettext http.client urllib.error email.errors "
        "re dataclasses sre_constants re._constants concurrent.futures._base sqlite3 "
        "concurrent.futures concurrent.futures.thread concurrent.futures.process multiprocessing "
        "threading ipaddress locale tokenize xml.parsers.expat xml.etree.ElementTree zoneinfo "
        "zoneinfo._common tomllib contextvars"
    )
)
# pytest may be missing here: the submission can only raise these if pytest is imported.
_OUTCOMES = ("_pytest.outcomes", ("Skipped", "Failed", "Exit", "XFailed"))


def standard_class(cls: Any) -> list[str] | None:
    """Return ``[module, name]`` of a data or exception class known to both endpoints, else None."""
    module, _, name = class_name(cls).rpartition(".")
    if _id(cls) in _BUILTIN_IDS:
        return ["builtins", name]
    if not module or not _may_name(module, name, derives(cls, BaseException)):
        return None
    found = _modules.get(module)
    same = _type(found) is types.ModuleType and _module_dict(found).get(name) is cls
    return [module, name] if same else None


def find_standard_class(wire: Any) -> Any:
    """Return the class named by ``[module, name]``. Raises ``Malformed`` for a forbidden name."""
    if _type(wire) is not list or [_type(part) for part in wire] != [str, str]:
        raise Malformed("not a name of a class")
    module, name = wire
    if not _may_name(module, name, True):
        raise Malformed("a name that may not be used")
    try:
        found = getattr(_import_module(module), name)
    except Exception:
        raise Malformed("there is no such class") from None
    plain = name in _DATA_CLASSES.get(module, ())
    if not isinstance(found, type) or not (plain or issubclass(found, BaseException)):
        raise Malformed("a class that may not be named")
    return found


def _may_name(module: str, name: str, failure: bool) -> bool:
    if not name.isidentifier() or name.startswith("_"):
        return False
    if name in _DATA_CLASSES.get(module, ()):
        return True
    if module == _OUTCOMES[0]:
        return failure and name in _OUTCOMES[1] and module in _modules
    return failure and module in _EXCEPTION_MODULES


def importable_name(value: Any) -> list[Any] | None:
    """Return ``["n", module, name]`` for an object found in its module by name, else None."""
    kind = _type(value)
    if kind is types.ModuleType:
        name = _module_dict(value).get("__name__")
        return ["n", name, ""] if _type(name) is _str and _modules.get(name) is value else None
    try:
        if kind in _FUNCTIONS:
            owner = getattr(value, "__objclass__", None)
            module = value.__module__ if owner is None else owner.__module__
            name = value.__qualname__
        elif any(base is type for base in class_mro(kind)):
            module, _, name = class_name(value).rpartition(".")
        else:
            return None
    except AttributeError:
        return None
    if _type(module) is not _str or _type(name) is not _str or module == "__main__":
        return None
    return ["n", module, name] if _lookup(module, name) is value else None


def _lookup(module: str, name: str) -> Any:
    found: Any = _modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def find_importable(module: Any, name: Any) -> Any:
    """Import the object that the trusted endpoint named. Raises ``Malformed`` if missing."""
    try:
        found = _import_module(module)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
    except Exception as error:
        raise Malformed(f"there is no {module}.{name} here") from error
    return found
