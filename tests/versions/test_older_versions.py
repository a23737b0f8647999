"""A client of one version and a service of another: the tests of each client, with the other's service.

The older version is the first one, before tests were judged at three levels. Its own tests run with its
client, its command line and its trainers; what they ask of a service goes over HTTP.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from history import ROOT, extract, python_path
from service_process import ServiceProcess
from waits import WAIT_SECONDS

from proctor_client import Client, InvalidRequestError, NotFoundError

FIRST = "36754e4d33cb87bbc68951bfc0c621d932c3b9a8"
SUPPORT = ROOT / "tests" / "support"
CLIENT_TESTS = "tests/e2e/test_client_sandboxes.py"
EXAMPLES = "tests/e2e/test_readme.py::test_example"
"""The commands and programs in its documents."""
IMPATIENT = {
    "service/proctor_service/cli/target.py": "_PROBE_SECONDS",
    "tests/e2e/test_readme.py": "EXAMPLE_SECONDS",
}
"""What a busy machine needs longer for than the first version waits."""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first version: its packages, documents and tests."""
    paths = ("client", "service", "trainers", "tests", "docs", "README.md", "pyproject.toml")
    root = extract(FIRST, tmp_path_factory.mktemp("first"), *paths)
    for name, constant in IMPATIENT.items():
        text = (root / name).read_text()
        patient = re.sub(rf"^{constant} = .*$", f"{constant} = {WAIT_SECONDS}", text, flags=re.M)
        assert patient != text
        (root / name).write_text(patient)
    return root


def passed(tests: str, *, of: Path, service: Path, scratch: Path) -> int:
    """Runs tests of one tree with its packages, and a service of another; how many have passed.

    Fails if one does not, or if the client is another tree's.
    """
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "service_elsewhere", f"--basetemp={scratch}", tests],
        cwd=of,
        env={
            **clean,
            "PYTHONPATH": f"{python_path(of)}{os.pathsep}{SUPPORT}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OTHER_SERVICE": python_path(service),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"client: {of / 'client'}" in done.stdout
    [count] = re.findall(r"^=+ (\d+) passed in ", done.stdout, re.MULTILINE)
    return int(count)


# The first version's tests of Ctrl-C need a process that does not ignore SIGINT.
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("tests", [CLIENT_TESTS, EXAMPLES])
def test_the_first_client_with_this_service(tests: str, first: Path, tmp_path: Path) -> None:
    assert passed(tests, of=first, service=ROOT, scratch=tmp_path / "scratch") >= 10


def test_this_client_with_the_first_service(first: Path, tmp_path: Path) -> None:
    tests = CLIENT_TESTS.replace("e2e", "core/e2e")
    assert passed(tests, of=ROOT, service=first, scratch=tmp_path / "scratch") >= 10


def test_what_the_first_service_does_not_know_is_named(first: Path) -> None:
    with ServiceProcess(PYTHONPATH=python_path(first)) as process, Client(process.url) as client:
        with pytest.raises(InvalidRequestError, match="step"):
            client.reward(["x = 1"], grader={"kind": "exec"}, step=1)
        with pytest.raises(NotFoundError):
            client.jobs()
        [result] = client.reward(["x = 1"], grader={"kind": "exec"}).results
        assert (result.reward, result.level) == (1.0, None)
