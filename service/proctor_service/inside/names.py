"""Functions, classes and modules of the standard library cross by name.

Test code goes anywhere by any name: the interpreter of the submission could import the same. In the
other direction only classes of exceptions and of plain values are followed, and the functions of a few
modules without side effects: no name that runs code or reaches into objects, and no module.
"""

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

from .encoding import class_name, derives
from .refusals import Malformed

_type, _str = type, str
_modules = sys.modules
_import_module = importlib.import_module
_get_module: Callable[[Any], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__

_FUNCTIONS: tuple[type, ...] = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)

# What a submission may name, so that the side of the tests uses its own: nothing that runs text as
# code, formats (a format string reads attributes), or reaches into an object by a name.
_FUNCTION_MODULES = frozenset(
    ["math", "cmath", "operator", "_operator", "statistics", "heapq", "_heapq", "bisect", "_bisect"]
)
_CLASS_MODULES = frozenset(
    [
        "collections",
        "collections.abc",
        "_collections",
        "decimal",
        "fractions",
        "datetime",
        "numbers",
        "enum",
        "uuid",
        "itertools",
        "abc",
    ]
)
_BUILTIN_FUNCTIONS = frozenset(
    [
        "abs",
        "all",
        "any",
        "ascii",
        "bin",
        "callable",
        "chr",
        "divmod",
        "hash",
        "hex",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "max",
        "min",
        "next",
        "oct",
        "ord",
        "pow",
        "repr",
        "round",
        "sorted",
        "sum",
    ]
)
_BUILTIN_CLASSES = frozenset(
    ["str", "bytes", "list", "dict", "set", "frozenset", "tuple", "int", "float", "complex", "bool"]
)
_EXCEPTION_MODULES = frozenset(
    [
        "asyncio.exceptions",
        "json.decoder",
        "decimal",
        "unittest.case",
        "subprocess",
        "queue",
        "_queue",
        "socket",
        "ssl",
        "struct",
        "binascii",
        "zlib",
        "lzma",
        "zipfile",
        "tarfile",
        "shutil",
        "statistics",
        "graphlib",
        "copy",
        "pickle",
        "_pickle",
        "csv",
        "_csv",
        "argparse",
        "configparser",
        "getopt",
        "gettext",
        "http.client",
        "urllib.error",
        "email.errors",
        "re",
        "dataclasses",
        "sre_constants",
        "re._constants",
        "concurrent.futures._base",
        "sqlite3",
        "concurrent.futures",
        "multiprocessing",
        "threading",
        "ipaddress",
        "locale",
        "tokenize",
        "xml.parsers.expat",
        "xml.etree.ElementTree",
        "zoneinfo",
        "zoneinfo._common",
        "tomllib",
    ]
)
# By these a data class knows its fields.
_CONSTANTS = tuple(
    ("dataclasses", name) for name in ("_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR", "MISSING")
)
_NEVER = frozenset(["attrgetter", "methodcaller", "call", "format", "format_map"])
# Importing these does something.
NEVER_MODULES = frozenset(
    [
        "antigravity",
        "this",
        "idlelib",
        "turtledemo",
        "turtle",
        "tkinter",
        "test",
        "lib2to3",
        "__main__",
        "ensurepip",
        "venv",
    ]
)
# What the names that people give to modules mean.
_ALIASES = {
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    "sp": "scipy",
    "nx": "networkx",
    "mp": "multiprocessing",
    "dt": "datetime",
    "tk": "tkinter",
}


def name_of(value: Any) -> list[Any] | None:
    """``["n", module, name]`` for what an importable module has under that name, else None."""
    kind = _type(value)
    if kind is types.ModuleType:
        name: Any = _get_module(value).get("__name__")
        return ["n", name, ""] if _type(name) is _str and _modules.get(name) is value else None
    try:
        if kind in _FUNCTIONS:
            owner = getattr(value, "__objclass__", None)
            module = value.__module__ if owner is None else owner.__module__
            name = value.__qualname__
        elif derives(kind, type):
            module, _, name = class_name(value).rpartition(".")
            while module and module not in _modules:
                module, _, outer = module.rpartition(".")
                name = f"{outer}.{name}"
        else:
            return None
    except AttributeError:
        return None
    if _type(module) is not _str or _type(name) is not _str or module == "__main__":
        return None
    return ["n", module, name] if _lookup(module, name) is value else None


def _lookup(module: str, name: str) -> Any:
    found: Any = _modules.get(module)
    if _type(found) is not types.ModuleType:
        return None
    first, *rest = name.split(".")
    found = _get_module(found).get(first)
    for part in rest:
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def resolve_any(module: Any, name: Any) -> Any:
    """What a name of the trusted side means here; ``Malformed`` if nothing."""
    try:
        found = _import_module(module)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
    except Exception as error:
        raise Malformed(f"there is no {module}.{name} here") from error
    return found


def resolve_plain(module: Any, name: Any) -> Any:
    """What a name of the untrusted side means here; ``Malformed`` if it may not be named."""
    if _type(module) is not _str or _type(name) is not _str:
        raise Malformed("not a name")
    if (module, name) in _CONSTANTS:
        return resolve_any(module, name)
    if not may_name(module, name):
        raise Malformed("a name that may not be used")
    found = resolve_any(module, name)
    if isinstance(found, type):
        if module not in _CLASS_MODULES and not issubclass(found, BaseException):
            raise Malformed("a class that may not be named")
    elif _type(found) not in _FUNCTIONS or not _has_functions(module):
        raise Malformed("neither a function nor a class")
    return found


def followed(value: Any) -> list[Any] | None:
    """The name of a value, if the side of the tests would follow it."""
    for constant in _CONSTANTS if "dataclasses" in _modules else ():
        if _lookup(*constant) is value:
            return ["n", *constant]
    named = name_of(value)
    if named is None or not may_name(named[1], named[2]):
        return None
    if derives(_type(value), type):
        plain = named[1] in _CLASS_MODULES or derives(value, BaseException)
    else:
        plain = _has_functions(named[1])
    return named if plain else None


def _has_functions(module: str) -> bool:
    return module in _FUNCTION_MODULES or module == "builtins"


def may_name(module: str, name: str) -> bool:
    """Whether the side of the tests follows a name that the submission's side sends."""
    first, *rest = name.split(".")
    if any(part in _NEVER or part.startswith("_") for part in (first, *rest)):
        return False
    if module == "builtins":
        return name in _BUILTIN_FUNCTIONS or (len(rest) == 1 and first in _BUILTIN_CLASSES)
    if rest:
        return False
    return module in _FUNCTION_MODULES or module in _CLASS_MODULES or module in _EXCEPTION_MODULES


def usual_module(name: str) -> str | None:
    """The module that people mean by a name, as in ``np``; None if it means none."""
    if name in _ALIASES:
        return _ALIASES[name]
    if name in sys.stdlib_module_names and name not in NEVER_MODULES and name[0] != "_":
        return name
    return None
