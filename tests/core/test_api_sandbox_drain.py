"""Draining and closing a service with sandboxes, over a real connection."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from grace import grace_period
from sandbox_server import EXEC_GRADER, Held, problem, serving
from waits import WAIT_SECONDS


def test_a_draining_service_finishes_commands_and_takes_none() -> None:
    with serving() as hotel, ThreadPoolExecutor(1) as pool:
        service = hotel.service
        sandbox = hotel.create(files={"solution.py": ""})["id"]
        guest = hotel.guest
        asked = pool.submit(hotel.exec, sandbox, "wait", "a")
        service.until(lambda: bool(guest.waiting))
        hotel.sigterm()
        service.until(lambda: service.parts.core.queue.draining)
        with service.client() as client:
            url = f"/sandboxes/{sandbox}"
            for answer in (
                client.post("/sandboxes", json={}),
                client.post(f"{url}/exec", json={"command": ["true"]}),
                client.post(f"{url}/grade", json={"grader": EXEC_GRADER}),
            ):
                assert problem(answer, 503, "draining").retryable
            assert client.get(f"{url}/files/solution.py").status_code == 200
        service.call(lambda: guest.release("a"))
        assert asked.result().json()["exit_code"] == 0
        service.thread.join(WAIT_SECONDS)
        assert (hotel.inn.guests, hotel.inn.left) == ([], [guest])


def test_a_draining_service_hands_back_what_waits_to_be_graded() -> None:
    judge = Held()
    with (
        grace_period() as grace,
        serving(judge, slots=1, grace_seconds=grace.seconds) as hotel,
        ThreadPoolExecutor(4) as pool,
    ):
        ids = [hotel.create(files={"solution.py": ""})["id"] for _ in range(4)]
        asked = [
            pool.submit(hotel.client.post, f"/sandboxes/{each}/grade", json={"grader": EXEC_GRADER})
            for each in ids
        ]
        parts = hotel.service.parts
        gradings = parts.core.gradings
        hotel.service.until(
            lambda: (gradings.queued, parts.core.queue.queued, judge.entered) == (2, 1, 1)
        )
        hotel.sigterm()
        hotel.service.until(lambda: sum(each.done() for each in asked) == 3)
        grace.end()
        answers = [each.result() for each in asked]
        assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503]
        for answer in answers:
            error = answer.json()["error"]
            assert error["reason"] in ("cancelled", "draining")
            assert error["retryable"] is True


def test_what_outlasts_the_grace_is_stopped_and_told_so() -> None:
    with (
        grace_period() as grace,
        serving(grace_seconds=grace.seconds) as hotel,
        ThreadPoolExecutor(1) as pool,
    ):
        grace.end()
        sandbox = hotel.create()["id"]
        guest = hotel.guest
        asked = pool.submit(hotel.exec, sandbox, "wait", "a")
        hotel.service.until(lambda: bool(guest.waiting))
        hotel.sigterm()
        found = problem(asked.result(), 410, "sandbox_stopped")
        assert "the service is stopping" in found.message
        hotel.service.thread.join(WAIT_SECONDS)
        assert hotel.inn.left == [guest]


def test_nothing_is_left_when_the_service_closes() -> None:
    with serving() as hotel:
        for _ in range(20):
            hotel.create()
        inn = hotel.inn
    assert (len(inn.left), inn.guests, inn.closed) == (20, [], True)
