"""Arguments of the script, and the objects built from them, without importing ART."""

from __future__ import annotations

import argparse
import uuid
from dataclasses import dataclass
from typing import Any, get_args

import httpx

from proctor_client.tasks.forms import REPOSITORY_FORMS, Format
from proctor_trainers.addresses import DEFAULT_URL
from proctor_trainers.art.backends import BACKENDS
from proctor_trainers.art.policies import (
    BASE_URL,
    OPENAI_MODEL,
    Endpoint,
    is_served,
    openai_endpoint,
    server_endpoint,
)
from proctor_trainers.problems import Problem, load_problems

_DEFAULTS: dict[str, dict[str, Any]] = {
    "tools": {
        "base_model": "Qwen/Qwen3-8B",
        "num_steps": 5,
        "learning_rate": 1e-5,
        "dataset_limit": 0,
        "num_problems": 10,
    },
    "refine": {
        "base_model": "Qwen/Qwen2.5-3B-Instruct",
        "num_steps": 10,
        "learning_rate": 2e-5,
        "dataset_limit": 100,
        "num_problems": 0,
    },
}
"""Defaults by agent: those of the two scripts in Aviato's guides to ART."""
_KEYS = """\
environment variables:
  PROCTOR_URL, PROCTOR_TOKEN           the service, and its token
  OPENAI_API_KEY                       with --use-openai; OPENAI_BASE_URL is another address for it
  VLLM_API_KEY                         for the server at --base-url, if it wants a key
  TINKER_API_KEY, ART_TINKER_API_KEY   with --backend tinker; one of them
  WANDB_API_KEY                        has ART log to W&B
"""


