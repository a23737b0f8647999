"""Each field of the grader `repository`, tried in real sandboxes: what it allows, and what it refuses."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from harness import Service
from policy_server import Act, Asked, calls, policy_server, says
from waits import WAIT_SECONDS

pytestmark = pytest.mark.slow

Row = dict[str, Any]
MAKE = """mkdir -p pkg legacy && printf 'def double(n):\\n    return n + n + 1\\n' > pkg/core.py
: > pkg/__init__.py; echo old > legacy/old.txt; echo 'int f;' > pkg/fast.c"""
CHECK = """
import sys
sys.path.insert(0, ".")
sys.dont_write_bytecode = True
from pkg.core import double

outcome = "passed" if double(2) == 4 else "failed"
print(f"double {outcome}")
print("half passed")
inner = "" if outcome == "passed" else "<failure/>"
cases = f'<testcase classname="c" name="double">{inner}</testcase><testcase classname="c" name="half"/>'
open("report.xml", "w").write(f"<testsuite>{cases}</testsuite>")
"""
FIX = """diff --git a/pkg/core.py b/pkg/core.py
--- a/pkg/core.py
+++ b/pkg/core.py
@@ -1,2 +1,2 @@
 def double(n):
-    return n + n + 1
+    return n + n
"""
WRONG = FIX.replace("+    return n + n\n", "+    return n\n")
FAST = FIX + "--- a/pkg/fast.c\n+++ b/pkg/fast.c\n@@ -1 +1 @@\n-int f;\n+int g;\n"
CASES_OF_XML = '<testcase classname="c" name="double"/><testcase classname="c" name="half"/>'
ALL_PASS = f"<testsuite>{CASES_OF_XML}</testsuite>"
FORGED = f"""--- a/pkg/core.py
+++ b/pkg/core.py
@@ -1,2 +1,2 @@
-def double(n):
-    return n + n + 1
+import os
+os._exit(0)
--- /dev/null
+++ b/report.xml
@@ -0,0 +1 @@
+{ALL_PASS}
"""
READER = """
import json, sys
run = json.load(sys.stdin)
pairs = [line.split() for line in run["stdout"].splitlines() if len(line.split()) == 2]
text = "".join(run["files"].values())
print(json.dumps({**dict(pairs), "file": "passed" if "testcase" in text else "failed"}))
"""


def grader(**more: Any) -> Row:
    return {
        "kind": "repository",
        "prepare": {"commands": [MAKE]},
        "files": {"checks.py": CHECK},
        "test": "python3 checks.py",
        "report": {"junit": ["report.xml"]},
        "fail_to_pass": ["c.double"],
        "pass_to_pass": ["c.half"],
        **more,
    }


def script(**outcomes: str) -> Row:
    """A report with these outcomes, whatever the run printed."""
    return {"script": f"import json\nprint(json.dumps({outcomes!r}))"}


LISTED: Row = {"fail_to_pass": [], "pass_to_pass": []}
CASES: dict[str, tuple[Row, str, float | None]] = {
    "plain": (grader(), FIX, 1.0),
    "plain, wrong": (grader(), WRONG, 0.0),
    "a report that the change brings": (grader(), FORGED, 0.0),
    "a report of before": (
        grader(prepare={"commands": [MAKE, f"echo '{ALL_PASS}' > report.xml"]}),
        FORGED.partition("--- /dev/null")[0],
        0.0,
    ),
    "a runner that keeps its results": (
        grader(
            prepare={"commands": [MAKE, f"echo '{ALL_PASS}' > report.xml; echo '<x/>' > data.xml"]},
            report={"junit": ["*.xml"]},
            test="[ -e data.xml ] && { [ -e report.xml ] || python3 checks.py; }",
        ),
        FIX,
        1.0,
    ),
    "remove": (
        grader(remove=["legacy"], test="[ -e legacy ] || python3 checks.py"),
        FIX,
        1.0,
    ),
    "nothing removed": (
        grader(test="[ -e legacy ] && python3 checks.py"),
        FIX,
        1.0,
    ),
    "binary_files": (
        grader(
            binary_files={"data/x.bin": base64.b64encode(b"\0\xff\r\n").decode()},
            test="[ \"$(od -An -tx1 data/x.bin)\" = ' 00 ff 0d 0a' ] && python3 checks.py",
        ),
        FIX,
        1.0,
    ),
    "build": (grader(build="echo made | tee made", test="[ -e made ] && python3 checks.py"), FIX, 1.0),
    "build in words": (
        grader(build=["touch", "a b"], test="[ -e 'a b' ] && python3 checks.py"),
        FIX,
        1.0,
    ),
    "build_if matches": (
        grader(build="touch made", build_if=["*.c"], test="[ -e made ] && python3 checks.py"),
        FAST,
        1.0,
    ),
    "build_if does not": (
        grader(build="touch made", build_if=["*.c"], test="[ ! -e made ] && python3 checks.py"),
        FIX,
        1.0,
    ),
    "a build that the change breaks": (
        grader(build="grep -q 'int f' pkg/fast.c", test="python3 checks.py"),
        FAST,
        0.0,
    ),
    "a build that always fails": (grader(build="exit 3"), FIX, None),
    "deliver": (
        grader(deliver="/tmp/fix/x.patch", test="git apply /tmp/fix/x.patch && python3 checks.py"),
        FIX,
        1.0,
    ),
    "deliver, wrong": (
        grader(deliver="/tmp/x.patch", test="git apply /tmp/x.patch && python3 checks.py"),
        WRONG,
        0.0,
    ),
    "delivered to the unchanged tree": (
        grader(deliver="/tmp/x.patch", test="python3 checks.py"),
        FIX,
        0.0,
    ),
    "script": (
        grader(
            report={"script": READER, "collect": ["report.xml"]},
            fail_to_pass=["double", "file"],
            pass_to_pass=["half"],
        ),
        FIX,
        1.0,
    ),
    "script, wrong": (
        grader(report={"script": READER}, fail_to_pass=["double"], pass_to_pass=[]),
        WRONG,
        0.0,
    ),
    "script without a file": (
        grader(report={"script": READER}, fail_to_pass=["double", "file"], pass_to_pass=[]),
        FIX,
        0.0,
    ),
    "script that fails": (grader(report={"script": "raise ValueError"}), FIX, None),
    "expected": (grader(**LISTED, expected={"c.double": "passed", "c.half": "passed"}), FIX, 1.0),
    "expected otherwise": (
        grader(**LISTED, expected={"c.double": "failed", "c.half": "passed"}),
        FIX,
        0.0,
    ),
    "expected, and one more": (grader(**LISTED, expected={"c.double": "passed"}), FIX, 0.0),
    "expected, and one more by the rule": (
        grader(**LISTED, expected={"c.double": "passed"}, rule={"unlisted": "ignored"}),
        FIX,
        1.0,
    ),
    "rule of fail_to_pass": (
        grader(report=script(a="expected_failure"), fail_to_pass=["a"], pass_to_pass=[],
               rule={"fail_to_pass": ["passed", "expected_failure"]}),
        FIX,
        1.0,
    ),
    "rule of pass_to_pass": (
        grader(report=script(a="passed"), fail_to_pass=["a"], pass_to_pass=["gone"],
               rule={"pass_to_pass": ["passed", "missing"]}),
        FIX,
        1.0,
    ),
    "rule of others": (
        grader(report=script(a="passed", b="failed"), fail_to_pass=["a"], pass_to_pass=[],
               rule={"unlisted": "none_failed"}),
        FIX,
        0.0,
    ),
    "others are ignored": (
        grader(report=script(a="passed", b="failed"), fail_to_pass=["a"], pass_to_pass=[]),
        FIX,
        1.0,
    ),
}  # fmt: skip
NAMES: dict[str, tuple[str, str]] = {
    "cut_at_blank": ("t.py::test_b[x y]", "t.py::test_b[x"),
    "dotted": ("r2e_tests/t.py::Ring::test_push", "Ring.test_push"),
    "without_package": ("example.org/ring.TestPush/full", "TestPush/full"),
    "without_timing": ("pushes (12 ms)", "pushes"),
    "prefix": ("t.py::test_b[x y z]", "t.py::test_b[x y"),
    "short_paths": ("t.py::test_get[/a/b/c]", "t.py::test_get[/c]"),
    "button_numbers": ("t.py::test_press[MouseButton.LEFT]", "t.py::test_press[1]"),
}
"""A name as reported, and as the lists have it."""


def judged(service: Service, *items: Row) -> list[Row]:
    with service.client() as client:
        body = {"submissions": list(items), "extract": "none", "cache": False}
        answer = client.post("/reward", json=body, timeout=WAIT_SECONDS)
        assert answer.status_code == 200, answer.text
        results: list[Row] = answer.json()["results"]
        return results


def test_each_field_decides(service: Service) -> None:
    items = [{"completion": text, "grader": each} for each, text, _ in CASES.values()]
    found = dict(zip(CASES, judged(service, *items), strict=True))
    assert {name: each["reward"] for name, each in found.items()} == {
        name: reward for name, (_, _, reward) in CASES.items()
    }, json.dumps(found, indent=1)
    for name in ("a build that always fails", "script that fails"):
        assert found[name]["error"]["reason"] == "invalid_task"
    assert "made" not in found["build"]["stdout"]
    assert "made" in found["build"]["stderr"]


def test_names_as_data_sets_write_them(service: Service) -> None:
    items = []
    for form, (reported, listed) in NAMES.items():
        for outcome in ("passed", "failed"):
            own = grader(
                report=script(**{reported: outcome}), fail_to_pass=[listed], pass_to_pass=[]
            )
            items.append({"completion": FIX, "grader": {**own, "names": [form]}})
    rewards = [each["reward"] for each in judged(service, *items)]
    assert rewards == [1.0, 0.0] * len(NAMES)


def test_a_suite_may_rewrite_what_the_task_allows(service: Service) -> None:
    own = grader(
        files={"checks.py": CHECK, "snap.txt": "before\n"},
        test="echo after > snap.txt; python3 checks.py",
    )
    items = [{"completion": FIX, "grader": {**own, "writable": each}} for each in ([], ["snap.*"])]
    strict, allowed = judged(service, *items)
    assert (strict["reward"], allowed["reward"]) == (1.0, 1.0)
    assert "tests_changed" in strict["hack_signals"]
    assert "tests_changed" not in allowed["hack_signals"]


BY_STATE = ("deliver", "build_if matches", "build_if does not", "remove", "binary_files", "script")


def test_the_state_of_a_sandbox_is_judged_by_the_same_fields(service: Service) -> None:
    fix = "sed -i 's/n + n + 1/n + n/' pkg/core.py"
    with service.client() as client:
        for name in BY_STATE:
            own = {**CASES[name][0], "directory": "/box/work"}
            made = client.post("/sandboxes", json={"repository": own}, timeout=WAIT_SECONDS).json()
            place = f"/sandboxes/{made['id']}"
            act = f"{fix}; sed -i s/f/g/ pkg/fast.c" if name == "build_if matches" else fix
            client.post(f"{place}/exec", json={"command": ["sh", "-c", act]})
            graded = client.post(f"{place}/grade", json={"grader": own}, timeout=WAIT_SECONDS)
            assert graded.json()["reward"] == 1.0, (name, graded.json())
            client.delete(place)


@pytest.mark.parametrize("name", ["deliver", "script"])
def test_a_trajectory_is_judged_by_the_same_fields(service: Service, name: str) -> None:
    for reward, command in {1.0: "sed -i 's/n + n + 1/n + n/' pkg/core.py", 0.0: "true"}.items():

        def act(asked: Asked, command: str = command) -> Act:
            return says("Done.") if asked.turn else calls(("bash", {"command": command}))

        with policy_server(act) as server, service.client() as client:
            body = {
                "tasks": [{"id": "t", "prompt": "Repair double.", "grader": CASES[name][0]}],
                "policy": {"base_url": server.url, "model": "policy"},
                "agent": {"kind": "tools", "tools": ["bash"]},
            }
            answer = client.post("/rollout", json=body, timeout=WAIT_SECONDS).json()
        [trajectory] = answer["trajectories"]
        assert (trajectory["reward"], trajectory["error"]) == (reward, None), trajectory
