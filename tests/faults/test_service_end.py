"""The end of the service while a thread still works on a request that was given up."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path
from threading import Barrier
from urllib.parse import urlsplit

import httpx
import pytest
from service_process import ROOT, ServiceProcess
from waits import WAIT_SECONDS

_ENDLESS = """
import time
import proctor_service.judge.graders.asserts as asserts

def analyse(*arguments, **options):
    time.sleep(3600)

asserts.analyse = analyse
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_signal_ends_the_service_while_an_analysis_goes_on(
    workers: int, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_ENDLESS)
    folders = (tmp_path, ROOT / "client", ROOT / "service")
    settings = {
        "PYTHONPATH": ":".join(map(str, folders)),
        "PROCTOR_WORKERS": str(workers),
        "PROCTOR_GRACE_SECONDS": "4",
        "PROCTOR_ALLOW_DEGRADED": "true",
    }
    body = {
        "submissions": [{"completion": "def f(): return 1"}],
        "grader": {"kind": "asserts", "tests": ["assert f() == 1"]},
        "extract": "none",
        "deadline_seconds": 2,
    }
    with ServiceProcess(**settings) as service:
        answer = httpx.post(f"{service.url}/reward", json=body, timeout=WAIT_SECONDS)
        assert answer.json()["results"][0]["error"]["reason"] == "deadline"
        service.stop()  # raises if it does not end
        assert "closed" in service.logged


def test_who_is_connected_is_answered() -> None:
    """A proxy may send a request to another replica only if this one refused the connection."""
    clients = 16
    with ServiceProcess() as service, ThreadPoolExecutor(clients) as threads:
        port = urlsplit(service.url).port
        assert port is not None
        all_answered = Barrier(clients + 1)
        knocking = [
            threads.submit(_answers_until_refused, port, all_answered) for _ in range(clients)
        ]
        all_answered.wait(WAIT_SECONDS)
        service.stop()
        assert all(b"HTTP/1.1 " in answer for each in knocking for answer in each.result())


def _answers_until_refused(port: int, all_answered: Barrier) -> list[bytes]:
    """Answers to requests on connections of their own; the first one of each client is awaited."""
    answers: list[bytes] = []
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
        except ConnectionRefusedError:
            return answers
        with connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answers.append(connection.recv(4096))
        if len(answers) == 1:
            all_answered.wait(WAIT_SECONDS)


def test_each_request_of_a_stopped_service_has_a_whole_answer() -> None:
    """Two are half sent, one waits and is judged, and the answer to one is unread for a while."""
    quick = {"completion": "print('x' * 60_000)"}
    slow = {"completion": "import time\ntime.sleep(1)"}
    half, at_work, unread = (
        json.dumps({"submissions": each, "grader": {"kind": "exec"}, "extract": "none"}).encode()
        for each in ([quick], [slow] * 40, [quick] * 400)
    )
    settings = {"PROCTOR_GRACE_SECONDS": f"{WAIT_SECONDS}", "PROCTOR_ALLOW_DEGRADED": "true"}
    with ServiceProcess(**settings) as service:
        port = urlsplit(service.url).port
        connections = [
            socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) for _ in range(4)
        ]
        with ExitStack() as stack:
            head_sent, body_sent, working, reading = map(stack.enter_context, connections)
            reading.sendall(_post(unread))
            assert reading.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) == b"HTTP/1.1 200"
            head_sent.sendall(_post(half)[:40])
            body_sent.sendall(_post(half)[:-20])
            working.sendall(_post(at_work))
            while httpx.get(f"{service.url}/capacity").json()["queued"] == 0:
                pass
            with ThreadPoolExecutor(1) as pool:
                stopping = pool.submit(service.stop)
                _check_refused(head_sent)  # once no work runs
                for each, count in ((reading, 400), (working, 40)):
                    answer = HTTPResponse(each)
                    answer.begin()
                    results = json.load(answer)["results"]
                    assert len(results) == count
                    for result in results:
                        back = result["error"] and result["error"]["reason"]
                        assert (result["reward"], back) in ((1.0, None), (None, "cancelled"))
                body_sent.sendall(_post(half)[-20:])
                _check_refused(body_sent)
                stopping.result()
        assert "Traceback" not in service.logged


def _check_refused(connection: socket.socket) -> None:
    answer = HTTPResponse(connection)
    answer.begin()
    assert (answer.status, answer.headers["Proctor-Wire"]) == (503, "1")
    error = json.load(answer)["error"]
    assert (error["reason"], error["retryable"]) == ("draining", True)


def _post(body: bytes) -> bytes:
    return (
        b"POST /reward HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )


def test_the_status_and_the_last_words_of_a_process_stay() -> None:
    program = (
        "import threading, time\n"
        "from proctor_service.http.process_end import end_process\n"
        "threading.Thread(target=time.sleep, args=(3600,)).start()\n"
        "print('the last word')\n"
        "end_process(2)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert (ended.returncode, ended.stdout) == (2, "the last word\n")
