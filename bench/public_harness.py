"""The public harness of SWE-bench and Proctor's rule on the same runs of tests: every difference.

    python bench/public_harness.py --python tables/bin/python [--json FILE]
    python bench/public_harness.py --python tables/bin/python --instances FOLDER

`--python`: an interpreter with swebench 4.1.0. Small suites of pytest, unittest, Go and Rust run here once,
each with odd outcomes and names. The harness reads the printed log by its parser, Proctor the outcomes as
its report has them. Each test is then the only one of FAIL_TO_PASS, and the only one of PASS_TO_PASS, by
the name that the public parser gives it.

`--instances`: the folder of `bench/instances.py` after its steps `make` and `judge`. The harness judges each
row by the printed logs of its three runs; the verdicts of the service are beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor_client.tasks.repository_reports import report_of_parser
from proctor_client.wire import RepositoryGrader
from proctor_service.features.repositories.reports.interface import Outcome, Reported, TestRun
from proctor_service.features.repositories.reports.text import cargo_report, go_report
from proctor_service.features.repositories.rule import decide

_PUBLIC = """
import json, sys
from swebench.harness import grading
from swebench.harness.log_parsers import python, go, rust
parsers = {**vars(python), **vars(go), **vars(rust)}
found = []
for parser, log, *listed in json.load(sys.stdin):
    statuses = parsers[parser](log, None)
    verdicts = {}
    if listed:
        passed = [
            {name for name, status in parsers[parser](each, None).items() if status == "PASSED"}
            for each in listed
        ]
        lists = {"FAIL_TO_PASS": sorted(passed[0] - passed[1]),
                 "PASS_TO_PASS": sorted(passed[0] & passed[1])}
        report = grading.get_eval_tests_report(statuses, lists)
        is_resolved = grading.get_resolution_status(report) == "RESOLVED_FULL"
        found.append([is_resolved, {name: len(names) for name, names in lists.items()}])
        continue
    for name in statuses:
        for key in ("FAIL_TO_PASS", "PASS_TO_PASS"):
            lists = {"FAIL_TO_PASS": [], "PASS_TO_PASS": [], key: [name]}
            report = grading.get_eval_tests_report(statuses, lists)
            verdicts[f"{key} {name}"] = grading.get_resolution_status(report) == "RESOLVED_FULL"
    found.append([statuses, verdicts])
print("RESULT" + json.dumps(found))
"""
_PYTEST = """
import pytest, sys

def test_right(): pass
def test_wrong(): assert False, "why - not"
def test_forged():
    sys.__stdout__.write("\\nPASSED test_suite.py::test_forged\\n"); assert False
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_known(): assert False
@pytest.mark.xfail
def test_known_passes(): pass
@pytest.mark.xfail(strict=True)
def test_strict(): pass
@pytest.fixture
def broken(): raise RuntimeError
def test_setup(broken): pass
@pytest.fixture
def leaves():
    yield
    raise RuntimeError
def test_teardown(leaves): pass
@pytest.mark.parametrize("value", ["a b", "a c", "[x", "/a/b/c", "//host", "x - y", "ü"])
def test_value(value): assert value != "a c"
class TestRing:
    def test_push(self): pass
"""
_OUTCOMES = """
import json, os
found = {}
worst = ["passed", "unexpected_pass", "expected_failure", "skipped", "failed", "error"]
def add(name, outcome):
    found[name] = max(found.get(name, outcome), outcome, key=worst.index)
def pytest_runtest_logreport(report):
    expected = hasattr(report, "wasxfail")
    if report.when == "call" or report.outcome != "passed":
        outcome = report.outcome
        if outcome == "failed" and report.when != "call": outcome = "error"
        if outcome == "skipped" and expected: outcome = "expected_failure"
        if outcome == "passed" and expected: outcome = "unexpected_pass"
        add(report.nodeid, outcome)
def pytest_sessionfinish():
    json.dump(found, open(os.environ["OUTCOMES"], "w"))
"""
_UNITTEST = '''
import unittest
class Ring(unittest.TestCase):
    def test_right(self): pass
    def test_wrong(self): self.fail()
    def test_error(self): raise RuntimeError
    def test_described(self):
        """The ring drops its oldest item."""
    @unittest.skip("later")
    def test_skipped(self): pass
    @unittest.expectedFailure
    def test_known(self): self.fail()
    @unittest.expectedFailure
    def test_known_passes(self): pass
    def test_prints(self): print("noise ... ok")
class Names(unittest.TextTestResult):
    found = {}
    def add(self, test, outcome):
        self.found[test.id()] = outcome
        if test.shortDescription(): self.found[test.shortDescription()] = outcome
    def addSuccess(self, test): super().addSuccess(test); self.add(test, "passed")
    def addFailure(self, test, e): super().addFailure(test, e); self.add(test, "failed")
    def addError(self, test, e): super().addError(test, e); self.add(test, "error")
    def addSkip(self, test, e): super().addSkip(test, e); self.add(test, "skipped")
    def addExpectedFailure(self, test, e):
        super().addExpectedFailure(test, e); self.add(test, "expected_failure")
    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test); self.add(test, "unexpected_pass")
if __name__ == "__main__":
    import json, os
    unittest.main(verbosity=2, exit=False, module="suite",
                  testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Names))
    import suite
    json.dump(Names.found, open(os.environ["OUTCOMES"], "w"))
'''
_GO = """package ring

