"""The tests' side: functions of the submission, and stand-ins for its answers other than data."""

from __future__ import annotations

import weakref
from sys import getrefcount
from typing import Any

from ...codec.introspection import derives
from ...codec.limits import NO_BASE, Malformed
from . import crossing, records
from .conversation import Conversation, Ended, Gone, Unusable

_words = str.split
_UNUSED = 2  # references to a tuple: the table's, and an argument's
_TUPLES = 1000  # most entries before the first sweep
_new, _set_slot = object.__new__, object.__setattr__


class Refused(TypeError):
    """A test uses an answer other than data as data."""


class Token:
    """An answer other than data: the tests can only pass the token back to the submission.

    By default an object is true, as in plain Python.
    """

    __slots__ = (
        "__proctor_number__",
        "__proctor_side__",
        "__proctor_truth__",
        "__proctor_type__",
        "__weakref__",
    )

    def __getattribute__(self, name: str) -> Any:
        _side_of(self).refuse(self)

    def __bool__(self) -> bool:
        return bool(_truth_of(self)) or bool(_side_of(self).refuse(self))


_number_of = vars(Token)["__proctor_number__"].__get__
_side_of = vars(Token)["__proctor_side__"].__get__
_truth_of = vars(Token)["__proctor_truth__"].__get__
_type_of = vars(Token)["__proctor_type__"].__get__


def _refuse(self: Any, *operands: Any, **more: Any) -> Any:
    _side_of(self).refuse(self)


_ARITHMETIC = _words("add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor")
for _name in (
    *_words(
        "len iter next getitem setitem delitem contains reversed lt le gt ge eq ne hash str repr"
    ),
    *_words(
        "neg pos abs invert round trunc floor ceil index int float complex bytes copy deepcopy"
    ),
    *_words(
        "format reduce reduce_ex fspath dir array enter exit aenter aexit await aiter anext setattr"
    ),
    *(f"{prefix}{name}" for name in _ARITHMETIC for prefix in ("", "r", "i")),
):
    setattr(Token, f"__{_name}__", _refuse)


class CallableToken(Token):
    """The token of an object which its own side could call."""

    __slots__ = ()
    __call__ = _refuse


class Function:
    """A function of the submission, by its name, or a method of a new object."""

    __slots__ = ("__name__", "__weakref__", "_side", "_target")

    def __init__(self, side: TestsSide, target: Any, name: str) -> None:
        self._side, self._target, self.__name__ = side, target, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._side.call(self.__name__, self._target, args, kwargs)


class Fresh:
    """A class of the submission, of which tests make an object for a method: `Solution().f`."""

    __slots__ = ("_name", "_side")

    def __init__(self, side: TestsSide, name: str) -> None:
        self._side, self._name = side, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _FreshObject(self._side, self._name, args, tuple(kwargs.items()))


class _FreshObject:
    __slots__ = ("_args", "_kwargs", "_name", "_side")

    def __init__(self, side: TestsSide, name: str, args: Any, kwargs: Any) -> None:
        self._side, self._name, self._args, self._kwargs = side, name, args, kwargs

    def __getattr__(self, method: str) -> Any:
        number = self._side.new_object()
        target = (number, self._name, self._args, self._kwargs, method)
        function = Function(self._side, target, method)
        weakref.finalize(function, self._side.conversation.dropped.append, -number).atexit = False
        return function


