"""Exchange between the processes of a distributed training, over torch.distributed.

TRL calls a reward function in each process with the process's slice of the completions, so the
completions of a prompt may be on several processes. This module leaves the import of torch to the training:
with several processes torch is imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from proctor_trainers.completions import siblings
from proctor_trainers.rewards import Gather, Part


def gather_of_processes() -> Gather | None:
    """Return the exchange between all processes of the training; None for a single process."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, count = distributed.get_rank(), distributed.get_world_size()
    if count == 1:
        return None

    def gather(part: Part) -> tuple[Sequence[Part], int]:
        # One object for each group: pickle writes it once, and a prompt may hold images.
        groups = siblings(part.prompts, len(part.rewards))
        prompts = [part.prompts[group.start] for group in groups for _ in group]
        parts: list[Part] = [part] * count
        distributed.all_gather_object(parts, replace(part, prompts=prompts))
        return parts, rank

    return gather
