"""Conversation between the tests' interpreter and the submission's, as lines of JSON.

    ["call", id, (target, arguments, keywords), news]     the tests call a function of the submission
    ["back", id, (number, arguments, keywords), news]     the submission calls a function of the tests
    ["next", id, (number, operation), news]               `next`, `iter` or `bool` of an iterator there
    ["await", id, (number,), news]                        the result of an awaitable of the other side
    ["ended", id, [exit code, name, places], {}]          the submission ended itself
    ["answer", id, value, news], ["raise", id, exception, news], ["unusable", id, text, {}]

A side waiting for an answer serves requests, so calls nest. ``news``: ``p`` the positions of containers
in the operands, ``u`` changed containers, ``d`` numbers to release (`passed_data.py`). References: ``h``
an object of the sender, ``o`` an object of the receiver, ``m`` a passed container, ``p`` a function of
the submission by its name, ``e`` an exception.
"""

from __future__ import annotations

import _thread
import sys
from typing import Any

from ...codec import values
from ...codec.decoding import Decoder
from ...codec.encoding import Encoder
from ...codec.limits import Malformed, ValueTooDeep, ValueTooLarge
from .passed_data import Passed

REQUESTS = ("call", "back", "next", "await")
_MOST_STRAYS = 10_000
# Recursion that each nested request may use, in frames, and the deepest one with this extra.
_FRAMES_A_TURN = 16
_MOST_NESTED = 600
_recursion_limit, _set_recursion_limit = sys.getrecursionlimit, sys.setrecursionlimit


class Gone(BaseException):
    """The other side has ended: the tests cannot catch the error."""


class Ended(Gone):
    """The submission ended itself. `code`: its exit code, if any; `name`: the exception's name."""

    def __init__(self, code: int | None, name: str, places: Any) -> None:
        super().__init__(name)
        self.code, self.name, self.places = code, name, places


class Unusable(RuntimeError):
    """The other side sent an invalid answer, or its answer can't cross."""


class Exports:
    """Objects of this side which the other side knows by number."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._next = 1

    def number(self, value: Any) -> int:
        """Return the number of an object, a new number on its first export."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = self._next
            self._objects[number] = value
            self._next += 1
        return number

    def object(self, number: Any) -> Any:
        """Return the object for a number. Raises ``Malformed``."""
        if type(number) is not int or number not in self._objects:
            raise Malformed("a reference to nothing")
        return self._objects[number]

    def drop(self, numbers: Any) -> None:
        """Release objects after their last use by the other side."""
        for number in numbers:
            if type(number) is int and number in self._objects:
                self._numbers.pop(id(self._objects.pop(number)), None)


