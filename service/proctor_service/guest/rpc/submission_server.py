"""The submission's endpoint: serves the submission's globals and holds proxies of test objects.

The endpoint hides nothing: the submission may access everything in its own interpreter.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from ...codec.builtin_encoders import BASES
from ...codec.encoding import WRAPPERS
from ...codec.introspection import class_mro, derives
from ...codec.limits import NO_BASE
from ...codec.standard_library import library_encoder
from ..function_calls import last_function
from . import environment
from .endpoint import ITERATOR_KINDS, KINDS, ClassInfo, Endpoint, find_exception, kind_and_number
from .exported_classes import REFERENCE
from .object_operations import forwarders
from .references import Reference, find_importable, standard_class

_exec, _type, _id, _get = exec, type, id, object.__getattribute__
_modules = sys.modules


def serve(channel: Any, namespace: dict[str, Any]) -> None:
    """Answer the tests' requests about a loaded submission until they say goodbye."""
    SubmissionEndpoint(channel, namespace).connection.serve()


class TestsObject:
    """Proxy of an object of the tests; forwards attribute access and special methods."""

    __slots__ = ("__dict__", "__weakref__")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__name__", "__qualname__"):
            raise AttributeError(name)
        return _ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        _ask("del", self, name)


class TestsClass(type):
    """Metaclass of the local classes for classes of the tests."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _ask("call", cls, args, tuple(kwargs.items()))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ask("get", cls, name)


def _ask(operation: str, *operands: Any) -> Any:
    owner = next(each for each in operands if _is_tests(each))
    cls = owner if _type(owner) is TestsClass else _type(owner)
    return cls.__proctor_side__.connection.request(operation, *operands)


def _is_tests(value: Any) -> bool:
    return _type(value) is TestsClass or _type(_type(value)) is TestsClass


def _leave(operation: str, target: Any, cls: Any, error: Any) -> Any:
    # The interpreter may pass the class before the exception object exists.
    if error is None and cls is not None:
        error = cls()
    return _ask(operation, target, None if error is None else _type(error), error)


_FORWARDERS = forwarders(_ask, _leave)


class SubmissionEndpoint(Endpoint):
    """Endpoint that serves the submission's globals."""

    def __init__(self, channel: Any, namespace: dict[str, Any]) -> None:
        super().__init__(channel, first=1)
        self._namespace = namespace
        # The result of a `make` request; crosses as an object, even if derived from a built-in
        # type.
        self._made: Any = None
        self._stdout = sys.stdout
        self._changed: list[environment.Changed] = []
        self._variants: dict[Any, Any] = {}

    # ---------------------------------------------------------------- requests

    def perform(self, operation: str, operands: Any, options: Any, brought: Any) -> Any:
        """Perform an operation for the tests, in the environment sent with the request."""
        self._made = None
        if not options:
            return self._perform(operation, operands)
        with environment.Changed(options, brought) as changed:
            self._changed.append(changed)
            try:
                return self._perform(operation, operands)
            finally:
                self._changed.pop()

    def options(self) -> Any:
        """Return the printed text and the unread input, for a request to the tests."""
        changed = self._changed[-1] if self._changed else None
        options = {} if changed is None else changed.take()
        usual = self._stdout if changed is None or changed.out is None else changed.out
        if sys.stdout is not usual:
            options["catch"] = True
        return options

    def heard(self, brought: Any) -> None:
        """Apply the changes that a function of the tests made to the environment."""
        if brought:
            environment.restore_generators(brought)
            for changed in self._changed[-1:]:
                changed.heard(brought)
            if brought.get("out"):
                sys.stdout.write(brought["out"])

    def _perform(self, operation: str, operands: Any) -> Any:
        if operation == "name":
            return self._namespace[operands[0]]
        if operation == "last_function":
            return last_function(self._namespace)
        if operation == "imports":
            return self._import(operands[0])
        if operation == "define":
            for name, value in operands[0]:
                self._namespace.setdefault(name, value)
            return None
        result = self.carry_out(operation, operands)
        if operation == "make":
            self._made = result
        elif operation == "iter" and _type(result) not in ITERATOR_KINDS:
            return result if result is operands[0] else _steps(result)
        return result

    def _import(self, statements: Any) -> None:
        for statement in statements:
            try:
                _exec(statement, self._namespace)
            except Exception:
                continue

    # ---------------------------------------------------------------- own objects

    def describe(self, value: Any, encoder: Any) -> Any:
        """Return the wire form of an object of the submission."""
        cls = _type(value)
        exports = self.connection.exports
        if derives(cls, type):
            standard = standard_class(value)
            if standard is not None:
                return ["n", *standard]
            return ["h", self.class_number(value), {"k": "class"}]
        if derives(cls, BaseException):
            own = standard_class(cls) is None
            return self.describe_exception(
                value, encoder, exports.number(value) if own else 0, True
            )
        number = exports.number(value)
        if cls in ITERATOR_KINDS:
            return ["h", number, {"k": ITERATOR_KINDS[cls]}]
        if _is_future(cls):
            return ["h", number, {"k": "coroutine"}]
        info: dict[str, Any] = {"k": "object", "c": self.class_number(cls)}
        if value is not self._made and self._is_content(value, cls, info, encoder):
            info["k"] = "content"
            return ["h", number, info]
        return ["h", number, info, 0]

    def _is_content(self, value: Any, cls: Any, info: dict[str, Any], encoder: Any) -> bool:
        """Tell whether an object crosses with built-in content; add a wrapper's content."""
        for base in class_mro(cls):
            if _id(base) in BASES or library_encoder(base) is not None:
                return True
            if _id(base) in WRAPPERS:
                kind, fields = WRAPPERS[_id(base)]
                data = fields(value).get("data")
                if _type(data) is not kind:
                    return False
                info["as"] = kind.__name__
                content = dict.items(data) if kind is dict else data
                info["base"] = encoder.visit(content if kind is str else tuple(content))
                return True
        return False

    # ---------------------------------------------------------------- the tests' objects

    def number_of(self, value: Any) -> int | None:
        """Return the number of the tests' object behind a proxy, else None."""
        if _type(value) is TestsClass:
            found: int = _type.__getattribute__(value, "__proctor_class__")
            return found
        if _type(_type(value)) is TestsClass:
            fields = _get(value, "__dict__")
            reference = fields.get(REFERENCE)
            if _type(reference) is Reference:
                number: int = reference.number
                return number
        return super().number_of(value)

    def resolve(self, wire: list[Any], content: Any, decoder: Any) -> Any:
        """Return the local object for an object of the tests."""
        tag = wire[0]
        if tag == "n":
            return find_importable(*wire[1:])
        if tag == "e":
            return self.resolve_exception(wire, decoder)
        kind, number, info = kind_and_number(wire)
        if kind in KINDS:
            return self.resolve_iterator(kind, number)
        if kind == "class":
            return self.local_class(number)
        references = self.connection.references
        reference = references.get(number, info.get("c"))
        value = content()
        present = references.view(reference)
        if present is not None:
            return present
        if kind == "function":
            made: Any = local_function(self, reference, info)
        else:
            made = self._instance(info["c"], value)
            made.__dict__[REFERENCE] = reference
        try:
            references.stand(made, reference)
        except TypeError:  # numbers and tuples cannot be weakly referenced
            reference.view = None
        return made

    def _instance(self, number: int, value: Any) -> Any:
        cls = self.local_class(number)
        if value is NO_BASE:
            return object.__new__(cls)
        base = _type(value)
        if (number, base) not in self._variants:
            members = {name: getattr(base, name) for name in _FORWARDERS if hasattr(base, name)}
            members["__proctor_side__"] = self
            members["__proctor_class__"] = number
            self._variants[number, base] = TestsClass(cls.__name__, (cls, base), members)
        made = base.__new__(self._variants[number, base], value)
        base.__init__(made, value)
        return made

    def build_class(self, info: ClassInfo) -> Any:
        """Build the local class for a class of the tests."""
        members: dict[str, Any] = {
            "__module__": info.module,
            "__proctor_class__": info.number,
            "__proctor_side__": self,
        }
        bases: list[Any] = []
        for base in info.bases:
            if _type(base) is int and base in self.classes:
                bases.append(self.local_class(base))
            elif info.failure is not None:
                bases.append(find_exception(base))
        bases = [base for base in bases if base is not None]
        if info.failure is not None:
            members["__getattr__"] = TestsObject.__getattr__
            return TestsClass(info.name, tuple(bases) or (info.failure,), members)
        for name in info.special & _FORWARDERS.keys():
            members[name] = _FORWARDERS[name]
        if "__eq__" in members and "__hash__" not in members:
            members["__hash__"] = None if "__hash__" not in info.special else object.__hash__
        if not any(_type(base) is TestsClass for base in bases):
            bases.insert(0, TestsObject)
        return TestsClass(info.name, tuple(bases), members)


