"""The servers of episodes for other frameworks: what they serve."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Service, running_service

from proctor_client import Client
from proctor_client.tasks.forms import task_from_row
from proctor_trainers.episodes import Episode, Episodes, NoReward, Rows, serve
from proctor_trainers.trl.environment import Rules
from proctor_trainers.trl.workplaces import Order, Workplaces

ROWS = [{"prompt": "Add.\u2028Then stop.", "tests": ["assert f()"]}, {"prompt": "Multiply."}]
LINES = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines.jsonl", LINES.encode()),
        ("lines.jsonl.gz", gzip.compress(LINES.encode())),
        ("array.json", json.dumps(ROWS, indent=1).encode()),
    ],
    ids=("lines", "compressed", "array"),  # what gzip writes has the time in it
)
def test_a_data_set_is_read_in_each_form_of_a_file(
    name: str, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    seen: list[Rows] = []

    def make_app(rows: Rows, options: argparse.Namespace) -> Any:
        seen.append(rows)
        raise ValueError("enough was seen")

    with running_service() as service:
        assert serve("test", make_app, ["--dataset", str(file), "--url", service.url]) == 1
    assert seen == [ROWS]


def test_a_row_that_is_no_object_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "Add."}\n7\n')

    def make_app(rows: Rows, options: argparse.Namespace) -> Any:
        raise AssertionError("there are no rows")

    assert serve("test", make_app, ["--dataset", str(file)]) == 1
    assert capsys.readouterr().err == f"error: {file}:2: not a JSON object\n"


CALLS = {"inputs": ["2"], "outputs": ["4"], "fn_name": "double"}
METHOD = "class Solution:\n    def double(self, n):\n        return 2 * n\n"


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, max_attempts=1) as opened:
        yield opened


def new_episode(client: Client, most_calls: int = 50) -> Episode:
    workplaces = Workplaces(client, client, Order())
    return Episodes(workplaces, Rules(task=task_from_row), most_calls).new()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reward"),
    [
        (METHOD, 1.0),
        (METHOD.replace("2 *", "3 *"), 0.0),
        ("def double(n):\n    return 2 * n\n", 1.0),
        ("double = lambda n: 2 * n", 1.0),
        ("def other(n):\n    return 2 * n\n", 0.0),
    ],
)
def test_tests_call_a_function_or_a_method_of_class_solution(
    client: Client, code: str, reward: float
) -> None:
    """Which of them is known only at the end of an episode."""
    episode = new_episode(client)
    episode.begin({"ground_truth": CALLS})
    draft = {"path": "solution.py", "content": METHOD}
    assert episode.call("write_file", draft).reward is None
    assert episode.call("submit_solution", {"code": code}).reward == reward


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "arguments", "reward"),
    [
        ("write_file", {"path": "solution.py", "content": METHOD}, 1.0),
        ("bash", {"command": "mkdir solution.py"}, 0.0),
        ("bash", {"command": "true"}, 0.0),
    ],
)
def test_the_last_call_of_an_episode_submits_nothing(
    client: Client, tool: str, arguments: dict[str, str], reward: float
) -> None:
    episode = new_episode(client, most_calls=1)
    episode.begin({"ground_truth": CALLS})
    assert episode.call(tool, arguments).reward == reward


@pytest.mark.slow
def test_a_row_whose_tests_cannot_be_written_has_no_reward(client: Client) -> None:
    episode = new_episode(client)
    with pytest.raises(NoReward, match="not finite"):
        episode.begin({"ground_truth": {**CALLS, "outputs": [float("nan")]}})
