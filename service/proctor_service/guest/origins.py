"""Whose code it is: the tests', a library's, the runner's, or else the submission's.

So also what may be told of an error that a test met. An object of the submission's is given expected
values, by the tests' own comparisons and calls: its exceptions can quote them, in their texts and in the
names of their classes.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from ..codec.introspection import class_mro
from . import script

_MOST_CHARACTERS = 2000
# Their texts hold names that stand in the code, and no values. For errors of the tests' own code.
_TELLING = (NameError, ImportError, ZeroDivisionError)


class Origins:
    """`own` knows the code of the tests, by the code and the globals that it runs in.

    A library lies where the submission may not write. `runner`: the globals of the runner's modules.
    """

    __slots__ = ("_runner", "_writable", "own")

    def __init__(
        self,
        own: Callable[[types.CodeType, Any], bool],
        writable: str,
        runner: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        self.own = own
        self._writable = writable
        self._runner = runner

    def trusted(self, function: types.FunctionType) -> bool:
        """Tell whether a function is the tests' or a library's."""
        return self.trusts(function.__code__, function.__globals__)

    def trusts(self, code: types.CodeType, namespace: Any) -> bool:
        """Tell whether code that runs in these globals is not the submission's."""
        return (
            self.own(code, namespace)
            or self.library(namespace)
            or any(each is namespace for each in self._runner)
        )

    def passed_submission(self, error: BaseException) -> bool:
        """Tell whether an exception came through code of the submission."""
        entry = error.__traceback__
        while entry is not None:
            frame, entry = entry.tb_frame, entry.tb_next
            if not self.trusts(frame.f_code, frame.f_globals):
                return True
        return False

    def library(self, namespace: Any) -> bool:
        """Tell whether these are the globals of a module of a library; not of unittest.mock."""
        name = namespace.get("__name__")
        module = sys.modules.get(name) if type(name) is str else None
        file = getattr(module, "__file__", None) or ""
        return (
            module is not None
            and vars(module) is namespace
            and name not in ("__main__", "unittest.mock")
            and not str(file).startswith(self._writable)
        )


def failure_texts(
    error: BaseException | None, origins: Origins, *, loading: bool
) -> tuple[str, str]:
    """What may be shown whatever the grader says, and all of it.

    `loading`: no test has run yet, so the submission has been given nothing.
    """
    if error is None:
        return "", ""
    name, message, *_ = script.explain(error)
    whole = f"{name}: {message}" if message else str(name)
    telling = type(error) in _TELLING and not origins.passed_submission(error)
    if loading or telling or isinstance(error, ImportError):
        return whole[:_MOST_CHARACTERS], whole[:_MOST_CHARACTERS]
    return _known_name(error), whole[:_MOST_CHARACTERS]


def _known_name(error: BaseException) -> str:
    """The name of the nearest class that Python itself has."""
    names: Any = vars(builtins)
    for base in class_mro(type(error)):
        if names.get(base.__name__) is base:
            return str(base.__name__)
    return "Exception"
