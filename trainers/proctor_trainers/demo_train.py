"""`python -m proctor_trainers.demo_train`: train a tiny policy by rewards, and watch the reward rise.

The policy is a table of logits, so training works without a model, a data set and a GPU. All
else is as in a real training: each step sends the completions of all groups in a request, and learns
from the rewards alone.

Without `--url` or PROCTOR_URL, the demo starts a service of its own, which needs proctor-service,
installed beside this package.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor_client import Client, ProctorError
from proctor_trainers.addresses import Unreachable
from proctor_trainers.demo import service
from proctor_trainers.tiny_policy import TASKS, Sample, Task, TinyPolicy

LEARNING_RATE = 1.0
PLOT_ROWS, PLOT_COLUMNS, BAR_COLUMNS = 10, 60, 30
_EIGHTHS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Step:
    """Figures of a step: means over its judged completions, and the number of unjudged completions."""

    reward: float
    cheating_share: float
    judged: int
    unjudged: int


def train(
    client: Client, *, steps: int, group_size: int, seed: int, job: str, say: Callable[[Step], None]
) -> list[Step]:
    """Train a new policy; `say` gets each finished step. Raises ProctorError."""
    policy = TinyPolicy(TASKS, learning_rate=LEARNING_RATE, seed=seed)
    done: list[Step] = []
    for number in range(steps):
        groups = [(task, [policy.sample(task) for _ in range(group_size)]) for task in TASKS]
        rewards = _rewards(client, groups, job, number)
        for task, group in groups:
            policy.learn(task, group, [rewards[task.name, place] for place in range(len(group))])
        samples = [sample for _, group in groups for sample in group]
        done.append(_step(samples, list(rewards.values())))
        say(done[-1])
    return done


def _rewards(
    client: Client, groups: Sequence[tuple[Task, Sequence[Sample]]], job: str, step: int
) -> dict[tuple[str, int], float | None]:
    """Return the reward of each completion, by task and place in the group, in this order."""
    places = [(task, place) for task, group in groups for place in range(len(group))]
    submissions = [
        {
            "completion": sample.completion,
            "grader": {"kind": "asserts", "tests": list(task.tests)},
        }
        for task, group in groups
        for sample in group
    ]
    results = client.reward(submissions, job=job, step=step).results
    return {
        (task.name, place): result.reward
        for (task, place), result in zip(places, results, strict=True)
    }


def _step(samples: Sequence[Sample], rewards: Sequence[float | None]) -> Step:
    judged = [reward for reward in rewards if reward is not None]
    return Step(
        reward=math.fsum(judged) / len(judged) if judged else math.nan,
        cheating_share=sum(sample.cheats for sample in samples) / len(samples),
        judged=len(judged),
        unjudged=len(rewards) - len(judged),
    )


# ---------------------------------------------------------------- on the screen


class Progress:
    """A bar in a line of a terminal; elsewhere a line for each tenth of the steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._live = sys.stdout.isatty()

    def say(self, step: Step) -> None:
        """Show the end of a further step."""
        self._done += 1
        full = BAR_COLUMNS * self._done // self._steps
        line = (
            f"step {self._done:3}/{self._steps} [{'#' * full:<{BAR_COLUMNS}}] "
            f"reward {step.reward:.2f}  cheating {step.cheating_share:4.0%}"
        )
        line += f"  not judged {step.unjudged}" if step.unjudged else ""
        if self._live:
            print(f"\r{line}\x1b[K", end="\n" if self._done == self._steps else "", flush=True)
        elif self._done in (1, self._steps) or not self._done % max(1, self._steps // 10):
            print(line, flush=True)


def plot(rewards: Sequence[float]) -> list[str]:
    """Return lines with a column for each part of the training, from 0.0 to 1.0."""
    judged = [reward for reward in rewards if not math.isnan(reward)]
    columns = min(PLOT_COLUMNS, len(judged))
    bounds = [len(judged) * column // columns for column in range(columns + 1)] if judged else []
    means = [mean(judged[a:b]) for a, b in itertools.pairwise(bounds)]
    lines = []
    for row in reversed(range(PLOT_ROWS)):
        label = {PLOT_ROWS - 1: "1.0", 0: "0.0"}.get(row, "")
        eighths = [round((value * PLOT_ROWS - row) * 8) for value in means]
        lines.append(f"{label:>4} │" + "".join(_EIGHTHS[min(8, max(0, each))] for each in eighths))
    return [
        *lines,
        "     └" + "─" * columns,
        f"      mean reward of each step, 1 to {len(rewards)}",
    ]


def mean(values: Sequence[float]) -> float:
    """Return the mean of some values."""
    return math.fsum(values) / len(values)


def summary(done: Sequence[Step]) -> str:
    """Return a line with the mean reward of the first and of the last tenth of the steps."""
    rewards = [step.reward for step in done if step.judged]
    if not rewards:
        return "No completion was judged."
    tenth = max(1, len(rewards) // 10)
    judged = sum(step.judged for step in done)
    return (
        f"Mean reward: {mean(rewards[:tenth]):.3f} in the first tenth of the steps, "
        f"{mean(rewards[-tenth:]):.3f} in the last. {judged} completions were judged."
    )


# ---------------------------------------------------------------- the command


def main(arguments: argparse.Namespace) -> int:
    """Train and show. Returns the exit status: 0 after any judged completion."""
    job = f"demo-train-{time.strftime('%Y%m%d-%H%M%S')}"
    with service(arguments.url, journal=True) as running:
        print(f"{len(TASKS)} tasks, {arguments.group_size} completions of each in a step.")
        print(f"Charts: {running.url}/console/jobs/{job}{running.sign_in}", flush=True)
        done = train(
            running.client,
            steps=arguments.steps,
            group_size=arguments.group_size,
            seed=arguments.seed,
            job=job,
            say=Progress(arguments.steps).say,
        )
        print("\n".join(["", *plot([step.reward for step in done]), "", summary(done)]), flush=True)
        if running.is_temporary and sys.stdin.isatty() and sys.stdout.isatty():
            input("The charts are there until you press Enter. ")
    return 0 if any(step.judged for step in done) else 1


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the demo with its arguments; a user error prints a line instead of a traceback."""
    parser = argparse.ArgumentParser(
        prog="python -m proctor_trainers.demo_train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--url", help="a service that runs (default: PROCTOR_URL, or one of its own)"
    )
    parser.add_argument("--steps", type=_count, default=100, help="default: %(default)s")
    parser.add_argument("--group-size", type=_count, default=8, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    try:
        return main(parser.parse_args(arguments))
    except (Unreachable, ProctorError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, EOFError):
        print()
        return 130


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError("expected a whole number from 1 to 10000")
    return int(text)


if __name__ == "__main__":
    sys.exit(run())
