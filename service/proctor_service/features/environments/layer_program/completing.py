"""Completes an image: its own layer gets the other files for its sandboxes; the image is searched once."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import Any

from .confinement import FOLDER, Ids, Refused, Unable, call, confine, enter, path_parts, separate

_NOSUID_NODEV = 2 | 4
_FOLDERS = {
    "proc": 0o555, "dev": 0o755, "sys": 0o555, "tmp": 0o1777, "etc": 0o755, "run": 0o755,
    "var": 0o755, "var/tmp": 0o1777, "root": 0o700, "opt": 0o755, "opt/proctor": 0o755,
}  # fmt: skip
"""Folders of every sandbox of an image, made where an image lacks them."""
_MOUNTED = ("proc", "dev", "sys")
_HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"
_OLDEST_MINOR = 8
_USERS_BYTES = 4 << 20
_MOST_GROUPS = 32
_PROGRAM = re.compile(r"[\w.+-]{1,100}")  # "g++"
_PYTHON = re.compile(r"python3\.(\d+)")  # "python3.12"


def set_attributes(order: dict[str, Any]) -> dict[str, Any]:
    """Set the attributes of folders in a layer."""
    confine(order["folder"])
    top = os.open("/", FOLDER)
    for path, mode, owner, group in order["attributes"]:
        _set_one(top, path, mode, owner, group)
    return {}


def complete(order: dict[str, Any]) -> dict[str, Any]:
    """Fill the folder of an image's own layer with the other files for its sandboxes, beyond its layers.

    Returns the user, and the findings in the image as a whole.
    """
    uid = os.geteuid()
    separate(uid != 0)
    os.chdir(order["layers"])
    options = (
        "userxattr" if order["ids"] is None else "index=off,metacopy=off,redirect_dir=nofollow"
    )
    lower = ":".join(order["lower"])
    layers = f"lowerdir={lower},upperdir={order['upper']},workdir={order['work']},{options}"
    flags, overlay = _NOSUID_NODEV, b"overlay"
    try:
        call("mount", overlay, order["merged"].encode(), overlay, flags, layers.encode())
    except OSError as error:
        raise Unable(f"{error.strerror}; the store of images may not lie on an overlay") from None
    enter(order["merged"])
    ids = Ids(order["ids"])
    top = os.open("/", FOLDER)
    for path, mode, owner, group in order["attributes"]:
        _set_one(top, path, mode, owner, group)
    for path, target in order["links"]:
        with suppress(OSError):
            if not os.path.lexists(f"/{path}"):
                os.link(f"/{target}", f"/{path}", follow_symlinks=False)
    user = _user(order["user"])
    workdir = "/" + "/".join(path_parts(order["workdir"]))
    _make_folders(top, ids, workdir, (user["user"], user["group"]))
    if not os.path.isdir(workdir):
        raise Refused(f"the image's working directory {workdir} is no folder")
    return {**user, "workdir": workdir, **_programs(order["path"])}


def _set_one(top: int, path: str, mode: int, owner: int, group: int) -> None:
    with suppress(OSError):
        found = os.lstat(path, dir_fd=top)
        if stat.S_ISDIR(found.st_mode):
            if owner >= 0:
                os.chown(path, owner, group, dir_fd=top, follow_symlinks=False)
            os.chmod(path, mode, dir_fd=top)


def _make_folders(top: int, ids: Ids, workdir: str, owner: tuple[int, int]) -> None:
    for name in _MOUNTED:
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                os.unlink(name, dir_fd=top)
    for path, mode in _FOLDERS.items():
        _add_folder(top, ids, path, mode, (0, 0))
    parts = path_parts(workdir)
    for count in range(1, len(parts) + 1):
        _add_folder(top, ids, "/".join(parts[:count]), 0o755, owner)
    with suppress(OSError):  # a link: the image has its own way
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        is_new = not os.path.lexists("/etc/hosts")
        hosts = os.open("/etc/hosts", flags, 0o644)
        if stat.S_ISREG(os.fstat(hosts).st_mode) and not os.read(hosts, 1):
            os.write(hosts, _HOSTS)
        os.close(hosts)
        if is_new:
            ids.give(0, 0, top, "etc/hosts")


def _add_folder(top: int, ids: Ids, path: str, mode: int, owner: tuple[int, int]) -> None:
    with suppress(OSError):  # a link or a file is in the way
        os.mkdir(path, 0o755, dir_fd=top)
        os.chmod(path, mode, dir_fd=top)
        ids.give(*owner, top, path)


def _user(words: str) -> dict[str, Any]:
    """Return the ids of a user in the forms of an image's configuration: `name`, `0`, `name:group`.

    Without a group, return the user's own group and the groups with the user as a member. Raises Refused.
    """
    name, _, group_name = words.partition(":")
    name = name or "0"
    entry = _entry("/etc/passwd", name, 4)
    if entry is None and not name.isdecimal():
        raise Refused(f"the image has no user {name[:100]!r}")
    uid = int(name) if entry is None else int(entry[2])
    gid = 0 if entry is None else int(entry[3])
    groups: list[int] = []
    if group_name:
        found = _entry("/etc/group", group_name, 3)
        if found is None and not group_name.isdecimal():
            raise Refused(f"the image has no group {group_name[:100]!r}")
        gid = int(group_name) if found is None else int(found[2])
    elif entry is not None:
        for line in _lines("/etc/group"):
            fields = line.split(":")
            if len(fields) >= 4 and fields[2].isdecimal() and entry[0] in fields[3].split(","):
                groups.append(int(fields[2]))
    most = 2**31
    if not (0 <= uid < most and 0 <= gid < most):
        raise Refused(f"the image's user {words[:100]!r} has no id")
    home = entry[5] if entry is not None and len(entry) > 5 and entry[5] else "/"
    return {"user": uid, "group": gid, "groups": sorted(set(groups))[:_MOST_GROUPS], "home": home}


def _entry(path: str, name: str, least: int) -> list[str] | None:
    """Return the fields of the line of a name, or of an id."""
    lines = [line.split(":") for line in _lines(path)]
    lines = [
        each for each in lines if len(each) >= least and all(map(str.isdecimal, each[2:least]))
    ]
    by_name = next((each for each in lines if each[0] == name), None)
    return by_name or next((each for each in lines if each[2] == name), None)


def _lines(path: str) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return []
        return file.read(_USERS_BYTES).decode(errors="replace").splitlines()


def _programs(path: str) -> dict[str, Any]:
    """Return the names of the programs on PATH, and `3.12` for the interpreter `python3` there."""
    found: set[str] = set()
    for folder in path.split(":"):
        with suppress(OSError), os.scandir(folder or "/") as entries:
            found |= {
                each.name
                for each in entries
                if each.is_symlink() or (each.is_file() and each.stat().st_mode & 0o111)
            }
    return {
        "programs": sorted(name for name in found if _PROGRAM.fullmatch(name)),
        "python": _python_version(path),
    }


def _python_version(path: str) -> str | None:
    for folder in path.split(":"):
        place = os.path.realpath(f"{folder}/python3")
        match = _PYTHON.fullmatch(os.path.basename(place))
        if match is not None and int(match[1]) >= _OLDEST_MINOR and os.path.isfile(place):
            return f"3.{match[1]}"
    return None
