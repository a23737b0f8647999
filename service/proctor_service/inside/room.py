"""The two rooms of an exam with test code: the submission's, and that of the tests.

``serve`` runs beside the submission and answers for its globals. ``judge_tests`` runs the test code
in an interpreter of its own, in which the submission's names are stand-ins that ask across. Its
reports to the service are lines that begin with ``!``; every other line is for the other room.

    ["setup_failed", text]                            the setup is broken by itself
    ["test", index, outcome, message, extra]          passed, failed (an assertion), or raised
    ["signals", [names]]                              what the submission tried
    ["done", {"objects": whether an outcome rested on the submission's own comparisons or code}]
"""

import ast
import sys
import types
from typing import Any

from . import values
from .mentions import mentions
from .namespace import Namespace, import_statements
from .operations import drive
from .peer import Gone, Line, Peer
from .sides import Asking, SubmissionSide, TestSide, failure_text

_RECURSION_LIMIT = 5000
_MESSAGE_CHARACTERS = 500
_STOPS = ("StopIteration", "StopAsyncIteration")
# Texts of exceptions that the test code itself raised could quote the expected value; these don't.
_TELLING = (TypeError, NameError, AttributeError, IndexError, ZeroDivisionError, RecursionError)


def serve(channel: Line, namespace: dict[str, Any]) -> None:
    """Answer the tests' questions about a submission that ran, until they say goodbye."""
    Peer(channel, SubmissionSide(namespace), first=1).serve()


