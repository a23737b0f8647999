"""What the tests with Harbor share: a service with the environments of six tasks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harbor_tasks import write_tasks
from host_image import write_image
from service_process import ROOT, ServiceProcess

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["HARBOR_TELEMETRY"] = "off"
OTHERS = ("harbor", "litellm", "pydantic", "supabase", "openai")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What Harbor's own packages warn of is theirs to mend."""
    for item in items:
        for name in OTHERS:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:::{name}"))


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harbor")
    return write_tasks(folder / "tasks", write_image(folder / "image", compiler=True))


@pytest.fixture(scope="session")
def url(tasks: Path) -> Iterator[str]:
    folder = tasks.parent
    storage = folder / "storage.conf"
    lines = (
        "[storage]",
        'driver = "vfs"',
        f'graphroot = "{folder}/root"',
        f'runroot = "{folder}/run"',
    )
    storage.write_text("\n".join(lines) + "\n")
    file = folder / "environments.toml"
    settings = {
        "PROCTOR_ENVIRONMENTS": str(file),
        "PROCTOR_ENVIRONMENTS_FOLDER": str(folder / "environments"),
    }
    variables = {
        "CONTAINERS_STORAGE_CONF": str(storage),
        "BUILDAH_ISOLATION": "chroot",
        "PYTHONPATH": f"{ROOT}/client{os.pathsep}{ROOT}/service",
        **settings,
    }

    def proctor(*arguments: str) -> str:
        command = [str(ROOT / ".venv/bin/python"), "-m", "proctor_service", *arguments]
        done = subprocess.run(
            command, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    file.write_text(proctor("env", "harbor", str(tasks), "--images", str(folder / "images")))
    proctor("env", "build")
    with ServiceProcess(**settings) as running:
        yield running.url
