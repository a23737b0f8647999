"""The grader `repository` by /reward, by a sandbox's grade and by a rollout, in the default environment.

The repository is made by `prepare`, and the task's tests write JUnit XML themselves.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness import Service
from policy_server import Act, Asked, calls, policy_server, says
from waits import WAIT_SECONDS

pytestmark = pytest.mark.slow

Row = dict[str, Any]
CORE = "def double(n):\n    return n + n + 1\n\n\ndef half(n):\n    return n / 2\n"
MAKE = f"mkdir -p pkg && cat > pkg/core.py <<'END'\n{CORE}END\n: > pkg/__init__.py; echo hidden > secret"
MOVE = "mv /box/work /box/moved; ln -s moved /box/work"
CHECK = """
import sys
sys.path.insert(0, ".")
sys.dont_write_bytecode = True
from pkg.core import double, half

CASES = {"test_double": lambda: double(2) == 4, "test_half": lambda: half(4) == 2}
lines = []
for name, holds in CASES.items():
    inner = "" if holds() else "<failure/>"
    lines.append(f'<testcase classname="checks" name="{name}">{inner}</testcase>')
open("report.xml", "w").write(f"<testsuite>{''.join(lines)}</testsuite>")
"""
RIGHT = """diff --git a/pkg/core.py b/pkg/core.py
--- a/pkg/core.py
+++ b/pkg/core.py
@@ -1,3 +1,3 @@
 def double(n):
-    return n + n + 1
+    return n + n

