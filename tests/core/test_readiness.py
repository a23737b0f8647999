"""Ready is who has a sandbox that works: at the start, and after a failure."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import until
from harness import exec_request, running_service

from proctor_service.errors import NoSandboxInTime, SandboxLost, SandboxUnavailable
from proctor_service.http.health import Readiness
from proctor_service.sandbox.local.pool import SlotPool
from proctor_service.settings import Settings

STEPS = 1000


class Sandboxes:
    """A probe that fails as it is told to."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.probes = 0

    async def __call__(self) -> None:
        """Probes once."""
        self.probes += 1
        if self.failures:
            raise self.failures.pop(0)


@pytest.mark.parametrize("failure", [SandboxUnavailable("no"), NoSandboxInTime("late"), OSError()])
async def test_it_is_ready_once_a_first_sandbox_worked(failure: Exception) -> None:
    readiness = Readiness(Sandboxes(failure, failure))
    assert readiness.why_not
    opening = asyncio.create_task(readiness.open())
    await asyncio.sleep(0)
    assert readiness.why_not
    await opening
    assert not readiness.why_not
    await readiness.close()


async def test_after_a_failure_it_is_not_ready_until_one_works_again() -> None:
    sandboxes = Sandboxes()
    readiness = Readiness(sandboxes)
    await readiness.open()
    sandboxes.failures = [SandboxUnavailable("forkservers die")] * 2
    readiness.failed("lost")
    assert readiness.why_not == "lost"
    await until(lambda: readiness.why_not == "forkservers die")
    await until(lambda: not readiness.why_not)
    await readiness.close()


async def test_who_is_full_or_slow_is_not_broken() -> None:
    sandboxes = Sandboxes()
    readiness = Readiness(sandboxes)
    await readiness.open()
    sandboxes.failures = [NoSandboxInTime("all are in use")] * STEPS
    readiness.failed("lost")
    await until(lambda: not readiness.why_not)
    await readiness.close()


@pytest.mark.slow
def test_a_real_service_is_ready_and_again_after_its_sandbox_was_lost() -> None:
    with running_service(judge=None) as service, service.client() as client:
        assert client.get("/readyz").status_code == 200
        readiness = service.parts.readiness
        service.call(lambda: readiness.failed(SandboxLost("a test said so").message))
        service.until(lambda: not readiness.why_not)
        assert client.get("/readyz").status_code == 200
        [result] = client.post("/reward", json=exec_request("x = 1")).json()["results"]
        assert result["verdict"] == "passed"


@pytest.mark.slow
def test_a_service_whose_sandboxes_break_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(self: SlotPool, *arguments: object) -> None:
        raise SandboxUnavailable("forkservers die")

    settings = Settings(workers=0)  # what breaks is in this process
    with running_service(settings, judge=None) as service, service.client() as client:
        with monkeypatch.context() as broken:
            broken.setattr(SlotPool, "_take", breaks)
            [result] = client.post("/reward", json=exec_request("x = 1")).json()["results"]
            assert result["error"]["reason"] == "sandbox_unavailable"
            answer = client.get("/readyz")
            assert answer.status_code == 503
            assert answer.json()["reason"] == "sandbox_unavailable"
            assert client.get("/healthz").status_code == 200
        service.until(lambda: not service.parts.readiness.why_not)
        assert client.get("/readyz").status_code == 200
