"""The default deadline of /reward leaves repositories the time of their limits."""

from __future__ import annotations

import pytest
from harness import running_service

import proctor_client._calls
import proctor_client.wire.rewards
import proctor_service.rewards.routes
from proctor_client import Client
from proctor_service.settings import Settings

pytestmark = pytest.mark.slow

CHANGE = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
GRADER = {
    "kind": "repository",
    "prepare": {"commands": ["echo base > base.txt"]},
    "test": "sleep 3; cat new.txt",
    "report": "exit_code",
}
"""Its tests take longer than the whole default deadline of this test."""


def test_a_repository_is_judged_for_a_client_that_sets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proctor_client.wire.rewards, "DEADLINE_SECONDS", 1.0)
    monkeypatch.setattr(proctor_service.rewards.routes, "DEADLINE_SECONDS", 1.0)
    monkeypatch.setattr(proctor_client._calls, "GRACE_SECONDS", 1.0)
    with (
        running_service(Settings(slots=2), judge=None) as service,
        Client(service.url, timeout_seconds=1.0) as client,
    ):
        [task] = client.save_tasks([{"grader": GRADER, "extract": "none"}])
        found = {
            "grader": client.reward([CHANGE], grader=GRADER, extract="none"),
            "task": client.reward([{"completion": CHANGE, "task": task}]),
            "limits": client.reward(
                [CHANGE] * 3, grader=GRADER, extract="none", limits={"wall_seconds": 20}
            ),
        }
        [ended] = client.reward(
            [CHANGE], grader=GRADER, extract="none", deadline_seconds=1, cache=False
        ).results
        [other] = client.reward(["import time\ntime.sleep(4)"], grader={"kind": "exec"}).results
    for name, response in found.items():
        assert {each.reward for each in response.results} == {1.0}, (name, response)
    for result in (ended, other):
        assert result.error is not None
        assert result.error.reason == "deadline"
