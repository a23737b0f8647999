"""Repositories in images: activation, another commit's files, and images where the observer is silent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stand_in_conda
from harness import Service
from image_packages import site_packages
from policy_server import Act, Asked, calls, policy_server, says
from repository_images import program, service_with_images, write_image
from waits import WAIT_SECONDS

Row = dict[str, Any]
BUGGY = "def push(ring, item):\n    ring.append(item)\n    del ring[3:]\n"
OLD_TESTS = "import ring\n\n\ndef test_is_there():\n    assert ring.push\n"
NEW_TESTS = (
    OLD_TESTS
    + """

class TestRing:
    def test_push(self):
        items = [1, 2, 3]
        ring.push(items, 4)
        assert items == [2, 3, 4]
"""
)
FIX = """diff --git a/ring.py b/ring.py
--- a/ring.py
+++ b/ring.py
@@ -1,3 +1,3 @@
 def push(ring, item):
     ring.append(item)
-    del ring[3:]
+    del ring[:-3]
"""
WRONG = FIX.replace("+    del ring[:-3]", "+    del ring[-3:]")
F2P, P2P = ["tests/test_ring.py::TestRing::test_push"], ["tests/test_ring.py::test_is_there"]
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
CONDA_PACKAGES = f"{stand_in_conda.ENVIRONMENT}/lib/{VERSION}/site-packages"
ELSEWHERE = "srv/lib"
"""Packages in a folder that no interpreter knows: PYTHONPATH names it."""


def git_repository(folder: Path) -> str:
    """Make a repository at a commit with old tests; return the id of one with new tests."""

    def git(*words: str) -> str:
        own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        return subprocess.check_output(["git", *own, *words], cwd=folder, text=True).strip()

    (folder / "tests").mkdir(parents=True)
    (folder / "ring.py").write_text(BUGGY)
    (folder / "conftest.py").write_text("")
    (folder / "tests/test_ring.py").write_text(OLD_TESTS)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "old")
    base = git("rev-parse", "HEAD")
    (folder / "tests/test_ring.py").write_text(NEW_TESTS)
    git("commit", "-qam", "new")
    later = git("rev-parse", "HEAD")
    git("checkout", "-q", base)
    git("branch", "-q", "-f", "main", base)
    return later


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository, and its later commit."""
    folder = tmp_path_factory.mktemp("repository") / "ring"
    return folder, git_repository(folder)


@pytest.fixture(scope="module")
def commit(repository: tuple[Path, str]) -> str:
    return repository[1]


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, repository: tuple[Path, str]
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("images")
    files: dict[str, str | Path] = {
        "app": repository[0],
        **stand_in_conda.FILES,
        **dict(site_packages(home=CONDA_PACKAGES)),
        **dict(site_packages(home=ELSEWHERE)),
        **dict(program("git")),
    }
    names = {
        "bash": write_image(folder / "one", files, stand_in_conda.LINKS),
        "sh": write_image(folder / "two", files, stand_in_conda.LINKS, frozenset(["usr/bin/bash"])),
    }
    with service_with_images(folder, names) as running:
        yield running


def grader(commit: str, **more: Any) -> Row:
    return {
        "kind": "repository",
        "directory": "/app",
        "files_from": {"commit": commit, "paths": ["tests"]},
        "activate": "conda:testbed",
        "test": "python -m pytest -q tests",
        "fail_to_pass": F2P,
        "pass_to_pass": P2P,
        **more,
    }


def judged(service: Service, *items: Row, environment: str = "bash") -> list[Row]:
    with service.client() as client:
        body = {
            "submissions": list(items),
            "extract": "none",
            "cache": False,
            "environment": environment,
        }
        answer = client.post("/reward", json=body, timeout=WAIT_SECONDS * 4)
        assert answer.status_code == 200, answer.text
        results: list[Row] = answer.json()["results"]
        return results


ACTIVATED = """[ "$RING_HOME" = "/srv/ring with blanks" ] || exit 9
[ "$(echo "$RING_LINES" | wc -l)" = 2 ] || exit 8
[ "$CONDA_DEFAULT_ENV" = testbed ] || exit 7
python -m pytest -q tests
"""


@pytest.mark.parametrize("environment", ["bash", "sh"])
def test_conda_is_activated_and_tests_come_from_another_commit(
    service: Service, commit: str, environment: str
) -> None:
    own = grader(commit, test=ACTIVATED)
    unknown = grader(commit, activate="conda:none")
    rows = ((FIX, own), (WRONG, own), (FIX, unknown), (FIX, grader("0" * 40)))
    items = [{"completion": text, "grader": each} for text, each in rows]
    right, wrong, no_environment, no_commit = judged(service, *items, environment=environment)
    assert (right["reward"], right["repository"]["report"]) == (1.0, "pytest"), right
    assert wrong["reward"] == 0.0
    assert wrong["repository"]["pass_to_pass"]["passed"] == 1
    for result, words in ((no_environment, "EnvironmentNameNotFound"), (no_commit, "files_from")):
        assert result["error"]["reason"] == "invalid_task"
        assert words in result["error"]["message"]


