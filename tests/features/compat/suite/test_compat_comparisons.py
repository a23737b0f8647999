"""Outputs that count as the expected one, as in the harness that each route stands for."""

from __future__ import annotations

import httpx
import pytest
from compat_requests import post

BOTH = [
    ("1 2\n", "1 2", True),
    ("\n 1 2 \n\n3", "1 2\n3\n", True),
    ("1\n2\n", "1 2", False),
    ("1 2\n", "1\n2", False),
    ("3.0\n", "3", True),
    ("1.50", "1.5", True),
    ("2 1.50\n3", "2 1.5\n3", True),
    ("Yes", "YES", False),
    ("a  b", "a b", False),
    ("1000001", "1000000", False),
    ("", "1", False),
]
PRIME = [
    *BOTH,
    ("0.0", "0.0000005", False),
    ("0.0", "0.000000005", True),
    ("1.000009", "1.0", True),
    ("1.00002", "1.0", False),
    ("0.5\n1000001", "0.5\n1000000", False),
]
LIVE_CODE_BENCH = [
    *BOTH,
    ("0.3333333", "0.333333", False),
    ("1e3 0.5", "1000 0.50", True),
    ("1  2.0", "1 2", True),
    ("x 1.1", "x 1.2", False),
]


def test_as_prime(client: httpx.Client) -> None:
    programs = [f"```python\nsys.stdout.write({printed!r})\n```" for printed, *_ in PRIME]
    labels = [{"inputs": [""], "outputs": [expected]} for _, expected, _ in PRIME]
    body = {"query": programs, "prompts": [""] * len(PRIME), "labels": labels}
    rewards = post(client, "get_reward", body)["rewards"]
    found = [(*pair, reward == 1.0) for (*pair, _), reward in zip(PRIME, rewards, strict=True)]
    assert found == PRIME


def test_as_live_code_bench_in_open_instruct(client: httpx.Client) -> None:
    printed = [each for each, *_ in LIVE_CODE_BENCH]
    tests = [
        {"input": str(index), "output": expected}
        for index, (_, expected, _) in enumerate(LIVE_CODE_BENCH)
    ]
    body = {"program": f"sys.stdout.write({printed!r}[int(input())])", "tests": tests}
    results = post(client, "test_program_stdio", body | {"max_execution_time": 5})["results"]
    found = [(*pair, bool(got)) for (*pair, _), got in zip(LIVE_CODE_BENCH, results, strict=True)]
    assert found == LIVE_CODE_BENCH


@pytest.mark.parametrize(
    "code",
    [
        "counts = defaultdict(int)\ncounts['a'] += 1\nprint(counts['a'])",
        "def depth(n):\n    return 1 if n == 0 else depth(n - 1)\nprint(depth(2000))",
        "from __future__ import annotations\nxs: List[int] = [1]\nprint(gcd(*xs, 2))",
    ],
)
def test_names_and_depth_of_the_harness(client: httpx.Client, code: str) -> None:
    stdio = {"program": code, "tests": [{"input": "", "output": "1"}], "max_execution_time": 5}
    assert post(client, "test_program_stdio", stdio)["results"] == [1]
    label = {"inputs": [""], "outputs": ["1"]}
    fenced = f"```python\n{code}\n```"
    body = {"prompt": "p", "response": fenced, "label": label}
    assert post(client, "remote_rm", body) == 1.0
