"""What is particular to each of the two interpreters: the submission's and the tests'."""

import io
import random
import sys
from typing import Any

from . import guard, mirrors, names, showing, surroundings
from .encoding import derives
from .operations import OPERATIONS
from .peer import Gone, Peer
from .trust import Judging

_exec, _type, _str = exec, type, str
_StringIO = io.StringIO
_modules = sys.modules
_MAX_TEXT = 1 << 20
_MODULE = type(sys)
# What decoys are called: no honest object is equal to one.
_COMMON = ("Item", "Node", "Point", "Entry", "Record", "Value")
_random = random.SystemRandom()
_ITERATING = frozenset(["next", "send", "throw", "anext", "asend", "athrow", "await"])


class SubmissionSide:
    """Serves the submission's globals. It hides nothing: whatever is in there is the submission's."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.policy: mirrors.Policy = mirrors.asking
        self._namespace = namespace

    def perform(self, peer: Peer, operation: str, operands: tuple[Any, ...], options: Any) -> Any:
        """Carry out what the tests ask, with their standard streams if they replaced these."""
        if _type(options) is dict and options:
            return self._redirected(peer, operation, operands, options)
        return self._perform(peer, operation, operands)

    def _perform(self, peer: Peer, operation: str, operands: tuple[Any, ...]) -> Any:
        if operation == "name":
            return self._namespace[operands[0]]
        if operation == "names":
            return tuple(self._kinds(peer, operands[0]))
        if operation == "imports":
            return self._import(operands[0])
        if operation == "define":
            for name, value in operands[0]:
                self._namespace.setdefault(name, value)
            return None
        if operation == "decoy":
            return type(_random.choice(_COMMON), (), {"__module__": "__main__"})()
        if operation == "again":
            return peer.owned.tell_again(operands[0])
        return OPERATIONS[operation](*operands)

    def _kinds(self, peer: Peer, wanted: Any) -> Any:
        for name in wanted:
            if name in self._namespace:
                value = self._namespace[name]
                if derives(_type(value), type):
                    yield name, "class", peer.owned.number(value)
                else:
                    yield name, "module" if _type(value) is _MODULE else "other", None

    def _import(self, statements: Any) -> None:
        for statement in statements:
            try:
                _exec(statement, self._namespace)
            except Exception:
                pass

    def _redirected(self, peer: Peer, operation: str, operands: Any, options: Any) -> Any:
        before = sys.stdout, sys.stdin
        out = _StringIO() if options.get("out") else None
        source = _StringIO(options["in"]) if "in" in options else None
        if out is not None:
            sys.stdout = out
        if source is not None:
            sys.stdin = source
        around = surroundings.Changes()
        around.take(options)
        try:
            return self._perform(peer, operation, operands)
        finally:
            if out is not None and sys.stdout is out:
                sys.stdout = before[0]
            if source is not None and sys.stdin is source:
                sys.stdin = before[1]
            around.put_back()
            options["collected"] = "" if out is None else out.getvalue()[:_MAX_TEXT]
            options["unread"] = None if source is None else source.read()

    def name(self, module: Any, name: Any) -> Any:
        """What the tests call by name."""
        return names.resolve_any(module, name)

    def options(self) -> dict[str, Any]:
        """Callbacks ask for nothing besides."""
        return {}

    def extras(self, options: Any) -> dict[str, Any]:
        """What was printed, and what wasn't read."""
        if _type(options) is not dict or "collected" not in options:
            return {}
        return {"out": options["collected"], "rest": options["unread"]}

    def heard(self, extras: dict[str, Any]) -> None:
        """Callbacks answer nothing besides."""


