"""A repository's files in memory, and what a change makes of them."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping

from proctor_service.features.repositories.change import Change, FileState


class Files:
    """Implements `change.Base` by a mapping."""

    def __init__(self, files: Mapping[bytes, FileState]) -> None:
        self.files = dict(files)

    def paths(self) -> Collection[bytes]:
        return self.files.keys()

    def state(self, path: bytes) -> FileState | None:
        return self.files.get(path)

    def after(self, change: Change) -> dict[bytes, FileState]:
        """Return all files after a change."""
        made = {**self.files, **change.files}
        return {path: state for path, state in made.items() if state is not None}


def files_of(texts: Mapping[str, str]) -> Files:
    """Return files of texts by path: `base64:…` is data, `symlink:…` a link."""
    return Files({path.encode(): state_of(text) for path, text in texts.items()})


def state_of(text: str) -> FileState:
    if text.startswith("symlink:"):
        return FileState("link", text[8:].encode())
    is_data = text.startswith("base64:")
    return FileState("644", base64.b64decode(text[7:]) if is_data else text.encode())
