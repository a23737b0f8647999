"""Folders of Harbor tasks as values: every field that is read, and the words for those that are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from proctor_client.harbor import HarborTaskError, environment_of, read_task, read_tasks

TOML = """
schema_version = "1.4"
artifacts = ["/app/out", {source = "/data/x"}]
[task]
name = "org/Hello World"
[metadata]
difficulty = "easy"
proctor_keep = ["/etc/nginx"]
[agent]
timeout_sec = 30
[verifier]
timeout_sec = 20.5
env = {KEY = "${HARBOR_TEST_KEY}", OTHER = "${HARBOR_TEST_OTHER:-fallback}", PLAIN = "a$b"}
[environment]
docker_image = "python:3.12-slim"
build_timeout_sec = 60
memory_mb = 2048
storage = "1.5G"
workdir = "/work"
env = {MODE = "x"}
[solution]
env = {S = "1"}
"""
MINIMAL: Mapping[str, str | bytes] = {
    "task.toml": "",
    "instruction.md": "Do it.\n",
    "tests/test.sh": "echo 1",
    "environment/Dockerfile": "FROM scratch",
}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a task's folder; None leaves a file out."""

    def written(name: str = "my-task", **changed: str | bytes | None) -> Path:
        files: dict[str, Any] = {**MINIMAL}
        for key, content in changed.items():
            files[{"toml": "task.toml"}.get(key, key)] = content
        for path, content in files.items():
            if content is not None:
                place = tmp_path / name / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name

    return written


def test_every_field(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOR_TEST_KEY", "secret")
    monkeypatch.delenv("HARBOR_TEST_OTHER", raising=False)
    task = read_task(write(toml=TOML, **{"tests/sub/data": b"\xff\0"}))
    assert (task.id, task.environment, task.image) == (
        "org/Hello World", "harbor-hello-world", "python:3.12-slim",
    )  # fmt: skip
    assert (task.instruction, task.timeout_seconds, task.working_directory) == (
        "Do it.\n", 30.0, "/work",
    )  # fmt: skip
    assert (task.memory_mb, task.disk_mb, task.build_timeout_seconds) == (2048, 1536, 60.0)
    assert (task.variables, task.solution_variables) == ({"MODE": "x"}, {"S": "1"})
    grader = task.grader
    assert (grader.tests, grader.binary_tests) == ({"test.sh": "echo 1"}, {"sub/data": "/wA="})
    assert grader.env == {"KEY": "secret", "OTHER": "fallback", "PLAIN": "a$b"}
    assert (grader.timeout_seconds, grader.separate, grader.keep) == (20.5, False, ["/etc/nginx"])
    asked = task.rollout_task(split="train")
    assert (asked.id, asked.prompt, asked.environment, asked.metadata) == (
        "org/Hello World", "Do it.\n", "harbor-hello-world", {"split": "train"},
    )  # fmt: skip


def test_a_task_of_defaults(write: Write) -> None:
    task = read_task(write())
    assert (task.id, task.environment, task.image) == ("my-task", "harbor-my-task", None)
    assert (task.timeout_seconds, task.memory_mb, task.grader.timeout_seconds) == (None, None, 600)
    assert environment_of(write(toml='[metadata]\nproctor_environment = "own"')) == "own"


def test_a_separate_verifier_keeps_the_artifacts(write: Write) -> None:
    text = TOML.replace("[verifier]", '[verifier]\nenvironment_mode = "separate"')
    text = text.replace("${HARBOR_TEST_KEY}", "x")
    grader = read_task(write(toml=text)).grader
    assert (grader.separate, grader.keep) == (True, ["/etc/nginx", "/app/out", "/data/x"])


def test_folders_of_tasks(write: Write, tmp_path: Path) -> None:
    write("b")
    write("a")
    (tmp_path / "other").mkdir()
    assert [task.id for task in read_tasks(tmp_path)] == ["a", "b"]
    assert [task.id for task in read_tasks(tmp_path / "a")] == ["a"]
    with pytest.raises(HarborTaskError, match=r"other: neither a task\.toml, nor folders with one"):
        read_tasks(tmp_path / "other")
    write("c", toml='[task]\nname = "a"')
    with pytest.raises(HarborTaskError, match="has the name 'a' too"):
        read_tasks(tmp_path)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("x =", "task.toml: Invalid value"),
        ("agent = 1", "task.toml: agent is no table"),
        ("[agent]\ntimeout_sec = 'x'", r"agent\.timeout_sec is no number above 0"),
        ("[agent]\ntimeout_sec = -1", r"agent\.timeout_sec is no number above 0"),
        ("[verifier]\ntimeout_sec = inf", r"verifier\.timeout_sec is no number above 0"),
        ("[verifier]\nenv = {A = 1}", r"verifier\.env\.A is no text"),
        ("[verifier]\nenv = {A = '${HARBOR_TEST_NONE}'}", "needs the variable HARBOR_TEST_NONE"),
        ("[verifier]\nenv = {'a-b' = 'x'}", "env: 'a-b' is no name of a variable"),
        ("[environment]\nstorage = 'much'", r"environment\.storage is no size such as 2G"),
        ("[environment]\ndocker_image = 1", r"environment\.docker_image is no text"),
        ("[metadata]\nproctor_keep = 'x'", r"metadata\.proctor_keep is no list of texts"),
        ("[metadata]\nproctor_keep = ['x']", "keep: 'x' is no absolute path"),
        ("[task]\nname = '/'", "no name of an environment can be made of '/'"),
        ("[[steps]]\nname = 'one'", "steps is not supported here"),
        ("[environment]\nos = 'windows'", r"environment\.os is not supported here"),
        ("[environment]\ngpus = 1", r"environment\.gpus is not supported here"),
        ("[environment.healthcheck]\ncommand = 'x'", r"environment\.healthcheck is not supported"),
        ("[verifier]\nuser = 'nobody'", r"verifier\.user is not supported here"),
        ("[verifier.environment]\ndocker_image = 'x'", r"verifier\.environment is not supported"),
        (
            "[environment]\nnetwork_mode = 'allowlist'",
            r"environment\.network_mode is not supported",
        ),
    ],
)
def test_what_cannot_be_used_is_named(write: Write, toml: str, words: str) -> None:
    with pytest.raises(HarborTaskError, match=words):
        read_task(write(toml=toml))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"task.toml": None}, r"task\.toml: No such file"),
        ({"instruction.md": None}, r"instruction\.md: No such file"),
        ({"instruction.md": b"\xff"}, r"instruction\.md: it is not UTF-8"),
        ({"tests/test.sh": None}, "tests: .*at least 1"),
        ({"tests/test.sh": None, "tests/x": ""}, r"tests: there is no test\.sh"),
        ({"environment/Dockerfile": None}, "neither environment/Dockerfile nor docker_image"),
        ({"environment/docker-compose.yaml": ""}, r"docker-compose\.yaml is not supported"),
    ],
)
def test_missing_and_wrong_files(
    write: Write, files: dict[str, str | bytes | None], words: str
) -> None:
    with pytest.raises(HarborTaskError, match=words):
        read_task(write(**files))
