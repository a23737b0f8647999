"""`tasks convert`, `eval --predictions` and `audit` for repositories, with a judge that goes by a script."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from harness import NoBackend, Service, running_service

from proctor_client import wire
from proctor_client.tasks.files import load_tasks
from proctor_service.errors import InvalidTask, SandboxLost
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes, Traits

pytestmark = pytest.mark.usefixtures("no_settings")

GOLD = "--- a/ring.py\n+++ b/ring.py\n@@ -1 +1 @@\n-pop\n+append {}\n"
COUNTS: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


async def scripted(submission: Submission, backend: Sandboxes) -> Judgement:
    """The word in a task's command says what its tests do, with the solution and without a change."""
    source = submission.source
    grader = submission.grader
    assert isinstance(grader, wire.RepositoryGrader)
    name = str(grader.test)
    is_gold = "append" in source
    run = next(COUNTS[f"{name} {is_gold}"])
    if name == "invalid":
        raise InvalidTask("the tests report nothing without a change either")
    if name == "lost":
        raise SandboxLost("the sandbox went away")
    if "unapplied" in source:
        return Judgement("syntax_error", total=2, message="ring.py, hunk 1 fits nowhere")
    passes = {
        "fit": is_gold,
        "flaky": is_gold and run != 1,
        "wrong": False,
        "network": False,
        "cut": False,
        "address": False,
        "always": True,
    }[name]
    failed = {"cut": "t.py::a[log(", "address": "t.py::a[<X at 0x7f3a5c1d2e80>]"}.get(
        name, "t.py::a"
    )
    if passes:
        return Judgement("passed", passed=2, total=2)
    failure = wire.Failure(index=0, test=failed, message="failed")
    stderr = "curl: (6) Could not resolve host: pypi.org" if name == "network" else ""
    return Judgement("failed", passed=1, total=2, failures=(failure,), stderr=stderr)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    backend = NoBackend(Traits("none", languages=("python",), has_operations=True))
    with running_service(judge=scripted, backend=backend) as running:
        yield running