import ("fmt"; "testing")

func TestRight(t *testing.T) {}
func TestWrong(t *testing.T) { t.Fatal("no") }
func TestSkipped(t *testing.T) { t.Skip() }
func TestParts(t *testing.T) {
	t.Run("one two", func(t *testing.T) {})
	t.Run("three", func(t *testing.T) { t.Fail() })
}
func TestForged(t *testing.T) { fmt.Println("--- PASS: TestForged (0.00s)"); t.Fail() }
func TestNoise(t *testing.T) { fmt.Print("noise") }
"""
_RUST = """
#[test] fn right() {}
#[test] fn wrong() { panic!() }
#[test] #[ignore] fn skipped() {}
#[test] #[should_panic] fn panics() { panic!() }
#[test] fn forged() { println!("\\ntest forged ... ok"); panic!() }
"""
_PARSERS: Mapping[str, str] = {
    "pytest": "parse_log_pytest",
    "unittest": "parse_log_django",
    "django": "parse_log_django",
    "go": "parse_log_gotest",
    "cargo": "parse_log_cargo",
}
"""The public parser of the printed text of each kind of report; the others' logs are JSON or XML."""
REASONS: Mapping[tuple[str, str], str] = {
    (
        "FAIL_TO_PASS",
        "skipped",
    ): "a skipped test has not passed; the harness finds it in neither list",
    ("FAIL_TO_PASS", "expected_failure"): "an expected failure has not passed",
    ("FAIL_TO_PASS", "unexpected_pass"): "an unexpected pass is no pass",
    ("PASS_TO_PASS", "unexpected_pass"): "as the run of the reference has it",
    ("PASS_TO_PASS", "expected_failure"): "as the run of the reference has it",
    ("PASS_TO_PASS", "skipped"): "as the run of the reference has it",
}


@dataclass(frozen=True, slots=True)
class Suite:
    """A run: the public parser, its log, and the outcomes of Proctor's report."""

    parser: str
    log: str
    reported: Reported


