"""Environment sync: streams, seeds and patched functions, copied from the tests to the submission.

Test code in the submission's interpreter would change the environment of both. With two
interpreters, the tests' endpoint records the changes, sends them with the next request, and the
submission's endpoint applies them during the request:

    out, in     capture printed text; use this text as standard input
    seed        {"random": 42, "numpy.random": 7}      new seeds since the last request
    replaced    {"builtins.input": ..., ...}           functions patched by the tests

An answer returns the printed text (``out``) and the unread input (``rest``).
"""

from __future__ import annotations

import builtins
import importlib
import io
import os
import random
import sys
import time
from typing import Any

_StringIO = io.StringIO
_import_module = importlib.import_module
_PLAIN = (int, float, str, type(None))
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
_MOST_SEED_BITS = 4096
_MOST_TEXT = 1 << 20


class Environment:
    """Changes on the tests' endpoint since the last request."""

    def __init__(self) -> None:
        self._stdout, self._stdin = sys.stdout, sys.stdin
        self._usual = {
            f"{module}.{name}": (vars(owner), name, getattr(owner, name))
            for module, (owner, names) in REPLACEABLE.items()
            for name in names
        }
        self._seeds: dict[str, Any] = {}

    def watch_seeds(self, numpy: bool) -> None:
        """Start to record the seeds that test code sets; ``numpy``: also in numpy, if installed."""
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
            result = usual(*args, **kwargs)
            value = args[0] if args else kwargs.get("a", kwargs.get("seed"))
            small = type(value) is not int or value.bit_length() <= _MOST_SEED_BITS
            if type(value) in _PLAIN and small:
                self._seeds[name] = value
            return result

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
        if self._seeds:
            news["seed"], self._seeds = self._seeds, {}
        return news

    def heard(self, brought: dict[str, Any]) -> None:
        """Copy the submission's output and input position to the streams of the test code."""
        text, rest = brought.get("out"), brought.get("rest")
        if type(text) is str and text and sys.stdout is not self._stdout:
            sys.stdout.write(text)
        if type(rest) is str and type(sys.stdin) is _StringIO:
            sys.stdin.seek(max(len(sys.stdin.getvalue()) - len(rest), 0))


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
        for name, value in news.get("seed", {}).items():
            _import_module(name).seed(value)
        for place, function in news.get("replaced", {}).items():
            module, _, name = place.rpartition(".")
            self._put(REPLACEABLE[module][0], name, function)

    def _put(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def __exit__(self, *error: object) -> None:
        for owner, name, usual in reversed(self._before):
            setattr(owner, name, usual)
        if self._out is not None:
            self._brought["out"] = self._out.getvalue()[:_MOST_TEXT]
        if self._in is not None:
            self._brought["rest"] = self._in.read()
