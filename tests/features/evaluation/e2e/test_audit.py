"""`proctor audit` on data sets with planted faults, and on one without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from harness import Service, running_service
from shared_data import shared_data

from proctor_client.tasks.files import load_tasks
from proctor_client.tasks.task import Task
from proctor_service.features.evaluation import audit
from proctor_service.features.evaluation.checks import checks_of, names_asked
from proctor_service.settings import Settings

Row = dict[str, Any]

DOUBLE = "def double(n):\n    return 2 * n\n"
TESTS = ["assert double(2) == 4", "assert double(5) == 10"]


def asserts(name: str, code: str | None, tests: list[str], **more: Any) -> Row:
    row: Row = {"id": name, "grader": {"kind": "asserts", "tests": tests}, **more}
    return row if code is None else row | {"completion": code}


PLANTED: dict[str, Row] = {
    "sound": asserts("sound", f"import time\ntime.sleep(0.5)\n{DOUBLE}", TESTS),
    "reference_fails": asserts("wrong", DOUBLE, ["assert double(2) == 5", TESTS[0]]),
    "flaky": asserts(
        "flaky",
        "import os\ndef double(n):\n    return 2 * n if n == 2 or os.urandom(1)[0] < 128 else 0\n",
        TESTS,
    ),
    "passes_for_anything": asserts(
        "vacuous", DOUBLE, ["try:\n    double(2)\nexcept Exception:\n    pass"]
    ),
    "vacuous_test": asserts("half", DOUBLE, ["assert 1 + 1 == 2", TESTS[0]]),
    "slow": asserts(
        "slow", f"import time\nwhile time.process_time() < 0.6:\n    pass\n{DOUBLE}", TESTS
    ),
    "broken_tests": asserts("broken", DOUBLE, ["assert double(2) == "]),
    "shared_process": asserts(
        "shared", DOUBLE, [f"import inspect\nassert inspect.signature(double)\n{TESTS[0]}"]
    ),
    "needs_objects": asserts(
        "objects",
        "class Box:\n    def __iter__(self):\n        return iter([2])\ndef make():\n    return Box()\n",
        ["assert list(make()) == [2]"],
    ),
    "no_reference": asserts("bare", None, TESTS),
    "passes_wrong_tests": {
        "id": "reads",
        "completion": "import sys\ndef double(n):\n    return sys._getframe(1).f_locals['want']\n",
        "grader": {
            "kind": "pytest",
            "files": {
                "test_double.py": "from solution import double\ndef test_double():\n"
                "    want = 4\n    assert double(2) == want\n"
            },
        },
    },
}


def written(path: Path, *rows: Row) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_planted_fault_is_found_and_nothing_else(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(tmp_path / "planted.jsonl", *PLANTED.values())
    report, plot = tmp_path / "report.json", tmp_path / "times.png"
    arguments = ["--repeat", "24", "--json", str(report), "--plot", str(plot)]
    monkeypatch.setattr(audit, "SLOW_SECONDS", 0.5)
    said = proctor("audit", data, *arguments, PROCTOR_URL=service.url)
    assert said.exit_code == 1, said.output
    found = json.loads(report.read_text())
    kinds = {task["id"]: [each["kind"] for each in task["findings"]] for task in found["tasks"]}
    assert kinds == {row["id"]: [] if kind == "sound" else [kind] for kind, row in PLANTED.items()}
    assert found["counts"] == {kind: 1 for kind in PLANTED if kind != "sound"}
    assert (found["problems"], found["harmful"], found["format"]) == (11, 6, "jsonl")
    outcomes = {task["id"]: task["negative_control"] for task in found["tasks"]}
    assert (outcomes["reads"], outcomes["shared"], outcomes["sound"]) == ("caught", "none", None)
    levels = {task["id"]: (task["level"], task["level_reason"]) for task in found["tasks"]}
    assert levels["sound"][0] == "separated"
    assert levels["half"][0] == "separated"
    assert levels["shared"] == ("in_process", "tests.0 uses inspect")
    assert "9 separated, 2 in_process" in said.stdout, said.stdout
    clear = {task["id"]: task["clear_expectations"] for task in found["tasks"]}
    assert (clear["sound"], clear["half"], clear["reads"], clear["vacuous"]) == (2, 2, 1, 0)
    fields = {task["id"]: task["fields"] for task in found["tasks"] if task["fields"]}
    assert fields == {"objects": {"integrity": "in_process"}}
    details = {task["id"]: task["findings"] for task in found["tasks"]}
    assert "test 1" in details["flaky"][0]["detail"]
    assert "empty program" in details["vacuous"][0]["detail"]
    assert details["half"][0]["detail"] == "1 of 2: test 0"
    assert len(found["tasks"][0]["reference"]) == 24
    assert plot.read_bytes().startswith(b"\x89PNG")
    for name in ("wrong", "flaky", "vacuous", "half", "slow", "broken"):
        assert name in said.stdout
    assert "Nothing was found" not in said.stdout


def test_a_sound_data_set_is_said_to_be_sound(service: Service, tmp_path: Path) -> None:
    data = written(tmp_path / "sound.jsonl", PLANTED["sound"])
    said = proctor("audit", data, "--repeat", "1", PROCTOR_URL=service.url)
    assert said.exit_code == 0, said.output
    assert "Nothing was found that would harm training." in said.stdout


def test_a_slice_of_mbpp_is_sound(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.json"
    monkeypatch.setattr(audit, "SLOW_SECONDS", 60.0)
    arguments = ["--repeat", "2", "--sample", "40", "--json", str(report)]
    said = proctor("audit", shared_data("mbpp/mbpp.jsonl"), *arguments, PROCTOR_URL=service.url)
    assert said.exit_code == 0, said.output
    found = json.loads(report.read_text())
    assert (found["format"], found["problems"]) == ("mbpp", 40)
    assert found["harmful"] == 0
    for task in found["tasks"]:
        assert [run["verdict"] for run in task["reference"]] == ["passed"] * 2
        assert len(task["probes"]) >= 6
        passed = [name for name, run in task["probes"].items() if run["verdict"] == "passed"]
        assert passed == ([] if task["level"] == "separated" else ["equal to everything"])


def test_programs_with_stdin_are_probed_too(service: Service, tmp_path: Path) -> None:
    rows: list[Row] = [
        {"id": "sound", "solution": "print(input())", "tests": [{"input": "1 2", "output": "1 2"}]},
        {"id": "silent", "solution": "pass", "tests": [{"input": "1", "output": ""}]},
        {
            "id": "sums",
            "solution": "print(sum(map(int, input().split())))",
            "tests": [{"input": "1 2", "output": "3"}],
        },
    ]
    report = tmp_path / "report.json"
    data = written(tmp_path / "stdio.jsonl", *rows)
    said = proctor("audit", data, "--repeat", "1", "--json", report, PROCTOR_URL=service.url)
    assert said.exit_code == 1, said.output
    found = {task["id"]: task["findings"] for task in json.loads(report.read_text())["tasks"]}
    assert [each["detail"] for each in found["sound"]] == ["echo"]
    assert "empty program" in found["silent"][0]["detail"]
    assert found["sums"] == []


def test_what_cannot_be_judged_is_no_finding(tmp_path: Path) -> None:
    from compat_clients import Failing

    data = written(tmp_path / "sound.jsonl", PLANTED["sound"])
    with running_service(Settings(), judge=Failing(10_000)) as service:
        said = proctor("audit", data, "--repeat", "1", PROCTOR_URL=service.url)
    assert said.exit_code == 2, said.output
    assert "could not be judged" in said.stdout


def test_a_file_in_no_known_form_is_named(service: Service, tmp_path: Path) -> None:
    data = written(tmp_path / "odd.jsonl", {"question": "?"})
    said = proctor("audit", data, PROCTOR_URL=service.url)
    assert said.exit_code == 2
    assert "--format" in said.stderr
    assert "no column says how to judge" in said.stderr


def test_a_plot_without_matplotlib_names_the_extra(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    data = written(tmp_path / "sound.jsonl", PLANTED["sound"])
    said = proctor("audit", data, "--plot", tmp_path / "x.png", PROCTOR_URL=service.url)
    assert said.exit_code == 2
    assert "proctor-service[bench]" in said.stderr


def test_a_plot_of_nothing_is_a_plot(service: Service, tmp_path: Path) -> None:
    data = written(tmp_path / "bare.jsonl", PLANTED["no_reference"])
    plot = tmp_path / "x.png"
    said = proctor("audit", data, "--plot", plot, PROCTOR_URL=service.url)
    assert said.exit_code == 0, said.output
    assert plot.stat().st_size > 0


# ---------------------------------------------------------------- probes


@pytest.mark.parametrize(
    ("grader", "names"),
    [
        ({"kind": "asserts", "tests": ["assert f(1) == g.h(x for x in [2])"]}, {"f", "g"}),
        ({"kind": "asserts", "tests": ["assert math.isclose(f(1), 2)"], "setup": "import math"}, {"f"}),
        ({"kind": "asserts", "tests": ["def check(candidate):\n    assert candidate(1)"],
          "entry_point": "f"}, {"f"}),
        ({"kind": "asserts", "tests": ["x = Node(1)\nassert depth(x) == 1"]}, {"Node", "depth"}),
        ({"kind": "calls", "entry_point": "f", "cases": [{"expected": 1}]}, {"f"}),
        ({"kind": "pytest", "files": {"test_a.py": "from solution import f, g as h\n"
          "import solution\ndef test(): assert f() == solution.k()"}}, {"f", "g", "k"}),
        ({"kind": "exec"}, set()),
        ({"kind": "asserts", "tests": ["assert f("]}, set()),
    ],
)  # fmt: skip
def test_probes_have_the_names_that_tests_ask_for(grader: Row, names: set[str]) -> None:
    task = Task(id="t", place="t:1", grader=grader)
    from pydantic import TypeAdapter

    from proctor_client import wire

    assert names_asked(TypeAdapter(wire.Grader).validate_python(grader)) == names
    for probe in checks_of(task):
        compile(probe.program, probe.name, "exec")


def test_every_language_has_an_empty_program(tmp_path: Path) -> None:
    from proctor_service.settings.languages import LANGUAGES

    grader = {"kind": "stdio", "cases": [{"stdin": "", "stdout": "1"}]}
    for language in ("python", *LANGUAGES):
        task = Task(id="t", place="t:1", grader=grader, language=language)
        assert checks_of(task)[0].name == "empty program"
    assert checks_of(Task(id="t", place="t:1", grader=grader, language="cobol")) == []


def test_a_humaneval_problem_is_probed_without_its_prompt(service: Service, tmp_path: Path) -> None:
    row = {
        "task_id": "H/0",
        "prompt": 'def twice(x):\n    """Twice x."""\n',
        "entry_point": "twice",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    }
    data = written(tmp_path / "humaneval.jsonl", row)
    assert load_tasks(data, "humaneval")[0].prompt_code is not None
    said = proctor("audit", data, "--repeat", "1", PROCTOR_URL=service.url)
    assert said.exit_code == 0, said.output
