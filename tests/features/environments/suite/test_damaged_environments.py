"""Environments whose files go away under a running service: an error, and never a verdict."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import running_service
from host_image import write_image
from tiny_packages import DEFAULT, offline, write_wheel
from visible_folder import visible_folder

from proctor_client import Client, wire
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.settings import Settings
from proctor_service.settings.environments import read_environments

GRADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "exec": ("import proctortest_number", {"kind": "exec"}),
    "asserts": (
        "import proctortest_number\ndef f():\n    return 1",
        {"kind": "asserts", "tests": ["assert f() == 1"]},
    ),
    "stdio": (
        "import proctortest_number\nprint(1)",
        {"kind": "stdio", "cases": [{"stdin": "", "stdout": "1"}]},
    ),
    "command": (
        "import proctortest_number",
        {"kind": "command", "argv": ["python3", "solution.py"]},
    ),
}
# Programs of this image do not say which Python they are.
IN_IMAGE: dict[str, tuple[str, dict[str, Any]]] = {
    "exec": ("ls /usr/bin > list", {"kind": "exec"}),
    "stdio": ("ls /usr/bin/ls", {"kind": "stdio", "cases": [{"stdout": "/usr/bin/ls"}]}),
    "command": ("ls /", {"kind": "command", "argv": ["sh", "-c", "ls /usr/bin > list"]}),
}


@dataclass(frozen=True)
class Kept:
    """A built environment `own` with its settings; `build` builds it once more."""

    settings: dict[str, Any]
    built: BuiltEnvironment
    build: Callable[[], object]


def kept(folder: Path, definition: str) -> Kept:
    file = folder / "environments.toml"
    file.write_text(f"[environments.own]\n{definition}\n")
    [own] = read_environments(file).values()
    store = EnvironmentStore(folder / "store")
    built = store.build("own", own, DEFAULT)
    settings = {"environments": file, "environments_folder": folder / "store"}
    return Kept(settings, built, lambda: store.build("own", own, DEFAULT, rebuild=True))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    wheels = offline(monkeypatch, tmp_path)
    write_wheel(wheels, "proctortest_number", {"proctortest_number.py": "N = 1"}, "1.0")
    with visible_folder() as folder:
        yield kept(folder, 'requirements = ["proctortest-number==1.0"]')


@pytest.fixture(scope="module")
def image_name(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def image(image_name: str, tmp_path: Path) -> Kept:
    return kept(tmp_path, f"image = {json.dumps(image_name)}")


@contextmanager
def serving(environment: Kept, workers: int = 0) -> Iterator[Client]:
    chosen = Settings(slots=2, workers=workers, **environment.settings)
    with (
        running_service(chosen, judge=None) as service,
        Client(service.url, max_attempts=1) as client,
    ):
        yield client


def judged(client: Client, graders: dict[str, tuple[str, dict[str, Any]]]) -> Sequence[wire.Result]:
    language = "bash" if graders is IN_IMAGE else "python"
    submissions = [
        {"completion": text, "grader": each, "language": language}
        for text, each in graders.values()
    ]
    return client.reward(submissions, environment="own", extract="none", cache=False).results


def assert_no_verdicts(results: Sequence[wire.Result]) -> None:
    assert [each.reward for each in results] == [None] * len(results), results
    assert {each.error.reason for each in results if each.error} <= {
        *("sandbox_unavailable", "sandbox_lost")
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", ["all", "package", "moved"])
def test_packages_that_go_away(packages: Kept, damage: str, workers: int) -> None:
    folder = packages.built.folder
    assert folder is not None
    with serving(packages, workers) as client:
        assert [each.reward for each in judged(client, GRADERS)] == [1.0] * len(GRADERS)
        if damage == "all":
            shutil.rmtree(folder)
        elif damage == "moved":
            folder.rename(folder.with_name("moved"))
        else:
            for path in folder.glob("venv/lib/python*/site-packages/proctortest_number*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for _ in range(3):
            assert_no_verdicts(judged(client, GRADERS))
        other = client.reward(["x = 1"], grader={"kind": "exec"}).results
        assert [each.reward for each in other] == [1.0]
        if damage != "package":  # no build replaces a folder that is in use
            packages.build()
            assert [each.reward for each in judged(client, GRADERS)] == [1.0] * len(GRADERS)


def test_packages_that_went_away_before_their_first_use(packages: Kept) -> None:
    assert packages.built.folder is not None
    with serving(packages) as client:
        for path in packages.built.folder.glob(
            "venv/lib/python*/site-packages/proctortest_number*"
        ):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert_no_verdicts(judged(client, GRADERS))


@pytest.mark.parametrize("damage", ["all", "emptied", "programs"])
def test_an_image_that_goes_away(image: Kept, damage: str) -> None:
    assert image.built.image is not None
    rootfs = image.built.image.layers[-1]
    with serving(image) as client:
        assert [each.reward for each in judged(client, IN_IMAGE)] == [1.0] * len(IN_IMAGE)
        if damage == "all":
            shutil.rmtree(rootfs)
        elif damage == "emptied":
            for path in rootfs.iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        else:
            (rootfs / "usr" / "bin" / "ls").unlink()
        for _ in range(3):
            assert_no_verdicts(judged(client, IN_IMAGE))


def test_an_image_that_went_away_before_its_first_use(image: Kept) -> None:
    assert image.built.image is not None
    with serving(image) as client:
        shutil.rmtree(image.built.image.layers[-1])
        assert_no_verdicts(judged(client, IN_IMAGE))


def test_additions_change_nothing(packages: Kept) -> None:
    assert packages.built.folder is not None
    with serving(packages) as client:
        for site in packages.built.folder.glob("venv/lib/python*/site-packages"):
            (site / "more.py").write_text("")
        assert [each.reward for each in judged(client, GRADERS)] == [1.0] * len(GRADERS)
