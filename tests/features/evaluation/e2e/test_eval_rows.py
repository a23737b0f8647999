"""Rows and completions whose rewards are known, through `proctor eval`, with and without --format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from harness import Service
from shared_data import shared_data


def rewards(service: Service, folder: Path, entry: dict[str, Any], *options: str) -> list[Any]:
    """The reward of each completion; None for an error."""
    rows, completions, output = (folder / name for name in ("rows", "completions", "results"))
    rows.write_text("".join(json.dumps(row) + "\n" for row in entry["rows"]))
    completions.write_text("".join(json.dumps(each) + "\n" for each in entry["completions"]))
    arguments = ["eval", str(rows), "--completions", str(completions), "--output", str(output)]
    said = proctor(*arguments, *options, PROCTOR_URL=service.url)
    assert output.exists(), said.output
    results = [json.loads(line) for line in output.read_text().splitlines()]
    found = {(each["task_id"], each["sample"]): each for each in results}
    assert len(found) == len(entry["completions"]), said.output
    return [each["reward"] for _, each in sorted(found.items())]


def test_rows_that_are_known(service: Service, tmp_path: Path) -> None:
    wrong = {}
    for line in shared_data("eval_rows.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        expected = entry["expect"] if isinstance(entry["expect"], list) else [1.0, 0.0]
        for options in (["--format", entry["format"]], []):
            got = rewards(service, tmp_path, entry, *options)
            if got != expected:
                wrong[entry["id"], *options] = got
    assert wrong == {}


@pytest.mark.parametrize("size", [20_000_000, 60_000_000])
def test_a_row_that_is_too_large_spares_the_others(
    service: Service, tmp_path: Path, size: int
) -> None:
    """A body may have 32 MB."""
    tests = [["assert f(1) == 1"], [f"assert f('{'x' * size}') != 2"], ["assert f(2) == 2"]]
    entry = {
        "rows": [{"id": str(n), "tests": each} for n, each in enumerate(tests)],
        "completions": [
            {"id": str(n), "completion": "def f(n):\n    return n"} for n in range(len(tests))
        ],
    }
    got = rewards(service, tmp_path, entry)
    assert (got[0], got[2]) == (1.0, 1.0)
    if size > 32_000_000:
        assert got[1] is None