"""
WRONG = RIGHT.replace("+    return n + n\n", "+    return n - n\n")
BREAKS = RIGHT + "@@ -5,2 +5,2 @@\n def half(n):\n-    return n / 2\n+    return n\n"
TESTS = RIGHT.replace("pkg/core.py", "checks.py").replace("n + n + 1", "0")
EDITS = "pkg/core.py\n<<<<<<< SEARCH\n    return n + n + 1\n=======\n    return n + n\n>>>>>>> REPLACE\n"


def grader(**more: Any) -> Row:
    return {
        "kind": "repository",
        "prepare": {"commands": [MAKE]},
        "hide": ["secret"],
        "files": {"checks.py": CHECK},
        "test": "python3 checks.py",
        "report": {"junit": ["report.xml"]},
        "fail_to_pass": ["checks.test_double"],
        "pass_to_pass": ["checks.test_half"],
        "env": {"MARK": "set"},
        **more,
    }


def rewarded(service: Service, *items: Row, status: int = 200, **fields: Any) -> Any:
    with service.client() as client:
        body = {"submissions": list(items), "grader": grader(), "cache": False, **fields}
        answer = client.post("/reward", json=body, timeout=WAIT_SECONDS)
        assert answer.status_code == status, answer.text
        return answer.json()["results"] if status == 200 else answer.json()["error"]["message"]


def shell(script: str) -> Row:
    return {"command": ["sh", "-c", script]}


def test_completions_are_judged_by_named_tests(service: Service) -> None:
    rows: dict[str, tuple[Row, Any]] = {
        "right": ({"completion": f"So:\n```diff\n{RIGHT}```\n"}, (1.0, "passed")),
        "edits": ({"completion": EDITS, "extract": "edits"}, (1.0, "passed")),
        "wrong": ({"completion": WRONG}, (0.0, "failed")),
        "breaks another": ({"completion": BREAKS}, (0.0, "failed")),
        "prose": ({"completion": "It is fine as it is."}, (0.0, "no_code")),
        "elsewhere": ({"completion": RIGHT.replace("n + n + 1", "n ** 2")}, (0.0, "syntax_error")),
        "the task's file": ({"completion": TESTS}, (0.0, "failed")),
        "moves the repository": (
            {"completion": RIGHT, "grader": grader(test=f"python3 checks.py; {MOVE}")},
            (0.0, "runtime_error"),
        ),
        "a share": ({"completion": BREAKS, "scoring": "fraction"}, (0.0, "failed")),
    }
    results = rewarded(service, *(row for row, _ in rows.values()))
    found = {
        name: (each["reward"], each["verdict"]) for name, each in zip(rows, results, strict=True)
    }
    assert found == {name: wanted for name, (_, wanted) in rows.items()}, results
    by_name = dict(zip(rows, results, strict=True))
    assert "pkg/core.py: hunk 1: " in by_name["elsewhere"]["message"]
    assert by_name["right"]["tests"] == {"passed": 2, "total": 2, "failures": []}
    assert by_name["breaks another"]["repository"]["pass_to_pass"] == {
        "passed": 0, "total": 1, "failed": ["checks.test_half"],
    }  # fmt: skip
    assert by_name["the task's file"]["repository"]["left_out"] == [
        {"path": "checks.py", "reason": "protected"}
    ]
    assert {each["integrity"] for each in results} == {"in_process"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"fail_to_pass": [], "pass_to_pass": []}, "names no test"),
        ({"test": "true"}, "reports none of the listed tests"),
        ({"directory": "/none"}, "there is no folder /none"),
        ({"prepare": {"commands": ["false"]}}, "prepare.commands.0 ends with 1"),
        ({"test_patch": RIGHT.replace("n + n + 1", "x")}, "test_patch does not apply"),
        ({"reference": RIGHT.replace("n + n + 1", "x")}, "reference does not apply"),
    ],
)
def test_a_broken_task_is_an_error(service: Service, fields: Row, why: str) -> None:
    [result] = rewarded(service, {"completion": RIGHT, "grader": grader(**fields)})
    assert result["reward"] is None
    assert result["error"]["reason"] == "invalid_task"
    assert why in result["error"]["message"]


@pytest.mark.parametrize(
    ("item", "fields"),
    [
        ({"prelude": "import os"}, {}),
        ({"extract": "fence"}, {}),
        ({"extract": "diff"}, {"grader": {"kind": "exec"}}),
        ({"compiler": {"flags": ["-O2"]}}, {}),
    ],
)
def test_requests_about_programs_are_refused(service: Service, item: Row, fields: Row) -> None:
    rewarded(service, {"completion": RIGHT, **item}, status=422, **fields)


FIX = "sed -i 's/n + n + 1/n + n/' pkg/core.py"
STATES = [
    (FIX, 1.0, "passed"),
    (f"{FIX}; echo 'raise SystemExit' > checks.py; mkfifo p; ln -s / root", 1.0, "passed"),
    (f"{FIX}; rm pkg/__init__.py; echo > pkg/__init__.py", 1.0, "passed"),
    ("true", 0.0, "failed"),
    ("rm -r pkg", 0.0, "failed"),
    ("sed -i 's/n + n + 1/n - n/' pkg/core.py", 0.0, "failed"),
    (f"{FIX}; truncate -s 1T sparse", 0.0, "output_limit"),
]


def test_the_repository_of_a_sandbox_is_judged_as_its_diff(service: Service) -> None:
    with service.client() as client:
        for script, reward, verdict in STATES:
            body = {"repository": grader(directory="/box/work"), "limits": {"disk_mb": 64}}
            made = client.post("/sandboxes", json=body, timeout=WAIT_SECONDS).json()
            place = f"/sandboxes/{made['id']}"
            ended = client.post(f"{place}/exec", json=shell(f"{script}; echo $MARK; ls")).json()
            assert ended["stdout"].startswith("set\n"), ended
            assert "secret" not in ended["stdout"]
            graded = client.post(
                f"{place}/grade",
                json={"grader": grader(directory="/box/work")},
                timeout=WAIT_SECONDS,
            ).json()
            assert (graded["reward"], graded["verdict"]) == (reward, verdict), (script, graded)
            client.delete(place)


def test_a_trajectory_ends_with_its_repository(service: Service) -> None:
    for reward, command in {1.0: FIX, 0.0: "true"}.items():

        def script(asked: Asked, command: str = command) -> Act:
            return says("Done.") if asked.turn else calls(("bash", {"command": command}))

        with policy_server(script) as server, service.client() as client:
            body = {
                "tasks": [{"id": "t", "prompt": "Repair double.", "grader": grader()}],
                "policy": {"base_url": server.url, "model": "policy"},
                "agent": {"kind": "tools", "tools": ["bash"]},
            }
            answer = client.post("/rollout", json=body, timeout=WAIT_SECONDS).json()
        [trajectory] = answer["trajectories"]
        assert (trajectory["reward"], trajectory["error"]) == (reward, None), trajectory