class Conversation:
    """Half of a conversation.

    ``side`` implements ``perform``, ``describe``, ``resolve``, ``named``, ``refer``, ``forget``,
    ``unusable``, and ``ended`` on the tests' side.

    ``widens``: narrow numbers of numpy are received as numbers calculating like Python's.
    """

    def __init__(self, channel: Any, side: Any, widens: bool = False) -> None:
        self._channel = channel
        self._side = side
        self._widens = widens
        self.exports = Exports()
        self.dropped: list[int] = []
        self.gone = False
        self._passed = Passed()
        self._turn = _thread.RLock()
        self._next_id = 1
        self._nested = 0

    def ask(self, kind: str, *operands: Any) -> Any:
        """Send a request; return the answer, or raise the exception in its place. Raises ``Gone``."""
        with self._turn:
            if self.gone:
                raise Gone
            number, length = self._next_id, len(self._passed)
            self._next_id += 1
            try:
                self._send([kind, number], operands, passes=True)
                return self._wait(number)
            except Unusable as error:
                self._side.unusable(error)
                raise
            finally:
                self._passed.leave(length)

    def serve(self) -> None:
        """Answer requests until the other side closes the channel."""
        while True:
            with self._turn:
                frame = self._receive()
            if frame is None:
                return
            self._take(frame)

    def end(self, number: int, code: int | None, name: str, places: Any) -> None:
        """Report the end of this program by its own call."""
        self._channel.send(values.dumps(["ended", number, [code, name, places], {}]))

    # ------------------------------------------------------------ receiving

    def _receive(self) -> list[Any] | None:
        try:
            line = self._channel.receive()
        except OSError:
            line = None
        if line is None:
            return None
        try:
            frame = values.loads(line)
        except Malformed as error:
            raise Unusable(str(error)) from None
        return frame if type(frame) is list and len(frame) == 4 else []

    def _wait(self, number: int) -> Any:
        for _ in range(_MOST_STRAYS):
            frame = self._receive()
            while frame and frame[0] in REQUESTS:
                self._take_within(frame)
                frame = self._receive()
            if frame is None:
                self.gone = True
                raise Gone
            if not frame or frame[1] != number:
                continue
            kind, _, body, news = frame
            if kind == "ended":
                self.gone = True
                raise self._side.ended(body)
            try:
                value = self._unpack(body, news)
            except Exception as error:
                raise Unusable(f"an unusable answer: {error}") from None
            if kind == "answer":
                return value
            if kind == "unusable":
                raise Unusable(f"an unusable answer: {value}")
            if kind == "raise" and isinstance(value, BaseException):
                raise value.with_traceback(None)
        raise Unusable("the answer never came")

    def _take_within(self, frame: list[Any]) -> None:
        """Serve a request during a wait, with more recursion."""
        limit = _recursion_limit()
        raised = limit + _FRAMES_A_TURN if self._nested < _MOST_NESTED else limit
        self._nested += 1
        _set_recursion_limit(raised)
        try:
            self._take(frame)
        finally:
            self._nested -= 1
            if _recursion_limit() == raised:
                _set_recursion_limit(limit)

    def _take(self, frame: list[Any]) -> None:
        if not frame or frame[0] not in REQUESTS or type(frame[1]) is not int:
            return
        kind, number, body, news = frame
        length = len(self._passed)
        try:
            try:
                result = self._side.perform(kind, number, self._unpack(body, news))
                head = ["answer", number]
            except Gone:
                raise
            except BaseException as error:
                result, head = error, ["raise", number]
            with self._turn:
                self._reply(head, result)
        finally:
            # The exception's traceback refers to this frame: break the cycle.
            result = None
            self._passed.leave(length)

    def _unpack(self, body: Any, news: Any) -> Any:
        if type(news) is not dict:
            raise Malformed("no news")
        decoder = Decoder(
            lambda wire, content: self._side.resolve(wire, content, decoder), self._known_here
        )
        decoder.widens = self._widens
        updates = [(place, decoder.decode(content)) for place, content in news.get("u", ())]
        value = decoder.decode(body)
        for place, content in updates:
            self._passed.update(place, content)
        self._passed.add(decoder.containers, news.get("p", []))
        self._side.forget(news.get("d", ()))
        return value

    def _known_here(self, wire: Any) -> Any:
        tag, reference = wire
        if tag == "p":
            return self._side.named(reference)
        return self.exports.object(reference) if tag == "o" else self._passed.value(reference)

    # ------------------------------------------------------------ sending

    def _reply(self, head: list[Any], result: Any) -> None:
        try:
            self._send(head, result)
        except Gone:
            raise
        except BaseException as error:
            refused = isinstance(error, (ValueTooDeep, ValueTooLarge, TypeError))
            text = str(error) if refused else type(error).__name__
            self._send(["unusable", head[1]], text)

    def _send(self, head: list[Any], value: Any, passes: bool = False) -> None:
        encoder = Encoder(lambda thing: self._side.describe(thing, encoder), self._known_there)
        news: dict[str, Any] = {}
        updates = [[place, encoder.encode(content)] for place, content in self._passed.changed()]
        if updates:
            news["u"] = updates
        body = encoder.encode(value)
        if passes:
            places = self._passed.choose(encoder.containers)
            if places:
                news["p"] = places
                self._passed.add(encoder.containers, places)
        if self.dropped:
            news["d"], self.dropped = self.dropped, []
        try:
            self._channel.send(values.dumps([*head, body, news]))
        except OSError:
            self.gone = True
            raise Gone from None

    def _known_there(self, value: Any) -> Any:
        """Return a reference to an object of the other side, or None."""
        place = self._passed.place(value)
        return self._side.refer(value) if place is None else ["m", place]
