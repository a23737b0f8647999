"""code-judge's routes as rStar2, RLinf and code-judge's own client call these."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from functools import partial
from typing import Any

import httpx
import pytest
from compat_clients import Failing
from constants import constants
from harness import Gate, running_service

from proctor_service.errors import JudgeFailed
from proctor_service.features.compat.code_judge import BatchHead, Program, parse_batch
from proctor_service.settings import Settings

JUDGED = {"sub_id", "success", "run_success", "cost", "reason"}
RAN = JUDGED | {"stdout", "stderr"}
BATCH_ROUTES = ["/run/batch", "/run/long-batch", "/judge/batch", "/judge/long-batch"]


def program(solution: str, **fields: Any) -> dict[str, Any]:
    return {"type": "python", "solution": solution, "input": None} | fields


def batch(*programs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "batch", "submissions": list(programs)} | fields


# ---------------------------------------------------------------- programs, with real sandboxes

CPP = '#include <cstdio>\nint main() { int n; scanf("%d", &n); printf("%d\\n", 2 * n); }'
BY_OS_EXIT = "import os, sys\nprint('it broke', file=sys.stderr)\nos._exit(1)"
PROGRAMS: list[tuple[dict[str, Any], tuple[bool, bool, str], str, str]] = [
    (program("print(input())", input="9", expected_output=" 9\n"), (True, True, ""), "9\n", ""),
    (program("print(input())", input="9", expected_output="8"), (False, True, ""), "9\n", ""),
    (program("print(6 * 7)"), (True, True, ""), "42\n", ""),
    (program("print(0.5)", expected_output="0.50"), (False, True, ""), "0.5\n", ""),
    (program("raise SystemExit(0)", expected_output=None), (True, True, ""), "", ""),
    (program(BY_OS_EXIT, expected_output=""), (False, False, ""), "", "it broke"),
    (program("print(1)\n1 / 0"), (False, False, ""), "1\n", "ZeroDivisionError"),
    (program("input()", input=""), (False, False, ""), "", "EOFError"),
    (program("x = ["), (False, False, ""), "", "SyntaxError"),
    (program("print('é' * 5000)"), (True, True, ""), "é" * 1000, ""),
    (program(CPP, type="cpp", input="4", expected_output="8"), (True, True, ""), "8\n", ""),
    (program("int main() { return x; }", type="cpp"), (False, False, ""), "", "‘x’"),
    (program("x = ' ' * (400 << 20)"), (False, False, ""), "", "memory"),
]  # fmt: skip


def test_programs_in_a_batch(client: httpx.Client) -> None:
    asked = [each for each, *_ in PROGRAMS]
    for kind, fields in (("run", RAN), ("judge", JUDGED)):
        answer = client.post(f"/compat/{kind}/long-batch", json=batch(*asked), timeout=300)
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) == {"sub_id", "results"}
        results = answer.json()["results"]
        assert [set(each) for each in results] == [fields] * len(PROGRAMS)
        for result, (_, expected, out, err) in zip(results, PROGRAMS, strict=True):
            assert (result["success"], result["run_success"], result["reason"]) == expected, result
            assert isinstance(result["cost"], float)
            assert isinstance(result["sub_id"], str)
            if kind == "run":
                assert result["stdout"] == out
                assert err in result["stderr"]


def test_a_program_alone(client: httpx.Client) -> None:
    asked = program("print(input())", input="a", expected_output="a", sub_id="p")
    ran = client.post("/compat/run", json=asked).json()
    assert ran | {"cost": 0} == {
        "sub_id": "p", "success": True, "run_success": True, "cost": 0, "stdout": "a\n",
        "stderr": "", "reason": "",
    }  # fmt: skip
    judged = client.post("/compat/judge", json=asked).json()
    assert set(judged) == JUDGED
    assert judged["success"] is True
    assert client.get("/compat/ping").json() == "pong"
    assert set(client.get("/compat/status").json()) == {"queue", "num_workers"}


def test_time_is_the_workers(client: httpx.Client) -> None:
    settings = Settings(cpu_seconds=1, wall_seconds=1)
    with (
        constants(max_cpu_seconds=1.0, max_wall_seconds=1.0),
        running_service(settings, judge=None) as short,
        short.client() as asking,
    ):
        endless = [program("while True: pass"), program("import time\ntime.sleep(100)")]
        results = asking.post("/compat/run/batch", json=batch(*endless)).json()["results"]
    assert [each["reason"] for each in results] == ["worker_timeout"] * 2
    assert not any(each["success"] or each["run_success"] for each in results)


# ---------------------------------------------------------------- failures of the service


class RStarClient:
    """Asks as rStar2's client does: again after an error, and alone for what timed out in the queue.

    The second time it asks for a part, it takes the item from the wrong list, as rStar2 does.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.attempts = 0

    def results(self, path: str, programs: list[dict[str, Any]]) -> list[Any]:
        """Return the results, None for a program without one."""
        results: list[Any] = [None] * len(programs)
        left, places = programs, list(range(len(programs)))
        while left and self.attempts < 4:
            self.attempts += 1
            answer = self._client.post(path, json=batch(*left))
            if answer.status_code != 200:
                continue
            again: list[tuple[int, dict[str, Any]]] = []
            for place, result in zip(places, answer.json()["results"], strict=True):
                if result["reason"] == "queue_timeout":
                    again.append((place, left[place]))
                else:
                    results[place] = result
            left = [each for _, each in again]
            places = [place for place, _ in again]
        return results