class TestSide:
    """Asks for the submission's objects, and remembers the last call for messages."""

    __test__ = False

    def __init__(self) -> None:
        self.signals: list[str] = []
        self.judging = Judging(self._signal)
        self._stdout, self._stdin = sys.stdout, sys.stdin
        self.surroundings = surroundings.Surroundings()

    def _signal(self, name: str) -> None:
        if name not in self.signals:
            self.signals.append(name)

    @property
    def policy(self) -> mirrors.Policy:
        """Compares by the rules of ``trust``."""
        return self.judging

    def perform(self, peer: Peer, operation: str, operands: tuple[Any, ...], options: Any) -> Any:
        """Carry out what the submission asks of the tests' objects, if it may."""
        return guard.perform(peer.owned, operation, operands)

    def name(self, module: Any, name: Any) -> Any:
        """What the submission's side calls by name."""
        return names.resolve_plain(module, name)

    def options(self) -> dict[str, Any]:
        """The standard streams that test code replaced, and what else it changed."""
        options = self.surroundings.news()
        if sys.stdout is not self._stdout:
            options["out"] = 1
        if sys.stdin is not self._stdin and type(sys.stdin) is _StringIO:
            options["in"] = sys.stdin.getvalue()[sys.stdin.tell() :]
        return options

    def extras(self, options: Any) -> dict[str, Any]:
        """The submission gets nothing besides."""
        return {}

    def heard(self, extras: dict[str, Any]) -> None:
        """What the submission printed and didn't read, for the streams that test code put there."""
        text, rest = extras.get("out"), extras.get("rest")
        if type(text) is str and text and sys.stdout is not self._stdout:
            sys.stdout.write(text)
        if type(rest) is str and type(sys.stdin) is _StringIO:
            sys.stdin.seek(max(len(sys.stdin.getvalue()) - len(rest), 0))


class Asking(Peer):
    """The tests' peer: knows the last call it made, for messages."""

    def __init__(self, channel: Any, side: TestSide) -> None:
        super().__init__(channel, side, first=2)
        self.asked = 0
        # Whether the tests speak of StopIteration.
        self.stops_are_expected = False
        self._labels: dict[int, str] = {}
        self._last: tuple[Any, ...] | None = None

    def request(self, operation: str, /, *operands: Any) -> Any:
        """Ask, and remember the question."""
        self.asked += 1
        try:
            result = super().request(operation, *operands)
        except Gone:
            raise
        except (StopIteration, StopAsyncIteration) as error:
            if operation in _ITERATING or self.stops_are_expected:
                raise
            # It would end a loop of the tests over `map` without a word.
            stopped = RuntimeError(f"{type(error).__name__} outside of an iterator")
            stopped.__dict__.update(error.__dict__)
            raise stopped from None
        except BaseException as error:
            if operation == "call":
                self._last = (self._label(operands[0]), operands, "raised", error)
            raise
        if operation == "call":
            self._last = (self._label(operands[0]), operands, "returned", result)
        elif operation in ("name", "get"):
            number = self.stand_ins.number_of(result)
            if number is not None:
                self._labels[number] = str(operands[-1])
        return result

    def _label(self, target: Any) -> str:
        number = self.stand_ins.number_of(target)
        return "a function" if number is None else self._labels.get(number, "a function")

    def forget_last(self) -> None:
        """A new test begins."""
        self._last = None

    def last_call(self) -> str:
        """The last call and what came of it, or "" if there was none."""
        if self._last is None:
            return ""
        label, (_, args, kwargs), ending, result = self._last
        shown = [showing.show(part, 120) for part in args]
        shown += [f"{name}={showing.show(part, 120)}" for name, part in kwargs]
        call = f"{label}({', '.join(shown)[:250]})"
        text = failure_text(result) if ending == "raised" else showing.show(result)
        return f"{call} {ending} {text}"


def failure_text(error: BaseException) -> str:
    """The class and the arguments of an exception, without running its own code."""
    name = type.__dict__["__name__"].__get__(type(error))
    args = vars(BaseException)["args"].__get__(error)
    if type(args) is not tuple or not args:
        return str(name)
    if len(args) == 1:
        only = args[0]
        plain = type(only) is str and not isinstance(error, KeyError)
        return f"{name}: {only[:300] if plain else showing.show(only, 300)}"
    return f"{name}: {showing.show(args, 300)}"
