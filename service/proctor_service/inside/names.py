"""Functions, classes and modules of the standard library cross by name.

Test code goes anywhere by any name: the interpreter of the submission could import the same. In the
other direction only a short list of modules without side effects is followed, and no name that runs
code or reaches into objects.
"""

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

from .encoding import class_name
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

# What a submission may name, so that the side of the tests uses its own.
_PLAIN_MODULES = frozenset(
    [
        "math",
        "cmath",
        "operator",
        "functools",
        "itertools",
        "statistics",
        "string",
        "json",
        "heapq",
        "bisect",
        "collections",
        "copy",
        "collections.abc",
        "numbers",
        "fractions",
        "decimal",
        "datetime",
        "enum",
        "abc",
        "typing",
        "random",
        "re",
        "uuid",
        "time",
        "textwrap",
        "dataclasses",
        "types",
        "_operator",
        "_functools",
        "_collections",
        "_heapq",
        "_bisect",
        "builtins",
        "_datetime",
        "_decimal",
        "_random",
    ]
)
_EXCEPTION_MODULES = frozenset(
    [
        "asyncio",
        "asyncio.exceptions",
        "json",
        "json.decoder",
        "decimal",
        "unittest",
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
        "configparser",
        "argparse",
        "getopt",
        "gettext",
        "http.client",
        "urllib.error",
        "email.errors",
        "dataclasses",
        "enum",
        "re",
        "sre_constants",
        "re._constants",
        "concurrent.futures",
        "concurrent.futures._base",
        "multiprocessing",
        "threading",
        "contextvars",
        "ipaddress",
        "locale",
        "tokenize",
        "xml.parsers.expat",
        "sqlite3",
        "xml.etree.ElementTree",
        "html.parser",
        "zoneinfo",
        "zoneinfo._common",
        "tomllib",
    ]
)
_NEVER = frozenset(
    [
        "attrgetter",
        "methodcaller",
        "getattr",
        "setattr",
        "delattr",
        "hasattr",
        "vars",
        "globals",
        "locals",
        "dir",
        "eval",
        "exec",
        "compile",
        "open",
        "input",
        "breakpoint",
        "exit",
        "quit",
        "help",
        "memoryview",
        "print",
        "__import__",
        "sleep",
    ]
)
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
        elif kind is type or type in kind.__mro__:
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
    if name == "":
        return resolve_module(module)
    if name in _NEVER or any(part.startswith("_") for part in name.split(".")):
        raise Malformed("a name that may not be used")
    if module not in _PLAIN_MODULES and module not in _EXCEPTION_MODULES:
        raise Malformed("a module that may not be named")
    found = resolve_any(module, name)
    is_class = isinstance(found, type)
    if module not in _PLAIN_MODULES and not (is_class and issubclass(found, BaseException)):
        raise Malformed("not an exception")
    if not is_class and _type(found) not in _FUNCTIONS:
        raise Malformed("neither a function nor a class")
    return found


def may_name(module: str, name: str) -> bool:
    """Whether the other side would follow a name that the submission's side sends."""
    if name == "":
        return True
    if name in _NEVER or any(part.startswith("_") for part in name.split(".")):
        return False
    return module in _PLAIN_MODULES or module in _EXCEPTION_MODULES


def resolve_module(name: str) -> Any:
    """A module, imported here by name; ``Malformed`` if it may not be."""
    top = name.partition(".")[0]
    if top in NEVER_MODULES or top.startswith("_") or not name.replace(".", "").isidentifier():
        raise Malformed("a module that may not be imported")
    return resolve_any(name, "")


def usual_module(name: str) -> str | None:
    """The module that people mean by a name, as in ``np``; None if it means none."""
    if name in _ALIASES:
        return _ALIASES[name]
    if name in sys.stdlib_module_names and name not in NEVER_MODULES and name[0] != "_":
        return name
    return None
