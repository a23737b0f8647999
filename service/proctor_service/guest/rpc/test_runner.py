"""Test runner: runs setup and tests in a separate interpreter; the submission's names are handles.

Reports to the service are lines with a leading ``!``; all other lines go to the submission's
endpoint.

    ["setup_failed", text]                            the setup fails without the submission
    ["test", index, outcome, message, extra]          passed, failed, raised, or refused
    ["done", {"asked": requests, "refused": true if a test was refused}]
    ["broken", traceback]                             Proctor failed before the first statement

Messages describe the submission's behaviour and hide expected values. By default, a message has an
exception class and a line number: a text could quote values from the tests. More is shown if the
task reveals its tests, or calls the submission with literals only.
"""

from __future__ import annotations

import ast
import sys
import traceback
import types
from typing import Any

from ...codec import safe_repr, values
from .. import unittest_runs
from .connection import Gone, Unusable
from .environment import Environment
from .exported_classes import NAMES, TRACE, names_of, nearest_standard
from .test_endpoint import TestEndpoint
from .test_globals import Namespace, Tools, import_statements

_RECURSION_LIMIT = 5000
_MESSAGE_CHARACTERS = 500
# Texts of exceptions raised by test code can quote the expected value; texts of these classes
# cannot.
_HARMLESS = (TypeError, NameError, AttributeError, IndexError, ZeroDivisionError, RecursionError)


def judge_tests(channel: Any, job: dict[str, Any]) -> None:
    """Run setup and tests against the remote submission, and report on ``channel``."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    try:
        runner = TestRunner(channel, job)
        runner.prepare()
    except (Gone, Unusable) as error:
        runner.give_up(error)
        return
    except BaseException:
        text = traceback.format_exc()[-4000:]
        channel.send(b"!" + values.dumps(["broken", text]))
        return
    runner.run()


class TestRunner:
    """A run of the tests."""

    __test__ = False

    def __init__(self, channel: Any, job: dict[str, Any]) -> None:
        self._channel = channel
        self._setup: str = job.get("setup") or ""
        self._tests: list[dict[str, Any]] = list(job["tests"])
        self._imports: list[str] = list(job.get("imports") or ())
        self._environment = Environment()
        self._side = TestEndpoint(channel, self._environment)
        names = frozenset(job.get("names") or ())
        self._namespace = Namespace(self._side, names, self._imports)
        self._namespace["__proctor__"] = Tools(self._side, self._namespace)
        self._cases = unittest_runs.Cases(
            self._namespace, lambda case: case.__module__ == "__main__"
        )
        self._messages = Messages(
            self._side, bool(job.get("reveal")), bool(job.get("literal_calls"))
        )
        self._refused = False

    def prepare(self) -> None:
        """Prepare the environment before the first statement of setup and tests."""
        texts = [self._setup, *(test["source"] for test in self._tests)]
        if any("seed" in text for text in texts):
            numpy = any("np." in text or "numpy" in text for text in texts)
            self._environment.watch_seeds(numpy=numpy)
        if any("unittest" in text for text in (*texts, *self._imports)):
            self._cases.replace_main()
        self._side.ask("imports", tuple(import_statements(self._setup)))

    def run(self) -> None:
        """Run the setup and the tests, and send all reports."""
        if self._set_up():
            for index, test in enumerate(self._tests):
                self._test(index, test)
                if self._side.connection.gone:
                    break
        self._finish()

    def give_up(self, error: BaseException) -> None:
        """Report for each test that the submission's endpoint ended or sent invalid data."""
        for index in range(len(self._tests)):
            self._conclude(index, error, "before the tests")
        self._finish()

    def _finish(self) -> None:
        self._report(["done", {"asked": self._side.asked, "refused": self._refused}])
        self._side.connection.close()

    def _report(self, report: list[Any]) -> None:
        self._channel.send(b"!" + values.dumps(report))

    def _set_up(self) -> bool:
        """Run the setup; return False if the tests cannot run."""
        try:
            exec(compile(self._setup, "<setup>", "exec", 0, True, 0), self._namespace)
            shapes = tuple(self._data_classes().items())
            if shapes and self._side.lost is None:
                self._side.ask("define", shapes)
            error: BaseException | None = None
        except BaseException as raised:
            error = raised
        if error is None and self._side.lost is None:
            return True
        if not self._side.asked and error is not None and not self._side.connection.gone:
            text = failure_text(error)[:_MESSAGE_CHARACTERS]
            self._report(["setup_failed", text])
            return False
        for index in range(len(self._tests)):
            self._conclude(index, error, "in the setup")
        return False

    def _data_classes(self) -> dict[str, type]:
        """Return the setup's classes that the submission may use by name, as in `ListNode(0)`.

        Classes with ordinary methods are excluded: a method could contain the answer.
        """
        return {
            name: value
            for name, value in self._namespace.items()
            if type(value) is type
            and value.__module__ == "__main__"
            and "__call__" not in vars(value)
            and not any(
                callable(part) or isinstance(part, (property, staticmethod, classmethod))
                for key, part in vars(value).items()
                if not key.startswith("__")
            )
        }

    def _test(self, index: int, test: dict[str, Any]) -> None:
        self._side.begin_test()
        error: BaseException | None = None
        try:
            self._execute(index, test["source"])
            for step in test.get("run") or ():
                self._run_after(step)
            self._side.connection.held.reset()
        except BaseException as raised:
            error = raised
        source = test["source"]
        self._conclude(index, error, f"test: {source}" if self._messages.reveal else "")

    def _execute(self, index: int, source: str) -> None:
        """Execute the statements of a test; a single condition is an assertion."""
        tree = ast.parse(source)
        only = tree.body[0] if len(tree.body) == 1 else None
        if isinstance(only, ast.Expr) and _is_condition(only.value):
            tree.body[0] = ast.copy_location(ast.Assert(only.value, None), only)
        exec(compile(tree, f"<test {index}>", "exec", 0, True, 0), self._namespace)

    def _run_after(self, what: list[Any]) -> None:
        """Run a function or class that the test's statements defined; exceptions propagate."""
        kind = what[0]
        if kind == "check":
            entry = what[2]
            candidate = eval(entry, self._namespace) if entry else self._side.ask("last_function")
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
        self._refused |= outcome == "refused"
        self._report(["test", index, outcome, message[:_MESSAGE_CHARACTERS], extra])


def _is_condition(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return (
            node.func.attr == "compare"
            and isinstance(owner, ast.Name)
            and owner.id == "__proctor__"
        )
    return isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp))


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