def judge_tests(channel: Line, job: dict[str, Any]) -> None:
    """Run setup and tests against the submission in the other room, and report on ``channel``."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    Exam(channel, job).hold()


class Exam:
    """One run of the tests."""

    def __init__(self, channel: Line, job: dict[str, Any]) -> None:
        self._channel = channel
        self._setup: str = job.get("setup") or ""
        self._tests: list[str] = list(job["tests"])
        self._entry_point: str | None = job.get("entry_point")
        self._imports: list[str] = list(job.get("imports") or ())
        self._reveal = bool(job.get("reveal"))
        self._side = TestSide()
        self._peer = Asking(channel, self._side)
        self._namespace = Namespace(self._peer)

    def hold(self) -> None:
        """From the setup to the last report."""
        try:
            if self._ready():
                for index, test in enumerate(self._tests):
                    self._test(index, test)
                    if self._peer.gone:
                        break
        except Gone:
            pass
        if self._side.signals:
            self._report(["signals", self._side.signals])
        self._report(["done", {"objects": self._side.judging.delegated}])
        self._peer.close()

    def _report(self, report: list[Any]) -> None:
        self._channel.send(b"!" + values.dumps(report))

    def _ready(self) -> bool:
        try:
            return self._prepare()
        except Gone:
            raise
        except BaseException as error:
            # What the submission's side answered makes no sense.
            for index in range(len(self._tests)):
                self._tell(index, error, "before the tests")
            return False

    def _prepare(self) -> bool:
        """Run the setup; False if there is nothing to go on with."""
        found = mentions([self._setup, *self._tests])
        for number in self._namespace.prepare(found, self._entry_point, self._imports):
            self._side.judging.mention(number)
        self._side.judging.literals = found.literals
        self._side.judging.delegated = found.runs
        self._peer.stops_are_expected = not found.loaded.isdisjoint(_STOPS)
        texts = [self._setup, *self._tests]
        if any("seed" in text for text in texts):
            self._side.surroundings.watch_seeds(
                numpy=any("np." in t or "numpy" in t for t in texts)
            )
        shared = import_statements(self._setup)
        if shared:
            self._peer.request("imports", tuple(shared))
        try:
            exec(compile(self._setup, "<setup>", "exec", 0, True, 0), self._namespace)
        except Gone:
            raise
        except BaseException as error:
            if not self._namespace.touched:
                self._report(["setup_failed", failure_text(error)[:_MESSAGE_CHARACTERS]])
                return False
            for index in range(len(self._tests)):
                self._tell(index, error, "in the setup")
            return False
        shapes = tuple(self._data_classes().items())
        if shapes:
            self._peer.request("define", shapes)
        return True

    def _data_classes(self) -> dict[str, type]:
        """The classes of the setup that the submission's code may use by name, as in `ListNode(0)`.

        Only those with no methods but special ones: a method could hold the answer.
        """
        return {
            name: value
            for name, value in self._namespace.items()
            if type(value) is type
            and value.__module__ == "__main__"
            and "__call__" not in vars(value)
            and not any(
                callable(part) or isinstance(part, property | staticmethod | classmethod)
                for key, part in vars(value).items()
                if not key.startswith("__")
            )
        }

    def _test(self, index: int, test: str) -> None:
        self._peer.forget_last()
        try:
            holds = self._run(index, test)
            if self._peer.gone:
                raise Gone
        except BaseException as error:
            self._tell(index, error, f"test: {test}" if self._reveal else "")
            return
        if holds:
            self._report(["test", index, "passed", "", {}])
        else:
            self._tell(index, AssertionError(), f"test: {test}" if self._reveal else "")

    def _run(self, index: int, test: str) -> bool:
        """Execute one test; False if it is an expression that doesn't hold."""
        tree = ast.parse(test)
        name = f"<test {index}>"
        before = dict.get(self._namespace, "check")
        only = tree.body[0] if len(tree.body) == 1 else None
        if isinstance(only, ast.Expr) and isinstance(
            only.value, ast.Compare | ast.BoolOp | ast.UnaryOp
        ):
            expression = ast.Expression(only.value)
            return bool(eval(compile(expression, name, "eval", 0, True, 0), self._namespace))
        exec(compile(tree, name, "exec", 0, True, 0), self._namespace)
        check = dict.get(self._namespace, "check")
        new = check is not before and self._entry_point and not _calls_check(tree)
        if new and type(check) is types.FunctionType and _takes_candidate(check):
            outcome = check(self._candidate())
            if isinstance(outcome, types.CoroutineType):
                drive(outcome)
        return True

    def _candidate(self) -> Any:
        assert self._entry_point is not None
        try:
            return self._namespace.ask(self._entry_point)
        except KeyError:
            raise NameError(f"name {self._entry_point!r} is not defined") from None

    def _tell(self, index: int, error: BaseException, context: str) -> None:
        """Report a test that didn't pass."""
        extra: dict[str, Any] = {}
        trace = error.__dict__.get("__proctor_trace__")
        call = self._peer.last_call()
        own = trace is None
        if isinstance(error, Gone):
            message, extra["gone"] = "the submission ended", True
        elif own and _is_failure(error):
            message = call or "the assertion does not hold"
        elif own and not isinstance(error, _TELLING) and not self._reveal:
            message = f"{type(error).__name__}; {call}" if call else type(error).__name__
        else:
            message = failure_text(error)
            if trace:
                message += f" ({trace})"
        if self._reveal and own and _is_failure(error) and error.args:
            message = f"{message}; {failure_text(error)}"
        if context:
            message = f"{message}; {context}" if self._reveal else f"{message} ({context})"
        extra["from_submission"] = not own
        if not own:
            extra["names"] = [base.__name__ for base in type(error).__mro__]
        extra["exit"] = not own and isinstance(error, SystemExit)
        outcome = "failed" if own and _is_failure(error) else "raised"
        self._report(["test", index, outcome, message[:_MESSAGE_CHARACTERS], extra])


def _is_failure(error: BaseException) -> bool:
    # pytest.fail and pytest.raises raise a class of this name, which is no AssertionError.
    return isinstance(error, AssertionError) or type(error).__name__ == "Failed"


def _takes_candidate(check: Any) -> bool:
    import inspect  # dear, and few tests come this far

    parameters = inspect.signature(check).parameters.values()
    required = [p for p in parameters if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    return len(required) == 1


def _calls_check(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "check"
        for node in tree.body
    )
