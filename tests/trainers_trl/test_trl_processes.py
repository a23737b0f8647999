"""Two processes of one training, over torch.distributed: siblings on the other one stand in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch.distributed
import torch.multiprocessing

from proctor_client import wire
from proctor_client.testing import FakeProctor
from proctor_trainers.trl import reward_function

LOST = wire.ItemError(reason="sandbox_lost", message="it is gone", retryable=True)
PROMPTS = ("aab", "bcc")  # the completions of the second prompt are on both processes
CALLS = (
    (("pass", "fail", "half"), ("lost", "lost", "lost")),
    (("lost", "fail", "lost"), ("half", "pass", "pass")),
    (("pass", "fail", "half"), ("pass", "pass", "fail")),
)
EXPECTED = [
    [[1.0, 0.0, 0.5], [0.0, 0.0, 0.5], [1.0, 0.0, 0.5]],
    [[0.5, None, None], [0.5, 1.0, 1.0], [1.0, 1.0, 0.0]],
]


class TwoFunctions:
    """A trainer with another reward function, as far as one of them can see it."""

    reward_funcs = ("ours", "theirs")

    def log_metric(self, name: str, value: float) -> None:
        """Nothing."""


def by_text(submission: wire.Submission) -> Any:
    """A judge that is told by the completion what to say."""
    said: Any = {"pass": 1.0, "fail": 0.0, "half": 0.5, "lost": LOST}
    return said[str(submission.completion)]


def in_process(rank: int, folder: str) -> None:
    """Make the calls of one process, and write their rewards to a file."""
    meeting = f"file://{folder}/meeting"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    try:
        with FakeProctor(by_text).client() as client:
            reward = reward_function(client=client, grader={"kind": "exec"})
            log_metric = TwoFunctions().log_metric
            found = [
                reward(list(PROMPTS[rank]), list(completions[rank]), log_metric=log_metric)
                for completions in CALLS
            ]
        Path(folder, f"{rank}.json").write_text(json.dumps(found))
    finally:
        torch.distributed.destroy_process_group()


def test_beside_another_function_siblings_on_the_other_process_stand_in(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(in_process, args=(str(tmp_path),), nprocs=2)
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)] == EXPECTED
