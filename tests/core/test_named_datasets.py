"""Data sets by name: `proctor eval` and the trainers load the same rows with the same converters."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proctor_client import wire
from proctor_client.tasks import catalog
from proctor_client.tasks.catalog import CATALOG, Source, rows_of, source_of
from proctor_client.tasks.files import load_named
from proctor_client.tasks.forms import MAKERS
from proctor_client.tasks.task import DatasetError
from proctor_service.cli import build
from proctor_service.judge.text import Closeness, Comparison
from proctor_trainers.problems import load_problems

ROWS = [
    {"problem_id": 1, "question": "Twice.", "solutions": '["print(2)"]', "input_output": ""},
    {
        "problem_id": 2,
        "question": "Twice.",
        "solutions": '["print(2 * int(input()))"]',
        "input_output": '{"inputs": ["3\\n"], "outputs": ["6\\n"]}',
    },
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def rows_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server with ROWS as `test.jsonl.gz`; a folder has them as `test.jsonl`."""
    (tmp_path / "files").mkdir()
    (tmp_path / "web").mkdir()
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "files" / "test.jsonl").write_text(text)
    (tmp_path / "web" / "test.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    handler = partial(Quiet, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def served(rows_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a data set whose rows the web server has."""
    source = Source("apps", files=(rows_url + "/{split}.jsonl.gz",))
    monkeypatch.setattr(catalog, "CATALOG", {**CATALOG, "served": source})
    return "served"


def test_rows_without_tests_are_left_out_and_counted(served: str) -> None:
    loaded = load_named(served)
    assert [task.id for task in loaded.tasks] == ["2"]
    assert loaded.left_out == ["served:1: input_output: no tests"]


def test_eval_says_how_many_rows_it_left_out(served: str) -> None:
    said = CliRunner().invoke(build(), ["eval", "--dataset", served])
    assert said.exit_code == 0, said.output
    assert "1 rows cannot be judged and are left out" in " ".join(said.output.split())
    assert "100.0 %" in said.output


def test_a_split_that_does_not_exist_is_one_line(served: str) -> None:
    with pytest.raises(DatasetError, match=r"the data set served \(train\) could not be loaded"):
        load_named(served, split="train")


def test_a_folder_is_loaded_like_a_data_set_of_the_hub(tmp_path: Path, rows_url: str) -> None:
    source = source_of(str(tmp_path / "files"), "apps")
    assert [row["problem_id"] for _, row in rows_of("files", source, "test")] == [1, 2]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dataset", "humanevals"],
        ["--dataset", "mbpp", "rows.jsonl"],
        [],
        ["--dataset", "someone/rows"],
        ["rows.jsonl", "--format", "mbpp", "--split", "test"],
        ["rows.jsonl"],
    ],
)
def test_a_mistake_is_one_line(arguments: list[str]) -> None:
    said = CliRunner().invoke(build(), ["eval", *arguments])
    assert said.exit_code == 2
    assert "Traceback" not in said.output
    assert "proctor:" in said.output


def test_every_name_has_a_converter() -> None:
    assert {source.form for source in CATALOG.values()} <= set(MAKERS)
    assert {"apps", "codecontests", "ds1000", "livecodebench", "mbxp-java"} <= set(CATALOG)


def test_a_trainer_loads_the_same_problems(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor_trainers.problems.CATALOG", catalog.CATALOG)
    [problem] = load_problems(served, split="test")
    assert problem.text == "Twice."
    [task] = load_named(served).tasks
    assert problem.task == task


class Harmful:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.touch, ("/harmful",)


def test_a_pickle_in_a_row_runs_nothing() -> None:
    packed = base64.b64encode(zlib.compress(pickle.dumps(Harmful()))).decode()
    row = {"question_id": "q", "public_test_cases": "[]", "private_test_cases": packed}
    with pytest.raises(ValueError, match="not in LiveCodeBench's form"):
        MAKERS["livecodebench"](row, "data:1")
    assert not Path("/harmful").exists()


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("1", "1.0", True),
        ("0.50", "0.5", True),
        ("0.3", "0.30000000000000004", True),
        ("0.333", "0.33", False),
        ("7", "7.001", False),
        ("12345678901234567", "1.2345678901234568e+16", False),
        ("1.2345678901234567e+25", "1.2345678901234568e+25", True),
    ],
)
def test_livecodebench_compares_decimals(expected: str, printed: str, same: bool) -> None:
    cases = [{"input": "", "output": expected, "testtype": "stdin"}]
    row = {"question_id": "q", "public_test_cases": cases, "private_test_cases": "[]"}
    grader = wire.StdioGrader.model_validate(MAKERS["livecodebench"](row, "data:1").grader)
    compared = Comparison(grader.compare, Closeness.of(grader.tolerance))
    assert compared.is_same(printed, expected) is same
