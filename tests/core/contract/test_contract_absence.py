"""Programs beside a service that was stopped: what they surely did decides, and nothing else."""

from __future__ import annotations

import pytest

from core.contract.rooms_for_tests import Place, in_place
from proctor_service.errors import SandboxLost
from proctor_service.sandbox.local.absence import Absence
from proctor_service.sandbox.local.monitor import Monitor

NAP = "import time\ntime.sleep({})\n"
BUSY = "import time\nwhile time.process_time() < {}: pass\n"


async def look_away(_: Monitor) -> None:
    """A monitor in a stopped service measures nothing."""


def stopped_seconds(absence: Absence) -> float:
    """As if the service had been stopped just now, and for long."""
    return absence.seconds + 60.0


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service is stopped from before a program begins until after its end."""
    monkeypatch.setattr(Monitor, "measure", look_away)
    monkeypatch.setattr(Absence, "seconds_now", stopped_seconds)


@pytest.mark.usefixtures("stopped")
@in_place
async def test_a_program_that_ended_meanwhile_is_judged_by_the_time_of_its_end(
    place: Place,
) -> None:
    for source in ("", NAP.format(0.2), BUSY.format(0.7) + NAP.format(0.2)):
        finished = await place.script(source, cpu_seconds=5, wall_seconds=20)
        assert (finished.ended.ending, finished.ended.exit_code) == ("exited", 0), source


@pytest.mark.usefixtures("stopped")
@in_place
async def test_one_that_may_have_slept_for_too_long_has_no_verdict(place: Place) -> None:
    for source in (NAP.format(0.8), BUSY.format(0.2) + NAP.format(0.8)):
        with pytest.raises(SandboxLost, match="the service was stopped"):
            await place.script(source, wall_seconds=0.5)
    finished = await place.script(BUSY.format(0.8), cpu_seconds=0.5, wall_seconds=0.5)
    assert finished.ended.ending == "cpu_limit"


@in_place
async def test_sleep_beside_a_stopped_service_decides_nothing(place: Place) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Absence, "note_presence", _stopped_until_each_note)
        with pytest.raises(SandboxLost, match="the service was stopped"):
            await place.script(NAP.format(60), wall_seconds=0.5)
        finished = await place.script(NAP.format(0.1), wall_seconds=5)
        assert finished.ended.ending == "exited"
    finished = await place.script(NAP.format(60), wall_seconds=0.5)
    assert finished.ended.ending == "wall_limit"


def _stopped_until_each_note(absence: Absence) -> None:
    absence.seconds += 60.0
