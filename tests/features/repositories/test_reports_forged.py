"""Code of the submission that runs in the tests' process makes no wrong test pass, in these ways."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest
from observed_runs import Environment, write_files

from proctor_service.features.repositories.reports.in_process import Events
from proctor_service.features.repositories.reports.listener import RESTART, RESTARTED, Listener
from proctor_service.features.repositories.reports.observer.channel import Channel

pytestmark = pytest.mark.slow

CORE = "def slug(s):\n    return s\n"
TESTS = """
import unittest
from core import slug
def same(a, b):
    assert a == b
def test_kept(): assert slug("a") == "a"
def test_fix(): assert slug("A B") == "a-b"
def test_helped(): same(slug("A B"), "a-b")
def test_all(): assert all(each == "a" for each in slug("AAB"))
class Cases(unittest.TestCase):
    def test_fix(self): self.assertEqual(slug("A B"), "a-b")
"""
WRONG = ("test_fix", "test_helped", "test_all", "Cases::test_fix")
PLUGIN = """
import gc, pytest
class Plugin:
    {hook}
for each in gc.get_objects():
    if isinstance(each, pytest.Config): each.pluginmanager.register(Plugin())
"""
SESSION = """
import gc, os
names = ["test_core.py::" + each for each in {names}]
for each in gc.get_objects():
    if type(each).__name__ == "PytestSession": session = each
    if type(each).__name__ == "Channel" and hasattr(each, "send"): channel = each
"""
OTHER_PROGRAM = """
import glob, hashlib, os, socket, sys, time
def forge(first=(b"hello", b"process", b"3.11", b"")):
    for each in range(3, 64):
        try: os.close(each)
        except OSError: pass
    path = [each for each in os.environ["SOCKETS"].split(":") if os.path.exists(each)][0]
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.connect(path)
    key, number = channel.recv(64), 0
    for fields in (first, (b"claim", b"main", b"pytest", b""), *(
        (b"test", b"test_core.py::" + each, b"passed", b"passed", b"")
        for each in (b"test_fix", b"test_helped", b"test_all", b"Cases::test_fix")
    )):
        number += 1
        body = b"".join(b"%d:%s," % (len(each), each) for each in (b"%d" % number, *fields))
        channel.send(hashlib.blake2b(body, key=key, digest_size=16).digest() + body)
        key = hashlib.blake2b(b"next", key=key).digest()[:32]
        if fields[0] == b"claim": channel.recv(64)
import sys
for each in list(sys.modules):
    if each.endswith(".settings") and hasattr(sys.modules[each], "SOCKET"):
        os.environ["SOCKETS"] = sys.modules[each].SOCKET
"""
FORGERIES: Mapping[str, str] = {
    "a method of pytest does nothing": """
import sys
sys.modules["_pytest.python"].Function.runtest = lambda self: None
""",
    "a hook of pytest does nothing": """
import sys
sys.modules["_pytest.python"].pytest_pyfunc_call = lambda pyfuncitem: True
""",
    "an implementation of a hook does nothing": """
import gc
for each in gc.get_objects():
    if type(each).__name__ == "HookImpl" and each.function.__module__ == "_pytest.python":
        if each.function.__name__ == "pytest_pyfunc_call": each.function = lambda pyfuncitem: True
""",
    "calls of hooks lose exceptions": """
import gc, pluggy
for each in gc.get_objects():
    if isinstance(each, pluggy.PluginManager):
        def call(name, *given, inner=each._inner_hookexec):
            try: return inner(name, *given)
            except AssertionError: return True
        each._inner_hookexec = call
