"""The playground: a completion judged by hand, by what a form says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from proctor_service.errors import InvalidRequest

JOB = "playground"
KINDS: Mapping[str, str] = {
    "asserts": "Python asserts, one per line",
    "stdio": "standard input and expected output",
    "pytest": "a file of pytest tests",
    "exec": "none: it must run and exit with 0",
    "json": "a grader as JSON",
}
EXAMPLE: Mapping[str, str] = {
    "completion": "```python\ndef double(n):\n    return 2 * n\n```",
    "kind": "asserts",
    "tests": "assert double(2) == 4\nassert double(0) == 0",
    "stdin": "",
    "language": "python",
}


def request_of(form: Mapping[str, str]) -> bytes:
    """Return the body of POST /reward for a form. Raises InvalidRequest."""
    kind = form.get("kind", "")
    if kind not in KINDS:
        raise InvalidRequest(f"kind: one of {', '.join(KINDS)}")
    tests = form.get("tests", "").replace("\r\n", "\n")
    submission = {
        "completion": form.get("completion", "").replace("\r\n", "\n"),
        "grader": _GRADERS[kind](tests, form.get("stdin", "").replace("\r\n", "\n")),
        "language": form.get("language", "python"),
    }
    return json.dumps({"submissions": [submission], "job": JOB}).encode()


def _asserts(tests: str, _: str) -> Any:
    return {"kind": "asserts", "tests": [each for each in tests.split("\n") if each.strip()]}


def _stdio(tests: str, stdin: str) -> Any:
    return {"kind": "stdio", "cases": [{"stdin": stdin, "stdout": tests}]}


def _pytest(tests: str, _: str) -> Any:
    return {"kind": "pytest", "files": {"test_submission.py": tests}}


def _exec(_: str, __: str) -> Any:
    return {"kind": "exec"}


def _json(tests: str, _: str) -> Any:
    try:
        return json.loads(tests)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"tests: no JSON: {error}") from None


_GRADERS: Mapping[str, Callable[[str, str], Any]] = {
    "asserts": _asserts,
    "stdio": _stdio,
    "pytest": _pytest,
    "exec": _exec,
    "json": _json,
}
