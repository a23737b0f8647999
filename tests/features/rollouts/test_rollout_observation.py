"""What a policy is told, and how it is cut."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_client.wire import Failure
from proctor_service.errors import SandboxLost
from proctor_service.features.rollouts.observation import Observation, feedback, observe, tail
from proctor_service.judge.submission import Judgement
from proctor_service.sandbox.interface import Ended, Ending, Usage


def ended(ending: Ending = "exited", code: int | None = 0, **more: Any) -> Ended:
    fields = {"signal": None, "stdout": b"", "stderr": b"", "truncated": False, **more}
    return Ended(ending=ending, exit_code=code, usage=Usage(), **fields)


@given(text=st.text(max_size=600), budget=st.integers(min_value=0, max_value=700))
def test_a_text_keeps_its_end_within_the_budget(text: str, budget: int) -> None:
    cut = tail(text, budget)
    assert len(cut) <= max(budget, 0)
    if len(text) <= budget:
        assert cut == text
    elif cut:
        marker, _, end = cut.partition("]\n")
        assert text.endswith(end)
        assert marker == f"[… {len(text) - len(end)} characters cut …"


@given(status=st.text(max_size=300), output=st.text(max_size=600), budget=st.integers(256, 700))
def test_an_observation_fits_its_budget(status: str, output: str, budget: int) -> None:
    assert len(Observation(status, output).text(budget)) <= budget


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (ended(stdout=b"1\n"), "1\n"),
        (ended(), "(no output)"),
        (ended(stdout=b"1", stderr=b"warned\n"), "1\n[stderr]\nwarned\n"),
        (ended(stderr=b"warned"), "[stderr]\nwarned"),
        (ended(code=3, stdout=b"1\n"), "Exit code: 3\n1\n"),
        (ended(code=3), "Exit code: 3"),
        (ended("wall_limit", None), "Error: command timed out after 30 seconds"),
        (ended("cpu_limit", None, stdout=b"a"), "Error: command timed out after 30 seconds\na"),
        (ended("memory_limit", None), "Error: command used more memory than it may"),
        (ended("output_limit", None), "Error: command wrote more output than it may"),
        (ended("signalled", None, signal=signal.SIGSEGV), "Error: command died of SIGSEGV"),
        (ended("signalled", None, signal=63), "Error: command died of signal 63"),
        (ended(stdout=b"\xff\x00a"), "\\xff\x00a"),
        (
            ended(stdout=b"a", truncated=True),
            "[only the first 64 KB of each stream are kept]\na",
        ),
    ],
)
def test_how_a_command_went(how: Ended, text: str) -> None:
    seen = observe(how, 30.0, 64)
    assert seen.text(8192) == text
    assert seen.failed is (how.ending != "exited" or bool(how.exit_code))


def test_a_command_that_was_ended_from_outside_is_no_observation() -> None:
    with pytest.raises(SandboxLost):
        observe(ended("killed", None), 30.0, 64)


def test_feedback_says_what_the_judge_says() -> None:
    failures = (Failure(index=0, test="test 0", message="got 3"),)
    judgement = Judgement("failed", message="got 3", failures=failures, stderr="Traceback\nError\n")
    assert feedback(judgement, 8192) == (
        "The program failed the tests.\ngot 3\ntest 0: got 3\nstderr:\nTraceback\nError\n"
        "Fix it and answer with the whole program."
    )
    assert feedback(Judgement("no_code"), 8192) == (
        "The program failed: no code.\nFix it and answer with the whole program."
    )


@given(message=st.text(max_size=900), stderr=st.text(max_size=900), budget=st.integers(256, 1000))
def test_feedback_fits_its_budget_and_keeps_what_the_judge_says(
    message: str, stderr: str, budget: int
) -> None:
    text = feedback(Judgement("runtime_error", message=message, stderr=stderr), budget)
    assert len(text) <= budget
    assert text.startswith("The program failed: runtime error.")
    assert text.endswith("Fix it and answer with the whole program.")
    assert message[-50:] in text
