"""Reports that runners write or print: Go, Cargo, SymPy, JUnit's XML, Node, a script, an exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from observed_runs import listened_run, write_files

from proctor_client.wire import RepositoryGrader
from proctor_service.features.repositories.change import Change, FileState
from proctor_service.features.repositories.reports import doctest_paths, report_of
from proctor_service.features.repositories.reports.in_process import InProcess
from proctor_service.features.repositories.reports.interface import ImageFacts, TestRun
from proctor_service.features.repositories.reports.junit import JunitReport
from proctor_service.features.repositories.reports.node import NodeReport
from proctor_service.features.repositories.reports.script import ScriptReport, UnreadableOutput
from proctor_service.features.repositories.reports.text import (
    TextReport,
    cargo_report,
    go_report,
    sympy_report,
)

GO = """=== RUN   TestAdd
noise--- PASS: TestAdd (0.00s)
--- FAIL: TestSub (0.00s)
    --- PASS: TestSub/a_b (0.00s)
    --- FAIL: TestSub/bad.x (0.00s)
--- SKIP: TestSkip (0.00s)
FAIL
FAIL\texample.org/ring\t0.006s
FAIL\texample.org/broken [build failed]
\x1b[32m--- PASS: TestAdd (0.00s)\x1b[0m
ok  \texample.org/ring/sub\t0.012s
{"Action":"pass","Package":"example.org/json","Test":"TestJson"}
{"Action":"pass","Package":"example.org/json"}
{"Action
"""
CARGO = """running 4 tests
test tests::push ... ok
test tests::full - should panic ... ok
test tests::slow ... ignored
test tests::last ... FAILED
test src/lib.rs - push (line 3) ... ok
test result: FAILED. 2 passed; 1 failed
"""
SYMPY = """sympy/core/tests/test_basic.py[4]
test_structure ok
test_equality F
test_later f
sympy/core/tests/test_cache.py[1]
test_structure E
"""
TEXTS: Sequence[tuple[TextReport, str, Mapping[str, str]]] = [
    (
        go_report(),
        GO,
        {
            "example.org/ring.TestAdd": "passed",
            "example.org/ring.TestSub": "failed",
            "example.org/ring.TestSub/a_b": "passed",
            "example.org/ring.TestSub/bad.x": "failed",
            "example.org/ring.TestSkip": "skipped",
            "example.org/ring/sub.TestAdd": "passed",
            "example.org/json.TestJson": "passed",
        },
    ),
    (
        cargo_report(),
        CARGO,
        {
            "tests::push": "passed",
            "tests::full": "passed",
            "tests::slow": "skipped",
            "tests::last": "failed",
            "src/lib.rs - push (line 3)": "passed",
        },
    ),
    (
        sympy_report(),
        SYMPY,
        {
            "test_structure": "error",
            "sympy/core/tests/test_basic.py::test_structure": "passed",
            "test_equality": "failed",
            "sympy/core/tests/test_basic.py::test_equality": "failed",
            "test_later": "expected_failure",
            "sympy/core/tests/test_basic.py::test_later": "expected_failure",
            "sympy/core/tests/test_cache.py::test_structure": "error",
        },
    ),
]
JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="org.ring.RingTest" name="push"/>
<testcase classname="org.ring.RingTest" name="pop"><failure>no</failure></testcase>
<testcase classname="org.ring.RingTest" name="later"><skipped/></testcase>
<testcase classname="org.ring.RingTest" name="odd"><system-out><error/></system-out></testcase>
<testcase name="ctest" status="run"/><testcase name="off" status="notrun"/>
<testcase classname="Tests.RingTest" class="Tests\\RingTest" name="testPush"><error/></testcase>
</testsuite></testsuites>"""
OF_RUNNERS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "surefire": [
        ('<testcase name="push(int)[1]" classname="org.RingTest"/>', "org.RingTest.push(int)[1]", "passed"),
        ('<testcase name="a" classname="T"><flakyFailure/></testcase>', "T.a", "passed"),
        ('<testcase name="b" classname="T"><failure/><rerunFailure/></testcase>', "T.b", "failed"),
    ],
    "gradle": [('<testcase name="push()" classname="org.RingTest"/>', "org.RingTest.push()", "passed")],
    "phpunit": [
        (
            '<testcase name="testPush with data set #0" class="T\\R" classname="T.R"/>',
            "T\\R::testPush with data set #0",
            "passed",
        )
    ],
    "ctest": [
        ('<testcase name="ring" classname="ring" status="run"/>', "ring", "passed"),
        ('<testcase name="wide" classname="wide" status="fail"/>', "wide", "failed"),
        ('<testcase name="off" classname="off" status="disabled"/>', "off", "skipped"),
    ],
    "gtest": [
        ('<testcase name="A" classname="Ring" status="run" result="completed"/>', "Ring.A", "passed"),
        (
            '<testcase name="B" classname="Ring" status="run" result="skipped"><skipped/></testcase>',
            "Ring.B",
            "skipped",
        ),
        ('<testcase name="C" classname="Ring" status="notrun" result="suppressed"/>', "Ring.C", "skipped"),
    ],
    "nextest": [('<testcase name="tests::push" classname="ring"/>', "ring::tests::push", "passed")],
    "rspec": [('<testcase name="Ring drops" classname="spec.ring"/>', "spec.ring.Ring drops", "passed")],
    "jest-junit": [('<testcase name="Ring drops" classname="Ring drops"/>', "Ring drops", "passed")],
}  # fmt: skip
"""XML of runners, from their documentation: an element, a name as lists have it, the outcome."""
NODE = """
const { test, describe, it } = require("node:test");
test("top", () => {});
test("outer", async (t) => { await t.test("inner", () => { throw 1; }); });
describe("Ring", () => { describe("push", () => { it("drops", () => {}); }); it.skip("later", () => {}); });
"""


def test_printed_reports_are_read_line_by_line() -> None:
    for report, text, outcomes in TEXTS:
        run = TestRun(stdout=text.replace("\n", "\r\n").encode(), exit_status=1)
        assert report.read(run).outcomes == outcomes
    assert go_report().variables({"GOFLAGS": "-mod=vendor"}) == {"GOFLAGS": "-mod=vendor -v"}


def test_junit_is_read_by_several_names_and_never_with_entities() -> None:
    reported = JunitReport(["*.xml"]).read(TestRun(files={"/a.xml": JUNIT.encode()}))
    right = {
        "org.ring.RingTest.push": "passed",
        "org.ring.RingTest#push": "passed",
        "org.ring.RingTest.pop": "failed",
        "org.ring.RingTest.later": "skipped",
        "org.ring.RingTest.odd": "passed",
        "ctest": "passed",
        "off": "skipped",
        "Tests\\RingTest::testPush": "error",
        "org.ring.RingTest": "failed",
    }
    assert {name: reported.outcomes.get(name) for name in right} == right
    assert reported.is_complete
    bomb = '<!DOCTYPE a [<!ENTITY b "c">]><testsuite><testcase name="&b;"/></testsuite>'
    for content in (bomb.encode(), b"<testsuite>", b"\xff"):
        reported = JunitReport(["*.xml"]).read(TestRun(files={"/a.xml": content}))
        assert (reported.outcomes, reported.signals) == ({}, ("report_unreadable",))


@pytest.mark.parametrize("runner", OF_RUNNERS)
def test_junit_of_each_runner(runner: str) -> None:
    rows = OF_RUNNERS[runner]
    content = f"<testsuites><testsuite>{''.join(row[0] for row in rows)}</testsuite></testsuites>"
    reported = JunitReport(["*.xml"]).read(TestRun(files={"/a.xml": content.encode()}))
    wanted = {name: outcome for _, name, outcome in rows}
    assert {name: reported.outcomes.get(name) for name in wanted} == wanted


def test_a_script_prints_outcomes_by_name() -> None:
    report = ScriptReport("…", ["log.txt"])
    seen = json.loads(report.stdin(TestRun(stdout=b"out\xff", exit_status=3)))
    assert (seen["stdout"], seen["exit_code"]) == ("out\ufffd", 3)
    found = report.outcomes_of(b'{"a": "PASSED", "b": "FAIL", "c": "NONE", "d": "xfail"}')
    assert found.outcomes == {"a": "passed", "b": "failed", "d": "expected_failure"}
    for output in (b"", b"[]", b'{"a": 1}', b'{"a": "maybe"}', b"[" * 100_000):
        with pytest.raises(UnreadableOutput):
            report.outcomes_of(output)


def test_each_kind_of_a_task_has_its_report() -> None:
    change = Change({b"src/a.py": FileState("644", b""), b"src/b.py": None})

    def grader(**fields: object) -> RepositoryGrader:
        return RepositoryGrader.model_validate({"kind": "repository", "test": ["true"], **fields})

    made = report_of(grader(), "/app", "/run/x/events", change)
    assert isinstance(made, InProcess)
    assert made.changed == ["/app/src/a.py"]
    assert isinstance(report_of(grader(report="jest"), "/app", "/s", change), NodeReport)
    junit = report_of(grader(report={"junit": ["a/*.xml"]}), "/app", "/s", change)
    assert junit.collects() == ("a/*.xml",)
    script = report_of(grader(report={"script": "1"}), "/app", "/s", change)
    assert isinstance(script, ScriptReport)
    outcome = report_of(grader(report="exit_code"), "/app", "/s", change).read(
        TestRun(exit_status=0)
    )
    assert set(outcome.outcomes.values()) == {"passed"}
    names = ["src/ring.py::ring.push", "tests/test_a.py::test_b[1.5]", "tests/test_a.py::T::c"]
    assert doctest_paths(grader(fail_to_pass=names)) == {b"src/ring.py"}


def ran(kind: str, folder: Path, command: Sequence[str]) -> Mapping[str, str]:
    """Run a command with a report of Node, and return what was reported."""
    own = folder / "own"
    own.mkdir()
    report = NodeReport(kind, str(own / "events"), str(folder))
    for path, content in report.files(ImageFacts()).items():
        Path(path).write_bytes(content)
    program = shutil.which(command[0])
    assert program
    variables = {"PATH": str(Path(program).parent), **report.variables({})}
    events, _, status = listened_run(
        str(own / "events"), [program, *command[1:]], folder, variables
    )
    return report.read(TestRun(events, exit_status=status)).outcomes


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_parent_of_node_tests_reports_them(tmp_path: Path) -> None:
    ending = "process.exit(0);"
    write_files(tmp_path, {"test/a.test.js": NODE, "test/b.test.js": ending})
    command = ["node", "--test", "--test-reporter=tap", "test/a.test.js", "test/b.test.js"]
    outcomes = ran("node", tmp_path, command)
    right = {
        "top": "passed",
        "outer > inner": "failed",
        "outer": "failed",
        "Ring > push > drops": "passed",
        "Ring > later": "skipped",
        "test/a.test.js > top": "passed",
    }
    assert {name: outcomes.get(name) for name in right} == right
    assert not any("b.test" in name for name in outcomes)


KILLS_ITS_PARENT = """
const fs = require("fs"), net = require("net");
const folder = process.cwd() + "/own";
const forged = JSON.stringify({file: "", path: ["top"], outcome: "passed"}) + "\\n";
fs.appendFileSync(folder + "/results", forged);
process.kill(process.ppid, "SIGKILL");
setTimeout(() => net.connect(folder + "/events-lines").on("error", () => {}).end(forged), 300);
setTimeout(() => process.exit(0), 600);
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_file_of_node_tests_cannot_report_in_place_of_its_parent(tmp_path: Path) -> None:
    write_files(tmp_path, {"test/a.test.js": KILLS_ITS_PARENT})
    assert ran("node", tmp_path, ["node", "--test", "test/a.test.js"]) == {}


def test_lines_of_node_are_read_as_data() -> None:
    report = NodeReport("vitest", "/own/events", "/app")
    lines = [
        '{"file": "/app/a.js", "path": ["Ring", "push"], "outcome": "passed"}',
        '{"file": "/app/b.js", "path": [], "outcome": "failed"}',
        *('{"path": 1}', "null", "[" * 100_000, "{}", '{"file": "", "path": ["x"], "outcome": []}'),
    ]
    events = [json.dumps([1, "main", "line", each]).encode() for each in lines]
    other = '{"file": "", "path": ["forged"], "outcome": "passed"}'
    events += [b"[1]", b"null", b"\xff", json.dumps([2, "", "line", other]).encode()]
    assert report.read(TestRun(events)).outcomes == {
        "Ring > push": "passed",
        "Ring push": "passed",
        "a.js > Ring > push": "passed",
        "a.js": "passed",
        "b.js": "failed",
    }
