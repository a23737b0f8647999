"""Requests of the compatible routes, as their clients send these."""

from __future__ import annotations

from typing import Any

import httpx

VERL: dict[str, Any] = {
    "compile_timeout": 10,
    "run_timeout": 10,
    "code": "",
    "stdin": None,
    "memory_limit_MB": 1024,
    "language": "python",
    "files": {},
    "fetch_files": [],
}


def post(client: httpx.Client, path: str, body: Any) -> Any:
    """Post a body to a compatible route and return the answer's JSON."""
    answer = client.post(f"/compat/{path}", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()


def run_code(client: httpx.Client, code: str, **fields: Any) -> dict[str, Any]:
    """What /run_code says; the parts that no client can do without are checked on the way."""
    ran: dict[str, Any] = post(client, "run_code", VERL | {"code": code} | fields)
    for result in (ran["compile_result"], ran["run_result"]):
        if result is not None:
            assert isinstance(result["stdout"], str)
            assert isinstance(result["stderr"], str)
    return ran
