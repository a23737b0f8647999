"""Reward functions for Unsloth, which trains with a patched version of TRL's GRPOTrainer.

    from unsloth import FastLanguageModel  # before trl, transformers and peft
    from proctor_trainers.unsloth import reward_function

The reward functions are TRL's. `python -m proctor_trainers.unsloth` trains a LoRA on a CUDA device.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from proctor_trainers.addresses import check_service
from proctor_trainers.extras import MissingExtra, require
from proctor_trainers.grpo import (
    add_arguments,
    config_fields,
    dataset_of,
    naming_mistakes,
    problems_of,
    run_script,
    train,
)
from proctor_trainers.problems import ANSWER
from proctor_trainers.trl import async_reward_function, environment_factory, reward_function

__all__ = ["async_reward_function", "environment_factory", "reward_function"]

MODEL = "unsloth/Qwen2.5-0.5B-Instruct"
LORA_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the script's arguments."""
    made = argparse.ArgumentParser(
        prog="python -m proctor_trainers.unsloth",
        description="Train a LoRA by GRPO with Unsloth; every completion is judged by Proctor. "
        "Needs a CUDA device.",
    )
    add_arguments(made, model=MODEL)
    add = made.add_argument
    add("--load-in-4bit", action="store_true", help="a quantized base model: needs bitsandbytes")
    add("--lora-rank", type=int, default=16, help="(default: %(default)s)")
    add(
        "--max-seq-length",
        type=int,
        default=1024,
        help="tokens of prompt and completion together (default: %(default)s)",
    )
    return made


def require_device() -> None:
    """Raise MissingExtra unless Unsloth and a CUDA device are available."""
    require("unsloth", "torch")
    import torch

    if not torch.cuda.is_available():
        raise MissingExtra(
            "Unsloth needs a CUDA device, and torch finds none here. On a CPU, train with TRL: "
            "python -m proctor_trainers.trl --tiny"
        )
    require("unsloth", "unsloth", "trl", "datasets")


def main(args: argparse.Namespace) -> None:
    """Train as the arguments say."""
    require_device()
    check_service(args.url)
    problems = problems_of(args, "unsloth")

    from unsloth import FastLanguageModel  # patches the modules imported below

    # isort: split
    import torch
    from trl import GRPOConfig, GRPOTrainer

    with naming_mistakes(args.model, "give --model a local path"):
        model, tokenizer = FastLanguageModel.from_pretrained(
            args.model,
            max_seq_length=args.max_seq_length,
            load_in_4bit=args.load_in_4bit,
            fast_inference=False,
        )
    model = FastLanguageModel.get_peft_model(
        model,
        r=args.lora_rank,
        lora_alpha=2 * args.lora_rank,
        target_modules=list(LORA_MODULES),
        use_gradient_checkpointing="unsloth",
        random_state=args.seed,
    )
    has_bf16 = torch.cuda.is_bf16_supported()
    with tempfile.TemporaryDirectory(prefix="proctor-unsloth-") as unsaved:
        with naming_mistakes(args.model, "give --model a local path"):
            fields = config_fields(args, args.output_dir or unsaved)
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                reward_funcs=[reward_function(args.url, tags=[f"model:{Path(args.model).name}"])],
                args=GRPOConfig(**fields, bf16=has_bf16, fp16=not has_bf16),
                train_dataset=dataset_of(problems, ANSWER),
            )
        train(trainer, args)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the script and return its exit status."""
    return run_script(main, parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(run())
