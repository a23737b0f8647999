"""Test runner: runs setup and tests in an interpreter of their own; the submission's functions are remote.

Reports to the service are lines with a leading ``!``; all other lines go to the submission.

    ["setup_failed", text]                            the setup fails by itself
    ["test", index, outcome, message, extra]          passed, failed, raised, refused, or left
    ["done"]
    ["broken", traceback]                             Proctor failed before the first statement

Messages describe the submission's behaviour and hide expected values. By default, a message has an
exception class and a line number: a text could quote values from the tests. More is shown if the
task reveals its tests, or hands the submission only literal data.
"""

from __future__ import annotations

import ast
import builtins
import sys
import traceback
import types
from typing import Any

from ...codec import safe_repr, values
from .. import unittest_runs
from . import crossing, records
from .tests_side import Fresh, Function, TestsSide

_RECURSION_LIMIT = 5000
_MESSAGE_CHARACTERS = 500
# Texts of exceptions that test code raises can quote the expected value; texts of these cannot.
_HARMLESS = (TypeError, NameError, AttributeError, IndexError, ZeroDivisionError, RecursionError)


def judge_tests(channel: Any, job: dict[str, Any]) -> None:
    """Run setup and tests against the remote submission, and report on ``channel``."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    try:
        runner = TestRunner(channel, job)
    except BaseException:
        channel.send(b"!" + values.dumps(["broken", traceback.format_exc()[-4000:]]))
        return
    runner.run()


class TestRunner:
    """A run of the tests."""

    __test__ = False

    def __init__(self, channel: Any, job: dict[str, Any]) -> None:
        self._channel = channel
        self._setup: list[str] = job["setup"]
        self._tests: list[dict[str, Any]] = job["tests"]
        self._side = TestsSide(channel)
        self._names: dict[str, Any] = {
            name: Fresh(self._side, name)
            if name in job["fresh"]
            else Function(self._side, name, name)
            for name in job["names"]
        }
        self._namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        self._records: list[str] = job["records"]
        self._cases = unittest_runs.Cases(
            self._namespace, lambda case: case.__module__ == "__main__"
        )
        if any("unittest" in text for text in (*self._setup, *(t["source"] for t in self._tests))):
            self._cases.replace_main()
        self._messages = Messages(self._side, job["reveal"], job["constant_calls"])

    def run(self) -> None:
        """Run the setup and the tests, and send all reports."""
        if self._set_up():
            for index, test in enumerate(self._tests):
                self._test(index, test)
                if self._side.conversation.gone:
                    break
        self._report(["done"])

    def _report(self, report: list[Any]) -> None:
        self._channel.send(b"!" + values.dumps(report))

    def _set_up(self) -> bool:
        """Run the setup; return False if the tests cannot run."""
        for index, text in enumerate(self._setup):
            if index == 1:
                self._channel.began()
            try:
                exec(compile(text, "<setup>", "exec", 0, True, 0), self._namespace)
            except BaseException as error:
                if index == 0:  # independent of the submission
                    self._report(["setup_failed", failure_text(error)[:_MESSAGE_CHARACTERS]])
                    return False
                for test in range(len(self._tests)):
                    self._conclude(test, error, "in the setup")
                return False
            self._namespace.update(self._names)
        self._side.records = records.Records(self._namespace, self._records)
        return True

    def _test(self, index: int, test: dict[str, Any]) -> None:
        self._side.begin_test()
        error: BaseException | None = None
        try:
            self._execute(index, test["source"])
            for step in test.get("run") or ():
                self._run_after(step)
        except BaseException as raised:
            error = raised
        source = test["source"]
        self._conclude(index, error, f"test: {source}" if self._messages.reveal else "")

    def _execute(self, index: int, source: str) -> None:
        """Execute the statements of a test; a single condition is an assertion."""
        tree = ast.parse(source)
        only = tree.body[0] if len(tree.body) == 1 else None
        if isinstance(only, ast.Expr) and isinstance(
            only.value, (ast.Compare, ast.BoolOp, ast.UnaryOp)
        ):
            tree.body[0] = ast.copy_location(ast.Assert(only.value, None), only)
        exec(compile(tree, f"<test {index}>", "exec", 0, True, 0), self._namespace)

    def _run_after(self, what: list[Any]) -> None:
        """Run a function or class defined by the test's statements; exceptions propagate."""
        kind = what[0]
        if kind == "check":
            entry = what[2]
            if entry and type(entry) is str:
                candidate = eval(entry, self._namespace)
            else:  # the submission's side finds the function
                candidate = Function(self._side, entry, "candidate")
            self._drive(self._namespace[what[1]](candidate))
        elif kind == "function":
            self._drive(self._namespace[what[1]]())
        else:
            self._cases.run(self._namespace[name] for name in what[1])

    def _drive(self, result: Any) -> None:
        if type(result) is types.CoroutineType:
            self._side.event_loop.drive(result)

    def _conclude(self, index: int, error: BaseException | None, context: str) -> None:
        """Report the outcome of a test."""
        outcome, message, extra = self._messages.outcome(error, context)
        self._report(["test", index, outcome, message[:_MESSAGE_CHARACTERS], extra])