class TestsSide:
    """Asks the submission for the tests, and records why a test fails, for good."""

    __test__ = False

    def __init__(self, channel: Any) -> None:
        self.conversation = Conversation(channel, self, widens=True)
        self.event_loop = crossing.EventLoop()
        self.records = records.Records({}, [])
        # Why the current test fails: the outcome, a text, and a text that quotes the submission.
        self.lost: tuple[str, str, str] | None = None
        self.left: Ended | None = None
        self.last_call: tuple[str, Any, Any, Any, bool] | None = None
        self._objects = 0
        self._types: dict[tuple[str, Any], Any] = {}
        self._proxies: Any = weakref.WeakValueDictionary()
        self._stand_ins: dict[int, tuple[Any, int]] = {}
        # Answers that are tuples of a class of the submission, and their numbers; no tuple has a weak
        # reference, so those that only this table holds are swept out.
        self._tuples: dict[int, tuple[Any, int]] = {}
        self._sweep_at = _TUPLES

    def begin_test(self) -> None:
        """Clear the state of the previous test."""
        self.lost = self.last_call = None

    def lose(self, outcome: str, text: str, quoted: str = "") -> None:
        """Fail the current test for good; the first reason is kept."""
        if self.lost is None:
            self.lost = outcome, text, quoted

    def refuse(self, token: Any) -> Any:
        """Fail the test for its use of an answer as data. Raises ``Refused``."""
        quoted = f"of class {_type_of(token)}"
        self.lose("refused", "the submission returned an object; these tests need data", quoted)
        raise Refused("an answer is no data")

    def new_object(self) -> int:
        """Return the number of an object which the submission makes at its first call."""
        self._objects += 1
        return self._objects

    def call(self, name: str, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of the submission."""
        failed = True
        result: Any = None
        try:
            result = self.conversation.ask("call", target, args, tuple(kwargs.items()))
            failed = False
            return result
        except Gone:
            raise
        except BaseException as error:
            result = error
            raise
        finally:
            self.last_call = name, args, kwargs, result, failed

    def unusable(self, error: Unusable) -> None:
        """Fail the test: the clause would catch an exception from elsewhere."""
        self.lose("raised", f"the submission's process sent {error}")

    def ended(self, body: Any) -> Ended:
        """Return the exception for a submission's own end."""
        code, name, places = body if type(body) is list and len(body) == 3 else (None, "", [])
        code = code if type(code) is int else None
        self.left = Ended(code, name if type(name) is str else "", crossing.checked_places(places))
        return self.left

    def perform(self, kind: str, number: int, operands: Any) -> Any:
        """Return the result of the submission's request: of a function from the tests."""
        thing = self.conversation.exports.object(operands[0])
        if kind == "back":
            _, args, kwargs = operands
            return thing(*args, **dict(kwargs))
        if kind == "next":
            return self.event_loop.step(thing, operands[1])
        if kind == "await":
            return self.event_loop.drive(thing)
        raise Malformed("not a request")

    # ------------------------------------------------------------ the tests' objects

    def describe(self, value: Any, encoder: Any) -> Any:
        """Return the wire form of an object of the tests. Raises ``TypeError`` if impossible."""
        named = crossing.importable_name(value)
        if named is not None:
            return named
        cls = type(value)
        record = self.records.describe(value, encoder)
        if record is not None:
            return record
        number = self.conversation.exports.number(value)
        if derives(cls, BaseException):
            # The text of an assertion may hold an expected value.
            shown = AssertionError() if isinstance(value, AssertionError) else value
            return crossing.describe_exception(shown, encoder, number)
        kind = crossing.kind_of(cls)
        if not kind and not callable(value):
            raise TypeError(f"a {cls.__name__} can't be passed to the submission")
        name, text = getattr(value, "__name__", ""), getattr(value, "__doc__", None)
        facts = {
            "k": kind or "function",
            "name": name if type(name) is str else "",
            "doc": text if type(text) is str else None,
        }
        return ["h", number, facts]

    def refer(self, value: Any) -> Any:
        """Return the reference to an object of the submission, or None."""
        kind = type(value)
        if issubclass(kind, Token):
            return ["o", _number_of(value)]
        if kind is Function and type(value._target) is str:
            return ["p", value._target]
        if kind is tuple:
            held = self._tuples.get(id(value))
            return None if held is None else ["o", held[1]]
        stand_in = self._stand_ins.get(id(value))
        return ["o", stand_in[1]] if stand_in is not None and stand_in[0]() is value else None

    def forget(self, numbers: Any) -> None:
        """Release objects after their last use by the submission."""
        self.conversation.exports.drop(numbers)

    # ------------------------------------------------------------ answers

    def named(self, name: Any) -> Any:
        """Refuse a name: the submission may not choose the object behind a name."""
        raise Malformed("a name")

    def resolve(self, wire: list[Any], content: Any, decoder: Any) -> Any:
        """Return the stand-in for an object of the submission. Raises ``Malformed``."""
        if wire[0] == "e":
            return crossing.resolve_exception(wire, decoder)
        if (
            wire[0] != "h"
            or len(wire) != 3
            or type(wire[1]) is not int
            or type(wire[2]) is not dict
        ):
            raise Malformed("not an object")
        _, number, facts = wire
        kind = facts.get("k")
        if kind == "record":
            return self.records.resolve(wire, content, decoder)
        value = content()
        if value is not NO_BASE:
            if type(value) is tuple and value:
                self._keep(value, number)
            else:
                self.conversation.dropped.append(number)
            return value
        made = self._proxies.get(number)
        if made is None:
            self._need(number)
            if type(kind) is str and kind in crossing.STAND_INS:
                made = crossing.stand_in(self.conversation, kind, number)
                self._stand_ins[id(made)] = weakref.ref(made), number
            else:
                made = self._token(number, facts)
            self._proxies[number] = made
            weakref.finalize(made, self.conversation.dropped.append, number).atexit = False
        return made

    def _keep(self, value: Any, number: int) -> None:
        """Remember a named tuple, for the time when the tests pass the tuple back."""
        self._need(number)
        self._tuples[id(value)] = value, number
        if len(self._tuples) > self._sweep_at:
            swept = [each for each in self._tuples if getrefcount(self._tuples[each][0]) <= _UNUSED]
            gone = {self._tuples.pop(each)[1] for each in swept}
            self.conversation.dropped += gone - {number for _, number in self._tuples.values()}
            self._sweep_at = max(_TUPLES, 2 * len(self._tuples))

    def _need(self, number: int) -> None:
        """Keep an object after its release: the submission has sent the object again."""
        while number in self.conversation.dropped:
            self.conversation.dropped.remove(number)

    def _token(self, number: int, facts: dict[str, Any]) -> Token:
        name, base = facts.get("type"), CallableToken if facts.get("callable") is True else Token
        name = name[:200] if type(name) is str else "?"
        cls: Any = self._types.get((name, base))
        if cls is None:  # so the types of two answers differ where their objects' types do
            cls = type(name.rpartition(".")[2], (base,), {"__slots__": ()})
            self._types[name, base] = cls
        token: Token = _new(cls)
        _set_slot(token, "__proctor_number__", number)
        _set_slot(token, "__proctor_side__", self)
        _set_slot(token, "__proctor_truth__", facts.get("truth") is True)
        _set_slot(token, "__proctor_type__", name)
        return token
