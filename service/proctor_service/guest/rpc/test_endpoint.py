"""The tests' endpoint: resolves objects of the submission and classifies failures."""

from __future__ import annotations

from typing import Any

from ...codec.limits import NO_BASE, Malformed
from . import handles, test_objects
from .connection import Gone, Unusable
from .endpoint import KINDS, ClassInfo, Endpoint, find_exception, kind_and_number
from .exported_classes import (
    ALL_CONTROL,
    NAMES,
    REFERENCE,
    TRACE,
    checked_places,
    control_names,
    is_made_here,
    names_of,
)
from .handles import Handle, Refused, data_names, reference_of
from .references import Reference, find_standard_class
from .test_objects import is_telling

_PREPARATIONS = frozenset(["imports", "define"])
_ITERATING = frozenset(["next", "send", "throw", "anext", "asend", "athrow", "await"])
_LEAVING = frozenset(["exit", "aexit"])
_SENDING = _LEAVING | {"throw", "athrow"}
_SKIPS = frozenset(["SkipTest", "Skipped", "XFailed", "Exit"])


class TestEndpoint(Endpoint):
    """Endpoint that requests objects of the submission."""

    __test__ = False
    describe = test_objects.describe

    def __init__(self, channel: Any, environment: Any) -> None:
        super().__init__(channel, first=2)
        self._environment = environment
        self._data_names = data_names()
        # Number of requests to the submission, except preparations.
        self.asked = 0
        # Reason for the permanent failure of the current test: the outcome ("refused", "failed" or
        # "raised"), a text, and a text that quotes the submission.
        self.lost: tuple[str, str, str] | None = None
        self.expected: list[frozenset[str]] = []
        self.last_call: tuple[str, Any, Any, bool] | None = None
        self._raised: list[list[BaseException]] = []
        self._content: dict[Any, Any] = {}

    def begin_test(self) -> None:
        """Clear the state of the previous test."""
        self.lost = None
        self.last_call = None
        self.expected.clear()
        self.connection.held.reset()

    def lose(self, outcome: str, text: str, quoted: str = "") -> None:
        """Fail the current test permanently; the first reason is kept."""
        if self.lost is None:
            self.lost = outcome, text, quoted

    def refuse(self, handle: Any, what: str) -> Any:
        """Fail the test permanently because the tests use a handle as data. Raises ``Refused``."""
        reference = reference_of(handle)
        info = self.classes.get(reference.class_number)
        origin = reference.origin or "this"
        verb = "returned" if origin.endswith(")") else "is"
        text = f"the test expects data, but {origin} {verb} an object"
        quoted = "" if info is None else f" of class {info.text}"
        self.lose("refused", text, f"{quoted}, which {what}")
        raise Refused(text)

    # ---------------------------------------------------------------- requests

    def ask(self, operation: str, *operands: Any) -> Any:
        """Send a request; fail the test if the submission catches an exception of the tests."""
        with self.connection.turn:
            if operation not in _PREPARATIONS:
                self.asked += 1
            raised: list[BaseException] = []
            self._raised.append(raised)
            came_out: BaseException | None = None
            result: Any = None
            try:
                result = self._request(operation, operands)
            except BaseException as error:
                came_out = error
                raise
            finally:
                self._raised.pop()
                sent = operands[-1] if operation in _SENDING else None
                leaves = operation in _LEAVING and came_out is None and not result
                if isinstance(sent, BaseException) and not leaves:
                    self._note(sent, raised)
                if any(error is not came_out for error in raised):
                    self.lose("failed", "the submission swallowed an exception of the tests")
        return result

    def _request(self, operation: str, operands: Any) -> Any:
        """Send a request and record the call's result for messages."""
        try:
            result = self.connection.request(operation, *operands)
        except Gone:
            raise
        except Unusable as error:
            self.lose("raised", f"the submission's process sent {error}")
            raise
        except BaseException as error:
            self._remember(operation, operands, error, True)
            stops = isinstance(error, (StopIteration, StopAsyncIteration))
            if stops and operation not in _ITERATING:
                raise self._as_runtime_error(error) from None
            raise
        self._remember(operation, operands, result, False)
        return result

    def leave(self, operation: str, handle: Any, cls: Any, error: Any) -> Any:
        """Leave a context; the traceback is not sent."""
        if error is None and cls is not None:
            error = cls()
        return self.ask(operation, reference_of(handle), None if error is None else cls, error)

    def exact(self, handle: Any, kind: Any, operation: str, *operands: Any) -> Any:
        """Return the result of a conversion, which must have exactly the type ``kind``."""
        answer = self.ask(operation, reference_of(handle), *operands)
        if type(answer) is not kind:
            self.refuse(handle, f"of which {operation}() is no {kind.__name__}")
        return answer

    def attribute(self, handle: Any, name: str, own: bool) -> Any:
        """Return an attribute of a handle."""
        reference = reference_of(handle)
        if handles.is_dunder(name) and name != handles.WRAPPED:
            return self._special_attribute(handle, name)
        if not own and name in self._data_names:
            self.refuse(handle, f"has no {name} that a test may use")
        return self.named(self.ask("get", reference, name), name)

    def _special_attribute(self, handle: Any, name: str) -> Any:
        reference = reference_of(handle)
        if name in handles.ABSENT:
            raise AttributeError(name)
        if name in handles.TEXTS:
            value = self.ask("get", reference, name)
            if type(value) not in (str, type(None)):
                self.refuse(handle, f"of which {name} is no text")
            return value
        if self.ask("has", reference, name) is not True:
            raise AttributeError(name)
        method = handles.special_method(handle, name)
        if method is None:
            self.refuse(handle, f"has no {name} that a test may use")
        return method

    def content_attribute(self, content: Any, name: str) -> Any:
        """Return a remote attribute that the built-in type or exception lacks."""
        reference = content.__dict__.get(REFERENCE)
        if type(reference) is not Reference:
            raise AttributeError(name)
        if name in self._data_names:
            self.lose("refused", f"the test expects data that has {name}")
            raise Refused(name)
        return self.named(self.ask("get", reference, name), name)

    def construct(self, cls: Any, args: Any, kwargs: Any) -> Any:
        """Make an exception of a class of the submission."""
        number = vars(cls)["__proctor_class__"]
        reference = self.connection.references.get(number)
        error = self.ask("call", reference, args, tuple(kwargs.items()))
        if not isinstance(error, cls):
            self.lose("raised", "a class of exceptions made something else")
            raise Refused("a class of exceptions made something else")
        return error

    def class_attribute(self, cls: Any, name: str) -> Any:
        """Return an attribute of an exception class of the submission."""
        return self.ask("get", self.connection.references.get(vars(cls)["__proctor_class__"]), name)

    def named(self, value: Any, name: str) -> Any:
        """Return the value; for a handle, store the name as its origin for messages."""
        if isinstance(value, Handle):
            reference = reference_of(value)
            reference.origin = reference.origin or name
        return value

    def _remember(self, operation: str, operands: Any, result: Any, failed: bool) -> None:
        if operation not in ("call", "make"):
            return
        reference = operands[0]
        label = reference.origin if type(reference) is Reference else ""
        label = label if label.isidentifier() else "a function"
        self.last_call = label, operands, result, failed
        if isinstance(result, Handle):
            made = reference_of(result)
            made.origin = made.origin or f"{label}()"

    # ---------------------------------------------------------------- failures

    def failed(self, error: BaseException) -> None:
        """Record that test code raised an exception into the submission."""
        if self._raised:
            self._note(error, self._raised[-1])
        if not _SKIPS.isdisjoint(control_names(error)):
            self.lose("failed", "a test was skipped by the submission")

    def _note(self, error: BaseException, raised: list[BaseException]) -> None:
        if is_telling(error) and REFERENCE not in error.__dict__:
            raised.append(error)

    def arrived(self, error: BaseException, places: Any) -> BaseException:
        """Return the exception to raise here for an exception of the submission."""
        if self.connection.exports.holds(error):
            return error  # raised first by the tests
        error.__dict__[TRACE] = checked_places(places)
        return error if self._may_cross(error) else self._as_runtime_error(error)

    def _may_cross(self, error: BaseException) -> bool:
        """Tell whether an exception is ordinary, or named by the tests around the call."""
        control = control_names(error)
        if isinstance(error, Exception) and not control:
            return True
        wanted: frozenset[str] = frozenset().union(*self.expected)
        own = {cls.__name__ for cls in type(error).__mro__ if is_made_here(cls)}
        return bool(wanted & control) or bool((wanted - ALL_CONTROL) & own)

    def _as_runtime_error(self, error: BaseException) -> BaseException:
        name = names_of(error)[0]
        stopped = RuntimeError(f"the submission raised {name}")
        stopped.__dict__[TRACE] = error.__dict__.get(TRACE, [])
        stopped.__dict__[NAMES] = names_of(error)
        return stopped

    # ---------------------------------------------------------------- classes

    def build_class(self, info: ClassInfo) -> Any:
        """Build the local class for an exception class of the submission."""
        if info.failure is None:
            raise Malformed("not a class of exceptions")
        bases: list[Any] = []
        for base in info.bases:
            if type(base) is not int:
                bases.append(find_exception(base))
            elif base in self.classes and self.classes[base].failure is not None:
                bases.append(self.local_class(base))
        found = tuple(base for base in bases if base is not None)
        return handles.exception_class(info, found or (info.failure,), self)

    def derives(self, number: int | None, handle: Any) -> bool:
        """Tell whether a class of the submission derives from a handle's class."""
        wanted = reference_of(handle).number
        info = None if number is None else self.classes.get(number)
        return number == wanted or (info is not None and wanted in info.mro)

    def defines(self, handle: Any, *names: str) -> bool:
        """Tell whether the class behind a handle has any of these special methods."""
        info = self.classes.get(reference_of(handle).class_number)
        return info is None or not info.special.isdisjoint(names)

    # ---------------------------------------------------------------- values

    def number_of(self, value: Any) -> int | None:
        """Return the number of the submission's object behind a local value, else None."""
        kind = type(value)
        if issubclass(kind, Handle):
            number: int = reference_of(value).number
            return number
        if kind is handles.ExceptionClass:
            found = vars(value).get("__proctor_class__")
            return found if type(found) is int else None
        if "__proctor_base__" in vars(kind):
            reference = value.__dict__.get(REFERENCE)
            return reference.number if type(reference) is Reference else None
        return super().number_of(value)

    def resolve(self, wire: list[Any], content: Any, decoder: Any) -> Any:
        """Return the local object for an object of the submission."""
        tag = wire[0]
        if tag == "n":
            return find_standard_class(wire[1:])
        if tag == "e":
            error = self.resolve_exception(wire, decoder)
            skips = not _SKIPS.isdisjoint(control_names(error))
            return error if not skips or self._may_cross(error) else self._as_runtime_error(error)
        kind, number, info = kind_and_number(wire)
        if kind in KINDS:
            return self.resolve_iterator(kind, number)
        if kind == "class":
            if number not in self.classes:
                raise Malformed("an unknown class")
            if self.classes[number].failure is not None:
                return self.local_class(number)
            return self._handle(number, None, handles.ClassHandle)
        cls = info.get("c")
        if type(cls) is not int or cls not in self.classes:
            raise Malformed("an object of an unknown class")
        value = content()
        if kind == "content":
            return self._content_of(number, cls, value, info.get("as"))
        special = self.classes[cls].special
        made = handles.IteratorHandle if "__next__" in special else Handle
        return self._handle(number, cls, handles.CallableHandle if "__call__" in special else made)

    def _handle(self, number: int, cls: int | None, kind: Any) -> Any:
        references = self.connection.references
        reference = references.get(number, cls)
        reference.class_number = cls
        present = references.view(reference)
        if type(present) is not kind:
            present = handles.make_handle(kind, reference, self)
            references.stand(present, reference)
        return present

    def _content_of(self, number: int, cls: int, value: Any, shape: Any) -> Any:
        if value is NO_BASE:
            raise Malformed("content without a value")
        if shape == "list" and type(value) is tuple:
            value = list(value)
        elif shape == "dict" and type(value) is tuple:
            value = dict(value)
        base = type(value)
        if (cls, base) not in self._content:
            self._content[cls, base] = handles.content_class(self.classes[cls], base, self)
        made = self._content[cls, base]
        if made is None:
            return value
        reference = self.connection.references.get(number, cls)
        return handles.make_content(made, base, value, reference)

    # ---------------------------------------------------------------- messages

    def perform(self, operation: str, operands: Any, options: Any, brought: Any) -> Any:
        """Perform an operation for the submission, in the order of both sides' output and input."""
        with self._environment.around(options, brought):
            return test_objects.perform(self, operation, operands)

    def options(self) -> Any:
        """Return the changes of the tests' environment, for a request."""
        return self._environment.news()

    def heard(self, brought: Any) -> None:
        """Apply an answer's extra data: the submission's output and its unread input."""
        if type(brought) is dict:
            self._environment.heard(brought)