""",
    "reports are written anew": PLUGIN.format(
        hook="""@pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        report.outcome, report.longrepr = "passed", None"""
    ),
    "failures are swallowed by another caller": PLUGIN.format(
        hook="""@pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        try: pyfuncitem.obj()
        except BaseException: pass
        return True"""
    ),
    "tests are replaced after collecting": PLUGIN.format(
        hook="""def pytest_collection_modifyitems(self, items):
        for each in items: each.obj = lambda *given: None"""
    ),
    "tests are replaced by wrappers": PLUGIN.format(
        hook="""def pytest_collection_modifyitems(self, items):
        import functools
        for each in items: each.obj = functools.wraps(each.obj)(lambda *given: None)"""
    ),
    "a test has another's name": PLUGIN.format(
        hook="""def pytest_collection_modifyitems(self, items):
        items[:] = [each for each in items if each.name == "test_kept"]
        items[0]._nodeid = "test_core.py::test_fix" """
    ),
    "reports are made without a run": PLUGIN.format(
        hook="""def pytest_collection_modifyitems(self, config, items):
        from _pytest.reports import TestReport
        for each in items:
            for when in ("setup", "call", "teardown"):
                report = TestReport(each.nodeid, each.location, {}, "passed", None, when)
                config.hook.pytest_runtest_logreport(report=report)
        items[:] = []"""
    ),
    "assertions of unittest do nothing": """
import unittest
unittest.TestCase.assertEqual = lambda *given: None
""",
    "cases are never run": """
import unittest
def run(self, result=None):
    result.startTest(self); result.addSuccess(self); result.stopTest(self)
unittest.TestCase.run = run
""",
    "a built-in function is replaced": """
import builtins
builtins.all = lambda values: True
""",
    "a built-in function is hidden in the tests' file": """
import sys
frame = sys._getframe()
while frame:
    if frame.f_code.co_filename.endswith("test_core.py"): frame.f_globals["all"] = lambda values: True
    frame = frame.f_back
""",
    "tests get other code at the first call": """
import sys
def slug(s):
    tests = sys.modules["test_core"]
    for name in ("test_fix", "test_helped", "test_all"):
        getattr(tests, name).__code__ = (lambda: None).__code__
    tests.same = lambda a, b: None
    tests.Cases.test_fix.__code__ = (lambda self: None).__code__
    return s
""",
    "classes are built with other tests": """
import builtins
def build(function, name, *given, build=builtins.__build_class__, **more):
    made = build(function, name, *given, **more)
    if name == "Cases": made.test_fix = lambda self: None; function.__globals__["test_fix"] = lambda: None
    return made
builtins.__build_class__ = build
""",
    "a profiler changes the tests' file": """
import sys
def profile(frame, event, value):
    if event == "return" and frame.f_code.co_name == "<module>": frame.f_globals["test_fix"] = lambda: None
sys.setprofile(profile)
""",
    "a thread replaces tests": """
import sys, threading
def replace():
    while not hasattr(sys.modules.get("test_core"), "Cases"): pass
    sys.modules["test_core"].test_fix = lambda: None
threading.Thread(target=replace, daemon=True).start()
""",
    "code under a name of pytest's own file": """
import _pytest.python
source = "import _pytest.python\\n_pytest.python.Function.runtest = lambda self: None"
exec(compile(source, _pytest.python.__file__, "exec"))
""",
    "the code skips": """
import unittest
def slug(s):
    if s != "a": raise unittest.SkipTest("no")
    return s
""",
    "the run ends with a log": 'import os\nprint("PASSED test_core.py::test_fix", flush=True)\nos._exit(0)\n',
    "bytes are written to the channel": """
import os
for descriptor in range(3, 64):
    try: os.write(descriptor, bytes(16) + b"1:4,4:test,21:test_core.py::test_fix,6:passed,6:passed,0:,")
    except OSError: pass
""",
    "the channel is used": SESSION.format(names=WRONG)
    + 'for each in names: channel.send("test", each, "passed", "passed", "")\nos._exit(0)\n',
    "the session's methods are called": SESSION.format(names=WRONG)
    + """
for each in names:
    session._raw[each] = "passed"
    session._phases[each] = dict(setup="passed", call="passed", teardown="passed")
    session._finish(each)
