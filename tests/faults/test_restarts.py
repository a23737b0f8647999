"""Restarts at random moments: no client sees an error, a wrong reward or a loss."""

from __future__ import annotations

import pytest

from fault_rig.restarts import run


@pytest.mark.parametrize("behind_nginx", [True, False], ids=["nginx", "direct"])
def test_no_client_notices_a_rolling_restart(behind_nginx: bool) -> None:
    result = run(clients=3, each=100, restarts=3, behind_nginx=behind_nginx, seed=1)
    assert result.noticed == []
    assert result.restarts >= 3
    assert all(score.judged >= 100 for score in result.scores)
