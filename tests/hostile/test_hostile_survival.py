"""Every hostile program of the corpus ends in a verdict, and the service goes on as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import Service, running_service
from proctor_service.settings import Settings
from shared_data import shared_data

LIMITS = {"cpu_seconds": 1, "wall_seconds": 1.5, "memory_mb": 256}
HONEST = {
    "completion": "def f(x):\n    return x + 1",
    "grader": {"kind": "asserts", "tests": ["assert f(1) == 2"]},
}
# What a hostile program would print if a wall had a hole.
ESCAPED = (
    "CONNECTED",
    "RESOLVED",
    "ANSWER",
    "READ ",
    "ROOT ",
    "WROTE",
    "RAISED",
    "MOUNTED",
    "CHROOT",
)


def corpus() -> list[dict[str, Any]]:
    lines = shared_data("hostile.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def judge(service: Service, submissions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with service.client() as client:
        body = {"submissions": submissions, "extract": "none", "cache": False}
        answer = client.post("/reward", json=body, timeout=200)
        assert answer.status_code == 200
        results: list[dict[str, Any]] = answer.json()["results"]
        return results


def mounts() -> int:
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


def test_hostile_programs_get_a_verdict_and_do_no_harm() -> None:
    before = mounts()
    passwd = Path("/etc/passwd").read_bytes()
    with running_service(Settings(), judge=None) as service:
        hostile = [
            {
                "id": entry["id"],
                "completion": entry["completion"],
                "grader": {"kind": "asserts", "tests": ["assert double(4) == 8"]},
                "limits": LIMITS,
            }
            for entry in corpus()
        ]
        mixed = [item for each in hostile for item in (each, HONEST)]
        results = judge(service, mixed)
        assert [r["id"] for r in results[::2] if r["verdict"] is None] == []
        said = [
            (r["id"], r["stdout"][:80]) for r in results[::2] if r["stdout"].startswith(ESCAPED)
        ]
        assert said == []
        assert all(r["reward"] == 1.0 for r in results[1::2]), "a neighbour was harmed"
        with service.client() as client:
            assert client.get("/healthz").status_code == 200
        assert all(r["reward"] == 1.0 for r in judge(service, [HONEST] * 20))
    assert mounts() == before
    assert Path("/etc/passwd").read_bytes() == passwd
