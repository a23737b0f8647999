"""Builds the image as `make image` does, on a base image made of Debian's packages.

Everything lies below one folder of its own, and is gone with it: no image store of the machine is
touched. The sources are copied first, so that two builds have the same ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.manifests import ROOT

BASE = "localhost/proctor-test-base"
TAG = "localhost/proctor-test"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
SOURCES = (
    "Dockerfile",
    ".dockerignore",
    "Makefile",
    "constraints.txt",
    "client",
    "service",
    "deploy/base-image.txt",
    "deploy/image.sh",
    "deploy/sbom.py",
)


@dataclass(frozen=True)
class Image:
    """A built image: what it says of itself, and where it lies unpacked."""

    root: Path
    layers: tuple[str, ...]
    config: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """Its variables."""
        return dict(pair.split("=", 1) for pair in self.config["Env"])


class Builder:
    """Builds and unpacks images below one folder."""

    def __init__(self, folder: Path) -> None:
        self._sources = folder / "sources"
        self._store = ["--root", str(folder / "store"), "--runroot", str(folder / "run")]
        self._folder = folder
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        self._sources.mkdir()
        for name in SOURCES:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self._sources / name, ignore=ignore)
            else:
                (self._sources / name).parent.mkdir(exist_ok=True)
                shutil.copy(ROOT / name, self._sources / name)
        self._make_base()

    def make(self, *arguments: str) -> str:
        """What `make` says with these arguments, in the sources and with this store."""
        command = " ".join(["buildah", *self._store])
        return _run("make", *arguments, f"BUILDAH={command}", cwd=self._sources)

    def build(self, tag: str, *arguments: str) -> tuple[str, ...]:
        """`make image`, from the beginning; the digests of the layers."""
        self.make("image", f"IMAGE={tag}", f"BASE_IMAGE={BASE}", *arguments)
        return tuple(self._described(tag)["rootfs"]["diff_ids"])

    def image(self, tag: str = TAG, *arguments: str) -> Image:
        """A built image, unpacked."""
        layers = self.build(tag, *arguments)
        root = Path(self._buildah("mount", self._buildah("from", tag).strip()).strip())
        for parent in root.parents:  # a user namespace must find its way there
            if parent == self._folder.parent:
                break
            parent.chmod(parent.stat().st_mode | 0o111)
        return Image(root, layers, self._described(tag)["config"])

    def written(self, name: str) -> str:
        """The text of a file of the sources."""
        return (self._sources / name).read_text()

    def close(self) -> None:
        """Unmounts what is mounted."""
        self._buildah("rm", "--all")

    def _described(self, tag: str) -> dict[str, Any]:
        inspected = json.loads(self._buildah("inspect", "--type", "image", tag))
        described: dict[str, Any] = json.loads(inspected["Config"])
        return described

    def _make_base(self) -> None:
        """Debian with Python; what trusts the machine's certificates and package sources is there."""
        tarball = self._folder / "base.tar"
        _run("mmdebstrap", "--quiet", "--variant=minbase", "--dpkgopt=path-exclude=/usr/share/doc/*",
             "--include=python3,python3-venv,ca-certificates", _suite(), str(tarball))  # fmt: skip
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", "--quiet", container, str(tarball), "/")
        tarball.unlink()
        if CERTIFICATES.exists():
            self._buildah("copy", "--quiet", container, str(CERTIFICATES), str(CERTIFICATES))
        pip = self._folder / "pip.conf"
        pip.write_text(f"[global]\ncert = {CERTIFICATES}\n")
        self._buildah("copy", "--quiet", container, str(pip), "/etc/pip.conf")
        self._buildah("commit", "--quiet", container, BASE)
        self._buildah("rm", container)

    def _buildah(self, *arguments: str) -> str:
        return _run("buildah", *self._store, *arguments)


@contextmanager
def building() -> Iterator[Builder]:
    """A builder with a base image; all it made goes with the block."""
    with tempfile.TemporaryDirectory(prefix="proctor-images-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        builder = Builder(folder)
        try:
            yield builder
        finally:
            builder.close()


def _suite() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2]
    return "stable"


def _run(*command: str, cwd: Path | None = None) -> str:
    # Chroot isolation: within containers and virtual machines others often cannot be had.
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command[:6]}: {done.stderr[-2000:]}"
    return done.stdout
