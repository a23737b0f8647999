"""Environment sync: streams, seeds and patched functions, copied from the tests to the submission.

Test code in the submission's interpreter would change the environment of both. With two
interpreters, the tests' endpoint records the changes, sends them with the next request, and the
submission's endpoint applies them during the request:

    out, in     capture printed text; use this text as standard input
    states      {"random": ..., "numpy.random": ...}   of generators with a new seed
    replaced    {"builtins.input": ..., ...}           functions patched by the tests

An answer returns the printed text (``out``) and the length of the unread input (``rest``), and so
does a request of the submission, which may print before and after a function of the tests. The
tests' answer to such a request has ``rest`` and ``states``. A submission that catches the output of
a function asks for the text (``catch``), and the answer has it (``out``).
"""

from __future__ import annotations

import array
import builtins
import contextlib
import importlib
import io
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

_StringIO = io.StringIO
_import_module = importlib.import_module
# Functions that tests often patch, so that a program need not wait, ask, use randomness or print.
REPLACEABLE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "builtins": (builtins, ("input", "print")),
    "time": (time, ("sleep", "time", "monotonic", "perf_counter")),
    "random": (
        random,
        ("random", "randint", "randrange", "choice", "shuffle", "uniform", "sample"),
    ),
    "os": (os, ("getenv",)),
}
_MOST_TEXT = 1 << 20


def _state_of_random() -> tuple[Any, ...]:
    version, words, more = random.getstate()
    return version, array.array("I", words).tobytes(), more


def _restore_random(state: Any) -> None:
    version, words, more = state
    random.setstate((version, tuple(array.array("I", words)), more))


def _state_of_numpy() -> tuple[Any, ...]:
    kind, words, *more = _import_module("numpy.random").get_state()
    return kind, words.tobytes(), *more


def _restore_numpy(state: Any) -> None:
    kind, words, *more = state
    _import_module("numpy.random").set_state((kind, list(array.array("I", words)), *more))


_GENERATORS: dict[str, tuple[Any, Any]] = {
    "random": (_state_of_random, _restore_random),
    "numpy.random": (_state_of_numpy, _restore_numpy),
}


def _unread(stream: io.StringIO) -> int:
    return max(len(stream.getvalue()) - stream.tell(), 0)


def _skip_to(stream: io.StringIO, unread: int) -> None:
    stream.seek(max(len(stream.getvalue()) - unread, 0))


class Environment:
    """Changes on the tests' endpoint since the last request."""

    def __init__(self) -> None:
        self._stdout, self._stdin = sys.stdout, sys.stdin
        self._usual = {
            f"{module}.{name}": (vars(owner), name, getattr(owner, name))
            for module, (owner, names) in REPLACEABLE.items()
            for name in names
        }
        self._seeded: set[str] = set()

    def watch_seeds(self, numpy: bool) -> None:
        """Start to note the seeds that test code sets; ``numpy``: also in numpy, if installed."""
        self._wrap("random", random)
        if numpy:
            try:
                other = _import_module("numpy.random")
            except Exception:
                return
            self._wrap("numpy.random", other)

    def _wrap(self, name: str, module: Any) -> None:
        usual = module.seed

        def seed(*args: Any, **kwargs: Any) -> Any:
            self._seeded.add(name)
            return usual(*args, **kwargs)

        module.seed = seed

    def news(self) -> dict[str, Any]:
        """Return the options for the next request."""
        news: dict[str, Any] = {}
        if sys.stdout is not self._stdout:
            news["out"] = True
        if type(sys.stdin) is _StringIO:
            news["in"] = sys.stdin.getvalue()[sys.stdin.tell() :]
        replaced = {
            place: members[name]
            for place, (members, name, usual) in self._usual.items()
            if members.get(name) is not usual
        }
        if replaced:
            news["replaced"] = replaced
        self._add_states(news)
        return news

    @contextlib.contextmanager
    def around(self, options: Any, brought: dict[str, Any]) -> Iterator[None]:
        """Exchange text and input around a function of the tests that the submission calls."""
        asked = options if type(options) is dict else {}
        self.heard(asked)
        usual = sys.stdout
        caught = _StringIO() if "catch" in asked else None
        if caught is not None:
            sys.stdout = caught
        try:
            yield
        finally:
            if caught is not None:
                sys.stdout = usual
                brought["out"] = caught.getvalue()
            if type(sys.stdin) is _StringIO:
                brought["rest"] = _unread(sys.stdin)
            self._add_states(brought)

    def _add_states(self, news: dict[str, Any]) -> None:
        """Add the states of generators with a new seed; a state counts the draws after the seed.

        States never cross the other way: the submission could choose the tests' random inputs.
        """
        if self._seeded:
            news["states"] = {name: _GENERATORS[name][0]() for name in self._seeded}
            self._seeded = set()

    def heard(self, brought: dict[str, Any]) -> None:
        """Copy the submission's output and input position to the streams of the test code."""
        text, rest = brought.get("out"), brought.get("rest")
        if type(text) is str and text and sys.stdout is not self._stdout:
            sys.stdout.write(text)
        if type(rest) is int and type(sys.stdin) is _StringIO:
            _skip_to(sys.stdin, rest)


class Changed:
    """Changes on the submission's endpoint for one request; functions are restored afterwards."""

    def __init__(self, news: dict[str, Any], brought: dict[str, Any]) -> None:
        self._brought = brought
        self._news = news
        self._before: list[tuple[Any, str, Any]] = []
        self._out: Any = None
        self._in: Any = None

    def __enter__(self) -> Changed:
        try:
            self._take(self._news)
        except Exception:
            pass  # a submission may break this, with effects only for itself
        return self

    def _take(self, news: dict[str, Any]) -> None:
        if "out" in news:
            self._out = _StringIO()
            self._put(sys, "stdout", self._out)
        if "in" in news:
            self._in = _StringIO(news["in"])
            self._put(sys, "stdin", self._in)
        restore_generators(news)
        for place, function in news.get("replaced", {}).items():
            module, _, name = place.rpartition(".")
            self._put(REPLACEABLE[module][0], name, function)

    def _put(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def __exit__(self, *error: object) -> None:
        for owner, name, usual in reversed(self._before):
            setattr(owner, name, usual)
        self._brought.update(self.take())

    @property
    def out(self) -> Any:
        """The stream for printed text, or None if the tests do not ask for the text."""
        return self._out

    def take(self) -> dict[str, Any]:
        """Return the text printed since the last call, and the unread input."""
        found: dict[str, Any] = {}
        if self._out is not None:
            found["out"] = self._out.getvalue()[:_MOST_TEXT]
            self._out.seek(0)
            self._out.truncate()
        if self._in is not None:
            found["rest"] = _unread(self._in)
        return found

    def heard(self, news: dict[str, Any]) -> None:
        """Move to the input that the tests left unread."""
        if self._in is not None and "rest" in news:
            _skip_to(self._in, news["rest"])


def restore_generators(news: dict[str, Any]) -> None:
    """Continue the tests' sequences of random numbers."""
    for name, state in news.get("states", {}).items():
        _GENERATORS[name][1](state)
