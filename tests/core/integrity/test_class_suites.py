"""Suites for whole classes, judged as plain Python does it, by pytest, and at the level `shared`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from class_suites import SUITES, Suite
from harness import Service
from judging import judge
from shared_judging import SharedJudge, shared_judge

from proctor_service.judge.analysis.levels import TestSource

HEAD = "import unittest\n"
MAIN = "\nunittest.main()\n"
EMPTY = "pass\n"


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedJudge]:
    with shared_judge() as made:
        yield made


def solutions(suite: Suite) -> list[str]:
    return [suite.right, suite.wrong, EMPTY]


def test_there_are_twenty() -> None:
    assert len({suite.name for suite in SUITES}) == len(SUITES) >= 20


@pytest.mark.parametrize("guarded", [False, True], ids=["main", "guarded main"])
def test_pasted_behind_the_solution(service: Service, guarded: bool) -> None:
    main = "\nif __name__ == '__main__':\n    unittest.main()\n" if guarded else MAIN
    suites = SUITES[:2] if guarded else SUITES
    items = [
        {"completion": f"{source}\n{HEAD}{suite.tests}{main}"}
        for suite in suites
        for source in solutions(suite)
    ]
    results = judge(service, *items, grader={"kind": "exec"})
    for suite, *found in zip(suites, *(results[start::3] for start in range(3)), strict=True):
        rewards = [result["reward"] for result in found]
        assert (suite.name, rewards) == (suite.name, [1.0, 0.0, 0.0]), found[0]["stderr"]


def test_by_pytest(service: Service) -> None:
    for suite in SUITES:
        text = f"{HEAD}from solution import *\n{suite.tests}"
        items = [{"completion": source} for source in solutions(suite)]
        grader = {"kind": "pytest", "files": {"test_it.py": text}}
        found = judge(service, *items, grader=grader)
        assert (suite.name, [r["verdict"] for r in found][:2]) == (suite.name, ["passed", "failed"])
        assert (suite.name, [r["reward"] for r in found]) == (suite.name, [1.0, 0.0, 0.0])
        assert [r["hack_signals"] for r in found] == [[], [], []], suite.name


@pytest.mark.parametrize("how", ["main", "cases", "guarded"])
def test_at_the_level_shared(shared: SharedJudge, how: str) -> None:
    for suite in SUITES if how == "main" else SUITES[:5]:
        text = f"{HEAD}{suite.tests}"
        names = [
            line.split("(")[0].removeprefix("class ")
            for line in text.splitlines()
            if line.startswith("class ") and "TestCase" in line
        ]
        test = {
            "main": TestSource(text + MAIN),
            "cases": TestSource(text, (("cases", names),)),
            "guarded": TestSource(
                text + "\nif __name__ == '__main__':\n    unittest.main(argv=[''])"
            ),
        }[how]
        right, wrong, empty = shared.many(solutions(suite), test, reveal=True)
        assert (suite.name, right.verdict, right.message) == (suite.name, "passed", "")
        assert (suite.name, wrong.verdict) == (suite.name, "failed")
        assert empty.verdict in ("failed", "runtime_error"), suite.name
        assert [j.hack_signals for j in (right, wrong, empty)] == [(), (), ()], suite.name
