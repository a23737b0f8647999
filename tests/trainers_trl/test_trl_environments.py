"""GRPO over several turns: tools in a sandbox for each rollout, and the reward from how it was left."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grpo_training import GENERATIONS, expected_advantages, trained
from recorded_steps import recorded_steps
from service_process import ServiceProcess
from trl import GRPOTrainer

from proctor_client import Client
from proctor_trainers.trl import environment_factory
from proctor_trainers.trl.toolbox import Tool

NAMES = "abcdefg"
ROWS = [
    {
        "prompt": [{"role": "user", "content": f"Write a function {name}(n) that doubles n."}],
        "tests": [f"assert {name}(2) == 4", f"assert {name}(5) == 10"],
    }
    for name in NAMES
]
CONFIG = {"max_completion_length": 1200, "logging_steps": 5}
TOOLS: tuple[Tool, ...] = ("execute_code", "bash", "read_file", "write_file", "submit_solution")
Turn = dict[str, Any] | str


def call(tool: str, **arguments: str) -> Turn:
    return {"name": tool, "arguments": arguments}


def episode(name: str, rollout: int) -> tuple[list[Turn], float]:
    """What the policy does in a rollout, turn by turn, and what that is worth."""
    right, wrong = f"def {name}(n):\n    return 2 * n\n", f"def {name}(n):\n    return n + 2\n"
    write = call("execute_code", code=f"open('solution.py', 'w').write({right!r})")
    match rollout:
        case 0:
            return [call("submit_solution", code=f"```python\n{right}```")], 1.0
        case 1 if name in "aceg":
            check = call("bash", command=f"python -c 'import solution; print(solution.{name}(3))'")
            return [call("write_file", path="note.txt", content=name), write, check, "Done."], 1.0
        case 1:
            return [write, call("write_file", path="solution.py", content=wrong), "Done."], 0.0
        case 2:
            hang = call("bash", command="sleep 60")
            late = call("submit_solution", code=right)
            return [hang, call("submit_solution", code=wrong), late, "Done."], 0.0
        case _:
            return ["I do not know."], 0.0


def scripted(heard: list[str]) -> type[Any]:
    """A trainer whose model says what the episodes say; `heard` gets what it was told at the end."""

    class Scripted(GRPOTrainer):  # type: ignore[misc]
        def _generate_single_turn(self, prompt_ids: Any, *more: Any, **rest: Any) -> Any:
            texts = [self._tokenizer.decode(ids) for ids in prompt_ids]
            heard.extend(texts)
            said = [
                self._say(text, place % GENERATIONS if "(rollout" not in text else None)
                for place, text in enumerate(texts)
            ]
            return [self._tokenizer.encode(each, add_special_tokens=False) for each in said], None

        def _say(self, text: str, rollout: int | None) -> str:
            name = text.partition("Write a function ")[2][0]
            if rollout is None:
                rollout = int(text.partition("(rollout ")[2][0])
            turn = text.count("<|im_start|>assistant\n") - 1
            turns, _ = episode(name, rollout)
            said = turns[turn] if turn < len(turns) else "Done."
            if isinstance(said, dict):
                said = f"<tool_call>\n{json.dumps(said)}\n</tool_call>"
            return f"(rollout {rollout})\n{said}<|im_end|>"

    return Scripted


def worths(prompts: list[Any]) -> list[float]:
    names = [prompt[-1]["content"].partition("function ")[2][0] for prompt in prompts]
    return [episode(name, place % GENERATIONS)[1] for place, name in enumerate(names)]


def test_twenty_steps_on_what_the_sandboxes_were_left_with(
    service: ServiceProcess, tokenizer: Any
) -> None:
    heard: list[str] = []
    factory = environment_factory(
        service.url, tools=TOOLS, exec_timeout_seconds=0.3, tags=["run-7"]
    )
    with (
        Client(service.url) as client,
        factory,
        trained(
            ROWS,
            tokenizer,
            steps=20,
            kind=scripted(heard),
            config=CONFIG,
            environment_factory=factory,
        ) as (trainer, steps),
    ):
        assert client.count_active().total == 0  # before the factory is closed
        assert len(client.sandboxes(tags=["trl-grpo", "run-7"])) == 20 * 8
        assert len(steps) == 20
        for step in steps:
            assert step.rewards == worths(step.prompts)
            assert step.advantages == pytest.approx(expected_advantages(step.rewards), abs=1e-5)
        assert {reward for step in steps for reward in step.rewards} == {0.0, 1.0}
        [*_, last] = [log for log in trainer.state.log_history if "tools/call_frequency" in log]
        assert last["tools/failure_frequency"] == 0.0
    told = "\n".join(heard)
    for text in ("Submitted.", "Wrote 1 bytes.", "\n6\n", "timed out after 0.3 seconds", "is over"):
        assert text in told


def test_rollouts_of_a_service_that_was_killed_have_no_reward(
    service: ServiceProcess, tokenizer: Any
) -> None:
    heard: list[str] = []
    acts: dict[int, Callable[[], None]] = {2: service.kill, 4: service.start}
    with (
        Client(service.url) as client,
        environment_factory(
            service.url, tools=TOOLS, retry_seconds=0, exec_timeout_seconds=0.3
        ) as factory,
        trained(
            ROWS,
            tokenizer,
            steps=6,
            kind=scripted(heard),
            then=lambda step: acts.get(step, lambda: None)(),
            config={**CONFIG, "max_tool_calling_iterations": 1},
            environment_factory=factory,
        ) as (_, steps),
    ):
        assert [step.masked for step in steps] == [False, False, True, True, False, False]
        for number in (2, 3):
            assert steps[number].parameters == steps[number - 1].parameters
        assert not any(math.isnan(each) for step in steps[4:] for each in step.rewards)
        assert client.count_active().total == 0
    assert "Error: the sandbox cannot be used" in "\n".join(heard)


def test_the_journal_has_the_step_of_each_reward(tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "journal.db"
    with ServiceProcess(PROCTOR_JOURNAL=f"sqlite:///{path}") as service:
        factory = environment_factory(service.url, tools=TOOLS, exec_timeout_seconds=0.3)
        with (
            factory,
            trained(
                ROWS,
                tokenizer,
                steps=2,
                kind=scripted([]),
                config=CONFIG,
                callbacks=[factory.callback()],
                environment_factory=factory,
            ) as (_, steps),
        ):
            assert len(steps) == 2
        assert recorded_steps(service.url, path) == {0: 8, 1: 8}
