"""Problems with several right outputs (`checker_problems.toml`), and checkers that fail."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Service
from judging import judge
from optional_programs import skip_without

_HERE = Path(__file__).parent
_HEADER = (_HERE / "checklib.h").read_text()
PROBLEMS: list[dict[str, Any]] = tomllib.loads((_HERE / "checker_problems.toml").read_text())[
    "problem"
]


def grader_of(problem: dict[str, Any]) -> dict[str, Any]:
    """The grader of a problem, with its one case."""
    checker = problem["checker"]
    if isinstance(checker, dict):
        files = {"checklib.h": _HEADER} if "checklib.h" in problem["source"] else {}
        checker = {**checker, "source": problem["source"], "files": files}
    case = {"stdin": problem["stdin"], "stdout": problem["stdout"]}
    return {"kind": "stdio", "cases": [case], "checker": checker}


def prints(output: str) -> str:
    return f"import sys\nsys.stdout.write({output!r})"


def outputs_of(problem: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Outputs, and what each is worth."""
    for output in problem["right"]:
        yield output, 1.0
    for output in (*problem.get("wrong", ()), *problem.get("failing", ())):
        yield output, 0.0
    yield from problem.get("partial", ())


@pytest.mark.parametrize("is_compiled", [False, True])
def test_each_output_of_a_problem_earns_what_it_is_worth(
    service: Service, is_compiled: bool
) -> None:
    if is_compiled:
        skip_without("gcc", "g++")
    rows = [
        (problem, output, score)
        for problem in PROBLEMS
        if is_compiled == ("#include" in problem.get("source", ""))
        for output, score in outputs_of(problem)
    ]
    graders = {problem["name"]: grader_of(problem) for problem in PROBLEMS}
    items = [
        {"completion": prints(output), "grader": graders[problem["name"]]}
        for problem, output, _ in rows
    ]
    results = judge(service, *items, scoring="points", deadline_seconds=600)
    for (problem, output, score), result in zip(rows, results, strict=True):
        told = (problem["name"], output, result)
        assert result["reward"] == score, told
        assert result["verdict"] == ("passed" if score == 1 else "failed"), told
        assert result["integrity"] == "separated", told
        failed = output in problem.get("failing", ())
        assert result["hack_signals"] == (["checker_failed"] if failed else []), told


def test_a_part_of_a_score_is_no_reward_without_points(service: Service) -> None:
    partial = [(each, output) for each in PROBLEMS for output, _ in each.get("partial", ())]
    items = [
        {"completion": prints(output), "grader": grader_of(problem), "scoring": scoring}
        for problem, output in partial
        if "#include" not in problem["source"]
        for scoring in ("all", "fraction")
    ]
    assert {each["reward"] for each in judge(service, *items)} == {0.0}
