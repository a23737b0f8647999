"""Rows of public data sets, judged in real sandboxes of an image: gold, nothing, and a wrong change."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from harness import Service
from image_packages import site_packages
from repository_images import service_with_images, write_image

from proctor_client import Client
from proctor_client.tasks.converting import line_of
from proctor_client.tasks.forms import MAKERS, Format
from proctor_client.tasks.task import Task

BASE = """def push(ring, item):
    ring.append(item)
    del ring[:-3]


def pop(ring):
    return ring.pop(0)
"""
BUGGY = BASE.replace("del ring[:-3]", "del ring[3:]")
BREAKS = BASE.replace("pop(0)", "pop()")
OLD_TESTS = "import ring\n\n\ndef test_pop():\n    assert ring.pop([1, 2]) == 1\n"
NEW_TESTS = (
    OLD_TESTS
    + """

def test_push():
    items = [1, 2, 3]
    ring.push(items, 4)
    assert items == [2, 3, 4]
"""
)
F2P, P2P = ["tests/test_ring.py::test_push"], ["tests/test_ring.py::test_pop"]
RUN_TESTS = "cp -r r2e_tests/. .\n.venv/bin/python -m pytest -rA test_r2e.py\n"


def diff(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)


FIX = diff("ring.py", BUGGY, BASE)
WRONG = diff("ring.py", BUGGY, BREAKS)
LISTS: dict[str, Any] = {"FAIL_TO_PASS": F2P, "PASS_TO_PASS": P2P, "patch": FIX}
TEST_PATCH = diff("tests/test_ring.py", OLD_TESTS, NEW_TESTS)
ROWS: Mapping[Format, dict[str, Any]] = {
    "swe_rebench": LISTS
    | {
        "instance_id": "owner__ring-1",
        "repo": "owner/ring",
        "test_patch": TEST_PATCH,
        "image_name": "docker.io/swerebenchv2/owner-ring:1",
        "install_config": {
            "base_image_name": "python",
            "test_cmd": ["python3 -m pytest -rA tests/test_ring.py"],
            "log_parser": "parse_log_pytest",
        },
    },
    "swe_live": LISTS
    | {
        "instance_id": "owner__ring-2",
        "repo": "owner/ring",
        "test_patch": TEST_PATCH,
        "test_cmds": ["python3 -m pytest -rA tests/test_ring.py"],
        "PASS_TO_PASS": [*P2P, "tests/test_ring.py::test_is_gone"],
        "log_parser": "pytest",
    },
    "swe_smith": LISTS
    | {
        "instance_id": "owner__smith.3f1c0e2a.func__x7k2",
        "repo": "swesmith/owner__smith.3f1c0e2a",
        "patch": diff("ring.py", BASE, BUGGY),
        "test_cmd": "python3 -m pytest --verbose",
    },
    "r2e_gym": {
        "repo_name": "ring",
        "docker_image": "namanjain12/ring_final:1",
        "commit_hash": "1",
        "expected_output_json": json.dumps({"test_push": "PASSED", "test_pop": "PASSED"}),
    },
}
DIRECTORIES = {"swe_rebench": "ring", "swe_live": "testbed", "swe_smith": "smith", "r2e_gym": "r2e"}


def image_with_repositories(folder: Path) -> str:
    """Write an OCI image with pytest, and a repository for each form; return its name."""
    texts: dict[str, str] = {}
    for form, directory in DIRECTORIES.items():
        is_fixed = form == "swe_smith"
        texts[f"{directory}/ring.py"] = BASE if is_fixed else BUGGY
        texts[f"{directory}/tests/test_ring.py"] = NEW_TESTS if is_fixed else OLD_TESTS
        texts[f"{directory}/conftest.py"] = ""
    texts["r2e_tests/test_r2e.py"] = NEW_TESTS
    texts["r2e/run_tests.sh"] = RUN_TESTS
    texts["r2e/.venv/pyvenv.cfg"] = "home = /usr/bin\n"
    links = {"r2e/.venv/bin/python": "/usr/bin/python3"}
    return write_image(folder, {**texts, **dict(site_packages())}, links)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("rows")
    images = {"ring": image_with_repositories(folder / "image")}
    with service_with_images(folder, images) as running:
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with Client(service.url) as opened:
        yield opened


def local(form: Format) -> Task:
    """The task of a row, in the image of these tests, where nothing is activated."""
    task = MAKERS[form](ROWS[form], "rows.jsonl:1")
    grader = dict(task.grader or {}) | {"directory": f"/{DIRECTORIES[form]}"}
    grader.pop("activate", None)
    own = {"environment": "ring", "grader": grader, "reference": task.reference or FIX}
    return task.with_fields(own)


def test_gold_is_right_and_nothing_else(client: Client) -> None:
    tasks = {form: local(form) for form in ROWS}
    names = dict(zip(tasks, client.save_tasks([t.fields for t in tasks.values()]), strict=True))
    cases = {
        (form, kind): {"completion": text, "task": names[form]}
        for form in tasks
        for kind, text in (("gold", FIX), ("wrong", WRONG), ("other", diff("x.txt", "", "x\n")))
    }
    results = client.reward(list(cases.values()), extract="none", deadline_seconds=1800).results
    found = dict(zip(cases, results, strict=True))
    for (form, kind), result in found.items():
        assert result.error is None, (form, kind, result)
        assert result.reward == float(kind == "gold"), (form, kind, result)
        assert kind != "other" or "fail_to_pass 0 of 1" in result.message or form == "r2e_gym"
    smith = found["swe_smith", "gold"].repository
    assert smith is not None
    assert (smith.fail_to_pass.passed, smith.pass_to_pass.total) == (1, 1)


def test_the_audit_and_the_public_report(client: Client, service: Service, tmp_path: Path) -> None:
    tasks = [local(form) for form in ROWS]
    useless = dict(tasks[0].grader or {}) | {"fail_to_pass": P2P, "pass_to_pass": []}
    tasks += [
        tasks[0].with_fields({"id": "wrong", "reference": WRONG}),
        tasks[0].with_fields({"id": "useless", "grader": useless}),
    ]
    rows, report, fit = (tmp_path / name for name in ("rows.jsonl", "report.json", "fit.jsonl"))
    rows.write_text("".join(json.dumps(line_of(task)) + "\n" for task in tasks))
    options = ("--repeat", "2", "--json", report, "--fit", fit)
    said = proctor("audit", rows, *options, PROCTOR_URL=service.url)
    assert said.exit_code == 1, said.stderr
    states = {each["id"]: each for each in json.loads(report.read_text())["tasks"]}
    assert [states[task.id]["state"] for task in tasks[:4]] == ["fit"] * 4, states
    assert states["wrong"]["reason"] == f"with the solution failed: {P2P[0]}"
    assert states["useless"]["reason"] == "passes without a change"
    assert len(fit.read_text().splitlines()) == 4
    predictions = tmp_path / "predictions.json"
    patches = {tasks[0].id: FIX, tasks[1].id: WRONG, tasks[2].id: "", tasks[3].id: "no diff"}
    predictions.write_text(
        json.dumps({name: {"model_patch": text} for name, text in patches.items()})
    )
    written = ("--report", "swebench", "--report-folder", tmp_path)
    proctor("eval", fit, "--predictions", predictions, *written, PROCTOR_URL=service.url)
    public = json.loads((tmp_path / "model.eval.json").read_text())
    assert public["resolved_ids"] == [tasks[0].id]
    assert set(public["unresolved_ids"]) == {tasks[1].id, tasks[3].id}
    assert public["empty_patch_ids"] == [tasks[2].id]
    logs = tmp_path / "logs" / "run_evaluation" / "eval" / "model"
    wrong = json.loads((logs / tasks[1].id / "report.json").read_text())[tasks[1].id]
    assert wrong["patch_successfully_applied"]
    assert wrong["tests_status"]["FAIL_TO_PASS"] == {"success": F2P, "failure": []}
    assert wrong["tests_status"]["PASS_TO_PASS"]["failure"] == P2P
    unread = json.loads((logs / tasks[3].id / "report.json").read_text())[tasks[3].id]
    assert not unread["patch_successfully_applied"]
