"""The routes of open-r1's clients with real sandboxes."""

from __future__ import annotations

import json
from typing import Any

import httpx
from compat_requests import post

TEMPLATE = """
    import subprocess
    import json

    def evaluate_code(code, test_cases):
        passed = 0
        total = len(test_cases)
        exec_timeout = 5
        for case in test_cases:
            process = subprocess.run(
                ["python3", "-c", code],
                input=case["input"],
                text=True,
                capture_output=True,
                timeout=exec_timeout
            )
            if process.returncode != 0:
                continue
            if process.stdout.strip() == case["output"].strip():
                passed += 1
        return (passed / total)

    code_snippet = {code}
    test_cases = json.loads({test_cases})

    evaluate_code(code_snippet, test_cases)
    """


def script(code: str) -> str:
    """As open-r1 makes it: indented by four spaces, code and tests as literals."""
    cases = [{"input": "1", "output": "2"}, {"input": "3", "output": "6"}]
    literal = json.dumps(json.dumps(cases))
    return TEMPLATE.replace("{code}", json.dumps(code)).replace("{test_cases}", literal)


def rewards(answer: list[dict[str, Any]]) -> list[float | None]:
    """What open-r1's client makes of it."""
    found: list[float | None] = []
    for each in answer:
        execution = each["execution"]
        try:
            main = [r["text"] for r in execution["results"] if r["is_main_result"]]
            found.append(float(main[0]))
        except (TypeError, IndexError):
            found.append(None)
    return found


def test_open_r1_gets_the_value_of_the_last_expression(client: httpx.Client) -> None:
    scripts = [
        script("print(2 * int(input()))"),
        script("print(2)"),
        script("raise SystemExit(0)"),
        "print('noise')\n1.0",
        "while True: pass",
        "import os; os._exit(0)",
        "1 / 0",
    ]
    body = {"scripts": scripts, "languages": ["python"] * 7, "timeout": 3, "request_timeout": 28}
    answer = post(client, "execute_batch", body)
    assert rewards(answer) == [1.0, 0.5, 0.0, 1.0, 0.0, 0.0, None]
    assert answer[3]["execution"]["logs"] == {"stdout": ["noise\n"], "stderr": []}
    for each in answer:
        assert set(each) == {"execution", "text", "exception_str"}
        assert set(each["execution"]) == {"results", "logs", "error", "execution_count"}
    assert set(answer[6]["execution"]["error"]) == {"name", "value", "traceback"}
    assert [each["execution"]["error"] and each["execution"]["error"]["name"] for each in answer] == [
        None, None, None, None, "TimeoutError", "SystemExit", "ZeroDivisionError",
    ]  # fmt: skip
    assert all(each["exception_str"] is None for each in answer)


def test_scripts_that_are_not_done_in_time_are_null_and_the_others_keep_their_values(
    client: httpx.Client,
) -> None:
    body = {"scripts": ["0.5", "while True: pass"], "languages": ["python"] * 2, "timeout": 60}
    for hold_seconds in (8, 32, 128):  # on a busy machine nothing is done within 8 s
        done, cut = post(client, f"execute_batch?hold_seconds={hold_seconds}", body)
        if done["text"] != "nan":
            break
    assert (done["text"], done["exception_str"]) == ("0.5", None)
    assert (cut["execution"], cut["text"]) == (None, "nan")
    assert cut["exception_str"] == "overloaded: it is not done yet"


def test_the_morph_router_gets_a_text(client: httpx.Client) -> None:
    scripts = {
        "    passed = 3\n    passed / 4\n": "0.75",
        "print(0.5)": "0.5\n",
        "print('debug')\n0.25": "0.25",
        "print(1.0)\n1 / 0": "",
        "x = 1": "",
        "import sys\nsys.exit(0)\n1.0": "0.0",
        "import os\nos._exit(0)": "0.0",
        "while True: pass": "0.0",
    }
    body = {"scripts": list(scripts), "languages": ["python"] * len(scripts), "timeout": 1}
    found = post(client, "execute_batch", body)
    assert [each["text"] for each in found] == list(scripts.values())
    assert all(each["exception_str"] is None for each in found)


def test_open_r1_runs_other_languages(client: httpx.Client) -> None:
    body = {"scripts": ["echo hi", "exit 3"], "languages": ["bash", "bash"], "timeout": 5}
    first, second = post(client, "execute_batch", body)
    assert first["execution"]["logs"]["stdout"] == ["hi\n"]
    assert first["execution"]["error"] is None
    assert second["execution"]["error"]["value"] == "3"
