"""The order of a set depends on the task, and is one for all submissions of the task."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from harness import Service
from judging import calls, judge, stdio

from proctor_client.wire import AssertsGrader, ExecGrader, StdioGrader
from proctor_service.composition import all_graders, make_backend
from proctor_service.judge.judge import Judge, hash_seed_of
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import HASH_SEEDS, Limits
from proctor_service.settings import Settings

TASKS = 8
ORDER = (
    "import os, subprocess, sys\n"
    'show = \'import os; print(list({*"abcdef"}), os.environ["PYTHONHASHSEED"])\'\n'
    "exec(show)\n"
    "sys.stdout.flush()\n"
    "subprocess.run([sys.executable, '-c', show], check=True)\n"
)
FUNCTION = f"def f(x):\n    exec({ORDER!r})\n    return x\n"


def _tasks() -> list[tuple[dict[str, Any], str]]:
    """Graders with a program that shows the order of a set, here and in a process of its own."""
    found: list[tuple[dict[str, Any], str]] = []
    for number in range(TASKS):
        asserts = {"kind": "asserts", "tests": [f"assert f({number}) == {number}"]}
        for grader in (asserts, calls(([number], number))):
            found.append((grader, FUNCTION))
        found.append((stdio((str(number), "no")), ORDER))
    return found


def test_each_task_has_an_order_of_its_own_for_all_its_submissions(service: Service) -> None:
    orders: dict[str, set[str]] = defaultdict(set)
    for turn in range(2):
        items = [
            {"completion": f"{source}# {turn}\n", "grader": grader} for grader, source in _tasks()
        ]
        for (grader, _), result in zip(_tasks(), judge(service, *items), strict=True):
            own, child = [line for line in result["stdout"].splitlines() if line.startswith("[")]
            assert own == child, "an interpreter that a program starts has the same seed"
            orders[repr(grader)].add(own)
    assert {len(each) for each in orders.values()} == {1}
    assert len(set.union(*orders.values())) == len(HASH_SEEDS)


def test_a_program_that_relies_on_an_order_is_not_right_always(service: Service) -> None:
    tests = "assert list({{'yes', 'no', 'maybe'}})[0] == first() and {0} == {0}"
    items = [
        {
            "completion": "def first():\n    return 'no'",
            "grader": {"kind": "asserts", "tests": [tests.format(number)]},
        }
        for number in range(2 * TASKS)
    ]
    assert {result["verdict"] for result in judge(service, *items)} == {"passed", "failed"}


def test_the_seed_is_of_the_task_alone() -> None:
    task = AssertsGrader(kind="asserts", tests=["assert f() == '\ud800'"])
    assert hash_seed_of(task) == hash_seed_of(AssertsGrader.model_validate(task.model_dump()))
    many = [StdioGrader.model_validate(stdio((str(number), ""))) for number in range(99)]
    assert {hash_seed_of(each) for each in many} == set(HASH_SEEDS)
    assert hash_seed_of(ExecGrader(kind="exec")) == HASH_SEEDS[0], "the probe of a start"


async def test_few_sandboxes_serve_all_seeds() -> None:
    backend = make_backend(Settings(slots=2, max_sandboxes=2))
    judge_here = Judge(all_graders({}))
    limits = Limits(10.0, 60.0, 256, 64, 32, 32)
    graders = [
        AssertsGrader(kind="asserts", tests=[f"assert f({number}) == {number}"])
        for number in range(TASKS)
    ]
    source = "def f(x):\n    return x"
    await backend.start()
    try:
        for start in range(0, TASKS, 2):
            pair = graders[start : start + 2]
            tasks = [judge_here(Submission(source, each, limits), backend) for each in pair]
            assert [each.verdict for each in await asyncio.gather(*tasks)] == ["passed"] * 2
    finally:
        await backend.close()
