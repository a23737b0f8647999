"""Hostile programs through /reward; tests/attacks/ has them in stateful sandboxes and as an ordinary user."""

from __future__ import annotations

from hostile.attacks import attack_by_reward, attacked_service
from hostile.programs import own_programs, shared_programs


def test_every_program_is_contained() -> None:
    with attacked_service(ordinary=False) as service:
        assert attack_by_reward(service, [*own_programs(), *shared_programs()]) == {}
