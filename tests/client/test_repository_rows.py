"""Rows about repositories become tasks: each trap of the public data sets is a row of a table here."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from proctor_client import wire
from proctor_client.tasks.forms import MAKERS, REPOSITORY_FORMS, Format, form_of
from proctor_client.tasks.repository_diffs import diff_of_commit, files_of_diff, reversed_diff
from proctor_client.tasks.repository_fields import image_of, named_tests
from proctor_client.tasks.task import BadTask, Task

GOLD = """\
diff --git a/src/ring.py b/src/ring.py
index 83db48f..bf2a3c1 100644
--- a/src/ring.py
+++ b/src/ring.py
@@ -1,2 +1,2 @@
 def push(ring, item):
-    ring.pop()
+    ring.append(item)
"""
TEST_PATCH = """\
diff --git a/tests/test_ring.py b/tests/test_ring.py
--- a/tests/test_ring.py
+++ b/tests/test_ring.py
@@ -1 +1,2 @@
 import ring
+assert ring
diff --git a/tests/data.json b/tests/data.json
new file mode 100644
--- /dev/null
+++ b/tests/data.json
@@ -0,0 +1 @@
+{}
diff --git a/tests/test_old.py b/tests/test_old.py
deleted file mode 100644
--- a/tests/test_old.py
+++ /dev/null
@@ -1 +0,0 @@
-import old
"""
SCRIPT = f"""\
#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
export LANG=en_US.UTF-8
git config --global --add safe.directory /testbed
cd /testbed
git status
git show
git -c core.fileMode=false diff 3f1c0e2
source /opt/miniconda3/bin/activate
conda activate testbed
python -m pip install -e .[test]
git checkout 3f1c0e2 tests/test_ring.py
git apply -v - <<'EOF_114329324912'
{TEST_PATCH}
EOF_114329324912
: '>>>>> Start Test Output'
pytest -rA tests/test_ring.py
: '>>>>> End Test Output'
git checkout 3f1c0e2 tests/test_ring.py
"""
F2P, P2P = ["tests/test_ring.py::test_push"], ["tests/test_ring.py::test_pop"]
BENCH: dict[str, Any] = {
    "repo": "owner/ring",
    "instance_id": "owner__Ring-12",
    "base_commit": "3f1c0e2",
    "patch": GOLD,
    "test_patch": TEST_PATCH,
    "problem_statement": "push drops the item",
    "version": "1.4",
    "FAIL_TO_PASS": json.dumps(F2P),
    "PASS_TO_PASS": json.dumps(P2P),
}
V5: dict[str, Any] = BENCH | {
    "eval_script": SCRIPT,
    "log_parser": "parse_log_pytest",
    "eval_type": "pass_and_fail",
}
LISTS: dict[str, Any] = {"FAIL_TO_PASS": F2P, "PASS_TO_PASS": P2P}
REBENCH_1: dict[str, Any] = (
    BENCH
    | LISTS
    | {
        "install_config": {
            "test_cmd": "pytest -rA",
            "log_parser": "parse_log_pytest",
            "python": "3.9",
        },
        "version": 3,
    }
)
REBENCH_2: dict[str, Any] = (
    BENCH
    | LISTS
    | {
        "image_name": "docker.io/swerebenchv2/owner-Ring:12-3f1c0e2",
        "repo": "owner/Ring",
        "created_at": 1609298073000,
        "install_config": {
            "base_image_name": "go_1.22",
            "docker_specs": None,
            "install": ["go mod download"],
            "test_cmd": ["cd core", "go test -v ./..."],
            "log_parser": "parse_log_gotest",
            "log_parsers": None,
        },
    }
)
SMITH: dict[str, Any] = {
    "instance_id": "owner__ring.3f1c0e2a.func_basic__x7k2",
    "repo": "swesmith/owner__ring.3f1c0e2a",
    "patch": GOLD,
    "FAIL_TO_PASS": F2P,
    "PASS_TO_PASS": P2P,
    "image_name": "swebench/swesmith.x86_64.owner_1776_ring.3f1c0e2a",
    "problem_statement": "",
}
COMMIT: dict[str, Any] = {
    "file_diffs": [
        {
            "header": {"file": {"path": path}, "misc_line": None},
            "minus_file": {"path": f"a/{path}"},
            "plus_file": {"path": f"b/{path}"},
            "is_binary_file": False,
            "hunks": [
                {
                    "descriptor": {
                        "old_range": {"start": 1, "length": 2},
                        "new_range": {"start": 1, "length": 2},
                        "section": "",
                    },
                    "line_group": {
                        "all_lines": [
                            {"content": "def push(ring, item):", "type": "context"},
                            {"content": "    ring.pop()", "type": "deleted"},
                            {"content": "    ring.append(item)", "type": "added"},
                        ]
                    },
                }
            ],
        }
        for path in ("src/ring.py", "src/tests/test_ring.py", "README.md")
    ]
}
R2E: dict[str, Any] = {
    "repo_name": "ring",
    "docker_image": "namanjain12/ring_final:3f1c0e2",
    "commit_hash": "3f1c0e2",
    "parsed_commit_content": json.dumps(COMMIT),
    "expected_output_json": json.dumps(
        {"Ring.test_push": "PASSED", "test_pop": "FAILED", "": "PASSED"}
    ),
    "problem_statement": "Solve it.\n[ISSUE]\npush drops the item\n[/ISSUE]\nThanks",
}
CHANGES = {"run": "NONE", "test": "FAIL", "fix": "PASS"}
MULTI: dict[str, Any] = {
    "org": "Owner",
    "repo": "ring",
    "number": 12,
    "title": "Fix push",
    "body": None,
    "lang": "go",
    "base": {"label": "main", "ref": "main", "sha": "3f1c0e2"},
    "resolved_issues": [{"number": 3, "title": "push drops", "body": "the item"}],
    "fix_patch": GOLD,
    "test_patch": TEST_PATCH,
    "f2p_tests": {"TestPush": CHANGES},
    "s2p_tests": {},
    "n2p_tests": {"TestNew": CHANGES},
    "p2p_tests": {"TestPop": CHANGES, "TestPush": CHANGES},
}
COLUMNAR: dict[str, Any] = MULTI | {
    "f2p_tests": {"name": ["TestPush"], "fix": ["PASS"], "run": ["FAIL"], "test": ["FAIL"]},
    "n2p_tests": {"name": ["TestNew"], "fix": ["PASS"], "run": ["NONE"], "test": ["NONE"]},
    "s2p_tests": {"name": [], "fix": [], "run": [], "test": []},
    "p2p_tests": {"name": ["TestPop"], "fix": ["PASS"], "run": ["PASS"], "test": ["PASS"]},
}
LIVE: dict[str, Any] = (
    BENCH
    | LISTS
    | {
        "test_cmds": ["pytest -rA", "true"],
        "rebuild_cmds": ["make"],
        "print_cmds": ["cat report.txt"],
        "log_parser": "pytest",
    }
)
LIVE_PARSER = "import re\n\ndef parser(log: str) -> dict:\n    return {'a': 'pass', 'b': 'fail'}\n"
PRO: dict[str, Any] = {
    "instance_id": "instance_Owner__ring-3f1c0e2-vnan",
    "repo": "Owner/ring",
    "base_commit": "3f1c0e2",
    "patch": GOLD,
    "test_patch": TEST_PATCH,
    "problem_statement": "push drops the item",
    "requirements": "keep it",
    "interface": None,
    "before_repo_set_cmd": "git clean -fd\ngit checkout 77aa01 -- test/a.js 'test/b c.js'",
    "fail_to_pass": "['test/a.js | push', \"it's\"]",
    "pass_to_pass": "['test/a.js | pop']",
    "selected_test_files_to_run": "['test/a.js', 'test/b.js']",
    "dockerhub_tag": "owner.ring-Owner__ring-3f1c0e2",
    "run_script": "#!/bin/bash\nnpx mocha $1\n",
    "parser_source": "import json, sys\n",
    "env": {"NODE_ENV": "test"},
}
ROWS: Mapping[Format, dict[str, Any]] = {
    "swe_bench": V5,
    "swe_gym": BENCH | LISTS,
    "swe_rebench": REBENCH_2,
    "swe_smith": SMITH,
    "r2e_gym": R2E,
    "multi_swe": MULTI,
    "swe_live": LIVE,
    "swe_pro": PRO,
}


def made(form: Format, row: Mapping[str, Any]) -> tuple[Task, wire.RepositoryGrader]:
    """The task of a row, and its grader as the service reads it."""
    task = MAKERS[form](row, "rows.jsonl:1")
    return task, wire.RepositoryGrader.model_validate(task.grader)


def image(task: Task) -> str:
    assert isinstance(task.environment, Mapping)
    return str(task.environment["image"])


def test_each_form_makes_a_task_with_the_issue_the_image_and_the_solution() -> None:
    for form, row in ROWS.items():
        task, grader = made(form, row)
        assert task.id
        assert (task.limits or {}).get("wall_seconds") == (
            3600 if form in ("swe_live", "swe_pro") else None
        )
        is_read_from_a_log = grader.report in ("go", "cargo") or not isinstance(grader.report, str)
        assert ("output_kb" in (task.limits or {})) == is_read_from_a_log
        assert image(task).startswith("docker.io/")
        assert ":" in image(task)
        assert grader.directory
        assert grader.test
        assert task.text == "push drops the item" or form in (
            "swe_smith",
            "multi_swe",
            "swe_pro",
        ), form
        assert grader.reference == task.reference
        assert "ring.append(item)" in str(task.reference)
    assert set(ROWS) == set(REPOSITORY_FORMS)


def test_a_script_of_version_5_is_taken_apart_at_its_marks() -> None:
    task, grader = made("swe_bench", V5)
    assert image(task) == "docker.io/swebench/sweb.eval.x86_64.owner_1776_ring-12:latest"
    assert grader.test == "export LANG=en_US.UTF-8\npytest -rA tests/test_ring.py"
    assert grader.activate == "conda:testbed"
    assert grader.directory == "/testbed"
    assert str(grader.build).endswith("\npython -m pip install -e .[test]")
    assert "PIP_NO_INDEX=1" in str(grader.build)
    assert "*.pyx" in grader.build_if
    assert (grader.fail_to_pass, grader.pass_to_pass) == (F2P, P2P)
    assert grader.report == "pytest"
    assert grader.names == ["cut_at_blank", "prefix"]
    assert grader.test_patch == TEST_PATCH
    assert grader.rule is None


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"eval_script": SCRIPT.replace("-e .[test]", ".")}, "build_if", []),
        ({"log_parser": "parse_log_django"}, "report", "django"),
        (
            {
                "log_parser": "parse_log_django",
                "PASS_TO_PASS": ["test_a (m.T) ... noise", "test_a (m.T)", "Ends ... at once"],
            },
            "pass_to_pass",
            ["test_a (m.T)", "Ends ... at once"],
        ),
        (
            {"log_parser": "parse_log_cargo", "PASS_TO_PASS": ["t::full - should panic", "t::a"]},
            "pass_to_pass",
            ["t::full", "t::a"],
        ),
        ({"log_parser": "parse_log_sphinx"}, "report", "pytest"),
        ({"log_parser": "parse_log_gotest"}, "names", ["without_package"]),
        ({"log_parser": "parse_log_sympy"}, "report", "sympy"),
        ({"log_parser": "parse_log_requests"}, "names", ["cut_at_blank", "prefix", "short_paths"]),
        (
            {"log_parser": "parse_log_matplotlib"},
            "names",
            ["cut_at_blank", "prefix", "button_numbers"],
        ),
        ({"log_parser": "parse_log_cargo"}, "report", "cargo"),
        ({"PASS_TO_PASS": None}, "pass_to_pass", []),
        ({"PASS_TO_PASS": float("nan")}, "pass_to_pass", []),
        ({"PASS_TO_PASS": "null"}, "pass_to_pass", []),
        (
            {"PASS_TO_PASS": "['tests/a.py::b', \"it's\"]"},
            "pass_to_pass",
            ["tests/a.py::b", "it's"],
        ),
        ({"PASS_TO_PASS": ["[100%]", "[ 7%]", "a", "a", "", None]}, "pass_to_pass", ["a"]),
        ({"PASS_TO_PASS": [*F2P, "a"]}, "pass_to_pass", ["a"]),
        ({"PASS_TO_PASS": ["t.py::a[log(photon"]}, "pass_to_pass", ["t.py::a[log(photon"]),
        ({"FAIL_TO_PASS": json.dumps(json.dumps(F2P))}, "fail_to_pass", F2P),
        ({"test_patch": TEST_PATCH.rstrip("\n")}, "test_patch", TEST_PATCH),
        ({"version": 3}, "report", "pytest"),
        ({"image_assets": "{}"}, "report", "pytest"),
        ({"image_assets": '{"test_patch": [], "patch": [{"path": "a.png"}]}'}, "report", "pytest"),
    ],
)
def test_odd_columns_of_swe_bench(change: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(made("swe_bench", V5 | change)[1], field) == value


def test_a_test_that_is_missing_passes_only_where_the_data_set_says_so() -> None:
    _, live = made("swe_live", LIVE)
    assert live.rule is not None
    assert live.rule.fail_to_pass is None
    assert live.rule.pass_to_pass == ["passed", "skipped", "missing"]
    for form in ("swe_gym", "swe_rebench", "swe_smith", "multi_swe", "swe_pro"):
        assert made(form, ROWS[form])[1].rule is None


FAILURES_ALONE = """
def proctor_parse(log):
    return {line.split()[1]: "FAILED" for line in log.splitlines() if line.startswith("not")}
