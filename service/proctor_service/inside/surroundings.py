"""What test code changes around a submission: seeds, environment variables, replaced functions.

Pasted behind the submission it would change them for both. Here they are noted on the side of the
tests, told with the next request, and changed on the other side:

    "seed"      {"random": 42, "numpy.random": 7}      what was seeded since, and with what
    "env"       {"HOME": "/x", "LANG": null}           variables set, and removed
    "replaced"  {"builtins.input": ..., ...}           functions that stand in for these now

Nothing comes back, and nothing here holds what tests expect.
"""

import builtins
import importlib
import os
import random
import time
from collections.abc import Callable
from typing import Any

_type = type
_import_module = importlib.import_module
_environ = os.environ
_seed = random.seed
_PLAIN = (int, float, str, type(None))
# What tests patch so that a program need not wait, ask, roll dice or print.
_REPLACEABLE = {
    "builtins": (builtins, ("input", "print")),
    "time": (time, ("sleep", "time", "monotonic", "perf_counter")),
    "random": (
        random,
        ("random", "randint", "randrange", "choice", "shuffle", "uniform", "sample"),
    ),
    "os": (os, ("getenv",)),
}
_MAX_SEED_BITS = 4096


class Surroundings:
    """On the side of the tests: what changed since the other side was last told."""

    def __init__(self) -> None:
        self._usual = {
            f"{module}.{name}": (vars(owner), name, getattr(owner, name))
            for module, (owner, names) in _REPLACEABLE.items()
            for name in names
        }
        self._told = dict(_environ)
        self._raw: Any = vars(_environ)["_data"]
        self._seen = dict(self._raw)
        self._seeds: dict[str, Any] = {}

    def watch_seeds(self, *, numpy: bool) -> None:
        """Begin to note what test code seeds; ``numpy``: also there, if it is installed."""
        self._wrap("random", random)
        if numpy:
            try:
                import numpy.random as other
            except Exception:
                return
            self._wrap("numpy.random", other)

    def _wrap(self, name: str, module: Any) -> None:
        usual = module.seed

        def seed(*args: Any, **kwargs: Any) -> Any:
            result = usual(*args, **kwargs)
            value = args[0] if args else kwargs.get("a", kwargs.get("seed"))
            if type(value) in _PLAIN and not (
                type(value) is int and value.bit_length() > _MAX_SEED_BITS
            ):
                self._seeds[name] = value
            return result

        module.seed = seed

    def news(self) -> dict[str, Any]:
        """What to tell now."""
        news: dict[str, Any] = {}
        replaced = {
            place: members[name]
            for place, (members, name, usual) in self._usual.items()
            if members.get(name) is not usual
        }
        if replaced:
            news["replaced"] = replaced
        if self._seeds:
            news["seed"], self._seeds = self._seeds, {}
        if self._raw != self._seen:
            now = dict(_environ)
            news["env"] = {
                name: now.get(name)
                for name in self._told.keys() | now.keys()
                if self._told.get(name) != now.get(name)
            }
            self._told, self._seen = now, dict(self._raw)
        return news


class Changes:
    """On the side of the submission: changes things, and puts functions back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def take(self, news: dict[str, Any]) -> None:
        """What the tests tell; a submission that spoils it for itself may."""
        try:
            self._take(news)
        except Exception:
            pass

    def _take(self, news: dict[str, Any]) -> None:
        for name, value in news.get("env", {}).items():
            if value is None:
                _environ.pop(name, None)
            else:
                _environ[name] = value
        for name, value in news.get("seed", {}).items():
            seed: Callable[[Any], Any] = _seed if name == "random" else _import_module(name).seed
            seed(value)
        for place, function in news.get("replaced", {}).items():
            module, _, name = place.rpartition(".")
            owner = _REPLACEABLE[module][0]
            self._before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, function)

    def put_back(self) -> None:
        """As it was before."""
        for owner, name, usual in reversed(self._before):
            setattr(owner, name, usual)
        self._before.clear()