def rows_of(tmp_path: Path, *names: str) -> Path:
    """Rows of tasks about repositories, in the form `jsonl`."""
    path = tmp_path / "rows.jsonl"
    rows = [
        {
            "id": name,
            "grader": {"kind": "repository", "test": name, "fail_to_pass": ["t.py::a", "t.py::b"]},
            "completion": None if name == "unsolved" else GOLD.format(name),
        }
        for name in names
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_audit_finds_the_rows_that_are_fit(service: Service, tmp_path: Path) -> None:
    names = ("fit", "flaky", "wrong", "network", "cut", "address", "always", "invalid")
    rows, report, fit = rows_of(tmp_path, *names), tmp_path / "report.json", tmp_path / "fit.jsonl"
    said = proctor("audit", rows, "--json", report, "--fit", fit, PROCTOR_URL=service.url)
    assert said.exit_code == 1, said.stderr
    body = json.loads(report.read_text())
    states = {each["id"]: (each["state"], each["reason"]) for each in body["tasks"]}
    assert states["fit"] == ("fit", "")
    assert states["flaky"][0] == "flaky"
    assert "1 failed" in states["flaky"][1]
    assert states["network"][0] == "needs_network"
    for name, reason in {
        "wrong": "with the solution failed: t.py::a",
        "cut": "a name that is cut",
        "address": "an address in a name",
        "always": "passes without a change",
        "invalid": "report nothing",
    }.items():
        assert states[name][0] == "broken"
        assert reason in states[name][1]
    assert [len(each["gold"]) for each in body["tasks"]] == [3] * len(names)
    assert [json.loads(line)["id"] for line in fit.read_text().splitlines()] == ["fit"]
    assert "fit for training" in said.stdout


def test_a_row_that_is_not_judged_ends_the_audit_with_status_2(
    service: Service, tmp_path: Path
) -> None:
    said = proctor(
        "audit", rows_of(tmp_path, "fit", "lost"), "--repeat", "1", PROCTOR_URL=service.url
    )
    assert said.exit_code == 2
    assert "could not be judged" in said.stdout.lower()


PREDICTIONS: Mapping[str, Any] = {
    "fit": GOLD.format(1),
    "wrong": GOLD.format(2),
    "lost": GOLD.format(3),
    "cut": "unapplied",
    "address": "",
    "network": None,
    "elsewhere": GOLD.format(4),
}


def public_files(tmp_path: Path) -> dict[str, str]:
    """The same predictions in each public form of a file."""
    full = [
        {"instance_id": name, "model_patch": patch, "model_name_or_path": "lab/model"}
        for name, patch in PREDICTIONS.items()
    ]
    lines = "".join(json.dumps(each) + "\n" for each in [{"model_patch": "no id"}, *full])
    pro = [
        {"instance_id": name, "patch": patch, "prefix": "lab/model"}
        for name, patch in PREDICTIONS.items()
    ]
    by_id = {each["instance_id"]: each for each in full}
    return {
        "preds.jsonl": lines,
        "preds.json": json.dumps(full),
        "by_id.json": json.dumps(by_id, indent=1),
        "pro.json": json.dumps(pro),
    }


def test_predictions_of_each_public_form_have_the_public_report(
    service: Service, tmp_path: Path
) -> None:
    rows = rows_of(tmp_path, "fit", "wrong", "lost", "cut", "address", "network", "always")
    reports = []
    for name, text in public_files(tmp_path).items():
        (tmp_path / name).write_text(text)
        folder = tmp_path / name.partition(".")[0] / name.rpartition(".")[2]
        folder.mkdir(parents=True)
        said = proctor(
            *("eval", rows, "--predictions", tmp_path / name, "--report", "swebench"),
            *("--job", "run1", "--report-folder", folder),
            PROCTOR_URL=service.url,
        )
        assert said.exit_code == 2, said.stderr  # one is not judged
        reports.append(json.loads((folder / "lab__model.run1.json").read_text()))
        instances = {
            path.parent.name: json.loads(path.read_text())[path.parent.name]
            for path in folder.glob("logs/run_evaluation/run1/lab__model/*/report.json")
        }
        assert set(instances) == set(PREDICTIONS) - {"elsewhere"}
        assert instances["fit"]["resolved"]
        assert instances["network"]["patch_is_None"]
        assert not instances["address"]["patch_exists"]
        assert not instances["cut"]["patch_successfully_applied"]
        assert instances["wrong"]["patch_successfully_applied"]
        assert instances["lost"]["infra_failure"]
    assert all(each == reports[0] for each in reports)
    report = reports[0]
    assert report["resolved_ids"] == ["fit"]
    assert report["unresolved_ids"] == ["cut", "wrong"]
    assert report["completed_ids"] == ["cut", "fit", "wrong"]
    assert report["empty_patch_ids"] == ["address", "network"]
    assert report["incomplete_ids"] == ["always"]
    assert report["error_ids"] == report["infra_failure_ids"] == ["lost"]
    assert report["failure_reasons"] == {"lost": "sandbox_lost"}
    assert (report["total_instances"], report["submitted_instances"]) == (7, 7)
    assert (report["resolved_instances"], report["schema_version"]) == (1, 2)


def test_gold_is_the_rows_own_solutions(service: Service, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "fit", "always")
    said = proctor("eval", rows, "--predictions", "gold", PROCTOR_URL=service.url)
    assert said.exit_code == 0, said.stderr
    assert "100.0 %" in said.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[1", "not JSON"), ("{}\n{", "not JSON"), ("[" * 100_000, "not JSON|nested too deep")],
)
def test_a_damaged_file_of_predictions_is_named(tmp_path: Path, text: str, reason: str) -> None:
    rows = rows_of(tmp_path, "fit")
    (tmp_path / "preds.json").write_text(text)
    said = proctor("eval", rows, "--predictions", tmp_path / "preds.json")
    assert said.exit_code == 2
    assert any(each in said.stderr for each in reason.split("|"))


SMITH = {
    "instance_id": "owner__ring.3f1c0e2a.func_basic__x7k2",
    "repo": "swesmith/owner__ring.3f1c0e2a",
    "image_name": "swebench/swesmith.x86_64.owner_1776_ring.3f1c0e2a",
    "patch": "--- a/ring.py\n+++ b/ring.py\n@@ -1 +1 @@\n-append\n+pop\n",
    "FAIL_TO_PASS": ["TestPush"],
    "PASS_TO_PASS": [],
    "problem_statement": "push drops the item",
}
PROFILES = """
class PythonProfile:
    def log_parser(self, log):
        return {}
class Ring(PythonProfile):
    test_cmd, timeout, timeout_ref, owner = "go test -v ./...", 90, 900, "owner"
    def log_parser(self, log):
        return parse(log, self.prefix())
    def prefix(self):
        return re.escape("--- ") + self.owner[:0]
"""


def with_package(tmp_path: Path) -> Path:
    """An interpreter with a package that has the layout of swesmith."""
    package = tmp_path / "packages" / "swesmith" / "profiles"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "python.py").write_text(
        "import enum, re\n"
        "class Status(enum.Enum):\n    PASSED = 'PASS'\n    FAILED = 'FAIL'\n"
        "def parse(log, prefix):\n"
        "    found = re.findall(prefix + r'(\\w+): (\\w+)', log)\n"
        "    return {name: Status(word).name for word, name in found}\n" + PROFILES
    )
    (package / "__init__.py").write_text(
        "from swesmith.profiles.python import Ring\n"
        "registry = type('R', (), {'get': staticmethod(lambda key: "
        "{'swesmith/owner__ring.3f1c0e2a': Ring()}[key])})\n"
    )
    interpreter = tmp_path / "python"
    interpreter.write_text(
        f'#!/bin/sh\nPYTHONPATH="{package.parent.parent}" exec "{sys.executable}" "$@"\n'
    )
    interpreter.chmod(0o755)
    return interpreter


def test_rows_are_converted_with_the_tables_of_their_package(tmp_path: Path) -> None:
    path, output, left_out = (tmp_path / f"{name}.jsonl" for name in ("rows", "tasks", "left_out"))
    rows = [SMITH, SMITH, SMITH | {"repo": "x", "instance_id": "a__b.c.d__e"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--form", "swe_smith", "--output", output, "--left-out", left_out)
    said = proctor("tasks", "convert", path, *options)
    assert said.exit_code == 2
    assert "pip install swesmith" in said.stderr
    said = proctor("tasks", "convert", path, *options, "--python", with_package(tmp_path))
    assert said.exit_code == 1, said.stderr
    reasons = [json.loads(line)["reason"] for line in left_out.read_text().splitlines()]
    assert [each.split(";")[0] for each in reasons] == [
        f"the id {SMITH['instance_id']!r} again",
        "repo: 'x' has no profile in the package",
    ]
    line = json.loads(output.read_text())
    assert line["prompt"] == "push drops the item"
    assert "+append" in line["completion"]
    assert line["environment"] == {"image": f"docker.io/{SMITH['image_name']}:latest"}
    grader = wire.RepositoryGrader.model_validate(line["grader"])
    assert str(grader.test).endswith("go test -v ./...")
    assert isinstance(grader.report, wire.ScriptReport)
    run = json.dumps({"stdout": "--- PASS: TestPush\n", "stderr": "--- FAIL: TestPop\n"})
    assert outcomes_of(grader.report.script, run) == {"TestPush": "passed", "TestPop": "failed"}
    (task,) = load_tasks(output, "jsonl")
    assert task.id == SMITH["instance_id"]


def outcomes_of(script: str, run: str) -> Any:
    ended = subprocess.run(
        [sys.executable, "-c", script], input=run, capture_output=True, text=True, check=True
    )
    return json.loads(ended.stdout)
