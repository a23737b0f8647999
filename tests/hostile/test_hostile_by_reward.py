"""The shared hostile programs through /reward; tests/attacks/ has more, and other ways into a sandbox."""

from __future__ import annotations

from hostile.attacks import attack_by_reward, attacked_service
from hostile.programs import shared_programs


def test_every_program_is_contained() -> None:
    with attacked_service(ordinary=False) as service:
        assert attack_by_reward(service, shared_programs()) == {}