def _steps(iterator: Any) -> Any:
    """Iterate over an iterator with a class of the submission, as a generator."""
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


def _is_future(cls: Any) -> bool:
    asyncio: Any = _modules.get("asyncio")
    return _type(asyncio) is types.ModuleType and (cls is asyncio.Future or cls is asyncio.Task)


def local_function(side: Any, reference: Any, info: dict[str, Any]) -> Any:
    """Make a function that calls a function of the tests, with the same name and parameters."""
    request = side.connection.request

    def call(args: Any, kwargs: Any) -> Any:
        return request("call", reference, args, tuple(kwargs.items()))

    function = _with_parameters(call, info.get("p"), bool(info.get("async")))
    function.__name__ = function.__qualname__ = str(info.get("name"))
    function.__module__ = "__main__"
    function.__doc__ = info.get("doc")
    return function


_MISSING = object()


def _with_parameters(call: Any, parameters: Any, is_async: bool) -> Any:
    """Make a function with these parameters; omitted arguments are omitted in the call, too."""

    def plain(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    async def later(*args: Any, **kwargs: Any) -> Any:
        return await call(args, kwargs)

    if is_async:
        return later
    names = [part[0] for part in parameters or ()]
    if parameters is None or not all(name.isidentifier() for name in names):
        return plain
    written, given, named, starred, keywords = [], [], [], "()", "{}"
    for place, (name, kind, optional) in enumerate(parameters):
        default = "=__missing__" if optional else ""
        if kind == 2:
            written.append("*" + name)
            starred = name
        elif kind == 4:
            written.append("**" + name)
            keywords = name
        elif kind == 3:
            if "*" not in "".join(part[0] for part in written):
                written.append("*")
            written.append(name + default)
            named.append(f"({name!r}, {name})")
        else:
            written.append(name + default)
            given.append(name)
            if kind == 0 and (place + 1 == len(parameters) or parameters[place + 1][1] != 0):
                written.append("/")
    text = (
        f"lambda {', '.join(written)}: __call__(__given__(({''.join(n + ',' for n in given)}), {starred}), "
        f"__named__(({''.join(n + ',' for n in named)}), {keywords}))"
    )
    scope = {"__call__": call, "__missing__": _MISSING, "__given__": _given, "__named__": _named}
    return eval(text, scope)


def _given(args: Any, rest: Any) -> Any:
    return (*(each for each in args if each is not _MISSING), *rest)


def _named(pairs: Any, rest: Any) -> Any:
    return {**{name: value for name, value in pairs if value is not _MISSING}, **rest}
