"""Observation of a pytest session: PYTEST_DONT_REWRITE.

For each test two outcomes are sent: the raw one, of the test's own function, and the reported one,
of pytest's reports. Who judges compares them.
"""

import os
import sys
from typing import Any, Callable, Dict, Generator, List, Optional, Set, Tuple

from . import settings
from .channel import Channel
from .doctests import replace_examples
from .frameworks import Frameworks
from .watching import Observation, awaits

TOKEN = "proctor_token"
CALLERS_OF_HOOKS = ("_multicall", "run_old_style_hookwrapper")
"""Functions of pluggy, by version and kind of hook."""
PHASES = ("setup", "call", "teardown")


class PytestSession:
    """A plugin of one session; sessions inside of its tests get none."""

    def __init__(self, pytest: Any, channel: Channel, frameworks: Frameworks) -> None:
        self._channel = channel
        self._function = pytest.Function
        self._frameworks = frameworks
        self._phases: Dict[str, Dict[str, str]] = {}
        self._raw: Dict[str, str] = {}
        self._doubts: Dict[str, str] = {}
        self._outer: Set[Any] = set()
        self._role = ""
        self._file = ""
        self._root = ""
        self._prefix = ""
        self._session_id = os.getpid()
        own = PytestSession
        self._callers = {
            own._finish.__code__: (own.pytest_runtest_logreport, own.pytest_sessionfinish),
            own._repeat.__code__: (own.pytest_runtest_call,),
            own._note.__code__: (own.pytest_pyfunc_call, own.pytest_runtest_call),
            own._end.__code__: (own.pytest_sessionfinish,),
        }
        channel.senders.update([own._send.__code__, own._claim.__code__, *self._callers])
        channel.trust(self._is_right, own.pytest_configure_node.__code__)
        frameworks.protect(own, Observation, Channel, Frameworks)

    def _is_right(self, frame: Any) -> bool:
        """Return True for a call of this plugin by pytest, with nothing of the submission above."""
        hooks = self._callers.get(frame.f_code, ())
        hook = frame.f_back
        if hook is None or hook.f_code not in [each.__code__ for each in hooks]:
            return False
        caller = hook.f_back
        if caller is None or caller.f_code.co_name not in CALLERS_OF_HOOKS:
            return False
        is_known = not self._frameworks.codes or caller.f_code in self._frameworks.codes
        return is_known and not self._frameworks.foreign_frame(frame, self._outer)

    def _failed(self, name: str) -> Callable[[], None]:
        """A function that says at once that the raw outcome of a test is a failure."""
        return lambda: self._send("failed", name)

    def _send(self, kind: str, *fields: str) -> None:
        self._channel.send(kind, *fields)

    def _claim(self, role: str, token: bytes = b"") -> None:
        self._role = role if self._channel.claim(role, "pytest", token) else "refused"

    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        frame: Any = sys._getframe()
        while frame is not None:
            self._outer.add(frame)
            frame = frame.f_back
        if "PYTEST_XDIST_WORKER" not in os.environ:
            self._claim("main")
            if self._role == "refused":  # a session inside of a test
                early_config.pluginmanager.unregister(self)
        self._set_root(early_config)

    def _set_root(self, config: Any) -> None:
        # Newer versions of pytest have the one attribute, older ones the other.
        self._root = str(getattr(config, "rootpath", None) or config.rootdir)
        prefix = os.path.relpath(self._root)
        self._prefix = "" if prefix.startswith(".") else prefix + "/"

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[TOKEN] = self._channel.share()

    def pytest_sessionstart(self, session: Any) -> None:
        config = session.config
        worker = getattr(config, "workerinput", None)
        if worker is not None:
            self._claim("worker", worker.get(TOKEN, b""))
        elif not self._role:
            self._claim("main")
        if config.pluginmanager.hasplugin("dsession"):
            self._role += "+controller"
        self._set_root(config)
        for name in self._frameworks.accept_changes():
            self._send("doubt", "", "framework_changed", name)

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self._send("collect", report.nodeid, report.outcome)

    def pytest_collection_modifyitems(self, items: List[Any]) -> None:
        for item in items:
            if settings.DOCTESTS and hasattr(item, "dtest"):
                replace_examples(item.dtest, settings.DOCTESTS)

    def pytest_runtest_call(self, item: Any) -> Generator[None, Any, None]:
        """Observe test cases, and items that are no function, within all other wrappers."""
        if self._raw.pop(item.nodeid, None) is not None:
            self._repeat(item.nodeid)
        observation = Observation(self._failed(item.nodeid))
        classes = {each.__name__ for each in type(item).__mro__}
        is_case, is_function = "TestCaseFunction" in classes, isinstance(item, self._function)
        function: Any = item.obj if is_case else None
        case = getattr(item, "_testcase", None) or getattr(item, "instance", None)
        if is_case or not is_function:
            self._doubt(item, function)
        if is_case:
            item.obj = observation.watched(function, awaits(case))
            setattr(case, item.name, item.obj)
        outcome = yield
        if is_case:
            item.obj = function
            vars(case).pop(item.name, None)
        elif is_function and (item.nodeid in self._raw or self._runs_itself(item)):
            return
        else:
            error = outcome.excinfo
            observation.ended(error[1] if error else None)
        self._note(item.nodeid, observation.raw)

    def _runs_itself(self, item: Any) -> bool:
        """Return True for a function that pytest itself runs, so that its call is observed."""
        runtest = type(item).runtest
        return runtest is self._function.runtest or self._is_foreign(runtest)

    def pytest_pyfunc_call(self, pyfuncitem: Any) -> Generator[None, Any, None]:
        """Observe the call of a test function, within all other wrappers."""
        function = pyfuncitem.obj
        observation = Observation(self._failed(pyfuncitem.nodeid))
        self._doubt(pyfuncitem, function)
        pyfuncitem.obj = observation.watched(function)
        yield
        pyfuncitem.obj = function
        self._note(pyfuncitem.nodeid, observation.raw)

    def _repeat(self, name: str) -> None:
        """Say that a test is run again, before it was reported: a plugin repeats failed ones."""
        self._channel.send("repeat", name)

    def _note(self, name: str, raw: str) -> None:
        self._raw[name] = raw
        if os.getpid() != self._session_id:  # a plugin that forks for each test, and reports itself
            self._channel.send("raw", name, raw)

    def _doubt(self, item: Any, function: Any) -> None:
        try:
            reason = self._doubt_about(item, function)
        except Exception:  # of an odd object in the tests
            reason = None
        if reason:
            self._doubts[item.nodeid] = reason

    def _doubt_about(self, item: Any, function: Any) -> Optional[str]:
        """Name what shows that the framework, the test or its helpers were replaced."""
        file, _, rest = item.nodeid.partition("::")
        is_first = file != self._file
        self._file = file
        changed = self._frameworks.first_change(is_first)
        if changed:
            return "framework_changed " + changed
        if any(each and self._frameworks.is_of_submission(each) for each in tracers()):
            return "traced"
        if function is None:
            return None
        definitions = self._frameworks.definitions
        path = os.path.join(self._root, file)
        if definitions.is_replaced_in(path):
            return "test_replaced"
        helper = definitions.replaced_helper(path)
        if helper is not None and self._is_foreign(helper):
            return "helper_replaced " + str(helper.__name__)
        definition = definitions.of(path, rest.partition("[")[0])
        if (
            definition is None
        ):  # a test that the file did not define: a generated one, or a forged one
            is_forged = not self._frameworks.is_changed(path) and self._frameworks.is_of_submission(
                function
            )
            return "test_replaced" if is_forged else None
        return "test_replaced" if self._frameworks.is_replaced(function, definition) else None

    def _is_foreign(self, function: Any) -> bool:
        wrote = self._frameworks.definitions.wrote(getattr(function, "__code__", None))
        return not wrote and self._frameworks.is_foreign(function)

    def pytest_runtest_logreport(self, report: Any) -> None:
        name, when, outcome = report.nodeid, report.when, report.outcome
        if when == "setup" and "rerun" not in self._phases.get(name, "rerun"):
            self._finish(name)
        phases = self._phases.setdefault(name, {})
        if when == "setup":
            phases.clear()
        if outcome == "rerun" or "rerun" in phases:  # an attempt that does not count
            phases["rerun"] = outcome
            return
        if hasattr(report, "wasxfail"):
            outcome = "expected_failure" if outcome == "skipped" else "unexpected_pass"
        if getattr(report, "context", None) is not None:  # of a subtest
            if outcome == "failed":
                phases["subtest"] = "failed"
            return
        if phases.get(when) != "failed":
            phases[when] = outcome
        if when == "teardown":
            self._finish(name)

    def _alias(self, name: str) -> str:
        """The name that pytest prints, where tests lie below another folder than the working one."""
        return self._prefix + name if self._prefix else ""

    def _finish(self, name: str) -> None:
        phases = self._phases.pop(name, {})
        raw = self._raw.pop(name, "none")
        reported = reported_outcome(phases)
        doubt = self._doubts.pop(name, None)
        if doubt:
            self._send("doubt", name, *doubt.partition(" ")[::2])
        if self._role.endswith("controller") or os.getpid() != self._session_id:
            self._channel.send("reported", name, reported)
        else:
            self._channel.send("test", name, raw, reported, self._alias(name))

    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> None:
        changed = self._frameworks.first_change(True)
        if changed:
            self._send("doubt", "", "framework_changed", changed)
        for name in list(self._phases):
            self._finish(name)
        self._end(exitstatus)

    def _end(self, exitstatus: Any) -> None:
        self._channel.send("end", str(int(exitstatus)))


