"""Ground truths and labels of many data sets become graders, and right programs pass these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from harness import Service

from proctor_client.tasks.forms import task_from_ground_truth
from proctor_client.tasks.ground_truth import task_of
from proctor_client.tasks.task import BadTask
from proctor_trainers.addresses import client_for
from proctor_trainers.batching import RewardBatcher
from proctor_trainers.rewards import Settings as RewardSettings

DOUBLE = "def double(n):\n    return 2 * n"
READS = "print(2 * int(input()))"
METHOD = "class Solution:\n    def double(self, n):\n        return 2 * n"
LCB = {"testtype": "functional", "metadata": json.dumps({"func_name": "double"})}
HUMAN_EVAL = "def check(candidate):\n    assert candidate(2) == 4\n"

# a ground truth, a right program, a wrong program
FORMS: list[tuple[Any, str, str]] = [
    (["assert double(2) == 4"], DOUBLE, "def double(n):\n    return n"),
    ("assert double(2) == 4\nassert double(0) == 0", DOUBLE, "def double(n):\n    return 4"),
    ({"kind": "asserts", "tests": ["assert double(2) == 4"]}, DOUBLE, "x = 1"),
    ({"inputs": ["2\n", "3\n"], "outputs": ["4\n", "6\n"]}, READS, "print(4)"),
    ({"inputs": [["2"]], "outputs": [["4"]], "fn_name": None}, READS, "print(5)"),
    ({"inputs": ["2"], "outputs": ["4"], "fn_name": "double"}, DOUBLE, "def double(n):\n    return n"),
    ({"inputs": ["2"], "outputs": ["4"], "fn_name": "double"}, METHOD, METHOD.replace("2 *", "3 *")),
    ({"inputs": [[2]], "outputs": [[4]], "fn_name": "double"}, DOUBLE, "def double(n):\n    return n"),
    ({"inputs": ["[1]\n2"], "outputs": ["[1, 2]"], "fn_name": "f"},
     "def f(a, b):\n    return (*a, b)", "def f(a, b):\n    return a"),
    ({"inputs": ["1"], "outputs": ["[1]"], "fn_name": "f"},
     "def f(n):\n    return [n]", "def f(n):\n    return [n, n]"),
    ({"inputs": [[{"1": "a"}]], "outputs": ["a"], "fn_name": "f"},
     "def f(d):\n    return d[1]", "def f(d):\n    return d"),
    ({"input_output": json.dumps({"inputs": ["2"], "outputs": ["4"]})}, READS, "print(0)"),
    ({"assert_case": ["assert double(2) == 4"], "import_prefix": "import math"}, DOUBLE, "x = 1"),
    ([{"input": "2", "output": "4", "testtype": "stdin"}], READS, "print(0)"),
    ([{"input": "2", "output": "4", **LCB}], DOUBLE, "def double(n):\n    return n"),
    ({"test": HUMAN_EVAL, "entry_point": "double"}, DOUBLE, "def double(n):\n    return n"),
    ({"test_list": ["assert double(2) == 4"], "test_setup_code": ""}, DOUBLE, "x = 1"),
    ({"functional": "assert double(2) == 4"}, DOUBLE, "x = 1"),
]  # fmt: skip


@pytest.fixture(scope="module")
def batcher(service: Service) -> Iterator[RewardBatcher]:
    settings = RewardSettings(task=task_from_ground_truth, say=None)
    with client_for(service.url) as client:
        yield RewardBatcher(client=client, settings=settings)


@pytest.mark.slow
def test_a_right_program_passes_and_a_wrong_one_fails(batcher: RewardBatcher) -> None:
    completions, rows = [], []
    for ground_truth, right, wrong in FORMS:
        for value in (ground_truth, json.dumps(ground_truth)):
            for program in (right, wrong):
                completion = f"```python\n{program}\n```"
                completions.append(completion)
                rows.append({"ground_truth": value, "completion": completion})
    answers = batcher.judge_all(completions, rows)
    rewards = [each.reward for each in answers]
    told = [rewards[place : place + 4] for place in range(0, len(rewards), 4)]
    wrong_rows = [FORMS[n][0] for n, each in enumerate(told) if each != [1.0, 0.0, 1.0, 0.0]]
    assert wrong_rows == []


@pytest.mark.parametrize(
    "value",
    [None, "", [], {}, "42", "the answer is 7", "(1, 2)", 7, ["a", 1], {"inputs": ["1"]},
     {"inputs": ["1"], "outputs": []}, {"inputs": [1], "outputs": ["1"]}, {"style": "rule"},
     {"inputs": ["{"], "outputs": ["1"], "fn_name": "f"},
     {"inputs": ["1"], "outputs": ["1"], "fn_name": "f(); import os"},
     {"inputs": ["1"], "outputs": ["[NaN]"], "fn_name": "f"},
     [{"input": "1", "output": "1", "testtype": "functional"}]],
)  # fmt: skip
def test_what_holds_no_tests_gives_no_reward(value: Any) -> None:
    with pytest.raises(BadTask):
        task_of(value)
    with pytest.raises(BadTask):
        task_of(json.dumps(value))


def test_lists_of_arrow_and_numpy_are_read() -> None:
    class Array:
        def tolist(self) -> list[str]:
            return ["assert f() == 1"]

    assert task_of(Array()).grader == {"kind": "asserts", "tests": ["assert f() == 1"]}
