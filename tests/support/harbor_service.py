"""The environments of Harbor tasks for a service of the tests, built once in a test run."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from harbor_tasks import write_tasks
from host_image import write_image

from proctor_client.harbor import HarborTask, read_tasks
from proctor_service.features.environments.cli.harbor_images import build_images
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.settings.environments import read_environments


@dataclass(frozen=True)
class Harbor:
    """Six tasks below `folder`, and their environments in `store`."""

    folder: Path

    @property
    def tasks_folder(self) -> Path:
        return self.folder / "tasks"

    @property
    def tasks(self) -> dict[str, HarborTask]:
        """The tasks by the name of their folder."""
        return {task.folder.name: task for task in read_tasks(self.tasks_folder)}

    @property
    def file(self) -> Path:
        return self.folder / "environments.toml"

    @property
    def store(self) -> Path:
        return self.folder / "store"


def harbor(factory: pytest.TempPathFactory) -> Harbor:
    """Return the built tasks; all test processes share them."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "harbor"
    with (shared / "harbor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "environments.toml").exists():
            _build(Harbor(folder))
    return Harbor(folder)


def _build(made: Harbor) -> None:
    image = write_image(made.folder / "image", compiler=True)
    write_tasks(made.tasks_folder, image)
    with pytest.MonkeyPatch.context() as patch:
        use_buildah_in(made.folder / "buildah", patch)
        text = build_images(list(made.tasks.values()), made.folder, lambda line: None)
    part = made.folder / "environments.part"
    part.write_text(text)
    for name, definition in read_environments(part).items():
        EnvironmentStore(made.store).build(name, definition, Path("/"))
    part.rename(made.file)


def use_buildah_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let buildah keep everything below a folder."""
    folder.mkdir(parents=True)
    file = folder / "storage.conf"
    lines = (
        "[storage]",
        'driver = "vfs"',
        f'graphroot = "{folder / "root"}"',
        f'runroot = "{folder / "run"}"',
    )
    file.write_text("\n".join(lines) + "\n")
    patch.setenv("CONTAINERS_STORAGE_CONF", str(file))
    patch.setenv("BUILDAH_ISOLATION", "chroot")
