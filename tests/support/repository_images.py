"""Images with pytest and a repository, made of programs of this machine."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import host_image
import pytest
from harness import Service, running_service

from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.settings import Settings
from proctor_service.settings.environments import read_environments


def program(name: str) -> Iterator[tuple[str, Path]]:
    """A program of this machine and its libraries, by their path in an image."""
    path = Path(f"/usr/bin/{name}").resolve()
    yield f"usr/bin/{name}", path
    for place, library in host_image.libraries(path).items():
        yield place.lstrip("/"), library


def write_image(
    folder: Path,
    files: Mapping[str, str | Path],
    links: Mapping[str, str] | None = None,
    without: frozenset[str] = frozenset(),
    directory: str = "/",
) -> str:
    """Write an OCI image of the host's programs with these files; return its name.

    Texts that begin with `#!` are programs; a Path may be a folder. `without`: paths of the host's
    programs that the image lacks. `directory`: the working directory.
    """
    layer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(host_image.image_layer())) as base,
        tarfile.open(fileobj=layer, mode="w") as archive,
    ):
        for member in base:
            if member.name not in without:
                archive.addfile(member, base.extractfile(member) if member.isfile() else None)
        for name, content in files.items():
            if isinstance(content, Path):
                archive.add(content, name)
                continue
            data = content.encode()
            added = tarfile.TarInfo(name)
            added.size, added.mode = len(data), 0o755 if content.startswith("#!") else 0o644
            archive.addfile(added, io.BytesIO(data))
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_image, "image_layer", lambda *_: layer.getvalue())
        return host_image.write_image(folder, directory=directory)


@contextmanager
def service_with_images(folder: Path, images: Mapping[str, str]) -> Iterator[Service]:
    """Serve with environments of images, by name, in a folder of its own."""
    file = folder / "environments.toml"
    lines = (f"[environments.{key}]\nimage = {json.dumps(name)}\n" for key, name in images.items())
    file.write_text("".join(lines))
    for each, definition in read_environments(file).items():
        EnvironmentStore(folder / "store").build(each, definition, Path("/"))
    settings = Settings(environments=file, environments_folder=folder / "store", slots=2)
    with running_service(settings, judge=None) as running:
        yield running
