"""`python -m proctor_trainers.trl`: GRPO with TRL, with rewards from a running service."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from proctor_trainers.addresses import check_service
from proctor_trainers.extras import require
from proctor_trainers.grpo import (
    add_arguments,
    config_fields,
    dataset_of,
    naming_mistakes,
    problems_of,
    run_script,
    train,
)
from proctor_trainers.problems import AGENT, ANSWER
from proctor_trainers.trl import environment_factory, reward_function
from proctor_trainers.trl.toolbox import Tool

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
TOOLS = (
    "You are an expert Python programmer. Solve the task with the tools you have. They work in one "
    "sandbox, which keeps its files from call to call. Test your solution before you finish. When "
    "you are done, call submit_solution with the whole program."
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the script's arguments."""
    made = argparse.ArgumentParser(
        prog="python -m proctor_trainers.trl",
        description="Train a model by GRPO with TRL; every completion is judged by Proctor.",
    )
    add_arguments(made, model=MODEL)
    made.add_argument(
        "--tiny",
        action="store_true",
        help="a random model made on the spot, in place of --model: no download, no GPU",
    )
    made.add_argument(
        "--tools",
        action="store_true",
        help="let the model call tools in a sandbox of its own, over several turns",
    )
    return made


def main(args: argparse.Namespace) -> None:
    """Train as the arguments say."""
    require("trl", "trl", "torch", "transformers", "datasets")
    check_service(args.url)
    problems = problems_of(args, "trl")
    if args.tiny:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if args.tools:
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

    import torch
    from trl import GRPOConfig, GRPOTrainer

    has_gpu = torch.cuda.is_available()
    tags = [f"model:{'tiny' if args.tiny else Path(args.model).name}"]
    with tempfile.TemporaryDirectory(prefix="proctor-trl-") as unsaved, ExitStack() as stack:
        repositories = all(problem.is_repository for problem in problems)
        system = (AGENT if repositories else TOOLS) if args.tools else ANSWER
        if args.tools:
            tools: tuple[Tool, ...] = ("bash", "read_file", "write_file")
            more: dict[str, Any] = {"tools": tools} if repositories else {}
            environments = stack.enter_context(environment_factory(args.url, tags=tags, **more))
            judged: dict[str, Any] = {
                "environment_factory": environments,
                "callbacks": [environments.callback()],
            }
        else:
            judged = {"reward_funcs": reward_function(args.url, tags=tags)}
        with naming_mistakes(args.model, "give --model a local path, or take --tiny"):
            config = GRPOConfig(
                **config_fields(args, args.output_dir or unsaved),
                use_cpu=not has_gpu,
                bf16=has_gpu and torch.cuda.is_bf16_supported(),
            )
            data = dataset_of(problems, system)
            trainer = GRPOTrainer(args=config, train_dataset=data, **_model(args), **judged)
        train(trainer, args)


def _model(args: argparse.Namespace) -> dict[str, Any]:
    if not args.tiny:
        return {"model": args.model}
    from proctor_trainers.trl.tiny import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer()
    return {"model": tiny_model(tokenizer, args.seed), "processing_class": tokenizer}


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the script and return its exit status."""
    return run_script(main, parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(run())