@pytest.mark.parametrize("environment", ["bash", "sh"])
def test_an_agent_has_the_activated_environment(
    service: Service, commit: str, environment: str
) -> None:
    own = grader(commit, test=ACTIVATED)
    with service.client() as client:
        body = {"repository": own, "environment": environment}
        made = client.post("/sandboxes", json=body, timeout=WAIT_SECONDS).json()
        place = f"/sandboxes/{made['id']}"
        script = "pwd; echo $RING_HOME; python -c 'import pytest, sys; print(sys.prefix)'"
        ended = client.post(f"{place}/exec", json={"command": ["sh", "-c", script]}).json()
        lines = ["/app", "/srv/ring with blanks", f"/{stand_in_conda.ENVIRONMENT}"]
        assert ended["stdout"].splitlines() == lines, ended
        found = client.post(
            f"{place}/exec", json={"command": ["git", "cat-file", "-t", commit]}
        ).json()
        assert found["exit_code"] != 0
        fix = {"command": ["sed", "-i", "s/del ring.3:./del ring[:-3]/", "ring.py"]}
        client.post(f"{place}/exec", json=fix)
        graded = client.post(f"{place}/grade", json={"grader": own}, timeout=WAIT_SECONDS).json()
        assert graded["reward"] == 1.0, graded


def test_a_trajectory_has_the_activated_environment(service: Service, commit: str) -> None:
    command = (
        'test "$CONDA_DEFAULT_ENV" = testbed && sed -i "s/del ring.3:./del ring[:-3]/" ring.py'
    )

    def act(asked: Asked) -> Act:
        return says("Done.") if asked.turn else calls(("bash", {"command": command}))

    with policy_server(act) as server, service.client() as client:
        body = {
            "tasks": [{"id": "t", "prompt": "Repair push.", "grader": grader(commit)}],
            "environment": "bash",
            "policy": {"base_url": server.url, "model": "policy"},
            "agent": {"kind": "tools", "tools": ["bash"]},
        }
        answer = client.post("/rollout", json=body, timeout=WAIT_SECONDS).json()
    [trajectory] = answer["trajectories"]
    assert (trajectory["reward"], trajectory["error"]) == (1.0, None), trajectory


SILENT = f"PYTHONPATH=/{ELSEWHERE} /usr/bin/python3 -S -m pytest"
"""Without `site` no `.pth` file is read."""
SILENT_RUNS: dict[str, tuple[str, str | None]] = {
    "an interpreter without site": (f"{SILENT} -q tests", "pytest_junit"),
    "no variables": (
        f"env -i PATH=$PATH PYTHONPATH=/{ELSEWHERE} python3 -S -m pytest -rA tests",
        "pytest_text",
    ),
    "no variables, and each test in a line": (
        f"env -i PATH=$PATH PYTHONPATH=/{ELSEWHERE} python3 -S -m pytest -v tests",
        "pytest_text",
    ),
    "no XML": (f"{SILENT} -p no:junitxml -q tests", "pytest_text"),
    "neither": (
        f"env -i PATH=$PATH PYTHONPATH=/{ELSEWHERE} python3 -S -m pytest -q tests",
        None,
    ),
    "isolated": ("python -I -m pytest -q -p no:cacheprovider tests", "pytest"),
    "without variables of Python": ("python -E -m pytest -q tests", "pytest"),
    "without packages of the user": ("PYTHONNOUSERSITE=1 python -m pytest -q tests", "pytest"),
    "from another process": (
        "env -i PATH=$PATH python -c 'import subprocess, sys; "
        'sys.exit(subprocess.run([sys.executable, "-m", "pytest", "tests"]).returncode)\'',
        "pytest",
    ),
}
HOSTILE = FIX.replace("del ring[:-3]", "del ring[-3:]") + (
    "--- /dev/null\n+++ b/os.py\n@@ -0,0 +1,2 @@\n+import posix\n+posix._exit(0)\n"
)


def test_a_silent_image_is_judged_by_the_next_kind_of_report(service: Service, commit: str) -> None:
    items = []
    for name, (command, _) in SILENT_RUNS.items():
        own = grader(commit, test=command)
        if name == "no XML":
            own["reference"] = FIX
        items += [{"completion": text, "grader": own} for text in (WRONG, FIX)]
    results = judged(service, *items)
    for (name, (_, kind)), wrong, right in zip(
        SILENT_RUNS.items(), results[::2], results[1::2], strict=True
    ):
        if kind is None:
            assert {each["error"]["reason"] for each in (wrong, right)} == {"invalid_task"}, name
            continue
        assert (right["reward"], right["repository"]["report"]) == (1.0, kind), (name, right)
        assert (wrong["reward"], wrong["repository"]["report"]) == (0.0, kind), (name, wrong)
        assert wrong["repository"]["pass_to_pass"]["passed"] == 1


def test_no_change_chooses_the_kind_of_report(service: Service, commit: str) -> None:
    """The observer works in the image, so that a change that ends pytest early has just failed."""
    own = grader(commit, test="python -S -c 0; PYTHONPATH=. python -m pytest -q tests")
    ended, right = judged(
        service, {"completion": HOSTILE, "grader": own}, {"completion": FIX, "grader": own}
    )
    assert ended["reward"] == 0.0, ended
    assert ended["repository"]["report"] == "pytest"
    assert right["reward"] == 1.0
