"""One side of a conversation between two interpreters, as lines of JSON.

    ["q", id, operation, operands, news]     a request
    ["a", id, "v", value, news]              its answer, or
    ["a", id, "x", exception, news]          what it raised
    ["bye"]                                  the tests are done

``news`` is an object: ``u`` the shared containers that changed ([[reference, contents], ...]), ``k`` the key of the
first container that this message shares, ``d`` the objects and ``m`` the containers that the sender has no more use
for; a request may carry ``o`` (``out``: collect what is printed; ``in``: text for standard input; ``input``: what
stands for ``input()``), and then an answer ``out`` and ``rest``, and ``trace``, where in the submission it failed.

Both sides are alike: while one waits for its answer it serves requests of the other, so calls nest. The answer to a
request that nobody waits for any more (a signal handler's exception ended the wait) is taken note of and dropped.
References carry tags: ``h`` an object of the sender, ``o`` one of the receiver, ``p`` one that the receiver has a
stand-in for, ``m`` a shared container; ``descriptions`` has the rest.
"""

import _thread
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from . import mirrors, values
from .decoding import Decoder
from .descriptions import Owned
from .encoding import Encoder
from .iteration import local_version
from .refusals import Malformed, ValueTooDeep, ValueTooLarge
from .sharing import Shared

