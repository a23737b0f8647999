"""Hostile programs, through /reward and in a stateful sandbox, as root and as an ordinary user.

The tests look from outside at the machine and the service before and after, and at an honest neighbour
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hostile.attacks import Attack, attack_by_reward, attack_in_sandboxes, attacked_service
from hostile.programs import own_programs, shared_programs


@pytest.mark.parametrize("ordinary", [False, True], ids=["as root", "as an ordinary user"])
@pytest.mark.parametrize("programs", [own_programs, shared_programs])
def test_every_program_is_contained(
    programs: Callable[[], Sequence[Attack]], ordinary: bool
) -> None:
    with attacked_service(ordinary=ordinary) as service:
        assert attack_by_reward(service, programs()) == {}
        assert attack_in_sandboxes(service, programs()) == {}
