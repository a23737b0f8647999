"""Becomes an ordinary user, then another program: `ordinary_user.py UID PROGRAM ARGUMENTS…`.

`UID:FIRST`: the user has 65,536 subordinate ids from FIRST, and a name, as far as its processes see.

A system's Python can be run by everybody; the one that runs the tests may lie below a directory that is
root's alone. Then this shows the interpreter, its environment and the repository to that user, where
they are, in a mount namespace of their own. Nothing else of such a directory is there. The user has no
capability, and no group but its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from proctor_service.sandbox.linux import kernel

REPOSITORY = Path(__file__).resolve().parents[2]
SUBORDINATE_IDS = 65_536


def show_what_it_needs(uid: int) -> None:
    """Mounts, over each directory that the user cannot enter, one with only what is needed in it."""
    needed = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), REPOSITORY}
    closed: dict[Path, list[Path]] = {}
    for path in needed:
        for above in reversed(path.parents):
            if not _may_enter(above, uid):
                closed.setdefault(above, []).append(path)
                break
    if not closed:
        return
    kernel.unshare(kernel.NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    for directory, paths in closed.items():
        held = {path: os.open(path, os.O_PATH) for path in paths}
        kernel.mount("tmpfs", str(directory), "tmpfs", kernel.MS_NOSUID, "mode=755")
        for path, descriptor in held.items():
            path.mkdir(parents=True, exist_ok=True)
            source = f"/proc/self/fd/{descriptor}"
            kernel.mount(source, str(path), None, kernel.MS_BIND | kernel.MS_REC)
            os.close(descriptor)


def give_subordinate_ids(uid: int, first: int) -> None:
    """Adds lines to the files of names and of subordinate ids, in a mount namespace of its own."""
    kernel.unshare(kernel.NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    line = f"proctor-test:{first}:{SUBORDINATE_IDS}\n"
    name = f"proctor-test:x:{uid}:{uid}::/:/bin/sh\n"
    for path, more in (("/etc/subuid", line), ("/etc/subgid", line), ("/etc/passwd", name)):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(Path(path).read_text() + more)
            file.flush()
            Path(file.name).chmod(0o644)
            kernel.mount(file.name, path, None, kernel.MS_BIND)


def _may_enter(directory: Path, uid: int) -> bool:
    found = directory.stat()
    return bool(found.st_mode & (0o100 if found.st_uid == uid else 0o001))


def main() -> None:
    """Never returns."""
    user, _, first = sys.argv[1].partition(":")
    uid = int(user)
    if first:
        give_subordinate_ids(uid, int(first))
    show_what_it_needs(uid)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
