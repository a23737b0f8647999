"""One side of a conversation between two interpreters, as lines of JSON.

    ["q", id, operation, operands, news]     a request
    ["a", id, "v", value, news]              its answer, or
    ["a", id, "x", exception, news]          what it raised
    ["bye"]                                  the tests are done

``news`` is an object: ``u`` the shared containers that changed ([[reference, contents], ...]),
``k`` the key of the first container that this message shares, ``d`` the objects and ``m`` the
containers that the sender has no more use for; a request may carry ``o`` (``out``: collect what is
printed; ``in``: text for standard input; and what ``surroundings`` has), and then an answer ``out``
and ``rest``, and ``trace``, where in the submission it failed.

Both sides are alike: while one waits for its answer it serves requests of the other, so calls nest.
The answer to a request that nobody waits for any more (a signal handler's exception ended the wait)
is taken note of and dropped. References carry tags: ``h`` an object of the sender, ``o`` one of the
receiver, ``p`` one that the receiver has a stand-in for, ``m`` a shared container; ``descriptions``
has the rest.
"""

import _thread
import sys
from typing import Any, Protocol

from . import values
from .decoding import Decoder
from .descriptions import Owned, where
from .encoding import Encoder
from .mirrors import Policy
from .refusals import Malformed, ValueTooDeep, ValueTooLarge
from .sharing import Shared, contents
from .standins import StandIns

_MAX_STRAYS = 10_000
# What each side may recurse besides by calling the other, and how often.
_FRAMES_A_TURN = 16
_MOST_NESTED = 600
_recursion_limit, _set_recursion_limit = sys.getrecursionlimit, sys.setrecursionlimit


class Line(Protocol):
    """What lines are sent and received through."""

    def send(self, line: bytes) -> None:
        """Send a line with its newline."""

    def receive(self) -> bytes | None:
        """The next line, or None at the end."""


class Gone(BaseException):
    """The other side is no more. Not an ``Exception``: no test may take it for one of its own."""


class Unusable(Exception):
    """The other side's answer makes no sense."""


class Side(Protocol):
    """What the two sides do differently."""

    @property
    def policy(self) -> Policy:
        """Chooses the special methods of stand-ins."""

    def perform(self, peer: Any, operation: str, operands: tuple[Any, ...], options: Any) -> Any:
        """Carry out a request; may raise anything."""

    def name(self, module: Any, name: Any) -> Any:
        """What a name of the other side means here."""

    def options(self) -> dict[str, Any]:
        """What requests ask for besides."""

    def extras(self, options: Any) -> dict[str, Any]:
        """What answers carry besides."""

    def heard(self, extras: dict[str, Any]) -> None:
        """What an answer carried besides."""


