"""verifiers' own tasks, scored as its rollouts score them: rewards, and errors without a reward."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from adapter_calls import DOWN, Case, cases
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import AssistantMessage
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type


@pytest.fixture
def taskset_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a module as a user writes one."""
    module = "from proctor_trainers.verifiers import ProctorTaskset\n__all__ = ['ProctorTaskset']\n"
    (tmp_path / "proctor_tasks.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    return "proctor-tasks"


def tasks(taskset_id: str, told: list[Case], folder: Path, **config: Any) -> list[Any]:
    rows = folder / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"text": case.prompt, "tests": case.tests}) + "\n" for case in told)
    )
    made = taskset_config_type(taskset_id)(id=taskset_id, dataset=str(rows), task=config)
    return list(load_taskset(made))


def trace_of(task: Any, case: Case) -> Any:
    answer = MessageNode(message=AssistantMessage(content=case.completion), sampled=True)
    return Trace(
        task=TraceTask(type=type(task).__name__, data=task.data),
        agent=AgentInfo(config=vf.AgentConfig()),
        nodes=[answer],
    )


def test_right_and_wrong_answers(url: str, taskset_id: str, tmp_path: Path) -> None:
    told = cases()
    made = tasks(taskset_id, told, tmp_path, url=url)
    traces = [trace_of(task, case) for task, case in zip(made, told, strict=True)]

    async def scored() -> None:
        await asyncio.gather(*(task.score(trace) for task, trace in zip(made, traces, strict=True)))

    asyncio.run(scored())
    assert [trace.reward for trace in traces] == [case.reward for case in told]
    assert {trace.info["proctor_verdict"] for trace in traces} == {"passed", "failed"}
    assert "add_0" in made[0].data.prompt
    assert "<answer>" in made[0].data.system_prompt


def test_a_service_that_is_down_is_an_error_without_a_reward(
    taskset_id: str, tmp_path: Path
) -> None:
    [case] = cases(1)
    [task] = tasks(taskset_id, [case], tmp_path, url=DOWN, retry_seconds=0)
    trace = trace_of(task, case)
    with pytest.raises(vf.TaskError):
        asyncio.run(task.score(trace))
    assert trace.rewards == {"tests_passed": None}


def test_the_tests_are_not_in_the_prompt(taskset_id: str, tmp_path: Path) -> None:
    [case] = cases(1)
    [task] = tasks(taskset_id, [case], tmp_path)
    assert case.tests[1] not in task.data.prompt_text
    assert case.tests[1] in task.data.task_fields