class Messages:
    """Builder of a test's outcome and message."""

    def __init__(self, side: TestsSide, reveal: bool, constant_calls: bool) -> None:
        self._side = side
        self.reveal = reveal
        self._quotes = reveal or constant_calls

    def outcome(self, error: BaseException | None, context: str) -> tuple[str, str, dict[str, Any]]:
        """Return the outcome, the message, and extra data for the service."""
        side = self._side
        if side.left is not None:
            code, name = side.left.code, side.left.name
            how = f"SystemExit({code})" if code is not None else name if self._quotes else "an exit"
            text = f"the program ended itself: {how}{self._places(side.left.places)}"
            return "left", _with(text, context), {"exit": code is not None}
        if side.lost is not None:
            outcome, text, quoted = side.lost
            text += f" ({quoted})" if quoted and self._quotes else ""
            return outcome, _with(text, context), {}
        if side.conversation.gone:
            return "raised", _with("the submission ended", context), {}
        if error is None:
            return "passed", "", {}
        if crossing.TRACE in error.__dict__:
            return self._of_submission(error, context)
        return self._of_tests(error, context)

    def _places(self, places: Any) -> str:
        if not places:
            return ""
        shown = places if self.reveal else places[-1:]
        where = ", ".join(f"line {n} in {f}" if self._quotes else f"line {n}" for n, f in shown)
        return f" ({where})"

    def _of_submission(self, error: Any, context: str) -> tuple[str, str, dict[str, Any]]:
        """Return the outcome for an exception raised by the submission."""
        names = [cls.__name__ for cls in type(error).__mro__]
        text = failure_text(error) if self._quotes else _library_name(error)
        text += self._places(error.__dict__[crossing.TRACE])
        return "raised", _with(text, context), {"names": names}

    def _of_tests(self, error: BaseException, context: str) -> tuple[str, str, dict[str, Any]]:
        """Return the outcome for an exception raised by the test code."""
        failed = isinstance(error, AssertionError) or type(error).__name__ == "Failed"
        call = self._last_call() if self._quotes else ""
        if failed:
            text = call or "the assertion does not hold"
            if self.reveal and error.args:
                text += f"; {failure_text(error)}"
            return "failed", _with(text, context), {}
        if self.reveal or (self._quotes and isinstance(error, _HARMLESS)):
            text = failure_text(error)
        else:
            text = _library_name(error)
        text = f"{text}; {call}" if call else text
        return "raised", _with(text, context), {}

    def _last_call(self) -> str:
        """Return the last call and its result as text, or "" without a call."""
        if self._side.last_call is None:
            return ""
        name, args, kwargs, result, raised = self._side.last_call
        shown = [safe_repr.show(part, 120) for part in args]
        shown += [f"{key}={safe_repr.show(part, 120)}" for key, part in kwargs.items()]
        ending = (
            f"raised {failure_text(result)}" if raised else f"returned {safe_repr.show(result)}"
        )
        return f"{name}({', '.join(shown)[:250]}) {ending}"


def _with(text: str, context: str) -> str:
    return f"{text}; {context}" if context else text


def _library_name(error: BaseException) -> str:
    """Return the name of an exception's first class outside of the submission."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ != "solution")


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
