"""A container image of Debian with Python, made once in a test run by mmdebstrap and buildah."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_TOOLS = ("mmdebstrap", "buildah", "skopeo")


def debian_image(factory: pytest.TempPathFactory) -> str:
    """Return the reference of the image `app` in an OCI layout; all test processes share it.

    It is about 200 MB. Its user is root, its working directory /app, and it has the variable GREETING.
    """
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    assert not missing, f"needs {' '.join(missing)}: apt-get install {' '.join(missing)}"
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    layout = shared / "debian-image"
    with (shared / "debian-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not layout.exists():
            _make(shared / "debian-image.parts", layout)
    return f"oci:{layout}:app"


def _make(parts: Path, layout: Path) -> None:
    parts.mkdir()
    tarball, store = (
        parts / "base.tar",
        ("--root", str(parts / "root"), "--runroot", str(parts / "run")),
    )
    _run(
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--include=python3",
        "bookworm",
        str(tarball),
    )

    def buildah(*arguments: str) -> str:
        return _run("buildah", *store, "--storage-driver", "vfs", *arguments)

    try:
        container = buildah("from", "scratch").strip()
        buildah("add", "--quiet", container, str(tarball), "/")
        buildah("config", "--workingdir", "/app", "--env", "GREETING=hello", container)
        buildah("commit", "--quiet", "--rm", container, f"oci:{parts / 'layout'}:app")
        for folder, _, names in os.walk(parts / "layout"):
            for path in (Path(folder), *(Path(folder, name) for name in names)):
                path.chmod(0o755 if path.is_dir() else 0o644)
        (parts / "layout").rename(layout)
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _run(*command: str) -> str:
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    if os.geteuid() == 0:  # root's mounts of both tools stay out of the machine's
        command = ("unshare", "--mount", "--propagation", "private", *command)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"
    return done.stdout
