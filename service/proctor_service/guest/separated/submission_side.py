"""The submission's side: answers calls of the tests with data.

This side is in the open: the submission may reach everything in its own interpreter.
"""

from __future__ import annotations

from typing import Any

from ...codec.introspection import class_name, derives
from .. import function_calls
from ..script import exit_code, flush_all
from . import crossing, records
from .conversation import Conversation, Gone

_type = type


def serve(channel: Any, namespace: dict[str, Any], record_names: list[str]) -> None:
    """Answer the tests' requests about a loaded submission until either side ends."""
    SubmissionSide(channel, namespace, record_names).conversation.serve()
    flush_all()


class SubmissionSide:
    """Performs the tests' requests, and stands for the tests' functions."""

    def __init__(self, channel: Any, namespace: dict[str, Any], record_names: list[str]) -> None:
        self.conversation = Conversation(channel, self)
        self._namespace = namespace
        self._records = records.Records(namespace, record_names)
        self._event_loop = crossing.EventLoop()
        self._instances: dict[int, Any] = {}
        self._functions: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}

    def perform(self, kind: str, number: int, operands: Any) -> Any:
        """Return the result of a request; an exit of the submission ends the process."""
        try:
            if kind == "call":
                target, args, kwargs = operands
                return self._callee(target)(*args, **dict(kwargs))
            number_of_thing, *operation = operands
            thing = self.conversation.exports.object(number_of_thing)
            if kind == "next":
                return self._event_loop.step(thing, *operation)
            return self._event_loop.drive(thing)
        except (Exception, Gone):
            raise
        except BaseException as error:
            if crossing.NUMBER in error.__dict__:
                raise  # of the tests' own function
            code = exit_code(error) if isinstance(error, SystemExit) else None
            name, places = crossing.names_of(error)[0], crossing.places_of(error)
            flush_all()
            self.conversation.end(number, code, name, places)
            raise Gone from None

    def _callee(self, target: Any) -> Any:
        if type(target) is not tuple:
            return function_calls.callee_of(target, self._namespace, {})
        number, name, args, kwargs, method = target  # a method of a new object
        if number not in self._instances:
            cls = function_calls.callee_of(name, self._namespace, {})
            self._instances[number] = cls(*args, **dict(kwargs))
        return getattr(self._instances[number], method)

    def forget(self, numbers: Any) -> None:
        """Release objects after their last use by the tests; `_callee` gave negative numbers."""
        self.conversation.exports.drop(numbers)
        for number in numbers:
            self._instances.pop(-number, None)

    def unusable(self, error: Exception) -> None:
        """Raise in the submission: the result of a function of the tests cannot cross."""

    # ------------------------------------------------------------ own objects

    def describe(self, value: Any, encoder: Any) -> Any:
        """Return the wire form of an object of the submission."""
        cls = _type(value)
        if derives(cls, BaseException):
            return crossing.describe_exception(value, encoder)
        record = self._records.describe(value, encoder)
        if record is not None:
            return record
        kind = crossing.kind_of(cls)
        number = self.conversation.exports.number(value)
        facts: dict[str, Any] = {"k": kind or "object", "type": class_name(cls)}
        facts["callable"] = crossing.has(cls, "__call__")
        if not crossing.has(cls, "__bool__") and not crossing.has(cls, "__len__"):
            facts["truth"] = True
        return ["h", number, facts]

    def refer(self, value: Any) -> Any:
        """Return the reference to an object of the tests, or None."""
        number = self._numbers.get(id(value))
        if number is None and derives(_type(value), BaseException):
            number = value.__dict__.get(crossing.NUMBER)
        return None if number is None else ["o", number]

    # ------------------------------------------------------------ the tests' objects

    def named(self, name: Any) -> Any:
        """Return the submission's own function, passed by the tests."""
        return self._callee(tuple(name) if type(name) is list else name)

    def resolve(self, wire: list[Any], content: Any, decoder: Any) -> Any:
        """Return the local object for an object of the tests."""
        if wire[0] == "n":
            return crossing.find_importable(*wire[1:])
        if wire[0] == "e":
            return crossing.resolve_exception(wire, decoder)
        _, number, facts = wire
        if facts["k"] == "record":
            return self._records.resolve(wire, content, decoder)
        if number not in self._functions:
            if facts["k"] == "function":
                made = _function(self.conversation, number, facts)
            else:
                made = crossing.stand_in(self.conversation, facts["k"], number)
            self._functions[number] = made
            self._numbers[id(made)] = number
        return self._functions[number]


def _function(conversation: Any, number: int, facts: dict[str, Any]) -> Any:
    """Return a caller of a function of the tests."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return conversation.ask("back", number, args, tuple(kwargs.items()))

    function.__name__ = function.__qualname__ = facts["name"]
    function.__doc__ = facts["doc"]
    function.__module__ = "__main__"
    return function