def _default_text(name: str) -> str:
    """Return the defaults of an argument in words, for each agent where they differ."""
    tools, refine = (_DEFAULTS[agent][name] for agent in ("tools", "refine"))
    return str(tools) if tools == refine else f"{tools}; {refine} with --agent refine"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the script's arguments."""
    made = argparse.ArgumentParser(
        prog="python -m proctor_trainers.art",
        description="Train a model with ART on trajectories that Proctor plays and grades.",
        epilog=_KEYS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_model(made.add_argument_group("model and policy"))
    _add_training(made.add_argument_group("training"))
    _add_data(made.add_argument_group("problems"))
    add = made.add_argument_group("around it").add_argument
    add(
        "--service-url",
        type=_url,
        help=f"the service (default: PROCTOR_URL, or {DEFAULT_URL})",
    )
    add("--project", type=_name, default="proctor-mbpp", help="(default: %(default)s)")
    add(
        "--run-name",
        type=_name,
        default="train-001",
        help="name of the model in ART, which goes on where a run of that name ended "
        "(default: %(default)s)",
    )
    add(
        "--dry-run",
        action="store_true",
        help="check the service, the policy, the problems and the keys with one rollout; "
        "train nothing",
    )
    return made


def _add_model(group: Any) -> None:
    add = group.add_argument
    add(
        "--backend",
        choices=BACKENDS,
        default="local",
        help="what trains: local (needs a GPU), tinker (no GPU), or memory, which trains nothing: "
        "to see the loop run (default: %(default)s)",
    )
    add("--base-model", help=f"what is trained (default: {_default_text('base_model')})")
    add(
        "--base-url",
        type=_url,
        help="the policy: an OpenAI-compatible server, as the service reaches it. Where none "
        "listens, the backends local and tinker serve there what they train; a server that "
        f"runs already keeps its weights (default: {BASE_URL})",
    )
    add(
        "--use-openai",
        action="store_true",
        help="ask OpenAI instead, whose models are not trained by this",
    )
    add(
        "--distill",
        action="store_true",
        help="one model plays and another learns: the policy of --use-openai or --base-url plays, "
        "--base-model learns from its trajectories, also without logprobs with --backend local",
    )
    add(
        "--model",
        help="the policy's name there (default: that of --base-model, or of what the backend "
        f"serves; {OPENAI_MODEL} with --use-openai)",
    )


def _add_training(group: Any) -> None:
    add = group.add_argument
    add(
        "--num-steps",
        type=_positive,
        help=f"steps, with those of earlier runs of the name (default: {_default_text('num_steps')})",
    )
    add("--batch-size", type=_positive, default=4, help="problems a step (default: %(default)s)")
    add(
        "--trajectories-per-problem",
        type=_positive,
        default=2,
        help="rollouts of each problem in a step (default: %(default)s)",
    )
    add("--learning-rate", type=float, help=f"(default: {_default_text('learning_rate')})")
    add(
        "--agent",
        choices=("tools", "refine"),
        default="tools",
        help="tools: the model calls execute_code and submit_solution; refine: it answers with "
        "code, and sees what failed before it answers again (default: %(default)s)",
    )
    add(
        "--max-attempts",
        type=_positive,
        default=3,
        help="answers to a problem, with --agent refine (default: %(default)s)",
    )
    add(
        "--max-exceptions",
        type=_share,
        default=0.25,
        help="share of a step's rollouts that may fail without a verdict, 0 to 1, before the "
        "training ends (default: %(default)s)",
    )


def _add_data(group: Any) -> None:
    add = group.add_argument
    add(
        "--dataset",
        default="mbpp",
        metavar="NAME",
        help="a data set by its name (docs/datasets.md), a file of JSON lines in MBPP's form, or toy "
        "(default: %(default)s)",
    )
    add(
        "--form",
        choices=get_args(Format),
        metavar="FORM",
        help="what the rows of --dataset are, such as swe_smith; default: as their columns say",
    )
    add(
        "--dataset-split",
        default="train",
        help="split of a data set on the hub (default: %(default)s)",
    )
    add(
        "--dataset-limit",
        type=_count,
        help=f"read so many rows only; 0: all (default: {_default_text('dataset_limit')})",
    )
    add(
        "--num-problems",
        type=_count,
        help=f"train on the first so many; 0: all (default: {_default_text('num_problems')})",
    )


@dataclass(frozen=True)
class Job:
    """Run of the script: its arguments, and an id to distinguish runs of the same name."""

    args: argparse.Namespace
    id: str

    @classmethod
    def of(cls, args: argparse.Namespace) -> Job:
        """Create a job with a new id, and with the agent's defaults for missing arguments."""
        arguments = {name: value for name, value in vars(args).items() if value is not None}
        filled = argparse.Namespace(**{**vars(args), **_DEFAULTS[args.agent], **arguments})
        return cls(filled, uuid.uuid4().hex[:8])

    @property
    def agent(self) -> dict[str, Any]:
        """The wire's agent."""
        if self.args.agent == "refine":
            return {"kind": "refine", "max_attempts": self.args.max_attempts}
        if self.args.form in REPOSITORY_FORMS:
            return {"kind": "tools", "tools": ["bash", "read_file", "write_file"]}
        return {"kind": "tools"}

    @property
    def train_options(self) -> dict[str, Any]:
        """Further arguments of the backend's `train`."""
        learns_without = self.args.distill and self.args.backend == "local"
        return {"allow_training_without_logprobs": True} if learns_without else {}

    def endpoint(self) -> Endpoint:
        """Return the policy's endpoint, unless the backend serves the policy. Raises MissingKey."""
        if self.args.use_openai:
            return openai_endpoint(self.args.model)
        return server_endpoint(self.args.base_url, self.args.model or self.args.base_model)

    def is_served_by_backend(self, endpoint: Endpoint) -> bool:
        """Return True if the backend must and can serve the policy, because no server listens."""
        if self.args.use_openai or self.args.backend == "memory":
            return False
        return not is_served(endpoint.base_url)

    def problems(self) -> list[Problem]:
        """Load the problems. Raises DatasetError and MissingExtra."""
        limits = [each for each in (self.args.dataset_limit, self.args.num_problems) if each]
        return load_problems(
            self.args.dataset,
            split=self.args.dataset_split,
            limit=min(limits, default=None),
            extra="art",
            form=self.args.form,
        )


def check(made: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the process with a usage error for conflicting arguments."""
    if args.use_openai and args.base_url:
        made.error("--use-openai and --base-url are two policies: give one of them")
    if args.distill and not (args.use_openai or args.base_url):
        made.error("--distill needs the policy that plays: --use-openai or --base-url")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("it must be 0 or more")
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError("it must be from 0 to 1")
    return number


def _name(text: str) -> str:
    """Check a name. ART uses the name for a folder, and the service for a tag and a label."""
    if not text or text != text.strip() or len(text) > 100 or set(text) & set("/\\\0"):
        raise argparse.ArgumentTypeError("it must be 1 to 100 characters, none of them a slash")
    return text


def _url(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise argparse.ArgumentTypeError("it must begin with http:// or https:// and name a host")
    return text
