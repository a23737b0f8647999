"""Twelve projects with a planted bug, in an image: the right change, none, and a wrong one, by each door."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import host_image
import image_packages
import pytest
from harness import Service, running_service
from planted_bugs import PROJECTS, Planted
from policy_server import Act, Asked, calls, policy_server, says

from proctor_client import Client
from proctor_service.settings import Settings

WAIT_SECONDS = 600
NODE = shutil.which("node", path="/usr/local/bin:/usr/bin:/bin")
CHOSEN = {name: each for name, each in PROJECTS.items() if name != "node" or NODE}


def _built(project: Planted, folder: Path) -> bytes:
    """The library that the build of the sound source makes."""
    (folder / "ring.c").write_text(project.files["ring.c"])
    command = ["gcc", "-shared", "-fPIC", "-o", "libring.so", "ring.c"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "libring.so").read_bytes()


def _image(folder: Path) -> str:
    """Write an OCI image with pytest and the repositories of all projects; return its name."""
    layer = io.BytesIO(host_image.image_layer(compiler=True))
    texts: dict[str, bytes] = {}
    for name, project in CHOSEN.items():
        texts |= {f"{name}_project/{path}": text.encode() for path, text in project.files.items()}
        texts |= {path: text.encode() for path, text in project.image.items()}
        if project.builds:
            texts[f"{name}_project/libring.so"] = _built(project, folder)
    with tarfile.open(fileobj=layer, mode="a") as archive:
        for name, content in texts.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
        names = (*image_packages.PYTEST, *image_packages.XDIST)
        for name, path in image_packages.site_packages(names):
            archive.add(path, name)
        if NODE:
            _add_program(archive, Path(NODE).resolve())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_image, "image_layer", lambda *_: layer.getvalue())
        return host_image.write_image(folder / "image", directory="/")


def _add_program(archive: tarfile.TarFile, program: Path) -> None:
    present = set(archive.getnames())
    archive.add(program, "usr/bin/node")
    for name, path in host_image.libraries(program).items():
        place = re.sub(r"^/(lib|lib64)/", r"/usr/\1/", name).lstrip("/")
        if place not in present:
            archive.add(path, place)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _image(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def service(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("store")
    settings = Settings(images=(image,), environments_folder=folder, slots=2)
    with running_service(settings, judge=None) as running:
        yield running


def _task(name: str, image: str) -> dict[str, Any]:
    project = PROJECTS[name]
    changes = project.changes()
    grader = {
        "kind": "repository",
        "directory": f"/{name}_project",
        "prepare": {"patch": changes["bug"]},
        "reference": changes["gold"],
        "test": project.test,
        "report": project.report,
        "fail_to_pass": list(project.fail_to_pass),
        "pass_to_pass": list(project.pass_to_pass),
        **project.fields,
    }
    return {"grader": grader, "environment": {"image": image}}


def test_a_diff_is_rewarded_for_the_right_change_alone(service: Service, image: str) -> None:
    cases = {
        (name, change): {"completion": project.changes()[change], **_task(name, image)}
        for name, project in CHOSEN.items()
        for change in ("gold", "empty", "wrong")
    }
    with Client(service.url) as client:
        judged = client.reward(
            list(cases.values()), extract="diff", deadline_seconds=WAIT_SECONDS
        ).results
    for (name, change), result in zip(cases, judged, strict=True):
        assert result.error is None, (name, change, result)
        assert result.reward == float(change == "gold"), (name, change, result)
        assert result.repository is not None
        if change == "empty":
            kept = result.repository.pass_to_pass
            assert result.repository.fail_to_pass.passed == 0, (name, result)
            assert kept.passed == kept.total == len(PROJECTS[name].pass_to_pass), (name, result)


def _scripts(project: Planted) -> dict[str, str]:
    """Commands of an agent that leave the source of each change."""
    sound = project.files[project.source]
    buggy = sound.replace(*project.bug)
    texts = {"gold": sound, "empty": buggy, "wrong": buggy.replace(*project.wrong)}
    return {
        change: f"cat > {project.source} <<'END'\n{text}END\necho Looked. > notes.txt"
        for change, text in texts.items()
    }


@pytest.mark.parametrize("name", CHOSEN)
def test_a_sandbox_is_judged_as_the_diff(service: Service, image: str, name: str) -> None:
    task, scripts = _task(name, image), _scripts(PROJECTS[name])
    body = {"repository": task["grader"], "environment": task["environment"]}
    with service.client() as client:
        for change in ("gold", "wrong"):
            made = client.post("/sandboxes", json=body, timeout=WAIT_SECONDS).json()
            place = f"/sandboxes/{made['id']}"
            command = {"command": ["sh", "-c", scripts[change]]}
            ended = client.post(f"{place}/exec", json=command, timeout=WAIT_SECONDS).json()
            assert ended["exit_code"] == 0, ended
            asked = {"grader": task["grader"]}
            graded = client.post(f"{place}/grade", json=asked, timeout=WAIT_SECONDS).json()
            client.delete(place)
            assert graded["reward"] == float(change == "gold"), (change, graded)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_rollout_is_judged_as_the_diff(service: Service, image: str, name: str) -> None:
    scripts = _scripts(PROJECTS[name])
    tasks = [
        {"id": change, "prompt": scripts[change], **_task(name, image)}
        for change in ("gold", "empty")
    ]

    def policy(asked: Asked) -> Act:
        return says("Done.") if asked.turn else calls(("bash", {"command": asked.task}))

    with policy_server(policy) as server, service.client() as client:
        asked = {
            "tasks": tasks,
            "policy": {"base_url": server.url, "model": "policy"},
            "agent": {"kind": "tools", "tools": ["bash"]},
        }
        played = client.post("/rollout", json=asked, timeout=WAIT_SECONDS).json()
    rewards = {each["task_id"]: each["reward"] for each in played["trajectories"]}
    assert rewards == {"gold": 1.0, "empty": 0.0}, played
