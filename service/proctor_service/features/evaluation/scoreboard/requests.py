"""Corpus entries in the request formats of other code-judging services and their clients.

Each function returns the conclusion of a client: True for the full reward, False for less, None
without a reward. `NotExpressed`: the format cannot represent the entry.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from proctor_service.features.evaluation.scoreboard.corpus import CorpusEntry
from proctor_service.judge.extract import extract

LIMIT_SECONDS = 10.0
WAIT_SECONDS = 120.0
TRIES = 3
TRY_AGAIN = (503, 504)  # their clients retry these too
# Request body of open-r1: a script runs the program once for each case.
_SCRIPT = """
import subprocess
def share(code, cases):
    good = 0
    for case in cases:
        ran = subprocess.run(["python3", "-c", code], input=case["input"], text=True,
                             capture_output=True, timeout=5)
        if ran.returncode != 0:
            continue
        lines = zip(ran.stdout.strip().split("\\n"), case["output"].strip().split("\\n"))
        good += all(ours.strip() == theirs.strip() for ours, theirs in lines)
    return good / len(cases)
share({code}, {cases})
"""

Judge = Callable[[httpx.Client, CorpusEntry], bool | None]


class NotExpressed(Exception):
    """Entry outside the format: extra files, setup, tolerance, limits, or another grader."""


def sandbox_fusion(client: httpx.Client, entry: CorpusEntry) -> bool | None:
    """`/run_code`: tests appended to the code, or stdin and a comparison in the client (verl)."""
    code = _code(entry)
    if entry.grader["kind"] == "stdio":
        ran = [_run_code(client, entry, code, case["stdin"]) for case in _cases(entry)]
        if None in ran:
            return None
        wanted = [case["stdout"].strip() for case in _cases(entry)]
        return [each and each[1].strip() for each in ran] == wanted
    pasted = entry.tests or "\n".join(["", entry.grader.get("setup", ""), *_asserts(entry)])
    answer = _run_code(client, entry, f"{code}\n{pasted}\n", "")
    return None if answer is None else answer[0]


def _run_code(
    client: httpx.Client, entry: CorpusEntry, code: str, stdin: str
) -> tuple[bool, str] | None:
    seconds = _seconds(entry)
    body = {"code": code, "language": "python", "stdin": stdin, "compile_timeout": seconds,
            "run_timeout": seconds, "memory_limit_MB": 1024, "files": {}, "fetch_files": []}  # fmt: skip
    answer = _post(client, "/run_code", body)
    if answer is None or answer.get("status") == "SandboxError":
        return None
    ran = answer.get("run_result") or {}
    return answer.get("status") == "Success" and ran.get("return_code") == 0, ran.get("stdout", "")


def sandbox_fusion_submit(client: httpx.Client, entry: CorpusEntry) -> bool | None:
    """`/submit` with CommonOJDataset: programs with stdin and stdout."""
    tests = [
        {"input": {"stdin": case["stdin"]}, "output": {"stdout": case["stdout"]}}
        for case in _cases(entry)
    ]
    body = {
        "dataset": "hacks",
        "id": 0,
        "completion": _fenced(entry),
        "config": {
            "dataset_type": "CommonOJDataset",
            "language": "python",
            "compile_timeout": LIMIT_SECONDS,
            "run_timeout": _seconds(entry),
            "provided_data": {"id": 0, "content": entry.prompt, "labels": {}, "test": tests},
            "extra": {"run_all_cases": True},
        },
    }
    answer = _post(client, "/submit", body)
    return None if answer is None else answer.get("accepted") is True


def open_r1(client: httpx.Client, entry: CorpusEntry) -> bool | None:
    """`/execute_batch`: a script with the share of passed cases as its last value."""
    cases = [{"input": case["stdin"], "output": case["stdout"]} for case in _cases(entry)]
    script = _SCRIPT.replace("{code}", json.dumps(_code(entry))).replace(
        "{cases}", json.dumps(cases)
    )
    body = {"scripts": [script], "languages": ["python"], "timeout": 30, "request_timeout": 28}
    answer = _post(client, "/execute_batch", body)
    execution = answer[0].get("execution") if answer else None
    if execution is None:
        return None
    texts = [each.get("text") for each in execution.get("results", ())] or ["0"]
    return _number(texts[-1]) >= 1.0


def open_instruct(client: httpx.Client, entry: CorpusEntry) -> bool | None:
    """`/test_program` and `/test_program_stdio`: a run for each test."""
    body: dict[str, Any] = {"program": _code(entry), "max_execution_time": _seconds(entry)}
    if entry.grader["kind"] == "stdio":
        tests = [{"input": case["stdin"], "output": case["stdout"]} for case in _cases(entry)]
        answer = _post(client, "/test_program_stdio", body | {"tests": tests})
    else:
        answer = _post(client, "/test_program", body | {"tests": _whole_asserts(entry)})
    return None if answer is None else all(answer.get("results") or [0])


def skypilot(client: httpx.Client, entry: CorpusEntry) -> bool | None:
    """`/reward`: assert statements after the code of a response."""
    _without_limits(entry)
    body = {
        "prompt": entry.prompt,
        "response": _fenced(entry),
        "tests": _asserts(entry),
        "setup_code": entry.grader.get("setup", ""),
    }
    answer = _post(client, "/reward", body)
    return None if answer is None else _number(answer.get("reward")) >= 1.0


def slime(client: httpx.Client, entry: CorpusEntry) -> bool | None:
    """`remote_rm`: the label holds assert statements, or inputs and outputs."""
    _without_limits(entry)
    if entry.grader["kind"] == "stdio":
        label: Any = [{"input": c["stdin"], "output": c["stdout"]} for c in _cases(entry)]
    else:
        label = _whole_asserts(entry)
    body = {"prompt": entry.prompt, "response": _fenced(entry), "label": json.dumps(label)}
    answer = _post(client, "/remote_rm", body)
    return None if answer is None else _number(answer) >= 1.0


def code_judge(client: httpx.Client, entry: CorpusEntry) -> bool | None:
    """`/judge/long-batch`: a program for each case, with its expected output."""
    _without_limits(entry)
    programs = [
        {
            "type": "python",
            "solution": _code(entry),
            "input": case["stdin"],
            "expected_output": case["stdout"],
        }
        for case in _cases(entry)
    ]
    answer = _post(client, "/judge/long-batch", {"type": "batch", "submissions": programs})
    results = [] if answer is None else answer.get("results", [])
    if not results or any(each.get("reason") == "queue_timeout" for each in results):
        return None
    return all(each.get("success") is True for each in results)


WIRES: Mapping[str, Judge] = {
    "sandboxfusion": sandbox_fusion,
    "sandboxfusion-submit": sandbox_fusion_submit,
    "open-r1": open_r1,
    "open-instruct": open_instruct,
    "skypilot": skypilot,
    "slime": slime,
    "code-judge": code_judge,
}


def _post(client: httpx.Client, path: str, body: Any) -> Any:
    """Return the answer, or None if the service fails: a failure is an absent judgement."""
    # ASCII escapes, since some programs hold lone surrogates.
    content = json.dumps(body).encode("ascii")
    headers = {"Content-Type": "application/json"}
    for _ in range(TRIES):
        answer = client.post(path, content=content, headers=headers, follow_redirects=True)
        if answer.status_code not in TRY_AGAIN:
            break
    try:
        return answer.json() if answer.status_code == 200 else None
    except ValueError:
        return None


def _code(entry: CorpusEntry) -> str:
    """Return the code in the completion. Raises NotExpressed for entries with extra files."""
    if entry.files:
        raise NotExpressed
    return entry.completion if entry.extract == "none" else extract(entry.completion, "auto") or ""


def _fenced(entry: CorpusEntry) -> str:
    return f"```python\n{_code(entry)}\n```"


def _asserts(entry: CorpusEntry) -> list[str]:
    """Return the tests as statements. Raises NotExpressed for graders without assert statements."""
    grader = entry.grader
    if grader["kind"] == "asserts":
        return list(grader["tests"])
    if grader["kind"] == "calls":
        return [
            f"assert {grader['entry_point']}({', '.join(map(repr, case['args']))}) == {case['expected']!r}"
            for case in grader["cases"]
        ]
    raise NotExpressed


def _whole_asserts(entry: CorpusEntry) -> list[str]:
    if entry.grader.get("setup"):
        raise NotExpressed
    return _asserts(entry)


def _without_limits(entry: CorpusEntry) -> None:
    """Raise NotExpressed for entries with limits: without them a service may work for minutes."""
    if entry.limits:
        raise NotExpressed


def _cases(entry: CorpusEntry) -> list[dict[str, str]]:
    if entry.grader["kind"] != "stdio" or entry.grader.get("tolerance"):
        raise NotExpressed
    return list(entry.grader["cases"])


def _seconds(entry: CorpusEntry) -> float:
    return float(min(entry.limits.get("wall_seconds", LIMIT_SECONDS), LIMIT_SECONDS))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return -math.inf
