"""References to objects of the other endpoint: by number, or by a name that both can import.

A ``Reference`` names a remote object by its number. The object's local proxy (a handle, a
generator, an exception) keeps the reference alive. After the proxy is collected, the next message
tells the other endpoint, which releases the object.

Objects of the standard library cross by name. The tests' endpoint is trusted: its functions and
classes cross by their importable names. The submission's endpoint may only name exception classes
and data classes from a fixed list.
"""

from __future__ import annotations

import importlib
import sys
import types
import weakref
from collections.abc import Iterable
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


class Reference:
    """Number, class and origin of a remote object."""

    __slots__ = ("__weakref__", "class_number", "number", "origin", "view")

    def __init__(self, number: int, class_number: int | None) -> None:
        self.number = number
        self.class_number = class_number
        self.origin = ""
        # Weak reference to the local proxy.
        self.view: Any = None


class References:
    """Weak tables of an endpoint's references, by number and by proxy."""

    def __init__(self) -> None:
        self._references: dict[int, Any] = {}
        self._views: dict[int, Reference] = {}
        self._dropped: dict[int, None] = {}

    def get(self, number: int, class_number: int | None = None) -> Reference:
        """Return the reference for a number; make a new reference if necessary."""
        known = self._references.get(number)
        found: Reference | None = None if known is None else known()
        if found is not None:
            return found
        self._dropped.pop(number, None)
        reference = Reference(number, class_number)

        def forget(dead: Any) -> None:
            if self._references.get(number) is dead:
                del self._references[number]
                self._dropped[number] = None

        self._references[number] = weakref.ref(reference, forget)
        return reference

    def view(self, reference: Reference) -> Any:
        """Return the local proxy, or None if missing or collected."""
        return None if reference.view is None else reference.view()

    def stand(self, view: Any, reference: Reference) -> None:
        """Register a weakly referenceable object as the local proxy."""
        identity = _id(view)

        def forget(dead: Any) -> None:
            self._views.pop(identity, None)

        self._views[identity] = reference
        reference.view = weakref.ref(view, forget)

    def of(self, view: Any) -> Reference | None:
        """Return the reference behind a proxy, else None."""
        return self._views.get(_id(view))

    def take_dropped(self) -> list[int]:
        """Return the released numbers and clear the list."""
        if not self._dropped:
            return []
        dropped, self._dropped = list(self._dropped), {}
        return dropped


class Exports:
    """Local objects referenced by the other endpoint."""

    def __init__(self) -> None:
        self._next = 1
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._kept: set[int] = set()

    def number(self, value: Any, keep: bool = False) -> int:
        """Return the export number of an object; ``keep`` exports the object until the end."""
        number = self._numbers.get(_id(value))
        if number is None:
            number = self._next
            self._next += 1
            self._numbers[_id(value)] = number
            self._objects[number] = value
        if keep:
            self._kept.add(number)
        return number

    def object(self, number: Any) -> Any:
        """Return the object for a number. Raises ``KeyError`` if not exported."""
        return self._objects[number]

    def holds(self, value: Any) -> bool:
        """Tell whether an object is exported."""
        return _id(value) in self._numbers

    def drop(self, numbers: Iterable[Any]) -> None:
        """Release objects that the other endpoint dropped."""
        for number in numbers:
            if number not in self._kept and number in self._objects:
                self._numbers.pop(_id(self._objects.pop(number)), None)


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
