"""The servers of episodes for other frameworks: what they serve."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from harness import running_service

from proctor_trainers.episodes import Rows, serve

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
