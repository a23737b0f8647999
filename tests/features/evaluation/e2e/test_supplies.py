"""Rows that lack a file: `proctor eval` and a reward function get it by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command_line import proctor
from harness import Service
from optional_programs import skip_without

from proctor_client import Client
from proctor_client.tasks.supplies import Supplies
from proctor_trainers.trl import reward_function

TESTLIB = """
#pragma once
#include <cstdlib>
#include <fstream>
enum Verdict { right_one = 0, wrong_one = 1 };
struct Reader {
    std::ifstream file;
    int next() { int value; if (!(file >> value)) std::exit(2); return value; }
};
"""
CHECKER = """
#include "testlib.h"
int main(int argc, char* argv[]) {
    Reader input{std::ifstream(argv[1])}, output{std::ifstream(argv[2])};
    int n = input.next(), a = output.next(), b = output.next();
    return a > 0 && b > 0 && a + b == n ? right_one : wrong_one;
}
"""
RIGHT, OTHER, WRONG = ("n = int(input())\nprint(1, n - 1)", "print(4, 1)", "print(2, 2)")
ROW: dict[str, Any] = {
    "source": "Codeforces",
    "id": "1_A",
    "description": "Two positive numbers with this sum.",
    "checker": CHECKER,
    "correct_submissions": [{"code": RIGHT, "language": "py3"}],
    "test_cases": [{"input": "5\n", "output": "2 3\n"}],
    "true_positive_rate": 1.0,
    "true_negative_rate": 1.0,
}


def evaluated(service: Service, folder: Path, *options: str | Path) -> tuple[str, list[Any]]:
    """What `proctor eval` says, and the reward of each completion, None for an error."""
    rows, completions, output = (folder / name for name in ("rows", "completions", "results"))
    rows.write_text(json.dumps(ROW))
    texts = (RIGHT, OTHER, WRONG)
    told = [json.dumps({"task_id": "1_A", "completion": each}) for each in texts]
    completions.write_text("\n".join(told))
    arguments = ["eval", rows, "--completions", completions, "--output", output, *options]
    said = proctor(*arguments, PROCTOR_URL=service.url)
    results = sorted(map(json.loads, output.read_text().splitlines()), key=lambda r: r["sample"])
    return " ".join(said.output.split()), [each["reward"] for each in results]


def test_checkers_get_their_testlib(service: Service, tmp_path: Path) -> None:
    skip_without("g++")
    header = tmp_path / "testlib.h"
    header.write_text(TESTLIB)
    _, rewards = evaluated(service, tmp_path, "--testlib", header)
    assert rewards == [1.0, 1.0, 0.0]
    with Client(service.url) as client:
        supplies = Supplies(testlib=TESTLIB)
        reward = reward_function(client=client, say=None, task=supplies.task_from_row)
        columns = {name: [value] * 3 for name, value in ROW.items()}
        assert reward(["p"] * 3, [RIGHT, OTHER, WRONG], **columns) == [1.0, 1.0, 0.0]


def test_without_testlib_nothing_is_rewarded_and_the_file_is_named(
    service: Service, tmp_path: Path
) -> None:
    skip_without("g++")
    said, rewards = evaluated(service, tmp_path)
    assert rewards == [None, None, None]
    assert "testlib.h is missing in 1 checkers: --testlib gives it" in said
    assert "testlib.h: No such file" in said


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(ROW))
    said = proctor("eval", rows, "--testlib", tmp_path / "none.h")
    assert said.exit_code == 2
    assert "none.h: No such file or directory" in " ".join(said.output.split())
    assert "Traceback" not in said.output
