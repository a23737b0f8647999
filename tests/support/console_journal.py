"""Journals for the tests of the console: a training run, and records in which everything is hostile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from journals import DOUBLE, FAILED, GRADER, LIMITS, PASSED, Evaluated

from proctor_client.wire import AssertsGrader, Failure, ToolsAgent
from proctor_service.errors import DeadlinePassed, JudgeFailed
from proctor_service.features.journal.entry import Entries, Record
from proctor_service.http.json import encode
from proctor_service.judge.submission import Judgement
from proctor_service.outcomes import Trajectory, TrajectoryPlan, TrajectoryTask
from proctor_service.sandbox.interface import Usage

JOB, OTHER_JOB = "run/17 a", "warm-up"
STEPS = 12
IN_STEP = 6
WRONG = "def double(n):\n    return n"
BASH = {
    "type": "function",
    "function": {"name": "bash", "description": "Run a command.", "parameters": {}},
}

RIGHT_ID, WRONG_ID, CHANGED_ID, NO_CODE_ID, LATE_ID, STATE_ID, CHEAT_ID = (
    f"ev_{number:032x}" for number in range(1, 8)
)
"""Evaluations of `special`."""


def special(tenant: str) -> list[Evaluated]:
    """Evaluations of each kind, in the job `warm-up`. The third was recorded with a wrong verdict."""
    usage = Usage(cpu_seconds=0.1, wall_seconds=0.15, peak_memory_mb=20.0)
    failed = FAILED
    cheat = Judgement("failed", 0, 2, hack_signals=("early_exit",), message="exited", usage=usage)
    no_code = Judgement("no_code", 0, 2, message="No code was found in the completion.")
    late = DeadlinePassed("the deadline passed")
    common: dict[str, Any] = {"tenant": tenant, "job": OTHER_JOB}
    said = f"I double it.\n```python\n{DOUBLE}\n```\nThat is all."
    return [
        Evaluated(1, completion=said, step=1, tags=("first", "warm"), **common),
        Evaluated(2, source=WRONG, judgement=failed, reward=0.0, step=1, task="task-x", **common),
        Evaluated(3, judgement=failed, reward=0.0, step=2, **common),
        Evaluated(
            4, judgement=no_code, reward=0.0, completion="I do not know.", no_code=True, **common
        ),
        Evaluated(5, judgement=None, reward=None, failure=late, **common),
        Evaluated(6, state=b"files", **common),
        Evaluated(
            7, judgement=cheat, reward=0.0, completion="a peculiar thought\n" + DOUBLE, **common
        ),
    ]


def training_run(tenant: str, first: int = 100) -> list[Evaluated]:
    """The job `run/17 a`: a few steps in which the model learns."""
    found = []
    for step in range(STEPS):
        for index in range(IN_STEP):
            is_right = (step * 5 + index * 7) % STEPS < step
            is_lost = step == 3 and index == 0
            judgement = PASSED if is_right else FAILED
            found.append(
                Evaluated(
                    first + step * IN_STEP + index,
                    source=DOUBLE if is_right else WRONG,
                    judgement=None if is_lost else judgement,
                    reward=None if is_lost else float(is_right),
                    failure=JudgeFailed("the judge failed") if is_lost else None,
                    step=step,
                    job=JOB,
                    tenant=tenant,
                    tags=("even",) if step % 2 == 0 else (),
                )
            )
    return found


def rollout(
    id_: str,
    messages: Sequence[Any],
    *,
    tenant: str,
    job: str = OTHER_JOB,
    task: str = "task-1",
    tags: tuple[str, ...] = ("agent",),
    tools: Sequence[Any] = (BASH,),
    failure: str | None = None,
) -> Record:
    """The record of a rollout."""
    plan = TrajectoryPlan(
        id_,
        TrajectoryTask(task, [], GRADER, {}),
        ToolsAgent(kind="tools"),
        LIMITS,
        "all",
        "auto",
        tenant,
        job,
        0.0,
        tags,
        step=3,
    )
    if failure is None:
        played = Trajectory(
            [*map(encode, messages)], tools, 1.0, "passed", None, {"turns": 2.0}, "sb_1"
        )
    else:
        played = Trajectory([*map(encode, messages)], tools, failure=JudgeFailed(failure))
    return Entries(True).rollout(plan, played)


def conversation(text: str = "Write double(n).", call: str = "ls") -> list[dict[str, Any]]:
    """Messages and choices of a rollout with a tool call."""
    asked = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": call}}
    return [
        {"role": "system", "content": "You write Python."},
        {"role": "user", "content": text},
        {
            "finish_reason": "tool_calls",
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [asked]},
        },
        {"role": "tool", "tool_call_id": "c1", "content": "solution.py"},
        {
            "finish_reason": "stop",
            "index": 0,
            "message": {"role": "assistant", "content": "Done: solution.py"},
        },
    ]


def hostile_evaluations(number: int, text: str, tenant: str) -> list[Evaluated]:
    """An evaluation that failed, and one with an error: all texts of both are this one."""
    # For what the service itself says.
    anything: Any = text if text.isprintable() else "anything"
    rollout_id = {"rollout_id": f"ro_{number:032x}"}
    sandbox = {"graded_sandbox_id": anything}
    judgement = Judgement(
        "failed",
        0,
        2,
        (Failure(index=0, test=text, message=text), Failure(index=1, test=text, message=text)),
        text,
        text,
        text,
        truncated=True,
        level=anything,
        integrity=anything,
        hack_signals=(text,),
        sandbox_id=anything,
    )
    common: dict[str, Any] = {
        "source": text,
        "completion": f"{text}\n{text}",
        "grader": AssertsGrader(kind="asserts", tests=[text, text]),
        "job": text,
        "tenant": tenant,
        "tags": (text, f"{text} {text}"),
        "task": text,
        "submission_id": text,
    }
    failed = Evaluated(
        2 * number, judgement=judgement, reward=0.0, step=1, more=rollout_id, **common
    )
    failure = JudgeFailed(text)
    lost = Evaluated(2 * number + 1, judgement=None, reward=None, failure=failure, step=2, **common)
    return [failed, replace(lost, more=sandbox)]


def hostile_rollout(number: int, texts: Sequence[str], tenant: str) -> Record:
    """A rollout all of whose texts are these: its names are the first one."""
    named = texts[0]
    return rollout(
        f"ro_{number:032x}",
        [message for text in texts for message in _hostile_messages(text)],
        tenant=tenant,
        job=named,
        task=named,
        tags=(named,),
        tools=[
            {"type": each, "function": {"name": each, "description": each, "parameters": {}}}
            for each in texts
        ],
        failure=named,
    )


def _hostile_messages(text: str) -> list[dict[str, Any]]:
    call = {"id": text, "type": text, "function": {"name": text, "arguments": text}}
    return [
        {"role": "system", "content": text},
        {"role": "user", "content": [{"type": "text", "text": text}, {"type": text, text: text}]},
        {
            "finish_reason": text,
            "index": 0,
            "message": {
                "role": "assistant",
                "content": text,
                "reasoning_content": text,
                "tool_calls": [call],
                text: text,
            },
        },
        {"role": "tool", "tool_call_id": text, "content": text},
        {"role": text, "content": text, "name": text},
        {text: text},
        {"role": "assistant", "content": {text: [text]}, "tool_calls": text},
        {"message": text},
    ]
