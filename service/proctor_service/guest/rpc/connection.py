"""RPC connection between the submission's interpreter and the tests' interpreter, as lines of JSON.

    ["q", id, operation, operands, news]     a request
    ["a", id, "v", value, news]              its result, or
    ["a", id, "x", exception, news]          the exception raised
    ["bye"]                                  the tests are done

``news`` is an object: ``c`` descriptions of classes used for the first time, ``u`` changed shared
containers ([[key, contents], ...]), ``k`` and ``s`` the first key and the positions of newly shared
containers, ``d`` the objects and ``m`` the containers released by the sender, ``o`` options of a
request or extra data of an answer, and ``t`` the positions of a failure.

While an endpoint waits for an answer, it serves requests of the other endpoint, so calls nest. The
endpoint applies the ``news`` of an unexpected answer and drops its value. References carry tags:
``h`` and ``e`` an object and an exception of the sender, ``o`` an object of the receiver, ``m`` a
shared container, ``n`` a name.
"""

from __future__ import annotations

import _thread
import sys
from typing import Any

from ...codec import values
from ...codec.decoding import Decoder
from ...codec.encoding import Encoder
from ...codec.limits import Malformed, ValueTooDeep, ValueTooLarge
from .exported_classes import places_of
from .references import Exports, References
from .shared_data import Held, Shared, wire_content

_MOST_STRAYS = 10_000
_MOST_NESTED_REQUESTS = 5_000_000
# Extra recursion for each nested request, in frames, and the largest depth with this extra.
_FRAMES_A_TURN = 16
_MOST_NESTED = 600
# Operations with shared containers in their operands, or in their answers.
_SHARE_OPERANDS = frozenset(["call", "make", "set", "setitem", "define", "send"])
_SHARE_ANSWERS = frozenset(["get", "name", "getitem"])
_recursion_limit, _set_recursion_limit = sys.getrecursionlimit, sys.setrecursionlimit


class Gone(BaseException):
    """Exception for the end of the other endpoint; tests do not catch a BaseException."""


class Unusable(Exception):
    """Exception for an invalid answer of the other endpoint."""


