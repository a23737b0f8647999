"""SandboxFusion's routes over scripted sandboxes: what is asked of them, and when to try again."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from compat_clients import Failing
from grace import grace_period
from harness import Gate, Service, running_service
from requests_under_way import asking
from scripted_sandboxes import FakeBackend
from waits import WAIT_SECONDS

from proctor_service.errors import SandboxLost, SandboxUnavailable
from proctor_service.sandbox.interface import Traits
from proctor_service.settings import Settings

VERL: dict[str, Any] = {
    "compile_timeout": 5,
    "run_timeout": 5,
    "code": "printed",
    "stdin": None,
    "memory_limit_MB": 1024,
    "language": "python",
    "files": {},
    "fetch_files": [],
}
TINKER = {"code": "printed", "language": "python", "run_timeout": 6, "files": {}}


@pytest.fixture
def inn() -> FakeBackend:
    return FakeBackend(Traits("scripted", languages=("python", "bash")))


@pytest.fixture
def service(inn: FakeBackend) -> Iterator[Service]:
    with running_service(Settings(slots=1), backend=inn) as running:
        yield running


@pytest.mark.parametrize("body", [VERL, TINKER, {"code": "printed"}])
def test_what_existing_clients_send_is_run(client: httpx.Client, body: dict[str, Any]) -> None:
    answer = client.post("/compat/run_code", json=body)
    assert answer.status_code == 200
    ran = answer.json()
    assert set(ran) == {
        "status", "message", "compile_result", "run_result", "executor_pod_name", "files",
    }  # fmt: skip
    assert (ran["status"], ran["message"], ran["compile_result"]) == ("Success", "", None)
    assert ran["run_result"] == {
        "status": "Finished",
        "execution_time": 0.5,
        "return_code": 0,
        "stdout": "printed",
        "stderr": "",
    }


def test_limits_stdin_and_files_reach_the_sandbox(client: httpx.Client, inn: FakeBackend) -> None:
    data = base64.b64encode(b"\x00\xff").decode()
    body = VERL | {
        "stdin": "typed",
        "memory_limit_MB": 99,
        "files": {"a/b": data, "none": None},
        "fetch_files": ["a/b", "missing"],
        "new_field_of_theirs": 1,
    }
    ran = client.post("/compat/run_code", json=body).json()
    [guest] = inn.left
    assert guest.limits.memory_mb == 99
    assert guest.stdin == b"typed"
    assert guest.files == {"a/b": b"\x00\xff"}
    assert ran["files"] == {"a/b": data}


def test_limits_above_the_ceilings_are_lowered(inn: FakeBackend) -> None:
    settings = Settings(max_memory_mb=700)
    with running_service(settings, backend=inn) as service, service.client() as client:
        body = VERL | {"memory_limit_MB": 10**6, "run_timeout": 10**6}
        assert client.post("/compat/run_code", json=body).json()["status"] == "Success"
    assert inn.left[0].limits.memory_mb == 700


def test_a_language_that_is_not_here_is_named(client: httpx.Client, inn: FakeBackend) -> None:
    answer = client.post("/compat/run_code", json=VERL | {"language": "php"})
    assert answer.status_code == 200
    assert answer.json()["status"] == "SandboxError"
    assert answer.json()["message"] == "language: no 'php' here, only: python, bash"
    assert not inn.left


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "code: "),
        (VERL | {"code": 7}, "code: "),
        (VERL | {"files": {"x": "§"}}, "files: 'x'"),
        (VERL | {"run_timeout": 0}, "run_timeout: "),
        (VERL | {"run_timeout": float("nan")}, "run_timeout: "),
    ],
)
def test_what_makes_no_sense_is_a_422(
    client: httpx.Client, body: dict[str, Any], named: str
) -> None:
    answer = client.post("/compat/run_code", content=_json(body))
    assert answer.status_code == 422
    assert named in answer.json()["error"]["message"]


def _json(body: dict[str, Any]) -> str:
    import json

    return json.dumps(body)


# ---------------------------------------------------------------- try again


@pytest.mark.parametrize("failure", [SandboxUnavailable("none"), SandboxLost("gone")])
def test_a_failure_that_passes_is_not_seen(
    client: httpx.Client, inn: FakeBackend, failure: SandboxUnavailable
) -> None:
    inn.refusals = [type(failure)("gone") for _ in range(3)]
    assert client.post("/compat/run_code", json=VERL).json()["status"] == "Success"


@pytest.mark.parametrize("path", ["run_code", "run_jupyter"])
def test_a_failure_of_ours_is_a_504_and_never_a_sandbox_error(
    client: httpx.Client, inn: FakeBackend, path: str
) -> None:
    inn.refusals = [SandboxUnavailable("none can be had") for _ in range(100)]
    answer = client.post(f"/compat/{path}", json=VERL | {"cells": ["1"]})
    assert answer.status_code == 504
    assert "none can be had" in answer.json()["detail"]


def test_a_fault_in_the_code_of_ours_is_a_504(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.parts.feature("compat").handler, "_runner", None)
    assert client.post("/compat/run_code", json=VERL).status_code == 504


def test_what_is_not_done_in_time_goes_on_and_is_taken_up_by_the_retry(
    service: Service, client: httpx.Client, inn: FakeBackend
) -> None:
    service.call(inn.door.clear)
    answer = client.post("/compat/run_code?hold_seconds=0.2", json=VERL)
    assert answer.status_code == 504
    assert answer.json()["error"]["reason"] == "overloaded"
    service.until(lambda: inn.coming == 1)
    other = client.post("/compat/run_code?hold_seconds=0.2", json=VERL | {"code": "other"})
    assert other.status_code == 504
    with asking(service, "/compat/run_code", VERL) as asked:
        service.call(inn.door.set)
        assert asked.result().json()["run_result"]["stdout"] == "printed"
    service.until(lambda: not service.parts.core.running)
    assert len(inn.left) == 2


def test_a_client_that_goes_away_leaves_nothing_behind(service: Service, inn: FakeBackend) -> None:
    service.call(inn.door.clear)
    with service.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/compat/run_code", json=VERL, timeout=httpx.Timeout(WAIT_SECONDS, read=0.5))
    service.until(lambda: inn.coming == 0 and not service.parts.core.running)
    assert service.parts.core.queue.busy == 0


def test_a_full_queue_is_waited_for(inn: FakeBackend) -> None:
    settings = Settings(slots=1, max_queued=1)
    with running_service(settings, backend=inn) as service, service.client() as client:
        service.call(inn.door.clear)
        bodies = [VERL | {"code": str(number)} for number in range(3)]
        with (
            asking(service, "/compat/run_code", bodies[0]) as first,
            asking(service, "/compat/run_code", bodies[1]) as second,
        ):
            service.until(lambda: service.parts.core.queue.queued == 1)
            late = client.post("/compat/run_code?hold_seconds=0.3", json=bodies[2])
            assert late.status_code == 504
            service.call(inn.door.set)
            assert first.result().json()["run_result"]["stdout"] == "0"
            assert second.result().json()["run_result"]["stdout"] == "1"
        again = client.post("/compat/run_code", json=bodies[2])
        assert again.json()["run_result"]["stdout"] == "2"


def test_a_service_that_stops_says_try_again(inn: FakeBackend) -> None:
    with (
        grace_period() as grace,
        running_service(Settings(slots=1, grace_seconds=grace.seconds), backend=inn) as service,
    ):
        service.call(inn.door.clear)
        with asking(service, "/compat/run_code", VERL) as asked:
            service.until(lambda: inn.coming == 1)
            service.drain()
            with service.client() as client:
                late = client.post("/compat/run_code", json=VERL | {"code": "late"})
                assert late.status_code == 504
            grace.end()
            assert asked.result().status_code == 504


def test_what_runs_when_the_service_stops_is_answered(inn: FakeBackend) -> None:
    with running_service(Settings(slots=1), backend=inn) as service:
        service.call(inn.door.clear)
        with asking(service, "/compat/run_code", VERL) as asked:
            service.until(lambda: inn.coming == 1)
            service.drain()
            service.call(inn.door.set)
            assert asked.result().json()["status"] == "Success"


# ---------------------------------------------------------------- /submit


def submitted(**config: Any) -> dict[str, Any]:
    test = [
        {"input": {"stdin": str(number)}, "output": {"stdout": str(number)}} for number in range(3)
    ]
    data = {"id": 1, "content": "", "labels": {}, "test": test}
    fields = {"language": "python", "dataset_type": "CommonOJDataset", "provided_data": data}
    nulls = {"locale": None, "run_timeout": None, "custom_extract_logic": None}
    return {
        "dataset": "any",
        "id": 1,
        "completion": "```python\nprint(input())\n```",
        "config": fields | nulls | config,
    }


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"custom_extract_logic": "import os"}, "custom_extract_logic"),
        ({"dataset_type": "HumanEvalDataset"}, "'HumanEvalDataset' is not served"),
        (
            {"dataset_type": "AutoEvalDataset", "provided_data": {"test": "assert 1"}},
            "'AutoEvalDataset' is not served",
        ),
        ({"dataset_type": "MBPPDataset", "provided_data": None}, "'MBPPDataset' is not served"),
        ({"dataset_type": None}, "data set 'any' is not served"),
        ({"language": "php"}, "no 'php' here"),
        ({"provided_data": {"test": []}}, "provided_data"),
        ({"provided_data": {"test": "{"}}, "provided_data"),
    ],
)
def test_submit_refuses_what_it_does_not_judge(
    client: httpx.Client, config: dict[str, Any], named: str
) -> None:
    answer = client.post("/compat/submit", json=submitted(**config))
    assert answer.status_code == 422
    assert named in answer.json()["error"]["message"]


def test_submit_ends_what_is_behind_the_first_case_that_fails() -> None:
    gate = Gate()
    with running_service(Settings(slots=3), judge=gate) as service:
        with asking(service, "/compat/submit?hold_seconds=0.2", submitted()) as asked:
            assert asked.result().status_code == 504
        service.until(lambda: len(gate.entered) == 3)
        service.call(gate.open)
        with service.client() as client:
            answer = client.post("/compat/submit", json=submitted()).json()
    assert answer["accepted"] is True
    assert [test["passed"] for test in answer["tests"]] == [True] * 3


def test_a_failure_of_ours_in_one_case_is_a_504() -> None:
    judge = Failing(1000)
    with running_service(Settings(slots=1), judge=judge) as service, service.client() as client:
        assert client.post("/compat/submit", json=submitted()).status_code == 504
