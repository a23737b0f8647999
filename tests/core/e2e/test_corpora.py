"""The main job on real input, over HTTP: references pass, hacks do not, honest oddities do."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import warnings
from typing import Any

import pytest
from harness import Service
from shared_data import shared_data

Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    lines = shared_data(name).read_text().splitlines()
    return [json.loads(line) for line in lines]


def judge(service: Service, submissions: list[Row]) -> list[Row]:
    results: list[Row] = []
    with service.client() as client:
        for start in range(0, len(submissions), 200):
            body = {
                "submissions": submissions[start : start + 200],
                "extract": "none",
                "cache": False,
            }
            answer = client.post("/reward", json=body, timeout=300)
            assert answer.status_code == 200, answer.text
            results += answer.json()["results"]
    return results


def mbpp(problem: Row, code: str) -> Row:
    grader = {
        "kind": "asserts",
        "tests": problem["test_list"],
        "setup": problem["test_setup_code"],
    }
    return {"id": str(problem["task_id"]), "completion": code, "grader": grader}


def corpus(entry: Row) -> Row:
    grader = {"kind": "asserts", "tests": entry["problem"]["tests"]}
    return {"id": entry["id"], "completion": entry["completion"], "grader": grader}


def contest(problem: Row, *, spoilt: bool) -> Row:
    cases = [
        {"stdin": test.get("stdin", test.get("input")), "stdout": test.get("stdout", test.get("output"))}
        for test in problem["tests"]
    ]  # fmt: skip
    if spoilt:
        cases[-1]["stdout"] += "\n7 unexpected"
    grader = {"kind": "stdio", "cases": cases}
    return {"id": problem["id"], "completion": problem["solution"], "grader": grader}


def test_mbpp_references_pass(service: Service) -> None:
    problems = rows("mbpp/mbpp.jsonl")
    results = judge(service, [mbpp(problem, problem["code"]) for problem in problems])
    assert [r["id"] for r in results if r["reward"] != 1.0] == []
    assert [(r["id"], r["hack_signals"]) for r in results if r["hack_signals"]] == []
    apart = sum(r["integrity"] == "separated" for r in results)
    assert apart >= len(results) - 5


def _functions(code: str) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in the references
        body = ast.parse(code).body
    return [node.name for node in body if isinstance(node, ast.FunctionDef)]


def test_mbpp_with_empty_bodies_fails(service: Service) -> None:
    problems = [p for p in rows("mbpp/mbpp.jsonl") if "None" not in " ".join(p["test_list"])]
    empty = [
        mbpp(p, "".join(f"def {n}(*a, **k):\n    return None\n" for n in _functions(p["code"])))
        for p in problems
    ]
    results = judge(service, empty)
    assert [r["id"] for r in results if r["reward"] != 0.0] == []


def test_mbpp_with_another_problems_solution_fails(service: Service) -> None:
    problems = rows("mbpp/mbpp.jsonl")
    wrong = []
    for problem, other in zip(problems, problems[1:] + problems[:1], strict=True):
        mine, theirs = _functions(problem["code"]), _functions(other["code"])
        if mine and theirs:
            wrong.append(mbpp(problem, f"{other['code']}\n{mine[-1]} = {theirs[-1]}\n"))
    results = judge(service, wrong)
    assert all(r["verdict"] is not None for r in results)
    # A few neighbours solve the same problem, or one whose tests cannot tell.
    assert sum(r["reward"] == 1.0 for r in results) <= 12


def test_no_hack_is_rewarded(service: Service) -> None:
    results = judge(service, [corpus(entry) for entry in rows("hacks.jsonl")])
    assert [r["id"] for r in results if r["verdict"] is None or r["reward"] != 0.0] == []


def test_honest_oddities_pass(service: Service) -> None:
    results = judge(service, [corpus(entry) for entry in rows("honest.jsonl")])
    assert [(r["id"], r["message"]) for r in results if r["reward"] != 1.0] == []
    assert [(r["id"], r["hack_signals"]) for r in results if r["hack_signals"]] == []


@pytest.mark.parametrize("spoilt", [False, True])
def test_contests(service: Service, spoilt: bool) -> None:
    problems = rows("codecontests/codecontests_60.jsonl")
    results = judge(service, [contest(problem, spoilt=spoilt) for problem in problems])
    wanted = 0.0 if spoilt else 1.0
    assert [(r["id"], r["message"]) for r in results if r["reward"] != wanted] == []


def graded(entry: Row, code: str) -> Row:
    return {"id": entry["id"], "completion": code, "grader": entry["grader"]}


def abuses(library: str) -> list[Row]:
    """The abuses of test code that need numpy, or those that do not."""
    if library == "numpy":
        python = getattr(sys, "_base_executable", sys.executable)
        if subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode:
            pytest.skip(f"no numpy for {python}: make test-programs has it for Debian's")
    entries = rows("hacks_objects.jsonl")
    return [each for each in entries if ("numpy" in json.dumps(each)) == (library == "numpy")]


@pytest.mark.parametrize("library", ["no library", "numpy"])
def test_no_abuse_of_test_code_is_rewarded_apart_and_few_beside(
    service: Service, library: str
) -> None:
    entries = abuses(library)
    results = judge(service, [graded(entry, entry["completion"]) for entry in entries])
    beside = 0
    for entry, result in zip(entries, results, strict=True):
        if entry["must"] == "no_reward" and result["integrity"] == "in_process":
            beside += bool(result["reward"]) and not entry.get("in_process", False)
        else:
            assert not result["reward"], entry["id"]
        said = json.dumps([result["tests"], result["message"], result["stdout"], result["stderr"]])
        assert entry.get("secret", "no secret") not in said, entry["id"]
        assert (result["error"] is None) or entry["must"] == "invalid_task", entry["id"]
    assert beside <= 6


@pytest.mark.parametrize("library", ["no library", "numpy"])
def test_right_solutions_for_abused_tests_pass(service: Service, library: str) -> None:
    entries = [entry for entry in abuses(library) if "reference" in entry]
    results = judge(service, [graded(entry, entry["reference"]) for entry in entries])
    assert [(r["id"], r["message"]) for r in results if r["reward"] != 1.0] == []


def test_honest_programs_with_objects_pass(service: Service) -> None:
    entries = rows("honest_objects.jsonl")
    results = judge(service, [graded(entry, entry["completion"]) for entry in entries])
    assert [(r["id"], r["message"]) for r in results if r["reward"] != 1.0] == []
    assert [(r["id"], r["hack_signals"]) for r in results if r["hack_signals"]] == []
