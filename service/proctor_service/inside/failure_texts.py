"""What may be told of an error that a test met.

An object of the submission's is given expected values, by the tests' own comparisons and calls. So its
exceptions can quote them, in their texts and in the names of their classes.
"""

from __future__ import annotations

import builtins
from typing import Any

from . import script
from .introspection import class_mro
from .origins import Origins

_MOST = 2000
# Their texts hold names that stand in the code, and no values. For errors of the tests' own code.
_TELLING = (NameError, ImportError, ZeroDivisionError)


def texts(error: BaseException | None, origins: Origins, *, loading: bool) -> tuple[str, str]:
    """What may be shown whatever the grader says, and all of it.

    `loading`: no test has run yet, so the submission has been given nothing.
    """
    if error is None:
        return "", ""
    name, message, *_ = script.explain(error)
    whole = f"{name}: {message}" if message else str(name)
    telling = type(error) in _TELLING and not origins.passed_submission(error)
    if loading or telling or isinstance(error, ImportError):
        return whole[:_MOST], whole[:_MOST]
    return _known_name(error), whole[:_MOST]


def _known_name(error: BaseException) -> str:
    """The name of the nearest class that Python itself has."""
    names: Any = vars(builtins)
    for base in class_mro(type(error)):
        if names.get(base.__name__) is base:
            return str(base.__name__)
    return "Exception"
