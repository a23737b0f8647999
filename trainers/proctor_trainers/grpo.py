"""Shared parts of the scripts for TRL and Unsloth: arguments, data set, and messages.

Both scripts pass these to TRL's GRPOTrainer. This module imports torch only after the checks of the
arguments and the service.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from proctor_client import ProctorError
from proctor_client.tasks.forms import Format
from proctor_client.tasks.supplies import Supplies
from proctor_client.tasks.task import DatasetError
from proctor_trainers.addresses import DEFAULT_URL, Unreachable
from proctor_trainers.extras import MissingExtra, ignore_warnings_of_packages, require
from proctor_trainers.problems import Problem, load_problems
from proctor_trainers.rewards import RewardsUnavailable


class BadArguments(ValueError):
    """Raised for conflicting arguments, and for a model with a failed load."""


MISTAKES = (
    BadArguments,
    DatasetError,
    MissingExtra,
    ProctorError,
    RewardsUnavailable,
    Unreachable,
)


def add_arguments(parser: argparse.ArgumentParser, *, model: str) -> None:
    """Add the arguments of both scripts."""
    add = parser.add_argument
    add("--model", default=model, help="a name on the hub, or a local path (default: %(default)s)")
    add("--steps", type=_positive, default=100, help="optimizer steps (default: %(default)s)")
    add(
        "--dataset",
        default="toy",
        help="toy, mbpp, a file of JSON lines in MBPP's form, or a data set on the hub "
        "(default: %(default)s)",
    )
    add(
        "--form",
        choices=get_args(Format),
        metavar="FORM",
        help="what the rows of --dataset are, such as swe_smith; default: as their columns say",
    )
    add("--dataset-split", default="train", help="split of a data set on the hub (default: train)")
    add("--dataset-limit", type=_positive, help="take so many problems only (default: all)")
    add("--testlib", type=Path, help="testlib.h, for checkers that include it and bring none")
    add(
        "--url",
        help=f"the service (default: PROCTOR_URL, or {DEFAULT_URL}); PROCTOR_TOKEN is its token",
    )
    add(
        "--report-to",
        default="none",
        help="wandb, tensorboard or another that transformers knows (default: %(default)s)",
    )
    add("--num-generations", type=_positive, default=8, help="completions a prompt (default: 8)")
    add(
        "--batch-size",
        type=_positive,
        default=8,
        help="completions a step, on each device (default: 8)",
    )
    add("--max-completion-length", type=_positive, default=256, help="tokens (default: 256)")
    add("--learning-rate", type=float, default=1e-6, help="(default: %(default)s)")
    add("--seed", type=int, default=42, help="(default: %(default)s)")
    add("--output-dir", help="save the model there at the end (default: it is not saved)")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return number


def problems_of(args: argparse.Namespace, extra: str) -> list[Problem]:
    """Load the requested problems. Raises DatasetError, and MissingExtra for them or for wandb."""
    if args.report_to == "wandb":
        require("wandb", "wandb")
    try:
        testlib = None if args.testlib is None else args.testlib.read_text(encoding="utf-8")
    except OSError as error:
        raise DatasetError(f"--testlib: {args.testlib}: {error.strerror}") from None
    return load_problems(
        args.dataset,
        split=args.dataset_split,
        limit=args.dataset_limit,
        extra=extra,
        supplies=Supplies(testlib),
        form=args.form,
    )


def dataset_of(problems: Sequence[Problem], system: str | None) -> Any:
    """Return the problems as a datasets.Dataset."""
    import datasets

    return datasets.Dataset.from_list([problem.row(system) for problem in problems])


def config_fields(args: argparse.Namespace, output_dir: str) -> dict[str, Any]:
    """Return the fields of a GRPOConfig."""
    return {
        "output_dir": output_dir,
        "max_steps": args.steps,
        "num_generations": args.num_generations,
        "per_device_train_batch_size": args.batch_size,
        "max_completion_length": args.max_completion_length,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
        "report_to": [] if args.report_to == "none" else [args.report_to],
        "logging_steps": max(1, args.steps // 10),
        "save_strategy": "no",
    }


@contextmanager
def naming_mistakes(model: str, hint: str) -> Iterator[None]:
    """Raise BadArguments if TRL rejects its arguments, or if the model fails to load."""
    try:
        yield
    except ValueError as error:
        raise BadArguments(str(error)) from None
    except OSError as error:
        raise BadArguments(f"the model {model} could not be loaded: {error}\n{hint}") from None


def train(trainer: Any, args: argparse.Namespace) -> None:
    """Train, save the model if requested, and print a summary."""
    begun = time.monotonic()
    trainer.train()
    if args.output_dir:
        trainer.save_model(args.output_dir)
    if not trainer.is_world_process_zero():
        return
    seconds = time.monotonic() - begun
    rewards = [log["reward"] for log in trainer.state.log_history if log.get("reward") is not None]
    went = (
        f"reward {rewards[0]:.3f} at first, {rewards[-1]:.3f} at last" if rewards else "no reward"
    )
    print(f"Trained {trainer.state.global_step} steps in {seconds:.1f} s: {went}", flush=True)


def run_script(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run the script and return its exit status; a user error prints a line without a traceback."""
    ignore_warnings_of_packages()
    try:
        main(args)
    except MISTAKES as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
