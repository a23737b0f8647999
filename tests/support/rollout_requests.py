"""Requests of POST /rollout, and the reading of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from harness import Service, passes, running_service
from policy_server import Act, Asked, PolicyServer, policy_server

from proctor_service.evaluate import Judge
from proctor_service.settings import Settings

KEY = "sk-5f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90"
ASSERTS = {"kind": "asserts", "tests": ["assert f() == 1"]}
NDJSON = {"Accept": "application/x-ndjson"}
REFINE = {"kind": "refine"}
CODE = "```python\ndef f(): return 1\n```"
Row = dict[str, Any]


def task(name: str = "t", **fields: Any) -> Row:
    """A task."""
    return {"id": name, "prompt": f"Write {name}.", "grader": ASSERTS, **fields}


def request(url: str, *tasks: Row, **fields: Any) -> Row:
    """The body of a request that plays these tasks with the policy at `url`."""
    policy = {"base_url": url, "model": "policy", **fields.pop("policy", {})}
    return {"tasks": list(tasks) or [task()], "policy": policy, "agent": REFINE, **fields}


def ask(client: httpx.Client, body: Row, **headers: str) -> Row:
    """Send a request and return its answer."""
    answer = client.post("/rollout", content=json.dumps(body), headers=headers)
    assert answer.status_code == 200, answer.text
    found: Row = answer.json()
    return found


@contextmanager
def playing(
    script: Callable[[Asked], Act], settings: Settings | None = None, *, judge: Judge = passes
) -> Iterator[tuple[PolicyServer, Service, httpx.Client]]:
    """A policy that goes by a script, a service for its rollouts, and a client of that."""
    with (
        policy_server(script) as server,
        running_service(settings, judge=judge) as service,
        service.client() as client,
    ):
        yield server, service, client


def reasons(answer: Row) -> list[str]:
    """The verdict of each trajectory, or the reason of its error."""
    return [each["verdict"] or each["error"]["reason"] for each in answer["trajectories"]]
