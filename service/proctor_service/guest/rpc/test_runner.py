"""Test runner: runs setup and tests in a separate interpreter; the submission's names are handles.

Reports to the service are lines with a leading ``!``; all other lines go to the submission's
endpoint.

    ["setup_failed", text]                            the setup fails without the submission
    ["test", index, outcome, message, extra]          passed, failed, raised, or refused
    ["done", {"asked": requests, "refused": true if a test was refused}]
    ["broken", traceback]                             Proctor failed before the first statement
"""

from __future__ import annotations

import ast
import sys
import traceback
import types
from typing import Any

from ...codec import values
from .. import unittest_runs
from . import messages
from .connection import Gone, Unusable
from .environment import Environment
from .test_endpoint import TestEndpoint
from .test_namespace import Namespace, import_statements
from .test_tools import Tools

_RECURSION_LIMIT = 5000
_MESSAGE_CHARACTERS = 500


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
        self._namespace["__proctor__"] = Tools(self._side)
        self._cases = unittest_runs.Cases(
            self._namespace, lambda case: case.__module__ == "__main__"
        )
        self._messages = messages.Messages(
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
            text = messages.failure_text(error)[:_MESSAGE_CHARACTERS]
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
            if not self._execute(index, test["source"]):
                error = AssertionError()
            for step in test.get("run") or () if error is None else ():
                self._run_after(step)
            self._side.connection.held.reset()
        except BaseException as raised:
            error = raised
        source = test["source"]
        self._conclude(index, error, f"test: {source}" if self._messages.reveal else "")

    def _execute(self, index: int, source: str) -> bool:
        """Execute the statements of a test; return False for a single expression that is false."""
        tree = ast.parse(source)
        name = f"<test {index}>"
        only = tree.body[0] if len(tree.body) == 1 else None
        if isinstance(only, ast.Expr) and _is_condition(only.value):
            expression = ast.Expression(only.value)
            return bool(eval(compile(expression, name, "eval", 0, True, 0), self._namespace))
        exec(compile(tree, name, "exec", 0, True, 0), self._namespace)
        return True

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
