"""Every route of the service, with bodies that it takes: what the fuzzers start from."""

from __future__ import annotations

import base64
import pickle
import zlib
from typing import Any

from fuzz_requests import Route

CODE = "def double(n):\n    return 2 * n\n"
LIMITS = {
    "cpu_seconds": 1, "wall_seconds": 2.5, "memory_mb": 64, "output_kb": 4, "processes": 2,
    "disk_mb": 1, "network": False,
}  # fmt: skip
ASSERTS = {
    "kind": "asserts", "tests": ["assert double(2) == 4"], "setup": "x = 1", "entry_point": "double",
}  # fmt: skip
CALL = {"args": [1, [2.5, None]], "kwargs": {"k": {"a": True}}, "expected": {"x": [1]}}
CALLS = {"kind": "calls", "entry_point": "double", "cases": [CALL], "tolerance": 1e-9}
STDIO = {
    "kind": "stdio", "cases": [{"stdin": "1\n", "stdout": "2\n"}], "compare": "lines",
    "tolerance": 0.5, "reveal": True,
}  # fmt: skip
CHECKER = {
    "source": "pass", "language": "python", "files": {"a.h": ""}, "limits": LIMITS, "argv": ["a"],
    "convention": "open_r1", "max_points": 2.5,
}  # fmt: skip
CHECKED = {
    "kind": "stdio", "cases": [{"stdin": "1", "stdout": None}], "checker": CHECKER,
    "subtasks": [{"points": 1.5, "cases": [0]}, {"points": 2, "cases": [0], "requires": [0]}],
}  # fmt: skip
GENERATED = {
    "kind": "stdio", "checker": "one_of",
    "cases": {
        "generator": {"source": "print(1)", "limits": LIMITS}, "seeds": [1, "2 a"],
        "reference": {"source": "print(2)", "files": {"a": "b"}},
    },
}  # fmt: skip
PYTEST = {"kind": "pytest", "files": {"test_a.py": "def test_a(): pass", "d/b.py": ""}}
COMMAND = {"kind": "command", "argv": ["python3", "solution.py"], "expect_exit_code": 3}
RUNNER = {"kind": "command", "runner": "pytest", "files": PYTEST["files"]}
APART = {"kind": "exec", "setup": "x = 1", "tests": "assert x == 1", "empty_stderr": True}
GRADERS: list[dict[str, Any]] = [
    {"kind": "exec"}, APART, ASSERTS, CALLS, STDIO, CHECKED, GENERATED, PYTEST, COMMAND, RUNNER,
]  # fmt: skip
FENCED = f"```python\n{CODE}```"
CHAT = [
    {"role": "user", "content": "Write it.", "name": "a"},
    {"role": "assistant", "content": [{"type": "text", "text": FENCED}], "refusal": None},
]
CELLS = ["x = 6", "x * 7"]
PACKED = base64.b64encode(zlib.compress(pickle.dumps([{"input": "1\n", "output": "2\n"}])))


def _rewards() -> list[Any]:
    submission = {
        "id": "a", "completion": FENCED, "limits": LIMITS, "scoring": "fraction", "group": "g",
        "files": {"data/x.txt": "1"}, "language": "python",
    }  # fmt: skip
    request = {
        "submissions": [submission, {"completion": CHAT}], "limits": LIMITS, "scoring": "all",
        "extract": "auto", "tags": ["a", "b"], "job": "j", "priority": "evaluation",
        "deadline_seconds": 30, "cache": False,
    }  # fmt: skip
    own = [{"submissions": [{**submission, "grader": grader}]} for grader in GRADERS]
    shell = {
        "submissions": [{"completion": "echo 1", "language": "bash", "grader": {"kind": "exec"}}]
    }
    return [{**request, "grader": grader} for grader in GRADERS] + own + [shell]


