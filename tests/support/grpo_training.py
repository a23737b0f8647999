"""Training with the tiny model, and what TRL trained on: read off the trainer, step by step."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from adapter_calls import Case, cases
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from proctor_client import wire
from proctor_trainers.trl.tiny import tiny_model

ROWS = [{"prompt": f"Say something about {name}.", "salt": name} for name in "abcdefg"]
JUDGE = (
    "import hashlib, sys; text = open('solution.py', 'rb').read(); "
    "sys.exit(hashlib.sha256(sys.argv[1].encode() + text).digest()[0] % 2)"
)
GENERATIONS = 4
PROMPTS_A_STEP = 2


@dataclass(frozen=True)
class Step:
    """What one step was trained on. A reward that was None is NaN here."""

    prompts: list[Any]
    completions: list[Any]
    by_function: dict[str, list[float]]
    advantages: list[float]
    parameters: bytes

    @property
    def rewards(self) -> list[float]:
        return self.by_function["proctor"]

    @property
    def masked(self) -> bool:
        return all(math.isnan(reward) for reward in self.rewards)


@dataclass
class Watch(TrainerCallback):  # type: ignore[misc]
    """Notes each step, and calls `then` with its number once it is done."""

    then: Callable[[int], None] = lambda step: None
    steps: list[Step] = field(default_factory=list)
    trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        logs = self.trainer._logs
        self.steps.append(
            Step(
                list(logs["prompt"]),
                list(logs["completion"]),
                {name: list(rewards) for name, rewards in logs["rewards"].items()},
                list(logs["advantages"]),
                fingerprint(self.trainer.model),
            )
        )
        self.then(state.global_step)


def fingerprint(model: Any) -> bytes:
    """Changes when a parameter does."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.digest()


@contextmanager
def trained(
    rows: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    *,
    steps: int,
    kind: Any = GRPOTrainer,
    then: Callable[[int], None] = lambda step: None,
    config: Mapping[str, Any] | None = None,
    prepare: Callable[[Any], None] = lambda model: None,
    callbacks: Sequence[Any] = (),
    **fields: Any,
) -> Iterator[tuple[Any, list[Step]]]:
    """The trainer after so many steps, and the steps. Plain SGD: without a gradient nothing moves."""
    watch = Watch(then)
    model = tiny_model(tokenizer)
    prepare(model)
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model=model,
            processing_class=tokenizer,
            args=GRPOConfig(
                **{
                    "output_dir": folder,
                    "max_steps": steps,
                    "num_generations": GENERATIONS,
                    "per_device_train_batch_size": GENERATIONS * PROMPTS_A_STEP,
                    "max_completion_length": 24,
                    "learning_rate": 0.1,
                    "optim": "sgd",
                    "use_cpu": True,
                    "bf16": False,
                    "report_to": [],
                    "save_strategy": "no",
                    "logging_steps": 1,
                    "disable_tqdm": True,
                    "seed": 3,
                    **(config or {}),
                }
            ),
            train_dataset=Dataset.from_list(list(rows)),
            callbacks=[watch, *callbacks],
            **fields,
        )
        watch.trainer = trainer
        trainer.train()
        assert torch.isfinite(next(trainer.model.parameters())).all()
        yield trainer, watch.steps


def rewards_by(trainer: Any, told: Sequence[Case]) -> list[float]:
    """What a trainer's own call of its one reward function makes of the completions."""
    inputs = [{"prompt": case.prompt, "tests": case.tests} for case in told]
    scores = trainer._calculate_rewards(
        inputs,
        [case.prompt for case in told],
        [case.completion for case in told],
        [[1]] * len(told),
    )
    assert scores.shape == (len(told), 1)
    values: list[float] = scores[:, 0].tolist()
    return values


def check_right_and_wrong(trainer: Any, kill: Callable[[], None]) -> None:
    """64 right and 64 wrong completions have their rewards, and none where the service is gone."""
    told = cases()
    assert rewards_by(trainer, told) == [case.reward for case in told]
    kill()
    assert all(math.isnan(reward) for reward in rewards_by(trainer, told))


def expected_advantages(rewards: Sequence[float]) -> list[float]:
    """GRPO's, by the book: within each group, of what was judged; 0 for what was not."""
    found: list[float] = []
    for begin in range(0, len(rewards), GENERATIONS):
        group = rewards[begin : begin + GENERATIONS]
        judged = [each for each in group if not math.isnan(each)]
        if not judged:
            found += [0.0] * len(group)
            continue
        mean = sum(judged) / len(judged)
        spread = sum((each - mean) ** 2 for each in judged) / max(len(judged) - 1, 1)
        deviation = math.sqrt(spread) + 1e-4
        found += [0.0 if math.isnan(each) else (each - mean) / deviation for each in group]
    return found


def worth(salt: str, completion: str) -> float:
    """What JUDGE makes of a completion: as good as by chance, and told by prompt and text alone."""
    if not completion.strip():
        return 0.0
    text = completion.encode("utf-8", "replace")
    return 1.0 - hashlib.sha256(salt.encode() + text).digest()[0] % 2


def by_hash(row: Any) -> dict[str, Any]:
    """A task whose grader depends on the row: a reward in another's place would be found out."""
    argv = ["python", "-c", JUDGE, row["salt"]]
    return {"grader": {"kind": "command", "argv": argv}}


def check_step(step: Step) -> None:
    """The rewards are those that the completions are worth, and the advantages follow from them."""
    salts = [prompt.removesuffix(".")[-1] for prompt in step.prompts]
    for begin in range(0, len(salts), GENERATIONS):
        assert len(set(salts[begin : begin + GENERATIONS])) == 1
    for salt, completion, reward in zip(salts, step.completions, step.rewards, strict=True):
        assert reward == worth(salt, completion), (salt, completion)
    assert step.advantages == pytest.approx(expected_advantages(step.rewards), abs=1e-5)


def some_fail(submission: wire.Submission) -> wire.ItemError | float:
    """A judge that fails for a third of all completions."""
    digest = hashlib.sha256(str(submission.completion).encode()).digest()
    if digest[1] % 3 == 0:
        return wire.ItemError(reason="sandbox_lost", message="gone", retryable=True)
    return float(digest[0] % 2)
