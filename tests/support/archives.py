"""Archives of a stateful sandbox's files, honest and forged, for tests that judge in such a state."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass

WHEN = 1_600_000_000


@dataclass(frozen=True)
class Entry:
    """What is not a plain text file: contents, a mode, or another type of member."""

    data: bytes = b""
    mode: int = 0o644
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    size: int | None = None


def link(target: str) -> Entry:
    """A symbolic link."""
    return Entry(kind=tarfile.SYMTYPE, link=target, mode=0o777)


def hard(target: str) -> Entry:
    """Another name of a member."""
    return Entry(kind=tarfile.LNKTYPE, link=target)


def folder(mode: int = 0o755) -> Entry:
    """A directory."""
    return Entry(kind=tarfile.DIRTYPE, mode=mode)


def archive(*members: tuple[str, str | Entry]) -> bytes:
    """Members as they are given: names may be anything, and come twice."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, content in members:
            entry = Entry(content.encode()) if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname = entry.kind, entry.mode, entry.link
            info.size, info.mtime = len(entry.data), WHEN
            if entry.size is not None:
                info.size = entry.size
                out.write(info.tobuf(tarfile.GNU_FORMAT))
                out.write(entry.data)
            else:
                made.addfile(info, io.BytesIO(entry.data))
    return out.getvalue()
