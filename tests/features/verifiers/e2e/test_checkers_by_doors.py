"""Tasks with programs of their author earn the same by /reward, by a grading and by a rollout."""

from __future__ import annotations

from typing import Any

from harness import Service
from policy_server import policy_server, says

from proctor_client import Client, wire

DIVISOR = {
    "convention": "icpc",
    "source": "import sys\nn, d = int(open(sys.argv[1]).read()), float(sys.stdin.read())\n"
    "sys.exit(42 if 1 < d < n and n % d == 0 else 43)",
}
HALF = {
    "convention": "open_r1",
    "source": "import sys\nn, got = (open(sys.argv[i]).read().split() for i in (1, 3))\n"
    "print(1 if got == n else 0.5 if got == ['0'] else 0)",
}
CASES = [{"stdin": "12\n", "stdout": "3"}, {"stdin": "35\n", "stdout": "5"}]
NUMBERS = {"generator": {"source": "import sys\nprint(sys.argv[1])"}, "seeds": [1, 2, 3, 4]}
SUBTASKS = [{"points": 20, "cases": [0, 1]}, {"points": 80, "cases": [2, 3], "requires": [0]}]
TASKS: list[tuple[wire.Scoring, dict[str, Any]]] = [
    ("fraction", {"kind": "stdio", "cases": CASES, "checker": DIVISOR}),
    ("points", {"kind": "stdio", "cases": NUMBERS, "checker": HALF, "subtasks": SUBTASKS}),
    (
        "points",
        {
            "kind": "stdio",
            "cases": {**NUMBERS, "reference": {"source": "print(input())"}},
            "checker": "one_of",
            "subtasks": SUBTASKS,
        },
    ),
]
PROGRAMS = [
    "n = int(input())\nprint(next(d for d in range(2, n) if n % d == 0))",
    "n = int(input())\nprint(n if n < 4 else 0)",
    "print(input())",
    "n = int(input())\nprint(n if n == 12 else 0 if n < 3 else 6)",
    "print('1' * 5, '\\n', 'ok')",
    "1 / 0",
]


def test_each_door_judges_the_same(service: Service) -> None:
    with Client(service.url) as proctor, proctor.sandbox() as sandbox:
        for scoring, grader in TASKS:
            answer = proctor.reward(PROGRAMS, grader=grader, scoring=scoring, extract="none")
            wanted = [each.reward for each in answer.results]
            assert None not in wanted
            assert len({*wanted}) > 1
            graded = []
            for program in PROGRAMS:
                sandbox.write_file("solution.py", program)
                graded.append(sandbox.grade(grader, scoring=scoring).reward)
            assert graded == wanted
            assert by_rollout(proctor, grader, scoring) == wanted


def by_rollout(
    proctor: Client, grader: dict[str, Any], scoring: wire.Scoring
) -> list[float | None]:
    """The rewards of a policy that writes the program of its prompt."""
    with policy_server(
        lambda asked: says(f"```python\n{PROGRAMS[int(asked.messages[-1]['content'])]}\n```")
    ) as server:
        answer = proctor.rollout(
            [
                {"id": str(place), "prompt": str(place), "grader": grader}
                for place in range(len(PROGRAMS))
            ],
            policy={"base_url": server.url, "model": "policy"},
            agent={"kind": "refine", "max_attempts": 1},
            scoring=scoring,
        )
    rewards = {each.task_id: each.reward for each in answer.trajectories}
    return [rewards[str(place)] for place in range(len(PROGRAMS))]
