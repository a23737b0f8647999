"""Every program of the corpus, through /reward and in a stateful sandbox, as root and as anybody.

What must hold is looked at from outside: the machine and the service before and after, and an honest
neighbour meanwhile.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from shared_data import shared_data

from hostile.attacks import Attack, attack_by_reward, attack_in_sandboxes, attacked_service

# What a hostile program would print if a wall had a hole.
ESCAPED = ("CONNECTED", "RESOLVED", "ANSWER", "READ ", "ROOT ", "WROTE", "RAISED", "MOUNTED", "UMOUNTED",
           "CHROOT")  # fmt: skip


def corpus() -> list[Attack]:
    """All of it."""
    entries: list[dict[str, Any]] = [
        json.loads(line) for line in shared_data("hostile.jsonl").read_text().splitlines()
    ]
    return [
        Attack(entry["id"], entry["category"], entry["completion"], ESCAPED) for entry in entries
    ]


@pytest.mark.parametrize("ordinary", [False, True], ids=["as root", "as an ordinary user"])
def test_every_program_is_contained(ordinary: bool) -> None:
    programs = corpus()
    with attacked_service(ordinary=ordinary) as service:
        assert attack_by_reward(service, programs) == {}
        assert attack_in_sandboxes(service, programs) == {}