os._exit(0)
""",
    "another program in the process claims": OTHER_PROGRAM
    + """
if __name__ == "__main__": forge()
else: os.execv(sys.executable, [sys.executable, "core.py"])
""",
    "a child claims when its parent is gone": OTHER_PROGRAM
    + """
if os.fork():
    os.closerange(3, 64)
    time.sleep(1)
    os._exit(0)
time.sleep(0.3)
forge()
os._exit(0)
""",
    "an orphan claims": OTHER_PROGRAM
    + """
if os.fork():
    os.wait()
    os.closerange(3, 64)
    time.sleep(1)
    os._exit(0)
if os.fork(): os._exit(0)
time.sleep(0.3)
forge()
os._exit(0)
""",
    "a worker without the token": OTHER_PROGRAM
    + """
if os.fork() == 0: forge((b"hello", b"worker", b"3.11", b""))
os._exit(0)
""",
    "a second pytest runs other tests": """
import os, subprocess, sys, tempfile
folder = tempfile.mkdtemp(dir=".")
with open(folder + "/test_core.py", "w") as file: file.write("def test_fix(): pass")
subprocess.run([sys.executable, "-m", "pytest", "-q", "."], cwd=folder)
os._exit(0)
""",
}


def test_forged_outcomes_are_none(tmp_path: Path) -> None:
    environments = SimpleQueue[Environment]()  # one run at a time in each
    for name in ("a", "b"):
        environments.put(Environment(tmp_path / name))

    def passed(case: tuple[int, str]) -> list[str]:
        folder = tmp_path / str(case[0])
        code = case[1] if "def slug" in case[1] else case[1] + CORE
        write_files(folder, {"core.py": code, "test_core.py": TESTS, "pytest.ini": "[pytest]\n"})
        arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
        environment = environments.get()
        reported = environment.run(folder, arguments, changed=["core.py"]).reported
        environments.put(environment)
        return [
            each for each in WRONG if reported.outcomes.get(f"test_core.py::{each}") == "passed"
        ]

    with ThreadPoolExecutor(2) as threads:
        found = dict(
            zip(FORGERIES, threads.map(passed, enumerate(FORGERIES.values())), strict=True)
        )
    assert {name: names for name, names in found.items() if names} == {}


def test_the_tests_themselves_pass_with_a_right_change(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    right = 'def slug(s):\n    return "aaa" if s == "AAB" else s.lower().replace(" ", "-")\n'
    folder = write_files(tmp_path / "a", {"core.py": right, "test_core.py": TESTS})
    observed = environment.run(folder, ["-m", "pytest", "-q"], changed=["core.py"])
    assert set(observed.reported.outcomes.values()) == {"passed"}, observed.output
    assert observed.reported.signals == ()


INNER_RUNS = """
import io, subprocess, sys, unittest
class Inner(unittest.TestCase):
    def test_a(self): pass
def test_first(): pass
def test_runs_unittest():
    suite = unittest.TestLoader().loadTestsFromName("test_core.Inner")
    assert unittest.TextTestRunner(stream=io.StringIO()).run(suite).wasSuccessful()
def test_runs_pytest():
    assert subprocess.call([sys.executable, "-m", "pytest", "-q", "test_other.py"]) == 0
def test_last(): pass
"""
CASES = """
import unittest
class Cases(unittest.TestCase):
    def test_first(self): pass
    def test_pytest(self):
        import pytest
        assert pytest.main(["-q", "test_other.py"]) == 0
    def test_z(self): pass
"""
TWO = """
import subprocess, sys
command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
runs = [subprocess.Popen([*command, each]) for each in ("test_core.py", "test_other.py")]
for each in runs: each.wait()
"""


FORGED_CASES = """
import unittest
def load_tests(loader, tests, pattern):
    import os
    made = {"__module__": "test_u", "test_first": lambda self: None, "test_z": lambda self: None}
    forged = type("Cases", (unittest.TestCase,), made)
    last = type("Last", (unittest.TestCase,), {"test_a": lambda self: os._exit(0)})
    return unittest.TestSuite([forged("test_first"), forged("test_z"), last("test_a")])