class Connection:
    """One endpoint's half of the connection.

    ``side`` implements the endpoint (``SubmissionEndpoint`` or ``TestEndpoint``). ``first`` is 1
    for the submission's endpoint and 2 for the tests'.
    """

    def __init__(self, channel: Any, side: Any, first: int) -> None:
        self._channel = channel
        self._side = side
        self.shared = Shared(first)
        self.held = Held(self.shared)
        self.exports = Exports()
        self.references = References()
        self.gone = False
        self.classes_to_tell: list[Any] = []
        self._forgets = first == 2
        self._nested = 0
        self.turn = _thread.RLock()
        self._next_id = 1

    def request(self, operation: str, *operands: Any) -> Any:
        """Send a request; return the result or raise the received exception. Raises ``Gone``."""
        with self.turn:
            self._apply_held()
            if self.gone:
                raise Gone
            number = self._next_id
            self._next_id += 1
            news: dict[str, Any] = {}
            options = self._side.options()
            shares = operation in _SHARE_OPERANDS
            self._send(["q", number, operation], operands, news, shares, options)
            try:
                return self._wait(number)
            except (StopIteration, StopAsyncIteration):
                self._apply_held()
                raise
            except BaseException:
                # An exception also ends the comparison under way.
                self.held.reset()
                raise

    def _apply_held(self) -> None:
        """Apply held changes, unless a comparison is under way."""
        if not self.held.active:
            self.held.apply()

    def serve(self) -> None:
        """Answer requests until the other endpoint says goodbye or ends."""
        while True:
            with self.turn:
                frame = self._receive()
            if frame is None or (frame and frame[0] == "bye"):
                return
            self._take(frame)

    def close(self) -> None:
        """Say goodbye."""
        if not self.gone:
            self._channel.send(values.dumps(["bye"]))

    def _wait(self, number: int) -> Any:
        strays = nested = 0
        while strays < _MOST_STRAYS and nested < _MOST_NESTED_REQUESTS:
            frame = self._receive()
            if frame is None:
                self.gone = True
                raise Gone
            if len(frame) == 5 and frame[0] == "a" and frame[1] == number:
                return self._answer(frame)
            asks = len(frame) == 5 and frame[0] == "q"
            strays += not asks
            nested += asks
            self._take_within(frame)
        raise Unusable("the answer never came")

    def _take_within(self, frame: list[Any]) -> None:
        """Handle a message during a wait, with extra recursion depth for the handler."""
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
        """Handle a message other than the awaited answer."""
        if len(frame) != 5 or type(frame[1]) is not int:
            return
        if frame[0] == "q" and type(frame[2]) is str:
            self._serve_one(frame)
        elif frame[0] == "a":
            try:
                # The value is dropped, but its shared containers count.
                self._unpack(frame[3], frame[4], hold=self.held.active)
            except Exception:
                return

    def _answer(self, frame: list[Any]) -> Any:
        _, _, status, body, news = frame
        try:
            value = self._unpack(body, news, hold=self.held.active)
            self._side.heard(news.get("o"))
        except Exception as error:
            raise Unusable(f"an unusable answer: {error}") from None
        if status == "v":
            return self.held.detached(value) if self.held.active else value
        if status != "x" or not isinstance(value, BaseException):
            raise Unusable("an exception that isn't one")
        failure = self._side.arrived(value, news.get("t"))
        raise BaseException.with_traceback(failure, None)

    def _serve_one(self, frame: list[Any]) -> None:
        _, number, operation, body, news = frame
        shares = operation in _SHARE_ANSWERS
        extras: dict[str, Any] = {}
        told: dict[str, Any] = {}
        hold = self.held.active
        depth = self.held.pause()
        shown: list[Any] = []
        try:
            operands = self._unpack(body, news, hold=hold)
            shown = self.held.show()
            if type(operands) is not tuple:
                raise Malformed("not operands")
            result = self._side.perform(operation, operands, news.get("o"), extras)
            head = ["a", number, "v"]
        except Gone:
            raise
        except BaseException as error:
            result = error
            self._side.failed(error)
            head, shares = ["a", number, "x"], False
            told["t"] = places_of(error)
        finally:
            self.held.resume(depth)
        with self.turn:
            try:
                self._send(head, result, told, shares, extras)
            except Gone:
                raise
            except BaseException as error:
                refused = isinstance(error, (ValueTooDeep, ValueTooLarge, TypeError))
                text = str(error) if refused else type(error).__name__
                failure = RuntimeError("the result can't be handed over: " + text)
                self._send(["a", number, "x"], failure, {}, False, None)
            finally:
                self.held.hide(shown)
                # The exception's traceback refers to this frame: break the cycle.
                result = None

    def _send(
        self, head: list[Any], value: Any, news: dict[str, Any], shares: bool, options: Any
    ) -> None:
        changed = self.shared.changed()
        encoder = Encoder(lambda thing: self._side.describe(thing, encoder), self._known)
        updates = [[each.key, encoder.encode(wire_content(each.value))] for each in changed]
        of_updates = len(encoder.kept)
        if options:
            news["o"] = {name: encoder.encode(each) for name, each in options.items()}
        body = encoder.encode(value)
        kept = encoder.kept if shares else encoder.kept[:of_updates]
        first, places = self.shared.offer(kept)
        news.update({"u": updates, "k": first, "s": places, "d": self.references.take_dropped()})
        news["m"] = self.shared.unused() if self._forgets else []
        news["c"] = self.classes_to_tell
        line = values.dumps([*head, body, news])
        self.classes_to_tell = []
        self.shared.update_contents(changed)
        self.shared.share(kept, places)
        try:
            self._channel.send(line)
        except OSError:
            self.gone = True
            raise Gone from None

    def _known(self, value: Any) -> Any:
        """Return a reference to an object that the other endpoint has, else None."""
        number = self._side.number_of(value)
        if number is not None:
            return ["o", number]
        key = self.shared.key(value)
        return None if key is None else ["m", key]

    def _unpack(self, body: Any, news: Any, hold: bool = False) -> Any:
        if type(news) is not dict:
            raise Malformed("no news")
        self._side.learn(news.get("c", ()))
        decoder = Decoder(
            lambda wire, content: self._side.resolve(wire, content, decoder), self._here
        )
        updates = []
        for key, content in news.get("u", ()):
            updates.append((self._shared_container(key), decoder.decode(content)))
        if type(news.get("o")) is dict:
            news["o"] = {name: decoder.decode(each) for name, each in news["o"].items()}
        value = decoder.decode(body)
        for container, content in updates:
            if container is None:
                continue
            if hold:
                self.held.add(container, content)
            else:
                self.shared.apply(container, content)
        self.shared.accept(decoder.kept, news.get("k"), news.get("s"))
        self.shared.forget(news.get("m", ()))
        self.exports.drop(news.get("d", ()))
        return value

    def _shared_container(self, key: Any) -> Any:
        """Return the container that an update belongs to, or None if dropped here."""
        if type(key) is not int:
            raise Malformed("not a key")
        try:
            return self.shared.value(key)
        except KeyError:
            return None

    def _here(self, wire: Any) -> Any:
        """Resolve a reference to an object or container of this endpoint."""
        tag, number = wire
        if type(number) is not int:
            raise Malformed("not a reference")
        try:
            return self.exports.object(number) if tag == "o" else self.shared.value(number)
        except KeyError:
            raise Malformed("a reference to nothing") from None
