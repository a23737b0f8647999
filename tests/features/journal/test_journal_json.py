"""Stored JSON comes back in answers and requests, with any text and any number."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from journal_store import GRADER, HOSTILE, LIMITS, PASSED, Under, item
from pydantic_core import from_json

from proctor_client import wire
from proctor_client._answers import parse_model
from proctor_client.wire import CallsGrader, VerifierGrader, long_integers
from proctor_service.errors import NotFound, NotReplayable, SandboxLost
from proctor_service.features.journal.answering import answers
from proctor_service.features.journal.reading import parsed
from proctor_service.features.journal.replay import submission_of
from proctor_service.features.journal.rows import dump
from proctor_service.http.json import encode, joined, member
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Origin, Outcome, Trajectory, TrajectoryPlan, TrajectoryTask

ODD_TEXTS = (
    "\ud800", r"\ud800", r"\uD800", "\\", '\\"', "a\\", "\U0001f600", "\ud83dx", "x\ude00", "\t",
    "NaN", '"NaN"', "\tNaN", r"\\uD83d" "\ud83d", "한글\ud55c", "\\\ud900", "\0", "\u2028", HOSTILE,
)  # fmt: skip
ODD = (*ODD_TEXTS, math.nan, math.inf, -math.inf, 1.5, -0.0, 10**30, None, True)


def odd_value(chance: random.Random, depth: int = 0) -> Any:
    """A value of JSON as Python reads it."""
    kind = chance.random()
    if depth > 3 or kind < 0.5:
        return chance.choice(ODD)
    if kind < 0.75:
        return [odd_value(chance, depth + 1) for _ in range(chance.randint(0, 5))]
    return {
        chance.choice(ODD_TEXTS): odd_value(chance, depth + 1) for _ in range(chance.randint(0, 4))
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_stored_text_is_the_same_value(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        value = odd_value(chance)
        text = dump(value)
        assert text.isascii()
        assert json.dumps(json.loads(text)) == json.dumps(value)
        answered = encode({"value": json.loads(text)})
        json.loads(answered, parse_constant=pytest.fail)


def test_objects_are_joined() -> None:
    found = joined(b"{}", b'{"a":1}', member("b", b"[2]"), b"{}", b'{"c":{}}')
    assert json.loads(found) == {"a": 1, "b": [2], "c": {}}
    assert joined(b"{}") == b"{}"


def long_submission() -> Submission:
    cases = [{"args": [number, HOSTILE, math.nan], "expected": number} for number in range(2000)]
    fields = {"kind": "calls", "entry_point": "f", "cases": cases}
    grader = CallsGrader.model_validate(fields)
    files = {f"{number}.txt": HOSTILE for number in range(100)}
    return Submission("x = 1" + HOSTILE, grader, LIMITS, "fraction", files=files)


def written(under: Under) -> Submission:
    """Write an evaluation with long texts; return its submission."""
    submission = long_submission()
    judgement = Judgement(
        "failed", 1, 3,
        tuple(wire.Failure(index=n, test=HOSTILE, message="no") for n in range(12)),
        "1 of 3", HOSTILE, "cried", truncated=True,
    )  # fmt: skip
    under.write((item(1, submission=submission), Outcome(judgement, 0.5)))
    return submission


def test_an_evaluation_is_answered_whole(under: Under) -> None:
    submission = written(under)
    content = answers.detail(under.reader, "t", "ev_1")
    found = wire.EvaluationDetail.model_validate_json(content)
    plain = json.loads(encode(submission.grader.model_dump()))
    assert found.grader == plain
    assert found.files == json.loads(encode(dict(submission.files)))
    assert (found.message, found.error_message, found.stderr) == ("1 of 3", "", "cried")
    assert found.stdout == json.loads(encode({"x": HOSTILE}))["x"]
    assert (found.truncated, found.scoring, found.replayable) == (True, "fraction", True)
    assert [each.index for each in found.tests.failures] == list(range(10))
    assert (found.tests.passed, found.tests.total) == (1, 3)
    assert (found.limits or {})["memory_mb"] == 256
    assert len(json.loads(content)) == len(wire.EvaluationDetail.model_fields)


def test_a_record_has_compiler_options_and_integers_of_any_length(under: Under) -> None:
    cases = [{"args": [10**10_000], "expected": -(10**10_000)}]
    grader = CallsGrader.model_validate({"kind": "calls", "entry_point": "f", "cases": cases})
    compiler = wire.Compiler(standard="gnu11", defines=["N=5"])
    submission = Submission("x = 1", grader, LIMITS, language="c", compiler=compiler)
    under.write((item(1, submission=submission), Outcome(Judgement("passed", 1, 1), 1.0)))
    row = under.reader.evaluation("t", "ev_1")
    assert row is not None
    [asked] = long_integers.loads(answers.replay_request(under.reader, "t", "ev_1"))["submissions"]
    assert wire.Submission.model_validate(asked).compiler == compiler
    assert asked["grader"]["cases"][0]["expected"] == cases[0]["expected"]
    assert asked == submission_of(parsed(row))
    found = parse_model(wire.EvaluationDetail, answers.detail(under.reader, "t", "ev_1"))
    assert found.grader == asked["grader"]


def test_a_replay_of_a_verifier_has_the_completion_and_the_prompt(under: Under) -> None:
    grader = VerifierGrader(kind="verifier", source="def verify(completion): return 1")
    prompt = [{"role": "user", "content": "six by seven?"}]
    completions = {
        "Say:\n```python\nx = 42\n```": ("x = 42", "auto"),
        "42 of course": ("", "auto"),
        "y = 1": ("y = 1", "none"),
    }
    for number, (completion, (source, _)) in enumerate(completions.items()):
        submission = Submission(source, grader, LIMITS, completion=completion, prompt=prompt)
        origin = Origin(extract="auto", prompt="" if number else json.dumps(prompt))
        verdict: wire.Verdict = "passed" if source else "no_code"
        outcome = Outcome(Judgement(verdict, 1, 1), 1.0)
        under.write((item(number, submission=submission, origin=origin), outcome))
    for number, (completion, (_, rule)) in enumerate(completions.items()):
        request = json.loads(answers.replay_request(under.reader, "t", f"ev_{number}"))
        [asked] = request["submissions"]
        assert (asked["completion"], asked["extract"], asked["prompt"]) == (
            completion,
            rule,
            prompt,
        )
        assert asked["grader"]["source"] == grader.source
        assert wire.RewardRequest.model_validate(request).submissions[0].completion == completion


def test_a_verified_program_with_code_around_is_not_replayed(under: Under) -> None:
    grader = VerifierGrader(kind="verifier", source="def verify(code): return 1")
    submission = Submission("import math\nx = 42", grader, LIMITS, completion="x = 42")
    origin = Origin("x = 42", "auto")
    outcome = Outcome(Judgement("passed", 1, 1), 1.0)
    under.write((item(1, submission=submission, origin=origin), outcome))
    with pytest.raises(NotReplayable, match="code of its task around"):
        answers.replay_request(under.reader, "t", "ev_1")


def test_the_request_of_a_replay_has_what_was_judged(under: Under) -> None:
    submission = written(under)
    row = under.reader.evaluation("t", "ev_1")
    assert row is not None
    request = json.loads(answers.replay_request(under.reader, "t", "ev_1"))
    [asked] = request["submissions"]
    assert json.dumps(asked, sort_keys=True) == json.dumps(
        submission_of(parsed(row)), sort_keys=True
    )
    assert asked["completion"] == submission.source
    assert asked["files"] == submission.files
    assert (request["extract"], request["job"], request["cache"]) == ("none", "replay", False)
    assert wire.RewardRequest.model_validate_json(json.dumps({**request, "submissions": [
        {"completion": "x", "grader": {"kind": "exec"}}]})).cache is False  # fmt: skip


@pytest.mark.parametrize("error", [None, "sandbox_lost"])
def test_a_comparison_has_the_recorded_output(under: Under, error: str | None) -> None:
    outcome = PASSED if error is None else Outcome(failure=SandboxLost(HOSTILE))
    under.write((item(1), outcome))
    result: dict[str, Any] = {
        "verdict": None if error else "passed", "reward": None if error else 1.0, "message": "",
        "tests": {"passed": 1, "total": 1, "failures": []}, "integrity": "separated",
        "level": None, "hack_signals": [], "negative_control": None, "exit_code": None,
        "stdout": "", "stderr": "",
        "error": {"reason": error, "message": "again"} if error else None,
    }  # fmt: skip
    content = answers.compared(under.reader, "t", "ev_1", encode(result), "2.0")
    found = wire.Replay.model_validate_json(content)
    assert found.same
    assert found.recorded.message == (json.loads(encode({"x": HOSTILE}))["x"] if error else "")
    assert (found.recorded.version, found.replayed.version) == ("1.2.3", "2.0")
    assert found.replayed.message == ("again" if error else "")
    assert set(json.loads(content)["recorded"]) == set(json.loads(content)["replayed"])


def test_an_error_has_its_message_in_its_own_field(under: Under) -> None:
    under.write((item(1), Outcome(failure=SandboxLost('{"message": gone'))))
    found = json.loads(answers.detail(under.reader, "t", "ev_1"))
    assert (found["message"], found["error_message"]) == ("", '{"message": gone')
    assert (found["stdout"], found["stderr"], found["tests"]["failures"]) == ("", "", [])


def test_what_is_not_there_is_null(under: Under) -> None:
    under.entries = type(under.entries)(with_texts=False)
    under.write((item(1), PASSED))
    found = json.loads(answers.detail(under.reader, "t", "ev_1"))
    names = ("completion", "source", "grader", "message", "stdout", "error_message", "truncated")
    assert {name: found[name] for name in names} == dict.fromkeys(names)
    assert found["files"] == {}
    with pytest.raises(NotReplayable, match="PROCTOR_JOURNAL_TEXTS"):
        answers.replay_request(under.reader, "t", "ev_1")
    with pytest.raises(NotFound):
        answers.detail(under.reader, "u", "ev_1")


@pytest.mark.parametrize("with_texts", [True, False])
def test_a_rollout_is_answered_whole(under: Under, with_texts: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": HOSTILE, "logprob": -math.inf}] * 300
    task = TrajectoryTask("p1", [], GRADER, {})
    agent: Any = None
    plan = TrajectoryPlan(
        "ro_1", task, agent, LIMITS, "all", "auto", "t", "job", 0.0, ("a",), step=3
    )
    said = [*map(encode, messages)]
    trajectory = Trajectory(said, reward=1.0, verdict="passed", metrics={"turns": 2})
    under.store.write([type(under.entries)(with_texts).rollout(plan, trajectory)])
    under.write((replace(item(1), rollout_id="ro_1", origin=Origin("x = 1")), PASSED))
    found = wire.RolloutRecord.model_validate_json(answers.rollout(under.reader, "t", "ro_1"))
    expected = from_json(encode({"said": messages}))["said"]
    assert found.messages_and_choices == (expected if with_texts else None)
    assert found.error_message == ("" if with_texts else None)
    assert [each.id for each in found.evaluations] == ["ev_1"]
