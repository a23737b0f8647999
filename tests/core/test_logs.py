"""What the log says, in both forms; and that nobody whose words are in it writes lines of their own."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from harness import NoBackend

from proctor_client.wire import ExecGrader
from proctor_service.errors import InvalidTask
from proctor_service.evaluate import Evaluator
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.logs import ConsoleFormatter, JsonFormatter
from proctor_service.outcomes import Item, NoCode, Outcome, outcome_bytes
from proctor_service.sandbox.interface import Limits, Sandboxes, Usage
from proctor_service.scheduling.queue import Deadlines, FairQueue
from proctor_service.scheduling.result_cache import Cache

Format = Callable[..., str]


def formatted(
    formatter: logging.Formatter, message: str, error: BaseException | None = None, **extra: Any
) -> str:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("proctor.x", logging.INFO, "", 0, message, (), info)
    vars(record).update(extra)
    return formatter.format(record)


def test_both_forms_carry_the_fields() -> None:
    fields: dict[str, Any] = {
        "sandbox_id": "sb_1",
        "rollout_id": "ro_1",
        "exit_code": 0,
        "tags": ["a", "b c"],
    }
    line = formatted(ConsoleFormatter(), "a command ended", **fields)
    assert line.endswith(
        "info    proctor.x: a command ended  sandbox_id=sb_1 rollout_id=ro_1 exit_code=0 tags=['a', 'b c']"
    )
    read = json.loads(formatted(JsonFormatter(), "a command ended", **fields))
    assert {key: read[key] for key in fields} == fields
    assert (read["level"], read["logger"], read["message"]) == (
        "info",
        "proctor.x",
        "a command ended",
    )


HOSTILE = {
    "a line": "x\n12:00:00.000 error   proctor_service.app: stolen",
    "a carriage return": "x\r12:00:00.000 error",
    "an old line break": "x\v\f\x1c\x85y",
    "line separators": "x\u2028y\u2029z",
    "a terminal's colours": "\x1b[31mred\x1b[0m",
    "a terminal's title": "\x1b]0;title\x07",
    "an escape in one character": "\x9b2J",
    "backspaces": "abc\b\b\b\x7f",
    "another direction": "\u202egnp.exe\u2066",
    "zero width": "a\u200bb\ufeff",
    "NUL": "\0",
    "lone surrogates": "\ud800 \udfff",
    "beyond Unicode's planes in use": "\U000e0001",
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_words_stay_words(what: str) -> None:
    text = HOSTILE[what]
    for line in (
        formatted(ConsoleFormatter(), text),
        formatted(ConsoleFormatter(), "message", why=text),
        formatted(ConsoleFormatter(), "message", tags=[text], more={text: text}),
        formatted(JsonFormatter(), text, why=text, tags=[text]),
    ):
        assert line.isprintable(), line
        assert line.encode()
    read = json.loads(formatted(JsonFormatter(), text, why=[text]))
    assert read["why"] == [read["message"]]
    if "surrogates" not in what:
        assert read["message"] == text
    else:
        assert read["message"] == "? ?"


def test_a_traceback_is_below_its_line_and_begins_none() -> None:
    try:
        raise ValueError("x\n12:00:00.000 error   proctor_service.app: stolen\x1b[2J\rz")
    except ValueError as error:
        text = formatted(ConsoleFormatter(), "failed", error)
        read = json.loads(formatted(JsonFormatter(), "failed", error))
    first, *rest = text.split("\n")
    assert first.endswith("proctor.x: failed")
    assert any("ValueError" in line for line in rest)
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "stolen" in read["traceback"]


def test_a_value_does_not_look_like_another_field() -> None:
    line = formatted(
        ConsoleFormatter(), "judged", job="x verdict=passed", empty="", path='a"b', n=3
    )
    assert line.endswith('job="x verdict=passed" empty="" path="a\\"b" n=3')


# ---------------------------------------------------------------- of an evaluation

LIMITS = Limits(1, 1, 64, 64, 8, 8)
SECRET = "print('what nobody is to see')"


async def _judges(submission: Submission, backend: Sandboxes) -> Judgement:
    if submission.source == "broken":
        raise InvalidTask("setup: it is broken")
    return Judgement(
        "passed",
        passed=1,
        total=1,
        stdout="é" * 30_000,
        stderr="seen",
        exit_code=0,
        usage=Usage(0.5, 1.25),
        sandbox_id="sb_1",
    )


@pytest.fixture
def evaluated(caplog: pytest.LogCaptureFixture) -> Callable[..., list[dict[str, Any]]]:
    """Evaluates at a level; what was logged, as a collector reads it."""

    def run(level: int, source: str | None = SECRET, **fields: Any) -> list[dict[str, Any]]:
        deadlines = Deadlines()
        cache = Cache[Outcome](0, 1, outcome_bytes, deadlines)
        corridor = Evaluator(_judges, NoBackend(), FairQueue(1, 10, deadlines), cache)
        submission: Submission | NoCode = NoCode()
        if source is not None:
            submission = Submission(source, ExecGrader(kind="exec"), LIMITS)
        caplog.clear()
        with caplog.at_level(level):
            asyncio.run(corridor.evaluate(Item("ev_1", submission, "me", "run", 1e9, **fields)))
        own = [record for record in caplog.records if record.name.startswith("proctor_service")]
        return [json.loads(JsonFormatter().format(record)) for record in own]

    return run


def test_details_are_a_record_and_texts_another(
    evaluated: Callable[..., list[dict[str, Any]]],
) -> None:
    details, texts = evaluated(
        logging.DEBUG, tags=("env:x",), rollout_id="ro_1", graded_sandbox_id="sb_0"
    )
    told = {key: details[key] for key in details if key not in ("time", "queue_seconds")}
    assert told == {
        "level": "debug", "logger": "proctor_service.evaluate", "message": "evaluated",
        "evaluation_id": "ev_1", "rollout_id": "ro_1", "graded_sandbox_id": "sb_0",
        "sandbox_id": "sb_1", "tenant": "me", "job": "run", "tags": ["env:x"], "grader": "exec",
        "verdict": "passed", "reward": 1.0, "exit_code": 0, "stdout_bytes": 60_000,
        "stderr_bytes": 4, "cpu_seconds": 0.5, "wall_seconds": 1.25, "cache": "miss",
    }  # fmt: skip
    assert texts["logger"] == "proctor_service.evaluate.texts"
    assert (texts["evaluation_id"], texts["source"], texts["stderr"]) == ("ev_1", SECRET, "seen")
    assert len(texts["stdout"]) == 20_000


def test_an_error_and_nothing_to_judge_are_details_too(
    evaluated: Callable[..., list[dict[str, Any]]],
) -> None:
    failed = evaluated(logging.DEBUG, "broken")[0]
    assert (failed["error"], "verdict" in failed, "reward" in failed) == (
        "invalid_task",
        False,
        False,
    )
    nothing = evaluated(logging.DEBUG, None)[0]
    assert (nothing["verdict"], nothing["reward"], "grader" in nothing) == ("no_code", 0.0, False)


def test_above_debug_no_line_holds_a_word_of_it(
    evaluated: Callable[..., list[dict[str, Any]]],
) -> None:
    assert evaluated(logging.INFO) == []


def test_a_line_is_whole_whatever_the_encoding_of_stderr() -> None:
    written = io.BytesIO()
    handler = logging.StreamHandler(io.TextIOWrapper(written, "ascii", write_through=True))
    handler.setFormatter(JsonFormatter())
    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "é \ud800 \x85", (), None))
    assert json.loads(written.getvalue())["message"] == "é ? \x85"