@pytest.mark.parametrize("path", BATCH_ROUTES)
def test_what_takes_long_is_asked_for_again_as_a_whole(path: str) -> None:
    gate = Gate()
    programs = [program(f"print({index})", sub_id=str(index)) for index in range(300)]
    with running_service(judge=gate) as service, service.client() as client:
        for index in range(0, 300, 2):
            service.call(partial(gate.release, f"print({index})"))
        early = client.post(f"/compat{path}?hold_seconds=0.5", json=batch(*programs, sub_id="b"))
        assert early.status_code == 200
        assert early.json()["sub_id"] == "b"
        assert [each["sub_id"] for each in early.json()["results"]] == list(map(str, range(300)))
        assert {each["reason"] for each in early.json()["results"]} == {"queue_timeout"}
        assert not any(each["success"] for each in early.json()["results"])
        service.call(gate.open)
        again = client.post(f"/compat{path}", json=batch(*programs, sub_id="b")).json()["results"]
    assert [each["sub_id"] for each in again] == list(map(str, range(300)))
    assert all(each["success"] and each["reason"] == "" for each in again)
    assert len(gate.entered) == 300


def test_rstar_gets_the_result_of_each_program() -> None:
    gate = Gate()
    programs = [program(f"print({index})", sub_id=str(index)) for index in range(8)]
    with running_service(judge=gate) as service, service.client() as client:
        for index in (0, 2, 3):
            service.call(partial(gate.release, f"print({index})"))
        asking = RStarClient(client)
        assert asking.results("/compat/run/long-batch?hold_seconds=0.2", programs) == [None] * 8
        assert asking.attempts == 4
        service.call(gate.open)
        results = RStarClient(client).results("/compat/run/long-batch", programs)
    assert [each["sub_id"] for each in results] == list(map(str, range(8)))


@pytest.mark.parametrize("path", ["/run", "/judge", *BATCH_ROUTES])
def test_for_one_program_a_failure_is_a_503(path: str) -> None:
    one = program("print(1)")
    body = batch(one) if "batch" in path else one
    with (
        running_service(Settings(slots=1), judge=Failing(1000)) as service,
        service.client() as client,
    ):
        answer = client.post(f"/compat{path}?hold_seconds=0.3", json=body)
    assert answer.status_code == 503
    assert "success" not in answer.text


def test_a_failure_that_passes_is_not_seen() -> None:
    judge = Failing(3, JudgeFailed("not now"))
    programs = [program(f"print({index})") for index in range(5)]
    with running_service(judge=judge) as service, service.client() as client:
        results = client.post("/compat/run/batch", json=batch(*programs)).json()["results"]
    assert [each["reason"] for each in results] == [""] * 5


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/run", {"type": "python"}, "solution"),
        ("/run", program("1", type="math"), "math is not judged here yet"),
        ("/run", program("1", type="ruby"), "type"),
        ("/run/batch", {"type": "batch"}, "no such list"),
        ("/run/batch", batch(), "there is none"),
        ("/run/batch", {"submissions": {"a": 1}}, "no such list"),
        ("/run/batch", batch(program("1"), 3), "submissions.1: not an object"),  # type: ignore[arg-type]
        ("/run/batch", batch([program("1")]), "submissions.0"),  # type: ignore[arg-type]
        ("/judge/batch", batch(program("1"), {"type": "cpp"}), "submissions.1.solution"),
        ("/judge/batch", batch(program("1", type="math")), "submissions.0.type"),
        ("/judge/batch", batch(program("1"), type="one"), "type"),
    ],
)
def test_what_must_not_be_sent(
    client: httpx.Client, path: str, body: dict[str, Any], said: str
) -> None:
    answer = client.post(f"/compat{path}", json=body)
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"submissions": [',
        b'{"submissions": [}]}',
        b'{"submissions": [{"type": "python", "solution": "1"} {"type": "python", "solution": "1"}]}',
        b'{"submissions": [{"type": "python", "solution": "1"}, ]}',
        b'{"submissions": [{"type": "python", "solution": "1"}], "submissions": []}',
        b'{"a" "submissions": [{"type": "python", "solution": "1"}]}',
        b'{"submissions": [{"type": "python", "solution": "\xff"}]}',
        b'{"submissions": [' + b'{"a":' * 100_000,
        b'{"submissions": [' + b'"\\' * 100_000,
    ],
)
def test_a_batch_that_is_no_json(client: httpx.Client, body: bytes) -> None:
    assert client.post("/compat/run/batch", content=body).status_code == 422


def test_brackets_and_quotes_in_texts_are_texts() -> None:
    texts = [']}"', "\\", '{"submissions": [', "é\ud800", '\\"]']
    body = {"sub_id": "[{", "x": [[{"submissions": [1]}]], **batch(*map(program, texts)), "y": {}}

    async def parsed() -> list[str]:
        data = bytearray(json.dumps(body, indent=1).encode())
        found = await parse_batch("submissions", BatchHead, Program, data)
        assert found.head == BatchHead(sub_id="[{")
        return [each.solution for each in found]

    assert asyncio.run(parsed()) == texts


def test_45_000_programs_take_little_memory_beside_their_bytes() -> None:
    one = json.dumps(program("#" * 1000 + "\nprint(1)", sub_id=None, expected_output="1"))
    body = bytearray(b'{"type": "batch", "submissions": [')
    body += b", ".join([one.encode()] * 45_000) + b"]}"
    assert len(body) > 45 << 20

    async def peak_bytes() -> int:
        tracemalloc.start()
        try:
            found = await parse_batch("submissions", BatchHead, Program, body)
            assert sum(each.expected_output == "1" for each in found) == 45_000
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(peak_bytes()) < 4 << 20
