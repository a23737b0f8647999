"""A service that may have few files open: it has fewer sandboxes, or does not start and says why."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from harness import exec_request

from hostile.services import reserved_users, started_service
from proctor_service.errors import StartError
from proctor_service.settings import LEAST_OPEN_FILES, Settings

PYTEST = {
    "kind": "pytest",
    "files": {"test_it.py": "from solution import f\ndef test_f(): assert f() == 1\n"},
}


def judged(client: httpx.Client) -> list[str]:
    """The verdicts of many submissions, whose evaluation takes one or two sandboxes each."""
    run = exec_request(*["import time; time.sleep(0.05)"] * 20, cache=False)
    tested = {"submissions": [{"completion": "def f(): return 1"}] * 8, "grader": PYTEST}
    bodies = [run, {**tested, "extract": "none", "cache": False}]
    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(lambda body: client.post("/reward", json=body).json(), bodies))
    return [str(result["verdict"]) for answer in answers for result in answer["results"]]


@pytest.mark.parametrize("ordinary", [False, True], ids=["as root", "as an ordinary user"])
def test_with_few_open_files_there_are_fewer_sandboxes_and_all_work(ordinary: bool) -> None:
    with (
        reserved_users() as users,
        started_service(ordinary=ordinary, users=users, open_files=LEAST_OPEN_FILES) as service,
        service.client() as client,
    ):
        assert judged(client) == ["passed"] * 28
        made = [client.post("/sandboxes", json={}) for _ in range(12)]
        assert {answer.status_code for answer in made} == {201, 429}
        assert judged(client) == ["passed"] * 28
        for answer in made:
            if answer.status_code == 201:
                client.delete(f"/sandboxes/{answer.json()['id']}")


def test_below_one_slot_it_does_not_start_and_says_how_many_are_needed() -> None:
    with (
        pytest.raises(AssertionError, match=r"only 256 open files .* needs 320"),
        reserved_users() as users,
        started_service(ordinary=False, users=users, open_files=256),
    ):
        pass


@pytest.mark.parametrize("slots", [0, 1, 200])
def test_what_fits_leaves_room_for_each_evaluation_and_for_connections(slots: int) -> None:
    for open_files in (320, 512, 1024, 4096, 65_536, 1 << 30):
        fitted = Settings(slots=slots).fitted(open_files)
        assert fitted.slot_count() >= 1
        assert fitted.max_sandboxes * 16 <= open_files / 2
        if fitted.max_sandboxes < 512:
            assert 2 * fitted.slot_count() + fitted.stateful_count() <= fitted.max_sandboxes
    with pytest.raises(StartError, match=r"needs \d+"):
        Settings(slots=slots).fitted(128)