def tracers() -> Tuple[Any, Any]:
    """The functions that trace and profile this thread."""
    return sys.gettrace(), sys.getprofile()


def reported_outcome(phases: Dict[str, str]) -> str:
    """The outcome of a test from those of its phases, as pytest's summary counts it."""
    if phases.get("call") == "failed" or phases.get("subtest") == "failed":
        return "failed"
    if "failed" in (phases.get("setup"), phases.get("teardown")):
        return "error"
    for outcome in ("expected_failure", "unexpected_pass", "skipped"):
        if outcome in phases.values():
            return outcome
    return "passed" if all(phases.get(each) == "passed" for each in PHASES) else "error"


def mark_hooks(pytest: Any) -> None:
    """Say of the hooks above in which order pytest calls them."""
    first, last = pytest.hookimpl(tryfirst=True), pytest.hookimpl(trylast=True)
    first(PytestSession.pytest_load_initial_conftests)
    last(PytestSession.pytest_sessionstart)
    last(PytestSession.pytest_sessionfinish)
    last(PytestSession.pytest_collection_modifyitems)
    last(PytestSession.pytest_runtest_logreport)
    pytest.hookimpl(optionalhook=True)(PytestSession.pytest_configure_node)
    innermost = pytest.hookimpl(hookwrapper=True, trylast=True)
    innermost(PytestSession.pytest_runtest_call)
    innermost(PytestSession.pytest_pyfunc_call)
