"""Origin of code (tests, library, runner or submission), and the failure texts safe to show.

The tests' comparisons and calls hand expected values to objects of the submission. So the submission's
exceptions can quote these values, in their texts and in their class names.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable
from typing import Any

from ..codec.introspection import class_mro
from . import script

_MOST_CHARACTERS = 2000
# Texts of these errors name identifiers and contain no values, if raised by the tests' own code.
_TELLING = (NameError, ImportError, ZeroDivisionError)


class Origins:
    """Trust decisions about code, by its origin.

    `own` recognises code of the tests. Libraries are modules outside the directories writable by the
    submission. `runner`: the globals of the runner's modules.
    """

    def __init__(
        self, own: Callable[[types.CodeType], bool], writable: str, *runner: dict[str, Any]
    ) -> None:
        self.own = own
        self._writable = writable
        self._runner = runner

    def passed_submission(self, error: BaseException) -> bool:
        """Tell whether an exception passed through code of the submission."""
        entry = error.__traceback__
        while entry is not None:
            frame, entry = entry.tb_frame, entry.tb_next
            if not (self.own(frame.f_code) or self._is_library(frame.f_globals)):
                return True
        return False

    def _is_library(self, namespace: Any) -> bool:
        """Tell whether these are the globals of a library module, or of the runner."""
        if any(each is namespace for each in self._runner):
            return True
        name = namespace.get("__name__")
        module = sys.modules.get(name) if type(name) is str else None
        file = getattr(module, "__file__", None) or ""
        return (
            module is not None
            and vars(module) is namespace
            and name != "__main__"
            and not str(file).startswith(self._writable)
        )


def failure_texts(
    error: BaseException | None, origins: Origins, *, loading: bool
) -> tuple[str, str]:
    """Return a text safe to show in any case, and the full text.

    `loading`: before the first test, so the submission has seen no expected values.
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
    """Return the name of the nearest built-in class of the exception."""
    names: Any = vars(builtins)
    for base in class_mro(type(error)):
        if names.get(base.__name__) is base:
            return str(base.__name__)
    return "Exception"
