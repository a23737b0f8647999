"""The stand-ins of one side: which object of the other side each of them stands for.

One stand-in for each object over there while it is in use here, so ``is`` tells the truth. When the
last reference here is gone, the other side is told with the next message.
"""

import weakref
from collections.abc import Callable
from typing import Any

from . import mirrors
from .decoding import Decoder
from .iteration import local_version
from .refusals import Malformed
from .sharing import MUTABLE, Shared

_KINDS = ("generator", "coroutine", "async_generator")
_MAX_STRONG = 50_000


class StandIns:
    """By number, weakly where that is possible; and the numbers by stand-in."""

    def __init__(self, peer: Any, side: Any, shared: Shared) -> None:
        self.dropped: list[int] = []
        # While set, nothing is asked in order to understand a message.
        self.quiet = False
        self._peer = peer
        self._side = side
        self._shared = shared
        self._stand_ins: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._classes: dict[int, Any] = {}
        self._strong: dict[int, Any] = {}

    def number_of(self, stand_in: Any) -> int | None:
        """The number of what a stand-in stands for; None if it is no stand-in."""
        return self._numbers.get(id(stand_in))

    def resolve(self, wire: list[Any], content: Callable[[], Any], decoder: Decoder) -> Any:
        """What a reference to an object of the other side becomes."""
        tag = wire[0]
        if tag == "n":
            return self._side.name(*wire[1:])
        if tag == "e":
            error = _exception(decoder.visit(wire[1]), decoder.visit(wire[2]))
            return _with_facts(error, wire[3] if len(wire) > 3 else None, decoder)
        number = wire[1]
        if type(number) is not int:
            raise Malformed("not a reference")
        present = self._classes.get(number)
        present = self.alive(number) if present is None else present
        info = wire[2] if len(wire) == 3 else None
        if type(info) is not dict:
            return self._again(number) if present is None else present
        kind = info.get("k")
        if kind == "class":
            return self._class(wire, decoder)
        if kind in _KINDS:
            return present if present is not None else local_version(self._peer, kind, number)
        cls = self._class(info["c"], decoder)
        arguments = decoder.visit(info["x"]) if "x" in info else ()
        if present is None:
            present = mirrors.make(cls, content, arguments, lambda value: self.keep(value, number))
        else:
            content()
        return _with_facts(present, info.get("f"), decoder)

    def _class(self, wire: Any, decoder: Decoder) -> Any:
        tag, number, *rest = wire
        if tag != "h" or type(number) is not int:
            raise Malformed("not a class")
        if not rest:
            known = self._classes.get(number)
            return self._again(number) if known is None else known
        info = rest[0]
        bases = [
            self._class(base, decoder) if base[0] == "h" else decoder.visit(base)
            for base in info["bases"]
        ]
        data = decoder.visit(info["data"])
        if number not in self._classes:
            described = mirrors.Described(number, info, bases, data)
            cls = mirrors.build(self._peer, described, self._side.policy)
            self._classes[number] = cls
            self._numbers[id(cls)] = number
        return self._classes[number]

    def _again(self, number: int) -> Any:
        """Have an object described that was forgotten here while the other side named it."""
        # Not within itself: a forger could have it asked for ever.
        if self.quiet:
            raise Malformed("a reference to nothing")
        if number in self.dropped:
            self.dropped.remove(number)
        self.quiet = True
        try:
            return self._peer.request("again", number)
        finally:
            self.quiet = False

    def alive(self, number: int) -> Any:
        """The stand-in for an object of the other side; None if there is none (any more)."""
        found = self._stand_ins.get(number)
        return found() if type(found) is weakref.ref else found

    def keep(self, value: Any, number: int) -> None:
        """Remember a stand-in, and tell the other side when it is no longer used."""
        identity = id(value)

        def forget(reference: Any) -> None:
            if self._stand_ins.get(number) is reference:
                del self._stand_ins[number]
                self._numbers.pop(identity, None)
                self.dropped.append(number)

        try:
            self._stand_ins[number] = weakref.ref(value, forget)
        except TypeError:
            # A tuple's or an integer's subclass: kept, within bounds.
            if len(self._strong) >= _MAX_STRONG:
                oldest = next(iter(self._strong))
                self._numbers.pop(id(self._strong.pop(oldest)), None)
                del self._stand_ins[oldest]
                self.dropped.append(oldest)
            self._stand_ins[number] = self._strong[number] = value
        self._numbers[identity] = number
        for base in type(value).__mro__:
            if any(base is each for each in MUTABLE):
                self._shared.track(["o", number], base, value)
                break

    def alias(self, value: Any, number: int) -> None:
        """Let something weakly referable name the same object in requests."""
        identity = id(value)
        self._numbers[identity] = number
        weakref.finalize(value, self._numbers.pop, identity, None).atexit = False


def _exception(cls: Any, arguments: Any) -> BaseException:
    if not isinstance(cls, type) or not issubclass(cls, BaseException):
        raise Malformed("not an exception")
    if type(arguments) is not tuple:
        raise Malformed("not arguments")
    try:
        value = cls(*arguments)
    except Exception:
        value = cls.__new__(cls)
        value.args = arguments
    if not isinstance(value, BaseException):
        raise Malformed("not an exception")
    return value


def _with_facts(error: Any, facts: Any, decoder: Decoder) -> Any:
    """Give an exception its cause, its notes, and attributes such as ``errno``."""
    if type(facts) is not dict or not isinstance(error, BaseException):
        return error
    for name, wire in facts.items():
        value = decoder.visit(wire)
        if name in ("__cause__", "__context__"):
            if isinstance(value, BaseException) and value is not error:
                vars(BaseException)[name].__set__(error, value)
        elif name == "__notes__":
            if type(value) is list:
                error.__dict__[name] = value
        elif (
            type(type(error)) is not mirrors.Mirror
            and type(value) in (str, int)
            and name[:1] != "_"
        ):
            try:
                BaseException.__setattr__(error, name, value)
            except (AttributeError, TypeError, ValueError):
                continue
    return error
