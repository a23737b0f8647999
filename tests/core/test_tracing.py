"""Traces: one line from the client's call to the sandbox, sent to a collector of the tests' own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from captured_logs import log_lines
from fleet import fleet
from harness import Service, exec_request, free_ports, running_service
from opentelemetry.sdk.trace import TracerProvider
from otlp_receiver import Receiver, otlp_receiver
from policy_server import calls, policy_server
from pydantic import SecretStr

from proctor_client import Client
from proctor_service.errors import JudgeFailed
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.tracing import current_ids
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

TOKEN = "a-very-secret-token"
PROGRAM = "print('a-very-secret-program')"
GRADER = {"kind": "asserts", "tests": ["assert double(2) == 4"]}


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def service(collector: Receiver) -> Iterator[Service]:
    tokens = SecretStr(json.dumps({"me": TOKEN}))
    with running_service(
        Settings(otlp_endpoint=collector.url, tokens=tokens), judge=None
    ) as running:
        yield running


@pytest.mark.slow
def test_one_trace_leads_from_the_clients_call_to_the_sandbox(
    service: Service, collector: Receiver
) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("a trainer")
    with tracer.start_as_current_span("step") as step, Client(service.url, token=TOKEN) as client:
        [result] = client.reward(
            [PROGRAM], grader={"kind": "exec"}, extract="none", job="j"
        ).results
        assert result.verdict == "passed"
    trace_id = f"{step.get_span_context().trace_id:032x}"
    [sandbox] = collector.named("sandbox")
    [judge] = collector.named("judge")
    [queue] = collector.named("queue")
    [evaluate] = collector.named("evaluate")
    [request] = collector.named("POST /reward")
    line = (sandbox, judge, evaluate, request)
    assert {span.trace_id for span in (*line, queue)} == {trace_id}
    for span, parent in pairwise(line):
        assert span.parent_id == parent.span_id
        assert parent.begun <= span.begun <= span.ended <= parent.ended
    assert request.parent_id == f"{step.get_span_context().span_id:016x}"
    assert queue.parent_id == evaluate.span_id
    assert evaluate.attributes["evaluation_id"] == result.evaluation_id
    assert (evaluate.attributes["job"], evaluate.attributes["verdict"]) == ("j", "passed")
    assert sandbox.attributes["sandbox_id"] == result.sandbox_id
    assert request.attributes["http.response.status_code"] == "200"


@pytest.mark.slow
def test_a_rollout_is_one_trace_too(service: Service, collector: Receiver) -> None:
    solution = calls(("submit_solution", {"code": "def double(n):\n    return 2 * n"}))
    with (
        policy_server(lambda asked: solution) as policy,
        Client(service.url, token=TOKEN) as client,
    ):
        task = {"id": "t", "prompt": "double", "grader": GRADER}
        answer = client.rollout(
            [task], policy={"base_url": policy.url, "model": "m", "api_key": "a-very-secret-key"}
        )
    [trajectory] = answer.trajectories
    assert trajectory.reward == 1.0
    [span] = collector.named("trajectory")
    [asked] = collector.named("policy")
    assert span.attributes["rollout_id"] == trajectory.rollout_id
    assert asked.parent_id == span.span_id
    evaluate = [each for each in collector.named("evaluate") if each.parent_id == span.span_id]
    assert len(evaluate) == 1


@pytest.mark.slow
def test_no_span_holds_a_secret_a_text_or_a_path(service: Service, collector: Receiver) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with service.client(headers=headers) as client:
        client.post("/reward", json=exec_request(PROGRAM))
        client.get("/a-very-secret-path")
        client.get("/sandboxes/a-very-secret-id")
        client.post(f"/compat/t/{TOKEN}/run_code", json={"code": PROGRAM})
        client.get("/healthz")
        client.get("/capacity")
    collector.named("GET /capacity")
    collector.named("GET /sandboxes/{sandbox_id}")
    assert b"very-secret" not in collector.raw
    assert not any("healthz" in str(span) for span in collector.spans)


def test_the_logs_name_the_trace(collector: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with (
        log_lines(capsys, "info", current_ids) as lines,
        running_service(Settings(otlp_endpoint=collector.url)) as quick,
        quick.client() as client,
    ):
        client.post("/reward", json=exec_request("x"), headers={"traceparent": parent})
    [judged] = [line for line in lines if line["message"] == "judged"]
    assert judged["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    [opened] = [line for line in lines if line["message"] == "open"]
    assert "trace_id" not in opened


def test_what_fails_is_marked_with_its_reason_and_nothing_of_its_message() -> None:
    async def judge(submission: Submission, backend: Sandboxes) -> Judgement:
        raise JudgeFailed("a-very-secret-message")

    with (
        otlp_receiver() as collector,
        running_service(Settings(otlp_endpoint=collector.url), judge=judge) as service,
        service.client() as client,
    ):
        client.post("/reward", json=exec_request("x"))
        for span in (*collector.named("judge"), *collector.named("evaluate")):
            assert span.failed
            assert span.attributes["error.type"] == "judge_failed"
        assert b"very-secret" not in collector.raw


def test_a_trace_goes_through_the_replica_that_passes_a_request_on() -> None:
    with otlp_receiver() as collector, fleet(2, otlp_endpoint=collector.url) as (first, second):
        sandbox = first.create()
        parent = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        second.client.get(f"/sandboxes/{sandbox}", headers={"traceparent": parent})
        spans = collector.named("GET /sandboxes/{sandbox_id}", 2)
        assert {span.trace_id for span in spans} == {"1af7651916cd43dd8448eb211c80319c"}


def test_a_share_of_the_traces_is_kept_and_a_callers_decision_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    with (
        otlp_receiver() as collector,
        running_service(Settings(otlp_endpoint=collector.url)) as service,
        service.client() as client,
    ):
        client.get("/capacity")
        parent = "00-2af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        client.get("/capacity", headers={"traceparent": parent})
        [span] = collector.named("GET /capacity")
        assert span.trace_id.startswith("2af765")
        client.get("/capacity", headers={"traceparent": "00-nonsense"})


def test_a_collector_that_is_away_holds_nobody_up() -> None:
    [port] = free_ports(1)
    settings = Settings(otlp_endpoint=f"http://127.0.0.1:{port}")
    with running_service(settings) as service, service.client() as client:
        for number in range(20):
            answer = client.post("/reward", json=exec_request(f"x{number}"))
            assert answer.json()["summary"]["passed"] == 1
    # It has ended, though what was left reached nobody.


OFF = """
import sys, asyncio, httpx
from proctor_service.app import build_app
from proctor_service.settings import Settings
from harness import NoBackend, passes, exec_request

app = build_app(Settings(), NoBackend(), passes)

async def ask():
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return (await client.post("/reward", json=exec_request("x"))).status_code

assert asyncio.run(ask()) == 200
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "redis", "requests"))])
"""


def test_nothing_of_it_is_loaded_when_it_is_off() -> None:
    root = Path(__file__).resolve().parents[2]
    path = ":".join(str(root / name) for name in ("client", "service", "tests/support"))
    ran = subprocess.run(
        [sys.executable, "-c", OFF],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path},
        check=True,
    )
    assert ran.stdout == "[]\n"


@pytest.mark.slow
def test_a_client_without_a_span_sends_nothing(service: Service) -> None:
    seen: list[httpx.Headers] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200, json={"status": "ok"})

    with Client("http://x", transport=httpx.MockTransport(note)) as client:
        client.health()
        tracer = TracerProvider(shutdown_on_exit=False).get_tracer("a trainer")
        with tracer.start_as_current_span("step"):
            client.health()
    assert ["traceparent" in headers for headers in seen] == [False, True]
