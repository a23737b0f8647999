"""Rows whose completions are answers, as in their data sets, by `proctor eval` and by reward functions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from command_line import proctor
from harness import Service, running_service
from visible_folder import visible_folder, visible_python

from proctor_client import Client
from proctor_client.tasks.forms import MAKERS, Format, form_of, task_from_ground_truth
from proctor_client.tasks.supplies import Supplies
from proctor_service.settings import Settings
from proctor_trainers.batching import RewardBatcher
from proctor_trainers.rewards import Settings as RewardSettings
from proctor_trainers.trl import reward_function
from proctor_trainers.verl import compute_score_function

pytest.importorskip("math_verify", reason="math-verify is not installed")

SETUP = """
CREATE TABLE singer (name TEXT, age INTEGER);
INSERT INTO singer VALUES ('Ann', 30), ('Bob', 25), ('Cid', 25);
"""
GSM8K = {
    "question": "Ann has 1,200 pens and buys 34 more. How many has she?",
    "answer": "She has 1200 + 34 = <<1200+34=1234>>1,234 pens.\n#### 1,234",
}
MATH = {
    "problem": "What is half of $\\frac{1}{3}$?",
    "solution": "It is $\\frac{1}{3} \\cdot \\frac{1}{2} = \\boxed{\\frac{1}{6}}$.",
    "level": "Level 1",
    "type": "Algebra",
}
MATH_500 = {**MATH, "answer": "\\frac{1}{6}", "subject": "Algebra", "unique_id": "test/1.json"}
AIME = {
    "id": 60,
    "problem": "Find $n$.",
    "solution": "As $2n = 408$, it is $n = \\boxed{204}$.",
    "answer": "204",
    "url": "",
    "year": "2024",
}
OPENR1 = {
    "problem": "Solve $x^2 = 4$.",
    "solution": "It is $x = \\pm 2$.",
    "answer": "\\{-2, 2\\}",
    "problem_type": "Algebra",
    "question_type": "math-word-problem",
    "source": "olympiads",
    "uuid": "u",
    "generations": ["…"],
    "correctness_math_verify": [True],
    "messages": [],
}
SPIDER = {
    "db_id": "concert",
    "query": "SELECT name FROM singer WHERE age < 30",
    "query_toks": ["SELECT"],
    "question": "Who is younger than 30?",
    "question_toks": ["Who"],
}
BIRD = {
    "question_id": 0,
    "db_id": "concert",
    "question": "What are the ages?",
    "evidence": "age refers to singer.age",
    "SQL": "SELECT DISTINCT age FROM singer",
    "difficulty": "simple",
}
# of each data set: its form, a row, right completions and wrong ones
ROWS: Mapping[str, tuple[Format, dict[str, Any], Sequence[str], Sequence[str]]] = MappingProxyType(
    {
        "gsm8k": (
            "gsm8k",
            GSM8K,
            ["So \\boxed{1234}.", "1200 + 34\n#### 1,234", "The answer is 1234."],
            ["#### 1200", "\\boxed{1234} or \\boxed{34}", ""],
        ),
        "math": ("math", MATH, ["\\boxed{1/6}", "$\\boxed{\\dfrac{2}{12}}$"], ["\\boxed{6}"]),
        "math-500": ("math", MATH_500, ["\\boxed{\\frac16}"], ["\\boxed{\\frac13}"]),
        "aime-2024": ("math", AIME, ["<think>205?</think> \\boxed{204}"], ["\\boxed{408}"]),
        "openr1-math": ("math", OPENR1, ["\\boxed{\\{2, -2\\}}"], ["\\boxed{2}"]),
        "spider": (
            "spider",
            SPIDER,
            [
                "```sql\nSELECT name FROM singer WHERE age <= 25\n```",
                "SELECT name FROM singer WHERE name != 'Ann' ORDER BY name DESC",
            ],
            [
                "SELECT name FROM singer",
                "SELECT nme FROM singer",
                "SELECT name FROM singer WHERE age < 30 LIMIT 1",
                "DROP TABLE singer",
            ],
        ),
        "bird-mini-dev": (
            "bird",
            BIRD,
            ["SELECT age FROM singer", "```sql\nSELECT DISTINCT age FROM singer ORDER BY age\n```"],
            ["SELECT age FROM singer WHERE age > 25", "SELECT COUNT(age) FROM singer"],
        ),
    }
)


@dataclass(frozen=True)
class World:
    """A service with the environments of its verifiers. `databases`: a folder that sandboxes see."""

    service: Service
    databases: Path


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with visible_folder() as folder, visible_python() as python:
        database = folder / "data" / "concert" / "concert.sqlite"
        database.parent.mkdir(parents=True)
        connection = sqlite3.connect(database)
        connection.executescript(SETUP)
        connection.close()
        environments = folder / "environments.toml"
        environments.write_text(
            f'[environments.math]\npython = "{python}"\npreload = ["math_verify"]\n'
            f'[environments.data]\npaths = ["{folder}/data"]\n'
        )
        settings = Settings(
            workers=0, environments=environments, environments_folder=folder / "store"
        )
        with running_service(settings, judge=None) as service:
            yield World(service, folder / "data")


@pytest.mark.parametrize("name", ROWS)
def test_right_answers_are_rewarded_and_wrong_ones_are_not(
    world: World, tmp_path: Path, name: str
) -> None:
    form, row, right, wrong = ROWS[name]
    assert form_of(row) == form
    completions = [*right, *wrong]
    expected = [1.0] * len(right) + [0.0] * len(wrong)
    assert evaluated(world, tmp_path, row, completions) == expected
    supplies = Supplies(databases=str(world.databases), environment="data")
    task = supplies.task_from_row(row)
    with Client(world.service.url) as client:
        reward = reward_function(client=client, say=None, task=supplies.task_from_row)
        columns = {name: [value] * len(completions) for name, value in row.items()}
        assert reward(["p"] * len(completions), completions, **columns) == expected
        batcher = RewardBatcher(
            client=client, settings=RewardSettings(task=task_from_ground_truth, say=None)
        )
        compute: Any = compute_score_function(batcher=batcher)
        truth = json.dumps(task.fields)
        assert [compute("mine", each, truth) for each in completions] == expected


def evaluated(
    world: World, folder: Path, row: dict[str, Any], completions: Sequence[str]
) -> list[float | None]:
    """The reward of each completion by `proctor eval`, whose references pass, too."""
    rows, file, output = (folder / name for name in ("rows", "completions", "results"))
    rows.write_text(json.dumps(row))
    options = ["--databases", f"data:{world.databases}"]
    said = proctor("eval", rows, *options, PROCTOR_URL=world.service.url)
    assert said.exit_code == 0, said.output
    name = MAKERS[form_of(row)](row, "rows:1").id
    told = [json.dumps({"task_id": name, "completion": each}) for each in completions]
    file.write_text("\n".join(told))
    more: list[str | Path] = ["--completions", file, "--output", output]
    said = proctor("eval", rows, *options, *more, PROCTOR_URL=world.service.url)
    results = sorted(map(json.loads, output.read_text().splitlines()), key=lambda r: r["sample"])
    assert len(results) == len(completions), said.output
    return [each["reward"] for each in results]


def test_a_question_without_its_database_is_one_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(SPIDER))
    cases: list[tuple[list[str], str]] = [
        ([], "rows.jsonl:1: where is its database? --databases names their folder"),
        (["--databases", "data:concert"], "--databases: 'concert' is no absolute path"),
    ]
    for options, told in cases:
        said = proctor("eval", rows, *options)
        assert said.exit_code == 2
        assert told in " ".join(said.output.split())


@pytest.mark.parametrize(
    ("row", "judged"),
    [
        ({"problem": "?", "answer": "proof"}, False),
        ({"problem": "?", "solution": "", "answer": " "}, False),
        ({"question": "?", "answer": "####"}, False),
        ({"problem": "?", "answer": 7}, True),
        ({"problem": "?", "answer": "[1, 2]"}, True),
    ],
)
def test_problems_without_an_answer_are_not_judged(row: dict[str, Any], judged: bool) -> None:
    if judged:
        assert task_of(row).grader == {
            "kind": "verifier",
            "name": "math",
            "params": {"answer": str(row["answer"])},
        }
        return
    with pytest.raises(ValueError, match="answer"):
        task_of(row)


def task_of(row: dict[str, Any]) -> Any:
    """The task of a row."""
    return Supplies().task_from_row(row)


def test_a_problem_with_tests_is_no_mathematics() -> None:
    row = {"problem": "Write f.", "solution": "def f(): ...", "answer": ["assert f() == 1"]}
    assert task_of(row).grader == {"kind": "asserts", "tests": ["assert f() == 1"]}
    row = {"problem": "Write f.", "answer": "7", "tests": ["assert f() == 1"]}
    assert task_of(row).grader == {"kind": "asserts", "tests": ["assert f() == 1"]}