"""
GENERATED = """
import unittest
from app import check
class Base(unittest.TestCase): pass
for name in ("a", "b"): setattr(Base, "test_" + name, lambda self: check())
class Mixed(Base): pass
def load_tests(loader, tests, pattern):
    made = type("Made", (unittest.TestCase,), {"__module__": __name__, "test_c": lambda self: check()})
    return unittest.TestSuite([*tests, made("test_c")])
"""


def test_cases_of_the_submission_are_no_cases_of_a_test_file(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    files = {"app/__init__.py": FORGED_CASES, "test_u.py": CASES}
    folder = write_files(tmp_path / "a", files)
    arguments = ["-m", "unittest", "discover", "-v"]
    found = environment.run(folder, arguments, "unittest", changed=["app/__init__.py"])
    assert set(found.reported.outcomes.values()) == {"failed"}, found.output

    files = {"app/__init__.py": "def check(): pass\n", "test_g.py": GENERATED}
    folder = write_files(tmp_path / "b", files)
    found = environment.run(folder, arguments, "unittest", changed=["app/__init__.py"])
    names = {"test_g.Base.test_a", "test_g.Mixed.test_b", "test_g.Made.test_c"}
    passed = {name for name, word in found.reported.outcomes.items() if word == "passed"}
    assert names <= passed, found.output


def test_runs_inside_of_tests_and_beside_each_other_lose_nothing(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    files = {"test_core.py": INNER_RUNS, "test_other.py": "def test_o(): pass\n"}
    folder = write_files(tmp_path / "a", {**files, "test_u.py": CASES, "two.py": TWO})
    own = {
        f"test_core.py::test_{each}" for each in ("first", "runs_unittest", "runs_pytest", "last")
    }
    of_cases = {f"test_u.Cases.test_{each}" for each in ("first", "pytest", "z")}

    def passed(*arguments: str, kind: str = "pytest") -> set[str]:
        outcomes = environment.run(folder, arguments, kind).reported.outcomes
        return {name for name, outcome in outcomes.items() if outcome == "passed"}

    assert own <= passed("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_core.py")
    assert of_cases <= passed("-m", "unittest", "test_u", kind="unittest")
    assert own | {"test_other.py::test_o"} <= passed("two.py")


def test_what_a_build_says_does_not_count(tmp_path: Path) -> None:
    path, lines = str(tmp_path / "events"), list[bytes]()
    digests = iter([b"a", b"a", b"b"])
    listener = Listener(path, lines.append, runner=lambda: next(digests))
    stop, wake = os.pipe()
    thread = threading.Thread(target=listener.serve, args=(stop,))
    thread.start()
    before = Channel(path, "3.11")
    before.senders.add(sys._getframe().f_code)
    assert before.claim("main", "pytest")
    assert before.send("collect", "test_a.py", "failed")
    os.write(wake, RESTART)
    while not Path(path + RESTARTED).exists():
        os.sched_yield()
    after = Channel(path, "3.11")
    after.senders.add(sys._getframe().f_code)
    assert after.claim("main", "pytest")
    assert after.send("collect", "test_b.py", "failed")
    assert Events.of(lines).doubted == set()
    os.write(wake, RESTART)  # the runner's files are others than before
    os.close(wake)
    thread.join()
    os.close(stop)
    last = next(at for at, line in reversed(list(enumerate(lines))) if b'"restart"' in line)
    reported = Events.of(lines[:last]).reported("pytest")
    assert (reported.outcomes, reported.signals) == ({"test_b.py": "error"}, ())
    assert Events.of(lines).doubted == {""}
