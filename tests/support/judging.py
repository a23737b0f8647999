"""What tests of whole judgements ask of a running service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness import Service

JSON = {"Content-Type": "application/json"}


def judge(service: Service, *submissions: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The results of one request; none may be an error."""
    results = ask(service, *submissions, **fields)
    for result in results:
        assert result["error"] is None, result
    return results


def ask(service: Service, *submissions: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The results of one request, whatever they are."""
    with service.client() as client:
        body = {"submissions": submissions, "extract": "none", "cache": False, **fields}
        text = json.dumps(body)  # ASCII: lone surrogates as escapes
        answer = client.post("/reward", content=text, headers=JSON)
        assert answer.status_code == 200, answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        return results


def one(service: Service, completion: str, grader: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The result of one completion."""
    return judge(service, {"completion": completion, "grader": grader, **fields})[0]


def verdicts(service: Service, grader: dict[str, Any], *completions: str, **more: Any) -> list[str]:
    """The verdicts of several completions by one grader; their rewards are checked on the way."""
    items = [{"completion": text, "grader": grader, **more} for text in completions]
    results = judge(service, *items)
    for result in results:
        assert result["reward"] == (1.0 if result["verdict"] == "passed" else 0.0)
    return [result["verdict"] for result in results]


def check_rows(service: Service, rows: Sequence[tuple[str, dict[str, Any], str]]) -> None:
    """Judge each row's source by its grader, all in one request; each has the verdict of its row."""
    items = [{"completion": source, "grader": grader} for source, grader, _ in rows]
    for (source, grader, verdict), result in zip(rows, judge(service, *items), strict=True):
        assert result["verdict"] == verdict, (source, grader, result)
        assert result["reward"] == (1.0 if verdict == "passed" else 0.0)


def stdio(*cases: tuple[str, str], **more: Any) -> dict[str, Any]:
    """A grader of standard input and output."""
    return {"kind": "stdio", "cases": [{"stdin": i, "stdout": o} for i, o in cases], **more}


def calls(*cases: tuple[list[Any], Any], name: str = "f", **more: Any) -> dict[str, Any]:
    """A grader of calls: arguments, and what must be returned."""
    listed = [{"args": args, "expected": expected} for args, expected in cases]
    return {"kind": "calls", "entry_point": name, "cases": listed, **more}
