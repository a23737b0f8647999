"""Images and environments of Harbor tasks: what is asked of buildah, which is a script here."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
from command_line import proctor

from proctor_client.harbor import HarborTask, read_tasks
from proctor_service.cli.failures import Trouble
from proctor_service.features.environments.cli.harbor_images import build_images

BUILDAH = """#!/bin/sh
echo "$@" >> {log}
case $1 in
build) cat "$4" >> {log}; ! grep -q broken "$4" || {{ echo it is broken >&2; exit 1; }} ;;
push) folder=${{4#oci:}}; mkdir "${{folder%:latest}}" ;;
esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What buildah was told."""
    programs = tmp_path / "programs"
    programs.mkdir()
    log = tmp_path / "log"
    (programs / "buildah").write_text(BUILDAH.format(log=log))
    (programs / "buildah").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return log


def tasks(folder: Path, **tomls: str) -> list[HarborTask]:
    for name, toml in tomls.items():
        (folder / name / "tests").mkdir(parents=True)
        (folder / name / "environment").mkdir()
        (folder / name / "task.toml").write_text(toml)
        (folder / name / "instruction.md").write_text("Do it.")
        (folder / name / "tests/test.sh").write_text("")
        if "docker_image" not in toml:
            (folder / name / "environment/Dockerfile").write_text("FROM scratch\nRUN x")
    return read_tasks(folder)


def quiet(line: str) -> None:
    pass


def test_a_dockerfile_is_built_once(tmp_path: Path, log: Path) -> None:
    toml = '[environment]\nmemory = "2G"\nworkdir = "/w"\nenv = {A = "q\\"x"}'
    found = tasks(tmp_path / "tasks", one=toml)
    text = build_images(found, tmp_path / "out", quiet)
    [image] = (tmp_path / "out/images").iterdir()
    assert tomllib.loads(text) == {
        "environments": {
            "harbor-one": {
                "image": f"oci:{image}:latest",
                "env": {"A": 'q"x'},
                "limits": {"memory_mb": 2048},
            }
        }
    }
    said = log.read_text()
    assert "FROM scratch\nRUN x\nWORKDIR /w\n" in said
    assert build_images(found, tmp_path / "out", quiet) == text
    assert log.read_text() == said
    shutil.rmtree(image)
    build_images(found, tmp_path / "out", quiet)
    assert log.read_text().count("FROM scratch") == 2
    (tmp_path / "tasks/one/environment/more").write_text("x")
    assert build_images(read_tasks(tmp_path / "tasks"), tmp_path / "out", quiet) != text
    assert len(list((tmp_path / "out/images").iterdir())) == 2


def test_an_image_is_taken_as_it_is_or_changed_by_the_task(tmp_path: Path, log: Path) -> None:
    plain = '[environment]\ndocker_image = "a/b:1"'
    found = tasks(tmp_path / "tasks", plain=plain, files=plain, where=f'{plain}\nworkdir = "/w"')
    (tmp_path / "tasks/files/environment/data").write_text("x")
    environments = tomllib.loads(build_images(found, tmp_path / "out", quiet))["environments"]
    assert environments["harbor-plain"] == {"image": "a/b:1"}
    assert environments["harbor-files"]["image"].startswith(f"oci:{tmp_path}/out/images/")
    said = log.read_text()
    assert "FROM a/b:1\nCOPY . .\n" in said
    assert "FROM a/b:1\nWORKDIR /w\n" in said


def test_tasks_share_an_environment_if_it_is_the_same(tmp_path: Path, log: Path) -> None:
    shared = '[environment]\ndocker_image = "a/b:1"\n[metadata]\nproctor_environment = "own"'
    found = tasks(tmp_path / "tasks", one=shared, two=shared)
    text = build_images(found, tmp_path / "out", quiet)
    assert tomllib.loads(text) == {"environments": {"own": {"image": "a/b:1"}}}
    found = tasks(tmp_path / "tasks", three=shared.replace(":1", ":2"))
    with pytest.raises(Trouble, match="another environment under the name own"):
        build_images(found, tmp_path / "out", quiet)


def test_a_failed_build(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks(tmp_path / "tasks", one="")
    (tmp_path / "tasks/one/environment/Dockerfile").write_text("broken")
    command = ("env", "harbor", tmp_path / "tasks", "--images", tmp_path / "out")
    ran = proctor(*command)
    assert ran.exit_code == 2
    assert "buildah build failed:\nit is broken" in ran.output
    monkeypatch.setenv("PATH", "/nowhere")
    ran = proctor(*command)
    assert ran.exit_code == 2
    assert "buildah, which is not installed" in ran.output
    assert not (tmp_path / "out/images").exists() or list((tmp_path / "out/images").iterdir()) == []


def test_eval_needs_reference_solutions(tmp_path: Path) -> None:
    tasks(tmp_path / "tasks", one="")
    ran = proctor(
        "eval", tmp_path / "tasks", "--format", "harbor", PROCTOR_URL="http://127.0.0.1:9"
    )
    assert (ran.exit_code, "no solution/solve.sh; give --empty" in ran.output) == (2, True)
    ran = proctor("eval", tmp_path / "tasks", "--format", "harbor", "--extract", "xml")
    assert (ran.exit_code, "are for files of problems" in ran.output) == (2, True)
    ran = proctor("eval", tmp_path, "--format", "harbor")
    assert (ran.exit_code, "neither a task.toml" in ran.output) == (2, True)