"""


@pytest.mark.parametrize(
    ("stdout", "exit_code", "expected"),
    [
        ("Executed 2 of 2", 0, {"a": "passed", "b": "passed"}),
        ("not b\nExecuted 2 of 2", 1, {"a": "passed", "b": "failed"}),
        ("Executed 0 of 0", 0, {}),
        ("SyntaxError", 1, {}),
        ("2 passing", 1, {}),  # it ended badly and names no failure
        ("not c\n2 passing", 1, {"a": "passed", "b": "passed", "c": "failed"}),
    ],
)
def test_where_only_failures_are_printed_the_suite_must_have_run(
    stdout: str, exit_code: int, expected: dict[str, str]
) -> None:
    changed = {"eval_type": "fail_only", "log_parser": "parse_log_karma"}
    lists = {"FAIL_TO_PASS": ["a"], "PASS_TO_PASS": ["b"], "parser_source": FAILURES_ALONE}
    _, grader = made("swe_bench", V5 | changed | lists)
    assert grader.rule is None
    assert isinstance(grader.report, wire.ScriptReport)
    run = json.dumps({"stdout": stdout, "stderr": "", "exit_code": exit_code})
    command = [sys.executable, "-c", grader.report.script]
    ended = subprocess.run(command, input=run, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == expected


def test_the_other_forms_of_swe_bench_name_their_images_and_commands() -> None:
    gym, gym_grader = made("swe_gym", ROWS["swe_gym"])
    assert image(gym) == "docker.io/xingyaoww/sweb.eval.x86_64.owner_s_ring-12:latest"
    assert str(gym_grader.test).endswith("-p no:cacheprovider tests/test_ring.py")
    first, first_grader = made("swe_rebench", REBENCH_1)
    assert image(first) == "docker.io/swerebench/sweb.eval.x86_64.owner_1776_ring-12:latest"
    assert first_grader.test == "pytest -rA tests/test_ring.py"
    assert (first_grader.directory, first_grader.activate) == ("/testbed", "conda:testbed")
    second, second_grader = made("swe_rebench", REBENCH_2)
    assert image(second) == "docker.io/swerebenchv2/owner-Ring:12-3f1c0e2"
    assert second_grader.test == "cd core\ngo test -v ./..."
    assert second_grader.directory == "/Ring"
    assert second_grader.names == ["without_package", "without_timing"]
    assert second_grader.activate is None
    assert second_grader.build is None
    as_text = {"install_config": json.dumps(REBENCH_2["install_config"])}
    assert made("swe_rebench", REBENCH_2 | as_text)[1] == second_grader
    live, live_grader = made("swe_live", LIVE)
    assert image(live) == "docker.io/starryzhang/sweb.eval.x86_64.owner_1776_ring-12:latest"
    assert live_grader.test == "pytest -rA\ntrue\ncat report.txt"
    assert live_grader.build == "make"


def test_swe_smith_reverses_its_patch_and_hides_the_tests_that_fail() -> None:
    task, grader = made("swe_smith", SMITH)
    assert grader.prepare is not None
    assert grader.prepare.patch == GOLD
    assert "-    ring.append(item)\n" in str(task.reference)
    assert task.text is None
    assert reversed_diff(str(task.reference)) == GOLD
    assert grader.hide == ["tests/test_ring.py"]
    assert grader.activate == "conda:testbed"
    assert str(grader.test).endswith("--verbose tests/test_ring.py")
    bare = {"image_name": "swesmith.x86_64.owner_1776_ring.3f1c0e2a"}
    for change in (bare, {"image_name": None}):
        assert image(made("swe_smith", SMITH | change)[0]) == image(task)
    package = {
        "test_cmd": "source /opt/miniconda3/bin/activate; conda activate testbed; pytest -q",
        "timeout": 240,
    }
    task, grader = made("swe_smith", SMITH | package)
    assert grader.test == "pytest -q tests/test_ring.py"
    piped = {"test_cmd": "pytest -q | tail"}
    assert made("swe_smith", SMITH | piped)[1].test == "pytest -q | tail"
    assert grader.activate == "conda:testbed"
    assert task.limits is not None
    assert task.limits["wall_seconds"] == 240
    go = {"FAIL_TO_PASS": ["TestPush"], "PASS_TO_PASS": [], "log_parser": "gotest"}
    _, grader = made("swe_smith", SMITH | go | {"test_cmd": "go test -v ./..."})
    assert grader.report == "go"
    assert grader.activate is None
    assert grader.hide == []
    with pytest.raises(BadTask, match="convert"):
        made("swe_smith", SMITH | go)


def test_swe_smith_leaves_the_sources_of_doctests_to_the_agent() -> None:
    tests = ["src/ring.py::ring.Ring.push", "README.rst::README.rst", "tests/a.py::test_b[1.5]"]
    assert made("swe_smith", SMITH | {"FAIL_TO_PASS": tests[::2]})[1].hide == ["tests/a.py"]
    _, grader = made("swe_smith", SMITH | {"FAIL_TO_PASS": tests[:2]})
    assert grader.hide == []
    assert str(grader.test).endswith(" README.rst src/ring.py tests/test_ring.py")


def test_r2e_gym_expects_a_whole_map_and_rebuilds_its_solution() -> None:
    task, grader = made("r2e_gym", R2E)
    assert grader.expected == {"Ring.test_push": "passed", "test_pop": "failed"}
    assert grader.hide[0] == "/r2e_tests"
    assert grader.names == ["dotted"]
    assert task.reference is not None
    assert [f.path for f in files_of_diff(str(task.reference))] == ["src/ring.py"]
    assert made("r2e_gym", R2E | {"parsed_commit_content": "{}"})[0].reference is None
    with pytest.raises(BadTask, match="no outcome"):
        made("r2e_gym", R2E | {"expected_output_json": '{"a": "MAYBE"}'})
    with pytest.raises(BadTask, match="no test passes"):
        made("r2e_gym", R2E | {"expected_output_json": '{"a": "FAILED"}'})


def test_multi_swe_reads_objects_and_columns_of_arrow_alike() -> None:
    task, grader = made("multi_swe", MULTI)
    assert image(task) == "docker.io/mswebench/owner_m_ring:pr-12"
    assert task.id == "Owner__ring-12"
    assert grader.fail_to_pass == ["TestPush", "TestNew"]
    assert grader.pass_to_pass == ["TestPop"]
    assert grader.deliver == "/home/fix.patch"
    assert grader.test == "bash /home/fix-run.sh"
    assert grader.hide == ["/home/*.patch", "/home/*.sh"]
    assert grader.test_patch == ""
    assert grader.protect == ["tests/test_ring.py", "tests/data.json", "tests/test_old.py"]
    assert task.text == "push drops\n\nthe item"
    assert made("multi_swe", COLUMNAR)[1] == grader
    as_text = {name: json.dumps(COLUMNAR[name]) for name in COLUMNAR if name.endswith("_tests")}
    assert made("multi_swe", MULTI | as_text | {"number": "12"})[1] == grader
    assert made("multi_swe", MULTI | {"resolved_issues": None})[0].text == "Fix push"
    with pytest.raises(BadTask, match="convert"):
        made("multi_swe", MULTI | {"lang": "ts"})


def test_swe_pro_reads_texts_of_python_lists_and_runs_its_script_on_files_of_another_commit() -> (
    None
):
    task, grader = made("swe_pro", PRO)
    assert image(task) == "docker.io/jefzda/sweap-images:owner.ring-Owner__ring-3f1c0e2"
    assert grader.fail_to_pass == ["test/a.js | push", "it's"]
    assert grader.directory == "/app"
    assert grader.files_from == wire.FilesOfCommit(
        commit="77aa01", paths=["test/a.js", "test/b c.js"]
    )
    assert str(grader.test).endswith("bash /tmp/proctor_run_script.sh test/a.js,test/b.js")
    assert grader.env == {"NODE_ENV": "test"}
    assert task.text == "push drops the item\n\nkeep it"
    with pytest.raises(BadTask, match="--folder"):
        made("swe_pro", PRO | {"run_script": None})


@pytest.mark.parametrize(
    ("form", "change", "reason"),
    [
        ("swe_bench", {"eval_script": None}, "tasks convert"),
        ("swe_bench", {"eval_script": "pytest"}, "no marks"),
        ("swe_bench", {"log_parser": "parse_log_karma"}, "tasks convert"),
        ("swe_bench", {"FAIL_TO_PASS": "[]", "PASS_TO_PASS": None}, "are empty"),
        ("swe_bench", {"FAIL_TO_PASS": "a test"}, "neither a list"),
        ("swe_bench", {"FAIL_TO_PASS": [["a"]]}, "is no text"),
        ("swe_bench", {"FAIL_TO_PASS": 7}, "neither a list"),
        ("swe_bench", {"instance_id": None}, "instance_id"),
        ("swe_bench", {"image_assets": '{"test_patch": [{"path": "a.png"}]}'}, "addresses"),
        ("swe_rebench", {"install_config": None}, "no command"),
        ("swe_rebench", {"install_config": "pytest"}, "neither an object"),
        ("swe_rebench", {"image_name": None}, "image_name"),
        ("swe_smith", {"patch": ""}, "patch"),
        ("swe_smith", {"image_name": None, "instance_id": "ring"}, "no repository"),
        ("multi_swe", {"number": None}, "number"),
        ("multi_swe", {"f2p_tests": {"name": ["a"], "fix": []}}, "different lengths"),
        ("swe_live", {"test_cmds": None}, "no command"),
        ("swe_live", {"platform": "windows"}, "Windows"),
        ("swe_live", {"test_cmds": [1]}, "no text"),
        ("swe_pro", {"before_repo_set_cmd": "git checkout 7 -- 'a"}, "quotation"),
        ("r2e_gym", {"docker_image": None}, "docker_image"),
    ],
)
def test_a_row_that_cannot_be_judged_has_a_reason(
    form: Format, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadTask, match=reason):
        made(form, ROWS[form] | change)


def test_odd_values_in_any_column_make_a_task_or_a_reason() -> None:
    draw = random.Random(41)
    odd: list[Any] = [
        None,
        "",
        "null",
        "[]",
        "{}",
        "[1",
        0,
        7,
        2.5,
        float("nan"),
        True,
        [],
        {},
        [None],
    ]
    odd += [
        [[]],
        [{}],
        {"a": None},
        {"name": 3},
        "x\0y",
        "\ud800",
        "[[[[",
        '{"a": [',
        b"bytes",
        "a" * 2000,
    ]
    odd += [
        json.dumps(json.dumps(["a"])),
        {"name": [1], "fix": [2]},
        {1: 2},
        "diff --git",
        "@@ -1 +1 @@",
    ]
    tried = 0
    for form, row in ROWS.items():
        for column in row:
            for value in odd:
                changed = dict(row) | {column: value}
                if draw.random() < 0.3:
                    changed[draw.choice(list(row))] = draw.choice(odd)
                with contextlib.suppress(BadTask, KeyError, TypeError, ValueError):
                    MAKERS[form](changed, "rows.jsonl:1")
                tried += 1
    assert tried > 2000


def test_the_form_of_a_row_is_read_from_its_columns() -> None:
    for form, row in ROWS.items():
        if form != "swe_gym":  # as SWE-bench's, but for its images
            assert form_of(row) == form
    assert form_of(BENCH) == "swe_bench"


def test_images_have_whole_names() -> None:
    names = {
        "swebench/a": "docker.io/swebench/a:latest",
        "docker://swebench/a:1": "docker.io/swebench/a:1",
        "ghcr.io/x/a": "ghcr.io/x/a:latest",
        "localhost:5000/a": "localhost:5000/a:latest",
        "python": "docker.io/library/python:latest",
        "ghcr.io/x/a@sha256:0f": "ghcr.io/x/a@sha256:0f",
    }
    assert {name: image_of(name) for name in names} == names
    for name in ("", "a b", "\n"):
        with pytest.raises(BadTask):
            image_of(name)


def test_names_of_tests_in_columns_of_either_case() -> None:
    assert named_tests({"fail_to_pass": '["a"]'}, "FAIL_TO_PASS") == ["a"]
    assert named_tests({"FAIL_TO_PASS": None, "fail_to_pass": ["a"]}, "FAIL_TO_PASS") == ["a"]


ODD_DIFFS = {
    'diff --git "a/na\\303\\257ve.py" "b/na\\303\\257ve.py"\n'
    '--- "a/na\\303\\257ve.py"\n+++ "b/na\\303\\257ve.py"\n'
    "@@ -1 +1 @@\n-a\n+b\n": ["naïve.py"],
    "--- a/x y.py\t2024-01-01\n+++ b/x y.py\t2024-01-02\n@@ -1 +1 @@\n-a\n+b\n"
    "--- a/z.py\n+++ b/z.py\n@@ -1 +1 @@\n-a\n+b\n": ["x y.py", "z.py"],
    "diff --git a/a.txt b/b.txt\nsimilarity index 100%\nrename from a.txt\nrename to b.txt\n": [
        "b.txt"
    ],
    # A deleted line `-- old`, an added line `++ new`, and a text that shows a diff, are content.
    "diff --git a/m.sql b/m.sql\n--- a/m.sql\n+++ b/m.sql\n@@ -1,3 +1,3 @@\n--- old\n-diff --git a/q b/q\n"
    "+++ new\n+x\n y\n": ["m.sql"],
    "diff --git a/e.sh b/e.sh\nold mode 100644\nnew mode 100755\n": ["e.sh"],
    "diff --git a/i.png b/i.png\nindex 0000001..0000002 100644\nGIT binary patch\n"
    "literal 1\nIcmZPo00961\n\nliteral 2\nIcmZQz00961\n\n": ["i.png"],
    "diff --git a/n b/n\n--- a/n\n+++ b/n\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n": [
        "n"
    ],
}


def test_diffs_have_their_files_and_a_reverse() -> None:
    for text, paths in ODD_DIFFS.items():
        assert [each.path for each in files_of_diff(text)] == paths, text
        back = reversed_diff(text)
        assert reversed_diff(back) == text, back
        assert back != text
    for cut in ("GIT binary patch\nliteral 1\nIc\n\n", "copy from a\ncopy to b\n"):
        with pytest.raises(BadTask):
            reversed_diff(f"diff --git a/a b/b\n{cut}")
    assert diff_of_commit(COMMIT).startswith(
        "diff --git a/src/ring.py b/src/ring.py\n--- a/src/ring.py"
    )
    new = files_of_diff(TEST_PATCH)
    assert [each.is_deleted for each in new] == [False, False, True]