class Peer:
    """One side. ``first`` is 1 for the submission's and 2 for the tests'."""

    def __init__(self, channel: Line, side: Side, first: int) -> None:
        self._channel = channel
        self._side = side
        self.shared = Shared(first, forgets=first == 2)
        self.owned = Owned(self.shared, trusted_receiver=first == 1)
        self.gone = False
        self._nested = 0
        self._turn = _thread.RLock()
        self._next_id = 1
        self.stand_ins = StandIns(self, side, self.shared)

    def request(self, operation: str, /, *operands: Any) -> Any:
        """Ask the other side; returns its answer or raises what it raised."""
        with self._turn:
            if self.gone:
                raise Gone
            number = self._next_id
            self._next_id += 1
            news: dict[str, Any] = {}
            options = self._side.options()
            if options:
                news["o"] = options
            self._send(["q", number, operation], operands, news)
            return self._wait(number)

    def serve(self) -> None:
        """Answer requests until the other side says goodbye or is gone."""
        while True:
            with self._turn:
                frame = self._receive()
            if frame is None or (frame and frame[0] == "bye"):
                return
            self._take(frame)

    def close(self) -> None:
        """Say goodbye."""
        if not self.gone:
            self._channel.send(values.dumps(["bye"]))

    def _wait(self, number: int) -> Any:
        strays = 0
        while strays < _MAX_STRAYS:
            frame = self._receive()
            if frame is None:
                self.gone = True
                raise Gone
            if len(frame) == 5 and frame[0] == "a" and frame[1] == number:
                return self._answer(frame)
            strays += not frame or frame[0] != "q"
            self._take_within(frame)
        raise Unusable("the answer never came")

    def _take_within(self, frame: list[Any]) -> None:
        """Deal with a message while waiting: what that takes is not the recursion of the caller."""
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
        return frame if type(frame) is list else []

    def _take(self, frame: list[Any]) -> None:
        """Deal with a message that isn't the answer one waits for."""
        if len(frame) != 5 or type(frame[1]) is not int:
            return
        if frame[0] == "q" and type(frame[2]) is str:
            self._serve_one(frame)
        elif frame[0] == "a":
            # Nobody waits for it, but what it shares counts.
            before, self.stand_ins.quiet = self.stand_ins.quiet, True
            try:
                self._unpack(frame[3], frame[4])
            except Exception:
                pass
            self.stand_ins.quiet = before

    def _answer(self, frame: list[Any]) -> Any:
        _, _, status, body, news = frame
        try:
            value = self._unpack(body, news)
        except Exception as error:
            raise Unusable(f"an unusable answer: {error}") from None
        self._side.heard(news)
        if status == "v":
            return value
        if not isinstance(value, BaseException):
            raise Unusable("an exception that isn't one")
        trace = news.get("trace")
        value.__dict__["__proctor_trace__"] = trace[:500] if type(trace) is str else ""
        raise value.with_traceback(None)

    def _serve_one(self, frame: list[Any]) -> None:
        _, number, operation, body, news = frame
        options: Any = None
        try:
            operands = self._unpack(body, news)
            if type(operands) is not tuple:
                raise Malformed("not operands")
            options = news.get("o")
            result = self._side.perform(self, operation, operands, options)
            head, extras = ["a", number, "v"], {}
        except Gone:
            raise
        except BaseException as error:
            result = error
            head, extras = ["a", number, "x"], {"trace": where(error)}
        extras.update(self._side.extras(options))
        with self._turn:
            try:
                self._send(head, result, extras)
            except Gone:
                raise
            except BaseException as error:
                refused = isinstance(error, ValueTooDeep | ValueTooLarge | TypeError)
                text = str(error) if refused else type(error).__name__
                failure = RuntimeError(f"the result can't be handed over: {text}")
                self._send(["a", number, "x"], failure, {})
            finally:
                # Its traceback refers to this frame.
                result = None

    def _send(self, head: list[Any], value: Any, news: dict[str, Any]) -> None:
        changed = self.shared.changed()
        encoder = Encoder(lambda thing: self.owned.describe(thing, encoder), self._known)
        encoder.reopen = self.owned.reopen
        updates = []
        for entry in changed:
            updates.append([entry.token, encoder.encode(_content(entry.base, entry.value))])
        replaced = news["o"].get("replaced", {}) if "o" in news else {}
        for place in replaced:
            replaced[place] = encoder.encode(replaced[place])
        body = encoder.encode(value)
        news.update({"u": updates, "d": self.stand_ins.dropped, "m": self.shared.unused()})
        mark = self.shared.next_key
        line = values.dumps([*head, body, {**news, "k": mark}])
        self.stand_ins.dropped = []
        self.shared.settle(changed)
        self.shared.offer(encoder.kept)
        try:
            self._channel.send(line)
        except OSError:
            self.gone = True
            raise Gone from None

    def _known(self, value: Any) -> Any:
        number = self.stand_ins.number_of(value)
        if number is not None:
            return ["o", number]
        return self.shared.token(value)

    def _unpack(self, body: Any, news: Any) -> Any:
        if type(news) is not dict:
            raise Malformed("no news")
        decoder = Decoder(
            lambda wire, content: self.stand_ins.resolve(wire, content, decoder), self._here
        )
        updates = []
        for target, content in news.get("u", ()):
            updates.append((self._container(target), decoder.decode(content)))
        options = news.get("o")
        replaced = options.get("replaced") if type(options) is dict else None
        if type(replaced) is dict:
            for place, wire in replaced.items():
                replaced[place] = decoder.decode(wire)
        value = decoder.decode(body)
        self.shared.accept(decoder.kept, news["k"])
        for container, content in updates:
            if container is not None:
                self.shared.apply(container, content)
        self.shared.forget(news.get("m", ()))
        for number in news.get("d", ()):
            self.owned.drop(number)
        return value

    def _container(self, target: Any) -> Any:
        """What an update is for; None if it is no longer of interest."""
        if target[0] == "p" and self.stand_ins.alive(target[1]) is None:
            return None
        container = self._here(target)
        if self.shared.base(container) is None:
            raise Malformed("not a shared container")
        return container

    def _here(self, wire: Any) -> Any:
        """What a reference to something that this side has means."""
        tag, number = wire
        if type(number) is not int:
            raise Malformed("not a reference")
        try:
            if tag == "o":
                return self.owned.object(number)
            if tag == "m":
                return self.shared.value(number)
        except KeyError:
            raise Malformed("a reference to nothing") from None
        value = self.stand_ins.alive(number)
        if value is None:
            raise Malformed("a reference to nothing")
        return value


def _content(base: type, value: Any) -> Any:
    content = contents(base, value)
    return content if base is bytearray else tuple(content)
