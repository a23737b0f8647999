"""GRPO on SWE-smith with TRL: the policy repairs planted bugs by tools, in each row's own image.

Before it, fetch the images and keep the rows that are fit for training:

    proctor env pull --rows rows.jsonl --form swe_smith
    proctor audit rows.jsonl --form swe_smith --fit fit.jsonl
    python trainers/examples/swe_smith.py fit.jsonl --model Qwen/Qwen3-4B

With `--show`, it prints the first task in place of training.
"""

from __future__ import annotations

import argparse
import json
import sys

from proctor_trainers.problems import AGENT, load_problems


def main() -> None:
    """Train on a file of rows."""
    parser = argparse.ArgumentParser(description="GRPO on SWE-smith's rows with TRL.")
    parser.add_argument("rows", help="JSON lines of SWE-bench/SWE-smith")
    parser.add_argument("--model", default="Qwen/Qwen3-4B")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--show", action="store_true", help="print the first task, and end")
    args = parser.parse_args()
    problems = load_problems(args.rows, form="swe_smith")
    if args.show:
        json.dump(problems[0].rollout_task(), sys.stdout, indent=1)
        return

    import datasets
    from trl import GRPOConfig, GRPOTrainer

    from proctor_trainers.trl import environment_factory
    from proctor_trainers.trl.toolbox import Tool

    rows = datasets.Dataset.from_list([problem.row(AGENT) for problem in problems])
    config = GRPOConfig(max_steps=args.steps, num_generations=8, max_completion_length=8192)
    tools: tuple[Tool, ...] = ("bash", "read_file", "write_file")
    with environment_factory(tools=tools, exec_timeout_seconds=300) as environments:
        trainer = GRPOTrainer(
            model=args.model,
            args=config,
            train_dataset=rows,
            environment_factory=environments,
            callbacks=[environments.callback()],
        )
        trainer.train()


if __name__ == "__main__":
    main()