def _rollouts(policy_url: str) -> list[Any]:
    policy = {
        "base_url": policy_url, "model": "m", "api_key": "secret", "temperature": 1.0,
        "max_tokens": 100, "logprobs": True, "extra_body": {"top_k": 5}, "timeout_seconds": 5,
    }  # fmt: skip
    task = {
        "id": "t", "prompt": "Write double.", "grader": ASSERTS, "files": {"a.txt": "1"},
        "metadata": {"a": [1, None]},
    }  # fmt: skip
    chat = {
        **task,
        "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    }
    tools = {
        "kind": "tools", "tools": ["execute_code", "submit_solution", "bash", "read_file"],
        "max_turns": 3, "exec_timeout_seconds": 5, "observation_characters": 300,
        "system_prompt": "p",
    }  # fmt: skip
    refine = {"kind": "refine", "max_attempts": 2, "observation_characters": 300}
    base = {
        "tasks": [task, chat], "policy": policy, "trajectories_per_task": 1, "limits": LIMITS,
        "scoring": "fraction", "extract": "fence", "tags": ["a"], "job": "j", "deadline_seconds": 20,
        "priority": "training",
    }  # fmt: skip
    return [
        {**base, "agent": refine},
        {**base, "agent": tools},
        {"tasks": [task], "policy": policy},
    ]


def _compatible() -> list[Route]:
    run = {
        "compile_timeout": 10, "run_timeout": 10, "code": "print(1)", "stdin": None,
        "memory_limit_MB": -1, "language": "python", "files": {"a/b": "AAEC", "c": None},
        "fetch_files": ["a/b", "out"],
    }  # fmt: skip
    notebook = {
        "cells": CELLS, "cell_timeout": 0, "total_timeout": 45, "kernel": "python3", "files": {},
        "fetch_files": [],
    }  # fmt: skip
    data = {
        "id": 1, "content": "", "labels": {},
        "test": [{"input": {"stdin": "1"}, "output": {"stdout": "2"}}],
    }  # fmt: skip
    config = {
        "dataset_type": "CommonOJDataset", "language": "python", "run_timeout": 5,
        "provided_data": data, "extra": {"run_all_cases": True},
    }  # fmt: skip
    submit = {"dataset": "x", "id": 1, "completion": FENCED, "config": config}
    text = '[{"input": {"stdin": "1"}, "output": {"stdout": "2"}}]'
    scripts = {
        "scripts": ["    x = 3\n    x / 4\n", "1"], "languages": ["python", None], "timeout": 30,
        "request_timeout": 28,
    }  # fmt: skip
    asserts = {"program": CODE, "tests": ["assert double(2) == 4"], "max_execution_time": 1.0}
    stdio = {**asserts, "tests": [{"input": "1\n", "output": ["2", "3"]}]}
    item = {"prompt": "p", "response": FENCED, "tests": ["assert double(2) == 4"], "setup_code": ""}
    query = {"query": [f"p{FENCED}"], "prompts": ["p"], "labels": ['["assert double(2) == 4"]']}
    label = {"prompt": "p", "response": FENCED, "label": '["assert double(2) == 4"]'}
    program = {
        "type": "python", "solution": "print(1)", "input": None, "expected_output": "1",
        "sub_id": "a", "options": {"a": "b"},
    }  # fmt: skip
    batch = {"type": "batch", "submissions": [program, program], "sub_id": "b"}
    return [
        *(Route("POST", f"/compat/{path}", [program]) for path in ("run", "judge")),
        *(
            Route("POST", f"/compat/{path}/{kind}", [batch])
            for path in ("run", "judge")
            for kind in ("batch", "long-batch")
        ),
        Route("GET", "/compat/ping"),
        Route("GET", "/compat/status"),
        Route("POST", "/compat/run_code", [run, {"code": "print(1)"}, {**run, "language": "bash"}]),
        Route("POST", "/compat/run_jupyter", [notebook]),
        Route(
            "POST", "/compat/submit", [submit, {**submit, "provided_data": {**data, "test": text}}]
        ),
        Route("POST", "/compat/execute_batch", [scripts, {"scripts": ["1"], "language": "python"}]),
        Route("POST", "/compat/test_program", [asserts, {**asserts, "tests": '["assert 1"]'}]),
        Route("POST", "/compat/test_program_stdio", [stdio, {**stdio, "tests": PACKED.decode()}]),
        Route("POST", "/compat/reward", [item]),
        Route("POST", "/compat/batch_reward", [{"items": [item, item]}]),
        Route("POST", "/compat/remote_rm", [label, *({**label, "label": each} for each in LABELS)]),
        Route(
            "POST", "/compat/get_reward", [query, *({**query, "labels": [each]} for each in LABELS)]
        ),
        Route("GET", "/compat/v1/ping"),
        Route("GET", "/compat/health"),
        Route("POST", "/compat/t/token/reward", [item]),
    ]


LABELS: list[Any] = [
    ASSERTS,
    ["assert double(1) == 2"],
    [{"input": "1", "output": "2"}],
    {"inputs": ["1", ["2"]], "outputs": ["2", ["4"]]},
]


def routes(policy_url: str) -> list[Route]:
    """All of them; a rollout asks the policy at this URL."""
    sandbox = {
        "tags": ["a", "b"],
        "limits": LIMITS,
        "ttl_seconds": 60,
        "files": {"a/b": "1"},
        "job": "j",
    }
    one = "/sandboxes/{id}"
    execute = [
        {"command": ["true"], "stdin": "x", "timeout_seconds": 1},
        {"code": "print(1)", "stdin": "x"},
    ]
    grade = [{"grader": grader, "scoring": "all", "limits": LIMITS} for grader in GRADERS]
    return [
        Route("POST", "/reward", _rewards()),
        Route("POST", "/tasks", [{"tasks": [{"grader": grader} for grader in GRADERS]}]),
        Route("POST", "/rollout", _rollouts(policy_url)),
        Route("POST", "/sandboxes", [sandbox, {}]),
        Route("GET", "/sandboxes"),
        Route("DELETE", "/sandboxes?tag=a"),
        Route("GET", one),
        Route("DELETE", one),
        Route("POST", one + "/exec", execute),
        Route("PUT", one + "/files/a/b", ["x"]),
        Route("GET", one + "/files/a/b"),
        Route("POST", one + "/grade", grade),
        *_compatible(),
        *(
            Route("GET", path)
            for path in ("/healthz", "/readyz", "/capacity", "/fingerprint", "/metrics")
        ),
    ]