_KINDS = ("generator", "coroutine", "async_generator")
_MAX_STRAYS = 10_000
_MAX_STRONG = 50_000


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

    policy: mirrors.Policy
    trusts_names: bool

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
        self._turn = _thread.RLock()
        self._next_id = 1
        # Stand-ins by number, weakly where that is possible; and the numbers by stand-in.
        self._stand_ins: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._classes: dict[int, Any] = {}
        self._strong: dict[int, Any] = {}
        self._dropped: list[int] = []

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

    def number_of(self, stand_in: Any) -> int | None:
        """The number of what a stand-in stands for; None if it is no stand-in."""
        return self._numbers.get(id(stand_in))

    def _wait(self, number: int) -> Any:
        for _ in range(_MAX_STRAYS):
            frame = self._receive()
            if frame is None:
                self.gone = True
                raise Gone
            if len(frame) == 5 and frame[0] == "a" and frame[1] == number:
                return self._answer(frame)
            self._take(frame)
        raise Unusable("the answer never came")

    def _receive(self) -> list[Any] | None:
        line = self._channel.receive()
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
            try:
                self._unpack(frame[3], frame[4])
            except Exception:
                pass

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
            head, extras = ["a", number, "x"], {"trace": _where(error)}
        extras.update(self._side.extras(options))
        with self._turn:
            try:
                self._send(head, result, extras)
            except (Gone, OSError):
                raise
            except BaseException as error:
                text = f"{type(error).__name__}: the value can't be taken out"
                if isinstance(error, ValueTooDeep | ValueTooLarge):
                    text = str(error)
                self._send(["a", number, "x"], ValueError(text), {})

    def _send(self, head: list[Any], value: Any, news: dict[str, Any]) -> None:
        changed = self.shared.changed()
        encoder = Encoder(lambda thing: self.owned.describe(thing, encoder), self._known)
        encoder.reopen = self.owned.reopen
        updates = []
        for entry in changed:
            content = self._content(entry.base, entry.value)
            updates.append([self._reference(entry.token), encoder.encode(content)])
        if "o" in news and "input" in news["o"]:
            news["o"]["input"] = encoder.encode(news["o"]["input"])
        body = encoder.encode(value)
        news.update({"u": updates, "d": self._dropped, "m": self.shared.unused()})
        mark = self.shared.next_key
        line = values.dumps([*head, body, {**news, "k": mark}])
        self._dropped = []
        self.shared.settle(changed)
        self.shared.offer(encoder.kept)
        self._channel.send(line)

    def _content(self, base: type, value: Any) -> Any:
        content = self.shared.contents(base, value)
        return content if base is bytearray else tuple(content)

    def _reference(self, token: Any) -> Any:
        return token

    def _known(self, value: Any) -> Any:
        number = self._numbers.get(id(value))
        if number is not None:
            return ["o", number]
        token = self.shared.token(value)
        return token if token is not None and token[0] == "m" else None

    def _unpack(self, body: Any, news: Any) -> Any:
        if type(news) is not dict:
            raise Malformed("no news")
        decoder = Decoder(lambda wire, content: self._resolve(wire, content, decoder), self._here)
        updates = []
        for target, content in news.get("u", ()):
            container = self._here(target)
            if self.shared.base(container) is None:
                raise Malformed("not a shared container")
            updates.append((container, decoder.decode(content)))
        options = news.get("o")
        if type(options) is dict and "input" in options:
            options["input"] = decoder.decode(options["input"])
        value = decoder.decode(body)
        self.shared.accept(decoder.kept, news.get("k"))
        for container, content in updates:
            self.shared.apply(container, content)
        self.shared.forget(news.get("m", ()))
        for number in news.get("d", ()):
            self.owned.drop(number)
        return value

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
        value = self._alive(number)
        if value is None:
            raise Malformed("a reference to nothing")
        return value

    def _resolve(self, wire: list[Any], content: Callable[[], Any], decoder: Decoder) -> Any:
        """What a reference to an object of the other side becomes."""
        tag = wire[0]
        if tag == "n":
            return self._side.name(*wire[1:])
        if tag == "e":
            return _exception(decoder.visit(wire[1]), decoder.visit(wire[2]))
        number = wire[1]
        if type(number) is not int:
            raise Malformed("not a reference")
        present = self._classes.get(number)
        present = self._alive(number) if present is None else present
        info = wire[2] if len(wire) == 3 else None
        if type(info) is not dict:
            return self.request("again", number) if present is None else present
        kind = info.get("k")
        if kind == "class":
            return self._class(wire, decoder)
        if kind in _KINDS:
            return present if present is not None else local_version(self, kind, number)
        cls = self._class(info["c"], decoder)
        arguments = decoder.visit(info["x"]) if "x" in info else ()
        if present is not None:
            content()
            return present
        return mirrors.make(cls, content, arguments, lambda value: self._keep(value, number))

    def _class(self, wire: Any, decoder: Decoder) -> Any:
        tag, number, *rest = wire
        if tag != "h" or type(number) is not int:
            raise Malformed("not a class")
        if not rest:
            known = self._classes.get(number)
            return self.request("again", number) if known is None else known
        info = rest[0]
        bases = [
            self._class(base, decoder) if base[0] == "h" else decoder.visit(base)
            for base in info["bases"]
        ]
        data = decoder.visit(info["data"])
        if number not in self._classes:
            described = mirrors.Described(number, info, bases, data)
            cls = mirrors.build(self, described, self._side.policy)
            self._classes[number] = cls
            self._numbers[id(cls)] = number
        return self._classes[number]

    def _alive(self, number: int) -> Any:
        found = self._stand_ins.get(number)
        return found() if type(found) is weakref.ref else found

    def _keep(self, value: Any, number: int) -> None:
        """Remember a stand-in, and tell the other side when it is no longer used."""
        identity = id(value)

        def forget(reference: Any) -> None:
            if self._stand_ins.get(number) is reference:
                del self._stand_ins[number]
                self._numbers.pop(identity, None)
                self._dropped.append(number)

        try:
            self._stand_ins[number] = weakref.ref(value, forget)
        except TypeError:
            # A tuple's or an integer's subclass: kept, within bounds.
            if len(self._strong) >= _MAX_STRONG:
                oldest = next(iter(self._strong))
                self._numbers.pop(id(self._strong.pop(oldest)), None)
                del self._stand_ins[oldest]
                self._dropped.append(oldest)
            self._stand_ins[number] = self._strong[number] = value
        self._numbers[identity] = number
        for base in type(value).__mro__:
            if base in mirrors.MUTABLE:
                self.shared.track(["o", number], base, value)
                break

    keep = _keep


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


def _where(error: BaseException) -> str:
    """The last places of a failure, innermost last."""
    places = []
    trace = vars(BaseException)["__traceback__"].__get__(error)
    while trace is not None and len(places) < 2000:
        code = trace.tb_frame.f_code
        places.append((code.co_filename, f"line {trace.tb_lineno} in {code.co_name}"))
        trace = trace.tb_next
    own = __file__ if "__file__" in globals() else ""
    shown = [place for file, place in places if file != own]
    return ", ".join(shown[-3:])
