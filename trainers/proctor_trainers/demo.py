"""`python -m proctor_trainers.demo`: a trainer's reward function, applied to a few completions.

Without `--url` or PROCTOR_URL, the demo starts a service of its own. This needs proctor-service,
installed beside this package.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from tempfile import TemporaryDirectory

from proctor_client import Client
from proctor_trainers.addresses import Unreachable, check_service, client_for
from proctor_trainers.trl import reward_function

DOUBLE = ["assert double(2) == 4", "assert double(-3) == -6"]
LARGEST = ["assert largest([1, 7, 3]) == 7", "assert largest([-2]) == -2"]
Toy = tuple[str, list[str], float]

TOYS: tuple[Toy, ...] = (
    ("<answer>\ndef double(n):\n    return 2 * n\n</answer>", DOUBLE, 1.0),
    ("Sure:\n```python\ndef double(n):\n    return n ** 2\n```", DOUBLE, 0.0),
    ("<answer>\nimport os\n\ndef double(n):\n    os._exit(0)\n</answer>", DOUBLE, 0.0),
    ("I would multiply it by two.", DOUBLE, 0.0),
    ("<answer>\nlargest = max\n</answer>", LARGEST, 1.0),
    ("<answer>\ndef largest(numbers):\n    return sorted(numbers)[-1]\n</answer>", LARGEST, 1.0),
    ("<answer>\ndef largest(numbers):\n    return numbers[1]\n</answer>", LARGEST, 0.0),
    ("<answer>\ndef largest(numbers)\n    return max(numbers)\n</answer>", LARGEST, 0.0),
)
"""Completions of two prompts, four for each as in GRPO, with their tests and expected rewards."""


@dataclass(frozen=True)
class Running:
    """A service: its client and URL, and the log-in of its pages."""

    client: Client
    url: str
    is_temporary: bool = False
    sign_in: str = ""


@contextmanager
def service(url: str | None, *, journal: bool = False) -> Iterator[Running]:
    """Yield the given service, or a service for this run. Raises Unreachable.

    `journal` is about the latter: true keeps a journal, for its pages, until the service ends.
    """
    if url or os.environ.get("PROCTOR_URL"):
        check_service(url)
        with client_for(url) as client:
            yield Running(client, (url or os.environ["PROCTOR_URL"]).rstrip("/"))
        return
    if find_spec("proctor_service") is None:
        raise Unreachable(
            "no service was named: give --url, or install proctor-service to start one here"
        )
    from proctor_service.cli.failures import Trouble
    from proctor_service.cli.temporary import temporary_service

    try:
        with (
            TemporaryDirectory(prefix="proctor-demo-") as folder,
            temporary_service(
                settings={"PROCTOR_JOURNAL": f"sqlite:///{folder}/journal"} if journal else {}
            ) as running,
            Client(running.url, token=running.token) as client,
        ):
            yield Running(client, running.url, True, f"\nThe token of its pages: {running.token}")
    except Trouble as trouble:
        raise Unreachable(str(trouble)) from None


def main(url: str | None = None) -> int:
    """Run the demo. Returns the exit status: 0 if every completion got its expected reward."""
    completions, tests, worth = (list(column) for column in zip(*TOYS, strict=True))
    prompts = ["double" if each is DOUBLE else "largest" for each in tests]
    with service(url) as running:
        reward = reward_function(client=running.client)
        rewards = reward(prompts=prompts, completions=completions, tests=tests)
    for prompt, completion, value in zip(prompts, completions, rewards, strict=True):
        shown = " ".join(str(completion).split())
        shown_reward = "none" if value is None else f"{value:.1f}"
        print(f"{shown_reward:>5}  {prompt:8} {shown[:80]}")
    return 0 if rewards == worth else 1


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the demo with its arguments; a user error prints a line instead of a traceback."""
    parser = argparse.ArgumentParser(prog="python -m proctor_trainers.demo", description=__doc__)
    parser.add_argument(
        "--url", help="a service that runs (default: PROCTOR_URL, or one of its own)"
    )
    try:
        return main(parser.parse_args(arguments).url)
    except Unreachable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run())
