"""Our own hostile programs, through /reward and in a stateful sandbox, as root and as anybody."""

from __future__ import annotations

import pytest

from hostile.attacks import attack_by_reward, attack_in_sandboxes, attacked_service
from hostile.programs import own_programs


@pytest.mark.parametrize("ordinary", [False, True], ids=["as root", "as an ordinary user"])
def test_every_program_is_contained(ordinary: bool) -> None:
    programs = own_programs()
    with attacked_service(ordinary=ordinary) as service:
        assert attack_by_reward(service, programs) == {}
        assert attack_in_sandboxes(service, programs) == {}
