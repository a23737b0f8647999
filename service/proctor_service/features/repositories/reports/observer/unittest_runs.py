"""Observation of `unittest` test cases: the test method's own end, and what the result is told."""

import os
import sys
from typing import Any, Callable, List, Set, Tuple

from .channel import Channel
from .frameworks import Frameworks
from .watching import Observation, awaits

METHODS = {
    "addSuccess": "passed",
    "addFailure": "failed",
    "addError": "error",
    "addSkip": "skipped",
    "addExpectedFailure": "expected_failure",
    "addUnexpectedSuccess": "unexpected_pass",
}
SEVERITY = ("passed", "unexpected_pass", "expected_failure", "skipped", "failed", "error")


class UnittestRuns:
    """Observes `TestCase.run`; test cases inside of a test are not observed, also not of pytest's."""

    def __init__(self, channel: Channel, frameworks: Frameworks) -> None:
        self._channel = channel
        self._frameworks = frameworks
        self._is_claimed = False
        self._is_admitted = False
        self._is_inside = False
        self._outer: Set[Any] = set()
        self._module = ""
        own = UnittestRuns
        codes = [each.__code__ for each in (own._send, own.claim, own._run, own._end)]
        channel.senders.update(codes)
        channel.trust(self._is_right)
        frameworks.protect(own, Observation, Channel, Frameworks)

    def _is_right(self, frame: Any) -> bool:
        """Return True for a call with nothing of the submission above."""
        is_own = frame.f_code in (UnittestRuns._run.__code__, UnittestRuns._end.__code__)
        return is_own and not self._frameworks.foreign_frame(frame, self._outer)

    def _failed(self, name: str) -> Callable[[], None]:
        """A function that says at once that the raw outcome of a test is a failure."""
        return lambda: self._send("failed", name)

    def _send(self, kind: str, *fields: str) -> None:
        self._channel.send(kind, *fields)

    def claim(self) -> None:
        """Ask the listener to take this process's tests; called before a test is loaded."""
        if self._is_claimed:
            return
        self._is_claimed = True
        frame: Any = sys._getframe()
        while frame is not None:
            self._outer.add(frame)
            frame = frame.f_back
        self._is_admitted = self._channel.claim("main", "unittest")
        if self._is_admitted:
            for name in self._frameworks.accept_changes():
                self._send("doubt", "", "framework_changed", name)

    def observed_loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the loader of tests that claims first."""

        def load(loader: Any, *args: Any, **kwargs: Any) -> Any:
            self.claim()
            return original(loader, *args, **kwargs)

        return load

    def observed_runner(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`run` of the runner of tests, whose end is sent."""

        def run(runner: Any, test: Any) -> Any:
            self.claim()
            result = original(runner, test)
            if self._is_admitted and not self._is_inside:
                self._end(result)
            return result

        return run

    def _end(self, result: Any) -> None:
        self._channel.send("end", "0" if result.wasSuccessful() else "1")

    def observed_run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`TestCase.run` with both observations."""

        def run(case: Any, result: Any = None) -> Any:
            __tracebackhide__ = True
            if result is None or self._is_inside or "_pytest" in type(result).__module__:
                return original(case, result)
            self.claim()
            if not self._is_admitted:
                return original(case, result)
            self._is_inside = True
            try:
                return self._run(original, case, result)
            finally:
                self._is_inside = False

        return run

    def _run(self, original: Callable[..., Any], case: Any, result: Any) -> Any:
        method = case._testMethodName
        name, description = names_of(case, method)
        function = getattr(case, method, None)
        observation = Observation(self._failed(name))
        reported: List[str] = []
        try:
            doubt = self._doubt_about(case, method, function)
        except Exception:  # of an odd object in the tests
            doubt = ""
        if function is not None:
            setattr(case, method, observation.watched(function, awaits(case)))
        replaced = self._observe_result(result, reported)
        try:
            return original(case, result)
        finally:
            for key in replaced:
                vars(result).pop(key, None)
            vars(case).pop(method, None)
            if doubt:
                self._send("doubt", name, *doubt.partition(" ")[::2])
            outcome = max(reported, key=SEVERITY.index) if reported else "none"
            self._channel.send("test", name, observation.raw, outcome, description)

    def _observe_result(self, result: Any, reported: List[str]) -> List[str]:
        """Note in `reported` what the test case tells this result."""
        replaced = []
        for key, outcome in METHODS.items():
            original = getattr(result, key, None)
            if original is not None and key not in vars(result):
                setattr(result, key, noting(original, reported, outcome))
                replaced.append(key)
        original_subtest = getattr(result, "addSubTest", None)
        if original_subtest is not None:

            def add_subtest(test: Any, subtest: Any, error: Any) -> Any:
                if error is not None:
                    reported.append("failed")
                return original_subtest(test, subtest, error)

            result.addSubTest = add_subtest
            replaced.append("addSubTest")
        return replaced

    def _doubt_about(self, case: Any, method: str, function: Any) -> str:
        frameworks = self._frameworks
        module = type(case).__module__
        changed = frameworks.first_change(module != self._module)
        self._module = module
        if changed:
            return "framework_changed " + changed
        path = getattr(sys.modules.get(module), "__file__", None)
        if function is None:
            return ""
        if path is None:  # a class that says that it is of a module which is not there
            return "test_replaced" if frameworks.is_of_submission(function) else ""
        path = os.path.realpath(path)
        definitions = frameworks.definitions
        if definitions.is_replaced_in(path):
            return "test_replaced"
        helper = definitions.replaced_helper(path)
        if helper is not None and frameworks.is_foreign(helper):
            return "helper_replaced " + str(helper.__name__)
        name = "::".join(type(case).__qualname__.split(".")) + "::" + method
        definition = definitions.of(path, name)
        if definition is None:
            is_forged = not frameworks.is_changed(path) and frameworks.is_of_submission(function)
            return "test_replaced" if is_forged else ""
        return "test_replaced" if frameworks.is_replaced(function, definition) else ""


def names_of(case: Any, method: str) -> Tuple[str, str]:
    """The name of a test case as `unittest` has it, and its description: the first line of its docstring.

    A doctest's is that of the documented object: all of them are one class with one method. `id` of the
    test case is not asked, which the tested code may replace.
    """
    doctests = sys.modules.get("doctest")
    test = getattr(case, "_dt_test", None)
    if test is not None and doctests is not None and isinstance(case, doctests.DocTestCase):
        return str(test.name), "Doctest: " + str(test.name)
    lines = (getattr(case, "_testMethodDoc", None) or "").strip().splitlines()
    name = ".".join([type(case).__module__, type(case).__qualname__, method])
    return name, lines[0].strip() if lines else ""


def noting(original: Callable[..., Any], reported: List[str], outcome: str) -> Callable[..., Any]:
    """A method of a result that notes the outcome that it stands for."""

    def note(*args: Any, **kwargs: Any) -> Any:
        reported.append(outcome)
        return original(*args, **kwargs)

    return note
