"""The end: what runs is finished or handed back, what comes is told to go elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from captured_logs import log_lines
from grace import grace_period
from harness import Gate, NoBackend, Service, exec_request, running_service
from requests_under_way import asking
from waits import WAIT_SECONDS

from proctor_service.errors import StartError
from proctor_service.settings import Settings


def drain_while_it_runs(
    service: Service, gate: Gate, body: dict[str, Any], meanwhile: Callable[[], None]
) -> httpx.Response:
    """Asks, drains once the first item runs, and gives back the answer."""
    with asking(service, "/reward", body) as asked:
        service.until(lambda: bool(gate.entered))
        service.drain()
        meanwhile()
    return asked.result()


def outcomes(answer: httpx.Response) -> list[str]:
    return [each["verdict"] or each["error"]["reason"] for each in answer.json()["results"]]


def test_draining_finishes_what_runs_and_refuses_what_comes() -> None:
    gate, backend = Gate(), NoBackend()
    with running_service(Settings(slots=1), judge=gate, backend=backend) as service:

        def meanwhile() -> None:
            with service.client() as client:
                for answer in (
                    client.post("/reward", json=exec_request("late")),
                    client.get("/readyz"),
                ):
                    assert answer.status_code == 503
                    assert answer.json()["error"]["reason"] == "draining"
                    assert int(answer.headers["retry-after"]) >= 1
                assert client.get("/healthz").status_code == 200
                assert client.get("/capacity").json()["draining"] is True
            service.call(gate.open)

        body = exec_request("a", "b", "c")
        answer = drain_while_it_runs(service, gate, body, meanwhile)
        assert outcomes(answer) == ["passed", "cancelled", "cancelled"]
        assert all(each["error"]["retryable"] for each in answer.json()["results"][1:])
        service.thread.join(WAIT_SECONDS)
        assert backend.closed
        assert gate.entered == ["a"]


def test_what_outlasts_the_grace_is_handed_back_as_cancelled() -> None:
    gate = Gate()
    with (
        grace_period() as grace,
        running_service(Settings(slots=1, grace_seconds=grace.seconds), judge=gate) as service,
    ):
        body = exec_request("a", "b")
        answer = drain_while_it_runs(service, gate, body, grace.end)
        assert outcomes(answer) == ["cancelled", "cancelled"]
        assert gate.cancelled == ["a"]


SERVED = """
    import asyncio, sys
    from grace import grace_period
    from harness import Gate, NoBackend
    from proctor_service.app import build_app, make_server
    from proctor_service.settings import Settings

    class Told(Gate):
        async def __call__(self, submission, backend):
            print("entered", flush=True)
            return await super().__call__(submission, backend)

    with grace_period() as grace:
        settings = Settings(port=0, slots=1, grace_seconds=grace.seconds)
        backend = NoBackend()
        server = make_server(build_app(settings, backend, Told()))
        startup = server.startup

        async def told(sockets=None):
            await startup(sockets)
            print(server.servers[0].sockets[0].getsockname()[1], flush=True)

        server.startup = told
        if NO_GRACE:
            grace.end()
        server.run()
        print("closed", backend.closed, flush=True)
"""


def serve_and(
    *signals: signal.Signals, no_grace: bool = False
) -> tuple[int, str, httpx.Response | None]:
    """Serves in a process of its own, asks, sends the signals once it runs."""
    script = textwrap.dedent(SERVED).replace("NO_GRACE", str(no_grace))
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        async def ask() -> httpx.Response | None:
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_SECONDS) as client:
                url = f"http://127.0.0.1:{port}/reward"
                asked = asyncio.create_task(client.post(url, json=exec_request("a", "b")))
                line = await asyncio.to_thread(process.stdout.readline)  # type: ignore[union-attr]
                assert line == "entered\n"
                for each in signals:
                    process.send_signal(each)
                try:
                    return await asked
                except httpx.HTTPError:
                    return None

        answer = asyncio.run(ask())
        rest = process.stdout.read()
        return process.wait(WAIT_SECONDS), rest, answer


def test_a_signal_drains_a_real_process() -> None:
    code, rest, answer = serve_and(signal.SIGTERM, no_grace=True)
    assert (code, rest) == (0, "closed True\n")
    assert answer is not None
    assert outcomes(answer) == ["cancelled", "cancelled"]


def test_a_second_signal_ends_it_at_once() -> None:
    code, rest, answer = serve_and(signal.SIGINT, signal.SIGTERM)
    assert (code, rest, answer) == (0, "closed True\n", None)


class Broken(NoBackend):
    async def start(self) -> None:
        raise StartError("no namespaces here: do this")


def test_a_backend_that_cannot_open_says_why() -> None:
    backend = Broken()
    with pytest.raises(StartError, match="do this"), running_service(backend=backend):
        pytest.fail("it started")
    assert backend.closed


def test_json_logs_have_fields_and_no_texts(capsys: pytest.CaptureFixture[str]) -> None:
    with log_lines(capsys) as lines, running_service() as service, service.client() as client:
        client.post("/reward", json=exec_request("print('hidden')", job="run-1", tags=["t"]))
    [judged] = [line for line in lines if line["message"] == "judged"]
    assert (judged["job"], judged["tags"], judged["verdicts"]) == ("run-1", ["t"], {"passed": 1})
    assert not any("hidden" in json.dumps(line) for line in lines)
