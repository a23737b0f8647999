"""Messages about failed tests: they describe the submission's behaviour and hide expected values.

By default, a message has an exception class and a line number: a text could quote values from the
tests. More is shown if the task reveals its tests, or calls the submission with literals only.
"""

from __future__ import annotations

from typing import Any

from ...codec import safe_repr
from .exported_classes import NAMES, TRACE, names_of, nearest_standard
from .test_endpoint import TestEndpoint

# Texts of exceptions raised by test code can quote the expected value; texts of these classes
# cannot.
_HARMLESS = (TypeError, NameError, AttributeError, IndexError, ZeroDivisionError, RecursionError)


class Messages:
    """Builder of a test's outcome and message."""

    def __init__(self, side: TestEndpoint, reveal: bool, literal_calls: bool) -> None:
        self._side = side
        self.reveal = reveal
        self._quotes = reveal or literal_calls

    def outcome(self, error: BaseException | None, context: str) -> tuple[str, str, dict[str, Any]]:
        """Return the outcome, the message, and extra data for the service."""
        side = self._side
        if side.lost is not None:
            outcome, text, quoted = side.lost
            text += quoted if self._quotes else ""
            return outcome, _with(text, context), {"from_submission": False, "exit": False}
        if side.connection.gone:
            extra = {"from_submission": False, "exit": False, "gone": True}
            return "raised", _with("the submission ended", context), extra
        if error is None:
            return "passed", "", {}
        if TRACE in error.__dict__:
            return self._of_submission(error, context)
        return self._of_tests(error, context)

    def _of_submission(self, error: Any, context: str) -> tuple[str, str, dict[str, Any]]:
        """Return the outcome for an exception raised by the submission."""
        names = error.__dict__.get(NAMES) or names_of(error)
        places = error.__dict__[TRACE]
        if self._quotes:
            text = failure_text(error)
        else:
            text = names_of(RuntimeError())[0] if NAMES in error.__dict__ else ""
            text = text or nearest_standard(type(error)).__name__
        if places:
            shown = places if self.reveal else places[-1:]
            where = ", ".join(f"line {n} in {f}" if self._quotes else f"line {n}" for n, f in shown)
            text += f" ({where})"
        extra = {"from_submission": True, "exit": "SystemExit" in names, "names": names}
        return "raised", _with(text, context), extra

    def _of_tests(self, error: BaseException, context: str) -> tuple[str, str, dict[str, Any]]:
        """Return the outcome for an exception raised by the test code."""
        extra = {"from_submission": False, "exit": False}
        failed = isinstance(error, AssertionError) or type(error).__name__ == "Failed"
        call = self._last_call() if self._quotes else ""
        if failed:
            text = call or "the assertion does not hold"
            if self.reveal and error.args:
                text += f"; {failure_text(error)}"
            return "failed", _with(text, context), extra
        if self.reveal or (self._quotes and isinstance(error, _HARMLESS)):
            text = failure_text(error)
        else:
            text = nearest_standard(type(error)).__name__
        text = f"{text}; {call}" if call else text
        return "raised", _with(text, context), extra

    def _last_call(self) -> str:
        """Return the last call and its result as text, or "" without a call."""
        if self._side.last_call is None:
            return ""
        label, (_, args, kwargs), result, raised = self._side.last_call
        shown = [safe_repr.show(part, 120) for part in args]
        shown += [f"{name}={safe_repr.show(part, 120)}" for name, part in kwargs]
        ending = (
            f"raised {failure_text(result)}" if raised else f"returned {safe_repr.show(result)}"
        )
        return f"{label}({', '.join(shown)[:250]}) {ending}"


def _with(text: str, context: str) -> str:
    return f"{text}; {context}" if context else text


def failure_text(error: BaseException) -> str:
    """Return the class and the arguments of an exception, without running its code."""
    name = type.__dict__["__name__"].__get__(type(error))
    args = vars(BaseException)["args"].__get__(error)
    if type(args) is not tuple or not args:
        return str(name)
    if len(args) == 1:
        only = args[0]
        plain = type(only) is str and not isinstance(error, KeyError)
        return f"{name}: {only[:300] if plain else safe_repr.show(only, 300)}"
    return f"{name}: {safe_repr.show(args, 300)}"
