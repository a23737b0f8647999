"""Checks of the paths of files in stateful sandboxes."""

from __future__ import annotations

from proctor_service.errors import FileRefused

LONGEST_PATH_BYTES = 4096
LONGEST_NAME_BYTES = 255


def check_path(path: str) -> None:
    """Raise FileRefused for a path that is invalid as a file name on every machine."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise FileRefused("path: not a valid path") from None
    if not path.strip("/"):
        raise FileRefused("path: it is empty")
    if b"\0" in encoded:
        raise FileRefused("path: it holds a NUL")
    longest_name = max(map(len, encoded.split(b"/")))
    if len(encoded) >= LONGEST_PATH_BYTES or longest_name > LONGEST_NAME_BYTES:
        raise FileRefused("path: it is too long")