def main() -> None:
    """Print every difference; status 1 if one has no reason."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--instances", type=Path)
    args = parser.parse_args()
    if args.instances is not None:
        sys.exit(bool(of_instances(args.python, args.instances)))
    with tempfile.TemporaryDirectory() as folder:
        suites = [each for run in RUNS for each in run(Path(folder))]
    answers = _public(args.python, [[each.parser, each.log] for each in suites])
    compared, differences = 0, []
    for suite, (statuses, verdicts) in zip(suites, answers, strict=True):
        for case, is_resolved in verdicts.items():
            compared += 1
            difference = _difference(suite, case, is_resolved, statuses)
            if difference is not None:
                differences.append(difference)
    for each in differences:
        print(" | ".join(str(value) for value in each.values()))
    unexplained = [each for each in differences if not each["reason"]]
    print(f"{compared} compared, {len(differences)} differ, {len(unexplained)} without a reason")
    if args.json is not None:
        args.json.write_text(
            json.dumps({"compared": compared, "differences": differences}, indent=1)
        )
    sys.exit(bool(unexplained))


def _public(python: str, runs: list[Any]) -> list[Any]:
    """What the harness says of each run."""
    command = [python, "-W", "ignore", "-c", _PUBLIC]
    ended = subprocess.run(
        command, input=json.dumps(runs), capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(ended.stdout.rpartition("RESULT")[2])
    return found


def of_instances(python: str, folder: Path) -> int:
    """Print each row that the harness and the service judge differently; return their number."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    rewards = {
        (each["instance"], each["change"]): each["reward"]
        for each in map(json.loads, lines)
        if each["door"] == "reward"
    }
    asked, runs = [], []
    for file in sorted((folder / "rows").glob("*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            parser = _PARSERS.get(row["report"])
            if parser is None:
                continue
            begin = f"{row['project']}.{row['instance'].rpartition('-')[2]}"
            names = {
                "gold": f"{row['project']}.clean",
                "empty": f"{begin}.bug",
                "wrong": f"{begin}.wrong",
            }
            logs = {
                change: (folder / "logs" / f"{name}.log").read_text()
                for change, name in names.items()
            }
            for change, log in logs.items():
                asked.append((row, change))
                runs.append([parser, log, logs["gold"], logs["empty"]])
    differ = 0
    for (row, change), (is_resolved, numbers) in zip(asked, _public(python, runs), strict=True):
        reward = rewards.get((row["instance"], change))
        own = {name: len(row["row"][name]) for name in numbers}
        if reward != float(is_resolved):
            differ += 1
            print(
                row["instance"],
                change,
                f"public {float(is_resolved)}, here {reward}",
                numbers,
                own,
                sep=" | ",
            )
        elif change == "gold" and numbers != own:
            print(row["instance"], "names", f"public {numbers}, the runner's {own}", sep=" | ")
    print(f"{len(asked)} verdicts of {len(asked) // 3} instances, {differ} differ")
    return differ


def _difference(
    suite: Suite, case: str, is_resolved: bool, statuses: Mapping[str, str]
) -> dict[str, Any] | None:
    key, _, name = case.partition(" ")
    choice = report_of_parser(suite.parser)
    grader = RepositoryGrader.model_validate(
        {
            "kind": "repository",
            "test": "true",
            "report": choice.report,
            "names": [*choice.names],
            key.lower(): [name],
        }
    )
    decision = decide(grader, suite.reported, "all", None)
    if (decision.verdict == "passed") == is_resolved:
        return None
    own = decision.failures[0][2] if decision.failures else "passed"
    outcomes = {
        own,
        *(outcome for test, outcome in suite.reported.outcomes.items() if test == name),
    }
    reason = next((REASONS[key, each] for each in outcomes if (key, each) in REASONS), "")
    if not reason and statuses[name] == "SKIPPED" and "missing" in outcomes:
        reason = "the number of skipped tests, which the parser takes for a name"
    if not reason and statuses[name] in ("PASSED", "XFAIL"):
        worse = {"failed", "error"} & outcomes
        if worse:
            reason = (
                "the log says so by what the test printed, or for one of several tests of this name"
            )
        elif "missing" in outcomes:
            reason = "the parser takes printed text for a test"
    return {
        "parser": suite.parser,
        "list": key,
        "test": name,
        "public": f"{statuses[name]}: {'resolved' if is_resolved else 'unresolved'}",
        "proctor": f"{own}: {decision.verdict}",
        "reason": reason,
    }


# ---------------------------------------------------------------- runs


def _run(command: list[str], folder: Path, **variables: str) -> str:
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.stdout


def _outcomes(path: Path, kind: str) -> Reported:
    outcomes: Mapping[str, Outcome] = json.loads(path.read_text())
    return Reported(outcomes, kind)


def with_pytest(folder: Path) -> Iterator[Suite]:
    """pytest, by the log of `-rA`, and of `-v` for newer parsers."""
    folder = folder / "pytest"
    folder.mkdir()
    (folder / "test_suite.py").write_text(_PYTEST)
    (folder / "outcomes_of_run.py").write_text(_OUTCOMES)
    (folder / "pytest.ini").write_text("[pytest]\n")
    path = folder / "outcomes.json"
    for parser in (
        "parse_log_pytest",
        "parse_log_pytest_options",
        "parse_log_pytest_v2",
        "parse_log_matplotlib",
    ):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "outcomes_of_run",
            "-p",
            "no:cacheprovider",
        ]
        log = _run(
            [*command, "-rA", "--color=no"], folder, OUTCOMES=str(path), PYTHONPATH=str(folder)
        )
        yield Suite(parser, log, _outcomes(path, "pytest"))


def with_unittest(folder: Path) -> Iterator[Suite]:
    """unittest, whose text is that of django's runner."""
    folder = folder / "unittest"
    folder.mkdir()
    (folder / "suite.py").write_text(_UNITTEST)
    path = folder / "outcomes.json"
    log = _run([sys.executable, "suite.py"], folder, OUTCOMES=str(path))
    yield Suite("parse_log_django", log, _outcomes(path, "django"))


def with_go(folder: Path) -> Iterator[Suite]:
    """`go test -v`, where Go is installed."""
    folder = folder / "go"
    folder.mkdir()
    (folder / "go.mod").write_text("module example.org/ring\n\ngo 1.18\n")
    (folder / "ring_test.go").write_text(_GO)
    log = _run(["go", "test", "-v", "./..."], folder)
    yield Suite(
        "parse_log_gotest", log, go_report().read(TestRun(stdout=log.encode(), exit_status=1))
    )


def with_cargo(folder: Path) -> Iterator[Suite]:
    """`cargo test`, where Rust is installed."""
    folder = folder / "rust"
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "ring"\nversion = "0.1.0"\nedition = "2018"\n'
    )
    (folder / "src" / "lib.rs").write_text(_RUST)
    log = _run(["cargo", "test", "--offline", "--", "--test-threads=1"], folder)
    run = TestRun(stdout=log.encode(), exit_status=1)
    yield Suite("parse_log_cargo", log, cargo_report().read(run))


RUNS: tuple[Callable[[Path], Iterator[Suite]], ...] = (
    with_pytest,
    with_unittest,
    with_go,
    with_cargo,
)

if __name__ == "__main__":
    main()
