"""`harbor run` with the sandboxes of a service: Harbor's oracle and its agent that does nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.task import Task
from harbor.models.trial.paths import TrialPaths
from harbor_tasks import NAMES, SHARED

from proctor_trainers.harbor import ProctorEnvironment

ENVIRONMENT = "proctor_trainers.harbor:ProctorEnvironment"
VERIFIER = "proctor_trainers.harbor:ProctorVerifier"


def harbor_run(url: str, folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Run tasks; return the result of each trial by the end of its task's name."""
    harbor = Path(sys.executable).with_name("harbor")
    command = [str(harbor), "run", "--env", ENVIRONMENT, "--jobs-dir", str(folder), "-n", "2"]
    ran = subprocess.run(
        [*command, *options],
        env=os.environ | {"PROCTOR_URL": url, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = [json.loads(each.read_text()) for each in folder.glob("*/*/result.json")]
    assert results, ran.stdout + ran.stderr
    return {each["task_name"].rpartition("/")[2]: each for each in results}


def rewards(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    for result in found.values():
        assert result["exception_info"] is None, result
    return {name: each["verifier_result"]["rewards"]["reward"] for name, each in found.items()}


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
@pytest.mark.parametrize("verifier", [(), ("--verifier", VERIFIER)], ids=["Harbor's", "ours"])
def test_six_tasks(
    url: str, tasks: Path, tmp_path: Path, agent: str, reward: float, verifier: tuple[str, ...]
) -> None:
    found = harbor_run(url, tmp_path, "--path", str(tasks), "--agent", agent, *verifier)
    assert rewards(found) == dict.fromkeys(NAMES, reward)
    listed = httpx.get(
        f"{url}/sandboxes", params={"status": "running"}, trust_env=False, timeout=240
    )
    assert listed.json()["sandboxes"] == []


Act = Callable[[ProctorEnvironment], Awaitable[None]]


def within(url: str, tasks: Path, folder: Path, act: Act, **options: Any) -> None:
    """Run `act` with a started environment of a task."""

    async def acted() -> None:
        task = Task(tasks / "long")
        environment = EnvironmentFactory.create_environment_from_import_path(
            ENVIRONMENT,
            environment_dir=task.paths.environment_dir,
            environment_name="long",
            session_id="long__1__env",
            trial_paths=TrialPaths(folder),
            task_env_config=task.config.environment,
            logger=logging.getLogger("test"),
            url=url,
            **options,
        )
        await environment.start(force_build=False)
        try:
            await act(environment)
        finally:
            await environment.stop(delete=True)

    asyncio.run(acted())


def test_files_go_in_and_come_out(url: str, tasks: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "sub/data").write_bytes(bytes(range(256)))

    async def act(environment: ProctorEnvironment) -> None:
        await environment.upload_dir(source, "/app/a b")
        await environment.upload_file(source / "run.sh", "/opt/deep/run.sh")
        for path in ("'/app/a b/run.sh'", "/opt/deep/run.sh"):
            assert (await environment.exec(path)).stdout == "ran\n"
        await environment.exec("ln -s /etc/passwd link; mkfifo pipe", cwd="/app/a b")
        await environment.exec("ln -s sub/data '/app/a b/inside'; rm '/app/a b/link'")
        await environment.download_dir("/app/a b", tmp_path / "found")
        await environment.download_file("/app/a b/sub/data", tmp_path / "one/data")
        assert await environment.is_dir("/app/a b/sub")
        assert not await environment.is_file("/app/a b/sub")

    within(url, tasks, tmp_path, act)
    assert (tmp_path / "found/inside").read_bytes() == bytes(range(256))
    assert (tmp_path / "one/data").read_bytes() == bytes(range(256))
    assert not (tmp_path / "found/pipe").exists()


def test_commands(url: str, tasks: Path, tmp_path: Path) -> None:
    async def act(environment: ProctorEnvironment) -> None:
        said = await environment.exec("echo $A $B; echo late >&2; exit 3", env={"B": "b c'd"})
        assert (said.stdout, said.stderr, said.return_code) == ("a b c'd\n", "late\n", 3)
        assert (await environment.exec("pwd")).stdout == "/app\n"
        assert (await environment.exec("pwd", cwd="/usr")).stdout == "/usr\n"
        assert (await environment.exec("pwd", cwd="/none")).return_code == 126
        assert (await environment.exec("set -o pipefail; false | true")).return_code == 1
        late = await environment.exec("echo begun; sleep 60", timeout_sec=1)
        assert (late.stdout, late.return_code) == ("begun\n", 124)
        assert "took longer than 1 s" in str(late.stderr)
        killed = await environment.exec("kill -9 $$")
        assert killed.return_code == 137
        listed = await environment.exec("stat -c %a /logs/agent")
        assert listed.stdout == "777\n", listed

    within(url, tasks, tmp_path, act, persistent_env={"A": "a"}, environment=SHARED,
           mounts=[{"type": "bind", "source": "/nowhere", "target": "/logs/agent"}])  # fmt: skip


def test_an_unknown_environment_is_named(url: str, tasks: Path, tmp_path: Path) -> None:
    async def act(environment: ProctorEnvironment) -> None:
        raise AssertionError("it was started")

    with pytest.raises(Exception, match="no 'other' here"):
        within(url, tasks, tmp_path, act, environment="other")
