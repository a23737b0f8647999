"""open-instruct's routes with scripted judges: a verdict for each test, and an endless patience."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from compat_clients import Failing
from constants import constants
from grace import grace_period
from harness import Gate, Service, running_service
from requests_under_way import asking
from waits import WAIT_SECONDS

from proctor_service.errors import InvalidTask
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes, Usage
from proctor_service.settings import Settings

BODY: dict[str, Any] = {
    "program": "program",
    "tests": ["assert a", "assert b", "assert c"],
    "max_execution_time": 1.5,
}
PATH = "/compat/test_program"


class ByTest:
    """A judge that goes by the test's text, and notes what it was given."""

    def __init__(self) -> None:
        self.seen: list[Submission] = []

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """`b` fails, `c` is broken by itself."""
        self.seen.append(submission)
        text = repr(submission.grader)
        if "assert c" in text:
            raise InvalidTask("tests.0 is not Python")
        usage = Usage(cpu_seconds=0.25, wall_seconds=9.0, idle_seconds=0.5)
        return Judgement("failed" if "assert b" in text else "passed", usage=usage)


@pytest.fixture
def judge() -> ByTest:
    return ByTest()


@pytest.fixture
def client(judge: ByTest) -> Iterator[httpx.Client]:
    with running_service(judge=judge) as service, service.client() as opened:
        yield opened


def test_each_test_has_a_verdict_of_its_own(client: httpx.Client, judge: ByTest) -> None:
    answer = client.post(PATH, json=BODY).json()
    assert answer == {"results": [1, 0, 0], "runtimes": [0.75, -1.0, -1.0]}
    for submission in judge.seen:
        assert submission.source == "program"
        assert (submission.limits.cpu_seconds, submission.limits.wall_seconds) == (1.5, 1.5)


def test_tests_as_a_json_string(client: httpx.Client) -> None:
    answer = client.post(PATH, json=BODY | {"tests": json.dumps(BODY["tests"])}).json()
    assert answer["results"] == [1, 0, 0]


@pytest.mark.parametrize("tests", [[], "", None])
def test_no_tests_no_results(client: httpx.Client, tests: Any) -> None:
    answer = client.post(PATH, json=BODY | {"tests": tests}).json()
    assert answer == {"results": [], "runtimes": []}


def test_stdio_tests_with_texts_or_lines(client: httpx.Client, judge: ByTest) -> None:
    tests = [
        {"input": "1\n", "output": "2\n", "fn_name": None},
        {"input": ["1", "2"], "output": ["3"]},
    ]
    answer = client.post(f"{PATH}_stdio", json=BODY | {"tests": tests}).json()
    assert answer["results"] == [1, 1]
    cases = [
        submission.grader.model_dump(exclude_defaults=True)["cases"] for submission in judge.seen
    ]
    assert cases == [[{"stdin": "1\n", "stdout": "2\n"}], [{"stdin": "1\n2", "stdout": "3"}]]


@pytest.mark.parametrize(
    ("path", "tests", "named"),
    [
        (PATH, [1], "tests.0: "),
        (PATH, [{"input": "1", "output": "1"}], "tests.0: "),
        (f"{PATH}_stdio", ["assert 1"], "tests.0: "),
        (f"{PATH}_stdio", [{"input": "1"}], "tests.0.output: "),
        (PATH, ["assert 1"] * 5000, "tests: 5000"),
        (PATH, "AAAA", "tests: "),
    ],
)
def test_what_makes_no_sense_is_a_422(
    client: httpx.Client, path: str, tests: Any, named: str
) -> None:
    answer = client.post(path, json=BODY | {"tests": tests})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith(named)


# ---------------------------------------------------------------- its client takes a 5xx for 0.0


def test_what_takes_longer_than_its_client_waits_is_asked_for_again_and_goes_on() -> None:
    gate = Gate()
    path = f"{PATH}?hold_seconds=0.2"
    with running_service(Settings(slots=3), judge=gate) as service:
        with service.client() as client:
            answer = client.post(path, json=BODY)
        assert answer.status_code == 307
        assert answer.headers["location"] == "test_program?hold_seconds=0.2"
        with asking(service, path, BODY, follow_redirects=True) as asked:
            service.until(lambda: not service.parts.feature("compat").handler._pending)
            service.call(gate.open)
            assert asked.result().json()["results"] == [1, 1, 1]
    assert len(gate.entered) == 3


def test_the_way_back_names_no_token() -> None:
    gate = Gate()
    with running_service(judge=gate) as service, service.client() as client:
        answer = client.post("/compat/t/secret/test_program?hold_seconds=0.1", json=BODY)
        service.call(gate.open)
        assert answer.headers["location"] == "test_program?hold_seconds=0.1"
        assert answer.next_request is not None
        assert answer.next_request.url.path == "/compat/t/secret/test_program"


def test_a_failure_that_passes_is_not_seen() -> None:
    judge = Failing(5)
    with running_service(Settings(slots=1), judge=judge) as service, service.client() as client:
        assert client.post(PATH, json=BODY).json()["results"] == [1, 1, 1]


def test_a_failure_that_stays_is_no_5xx() -> None:
    judge = Failing(1000)
    with running_service(Settings(slots=1), judge=judge) as service, service.client() as client:
        answer = client.post(f"{PATH}?hold_seconds=0.5", json=BODY)
        assert answer.status_code == 307
        judge.left = 0
        again = client.post(PATH, json=BODY)
    assert again.json()["results"] == [1, 1, 1]


def test_a_service_that_stops_sends_its_client_round() -> None:
    gate = Gate()
    with (
        grace_period() as grace,
        running_service(Settings(slots=1, grace_seconds=grace.seconds), judge=gate) as service,
        asking(service, PATH, BODY) as asked,
    ):
        service.until(lambda: bool(gate.entered))
        service.drain()
        grace.end()
        assert asked.result().status_code == 307


@pytest.fixture
def patient() -> Iterator[Service]:
    with running_service(judge=Gate()) as service:
        yield service


def test_a_client_that_goes_away_leaves_nothing_behind(patient: Service) -> None:
    with patient.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post(PATH, json=BODY, timeout=httpx.Timeout(WAIT_SECONDS, read=0.5))
    patient.until(lambda: not patient.parts.core.running and patient.parts.core.queue.busy == 0)
    assert patient.parts.core.queue.queued == 0


def test_what_is_kept_for_clients_that_do_not_come_back_is_bounded() -> None:
    gate = Gate()
    with (
        constants(pending_bytes=1 << 20),
        running_service(Settings(slots=1), judge=gate) as service,
        service.client() as client,
    ):
        for number in range(4):
            body = BODY | {"program": f"{number}" * 300_000, "tests": ["assert a"]}
            assert client.post(f"{PATH}?hold_seconds=0.05", json=body).status_code == 307
        service.until(lambda: len(service.parts.core.running) == 3)
        service.call(gate.open)
