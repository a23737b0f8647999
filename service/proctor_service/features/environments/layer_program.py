"""Unpacks a layer of an image, or completes an image; the layers are hostile.

    python -I -S layer_program.py ORDER ANSWER

Standard library only. Order and answer are files with JSON; lines on stdout tell the progress. The
program confines itself first: it gets a mount and a network namespace of its own, for an ordinary user also a user namespace,
and its root becomes the folder to be filled. So a link inside leads to places inside. No program of an
image runs. Formats: layer.md and config.md of the image specification of the Open Container Initiative,
and overlayfs.rst of Linux for removed files (a character device 0/0) and hiding folders (an attribute).
"""

from __future__ import annotations

import ctypes
import errno
import gzip
import hashlib
import json
import os
import re
import resource
import stat
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

_NEWNS, _NEWUSER, _NEWNET = 0x0002_0000, 0x1000_0000, 0x4000_0000
_PRIVATE_TREE = 1 << 18 | 16384  # MS_PRIVATE and MS_REC of mount(2)
_NOSUID_NODEV = 2 | 4
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVED, _HIDES, _OWN = ".wh.", ".wh..wh..opq", ".wh..wh."
_MEMORY_BYTES = 1 << 30
_CHUNK = 1 << 20
_MODE = 0o7777
_LONGEST_PATH = 4095
_MOST_FILES = 4_000_000
_REPORT_BYTES = 16 << 20  # between two lines about the progress
_MAGIC_GZIP, _MAGIC_ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_FOLDERS = {
    "proc": 0o555, "dev": 0o755, "sys": 0o555, "tmp": 0o1777, "etc": 0o755, "run": 0o755,
    "var": 0o755, "var/tmp": 0o1777, "root": 0o700, "opt": 0o755, "opt/proctor": 0o755,
}  # fmt: skip
"""Folders of every sandbox of an image, made where an image lacks them."""
_MOUNTED = ("proc", "dev", "sys")
_HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"
_OLDEST_MINOR = 8
_USERS_BYTES = 4 << 20
_PROGRAM = re.compile(r"[\w.+-]{1,100}")  # "g++"
_PYTHON = re.compile(r"python3\.(\d+)")  # "python3.12"


class Refused(Exception):
    """The image breaks a rule, or exceeds a bound."""


class _Member(tarfile.TarInfo):
    """A member whose damaged header is an error; for tarfile alone, it would end the archive."""

    @classmethod
    def fromtarfile(cls, archive: Any) -> Any:
        """Read the next header. Raises Refused."""
        try:
            return super().fromtarfile(archive)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise Refused(f"a layer's archive is damaged: {error}") from None


class _Hashed:
    """A stream for tarfile that counts and hashes its bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes."""
        data = self._stream.read(size)
        self.digest.update(data)
        return data


class _Ids:
    """User ids of an image on this machine; without a range an ordinary user owns all files."""

    def __init__(self, given: Sequence[int] | None) -> None:
        self._range = given

    def give(self, uid: int, gid: int, folder: int, name: str) -> None:
        """Give a file in a folder to users of the image."""
        if self._range is not None:
            owner = (self._mapped(uid), self._mapped(gid))
            os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)

    def least(self, is_folder: bool) -> int:
        """Return the bits of a mode that the owner needs to read all of his files."""
        if self._range is not None:
            return 0
        return 0o700 if is_folder else 0o400

    def _mapped(self, number: int) -> int:
        assert self._range is not None
        first, count = self._range
        return first + min(max(number, 0), count - 1)


class _Unpacking:
    """A layer's folder while it is filled. The process's root is the folder."""

    def __init__(self, ids: _Ids, attribute: str, most_bytes: int) -> None:
        self._ids = ids
        self._attribute = attribute
        self._most_bytes = most_bytes
        self.bytes = 0
        self.files = 0
        self._reported_bytes = 0
        self.implicit: dict[str, None] = {}
        """Folders which no member names: those of the layers below decide about mode and owner."""
        self.links: list[tuple[str, str]] = []
        """Hard links to files of the layers below, each with its target."""
        self._folders: dict[str, tuple[int, float]] = {}  # mode and time hold when all is written
        self._parent: tuple[str, int] = ("", -1)

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Add a member. Raises Refused, OSError."""
        parts = _parts(member.name)
        self.files += 1
        if self.files > _MOST_FILES:
            raise Refused(f"a layer has more than {_MOST_FILES} files")
        if not parts:
            if member.isdir():
                self._folders["."] = (member.mode, member.mtime)
                self._ids.give(member.uid, member.gid, self._folder(()), ".")
            return
        *parents, name = parts
        if name == _HIDES:
            self._hide(self._folder(parents))
        elif name.startswith(_OWN):
            return  # of aufs
        elif name.startswith(_REMOVED):
            self._mark_removed(parents, _one_name(name[len(_REMOVED) :]))
        else:
            self._create(archive, member, parents, name)

    def finish(self) -> None:
        """Set modes and times of folders, which hold only when all is written."""
        for path, (mode, mtime) in self._folders.items():
            with suppress(FileNotFoundError, NotADirectoryError):
                folder = self._opened(path)
                try:
                    os.fchmod(folder, mode & _MODE | self._ids.least(is_folder=True))
                    _set_time(folder, mtime)
                finally:
                    os.close(folder)

    def _opened(self, path: str) -> int:
        here = os.open("/", _FOLDER)
        for part in path.split("/"):
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        return here

    def _folder(self, parts: Sequence[str]) -> int:
        """Return a descriptor of a folder, which stays valid until the next call."""
        path = "/".join(parts)
        if self._parent[1] >= 0 and self._parent[0] == path:
            return self._parent[1]
        here, done = os.open("/", _FOLDER), ""
        for part in parts:
            done = f"{done}/{part}" if done else part
            try:
                below = self._below(here, part, done)
            except NotADirectoryError:
                raise Refused(f"{path!r}: a file is on the way there") from None
            finally:
                os.close(here)
            here = below
        self._forget_parent()
        self._parent = (path, here)
        return here

    def _below(self, here: int, part: str, path: str) -> int:
        """Open a folder on the way to a member. Links are followed: they end in this process's root."""
        removed = _is_removed(here, part)
        if removed:
            os.unlink(part, dir_fd=here)
        else:
            with suppress(FileNotFoundError):
                return os.open(part, _FOLDER, dir_fd=here)
        try:
            os.mkdir(part, 0o755, dir_fd=here)
        except FileExistsError:
            raise Refused(f"{path!r}: a link that leads nowhere is on the way") from None
        self._ids.give(0, 0, here, part)
        self.implicit[path] = None
        below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
        if removed:
            self._hide(below)
        return below

    def _forget_parent(self) -> None:
        if self._parent[1] >= 0:
            os.close(self._parent[1])
        self._parent = ("", -1)

    def _hide(self, folder: int) -> None:
        os.setxattr(folder, self._attribute, b"y")

    def _mark_removed(self, parents: Sequence[str], name: str) -> None:
        here = self._folder(parents)
        try:
            found = os.lstat(name, dir_fd=here)
        except FileNotFoundError:
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=here)
            return
        if stat.S_ISDIR(found.st_mode):  # the layer has another in its place
            folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            self._hide(folder)
            os.close(folder)

    def _create(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, parents: Sequence[str], name: str
    ) -> None:
        here, path = self._folder(parents), "/".join((*parents, name))
        if member.isdir():
            self._create_folder(here, name)
            self.implicit.pop(path, None)
            self._folders[path] = (member.mode, member.mtime)
        elif member.islnk():
            self._link(here, name, path, member.linkname)
            return
        elif member.isreg():
            self._remove(here, name)
            self._write(archive, member, here, name)
        elif member.issym():
            self._remove(here, name)
            os.symlink(member.linkname, name, dir_fd=here)
        elif member.isfifo():
            self._remove(here, name)
            os.mkfifo(name, 0o600, dir_fd=here)
        else:
            return  # a device
        self._ids.give(member.uid, member.gid, here, name)
        if member.isreg() or member.isfifo():
            mode = member.mode & _MODE | self._ids.least(is_folder=False)
            os.chmod(name, mode, dir_fd=here)  # it is no link: this process made it
            times = (_time(member.mtime), _time(member.mtime))
            os.utime(name, times, dir_fd=here, follow_symlinks=False)

    def _create_folder(self, here: int, name: str) -> None:
        removed = _is_removed(here, name)
        try:
            is_folder = stat.S_ISDIR(os.lstat(name, dir_fd=here).st_mode)
        except FileNotFoundError:
            is_folder = False
        if is_folder:
            return
        self._remove(here, name)
        os.mkdir(name, 0o700, dir_fd=here)
        if removed:
            folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            self._hide(folder)
            os.close(folder)

    def _link(self, here: int, name: str, path: str, target: str) -> None:
        *parents, last = _parts(target) or [""]
        if not last:
            raise Refused(f"{path!r}: a hard link without a file")
        source = "/".join((*parents, last))
        if source == path:
            return
        self._remove(here, name)
        own = os.dup(here)
        try:
            folder = os.open("/", _FOLDER)
            for part in parents:
                below = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            if _is_removed(folder, last):
                raise FileNotFoundError
            os.link(last, name, src_dir_fd=folder, dst_dir_fd=own, follow_symlinks=False)
            os.close(folder)
        except (FileNotFoundError, NotADirectoryError):
            self.links.append((path, source))
        finally:
            os.close(own)

    def _write(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, here: int, name: str
    ) -> None:
        made = os.open(name, _NEW, 0o600, dir_fd=here)
        content = archive.extractfile(member)
        assert content is not None
        with open(made, "wb", buffering=0) as file:
            while data := content.read(_CHUNK):
                self.bytes += len(data)
                if self.bytes > self._most_bytes:
                    raise Refused("too large")
                if self.bytes - self._reported_bytes > _REPORT_BYTES:
                    self._reported_bytes = self.bytes
                    print(json.dumps({"bytes": self.bytes}), flush=True)
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]

    def _remove(self, here: int, name: str) -> None:
        """Remove what an earlier member of the same layer has put there."""
        try:
            os.unlink(name, dir_fd=here)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            _remove_tree(here, name)
            self._parent = ("\0", self._parent[1])  # what lies there may have been removed with it


def _parts(name: str) -> list[str]:
    """Return the names of a member's path. Raises Refused for one that leads out of its folder."""
    if len(os.fsencode(name)) > _LONGEST_PATH or "\0" in name:
        raise Refused("a layer has a path that is too long")
    parts = [each for each in name.split("/") if each not in ("", ".")]
    if ".." in parts:
        raise Refused(f"a layer has a path with ..: {name[:200]!r}")
    return parts


def _one_name(name: str) -> str:
    if name in ("", ".", ".."):
        raise Refused(f"a layer removes a file without a name: {name!r}")
    return name


def _is_removed(here: int, name: str) -> bool:
    try:
        found = os.lstat(name, dir_fd=here)
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _remove_tree(here: int, name: str) -> None:
    """Remove a folder with its contents, one descriptor at a time: a hostile layer is deep."""
    folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
    way = [(name, os.listdir(folder))]
    while way:
        name, left = way[-1]
        if not left:
            above = os.open("..", _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = above
            os.rmdir(name, dir_fd=folder)
            way.pop()
            continue
        child = left.pop()
        try:
            os.unlink(child, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            below = os.open(child, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
            way.append((child, os.listdir(folder)))
    os.close(folder)


def _time(seconds: float) -> float:
    return min(max(seconds, 0), 2**33)


def _set_time(folder: int, seconds: float) -> None:
    os.utime(folder, (_time(seconds), _time(seconds)))


# ------------------------------------------------------------ orders


def _unpack(order: dict[str, Any]) -> dict[str, Any]:
    """Unpack a layer's archive into a folder. Raises Refused, OSError."""
    stream, program = _opened_archive(order["archive"])
    _confine(order["folder"])
    hashed = _Hashed(stream)
    unpacking = _Unpacking(_Ids(order["ids"]), order["attribute"], order["most_bytes"])
    with tarfile.open(
        fileobj=hashed, mode="r|", tarinfo=_Member, bufsize=1 << 16  # type: ignore[call-overload]
    ) as archive:
        while (member := archive.next()) is not None:
            vars(archive)["members"].clear()
            unpacking.add(archive, member)
    while hashed.read(_CHUNK):
        pass
    if program is not None and program.wait() != 0:
        raise Refused("a layer cannot be decompressed")
    unpacking.finish()
    return {
        "diff_id": f"sha256:{hashed.digest.hexdigest()}",
        "bytes": unpacking.bytes,
        "files": unpacking.files,
        "implicit": list(unpacking.implicit),
        "links": unpacking.links,
    }


def _opened_archive(path: str) -> tuple[IO[bytes], subprocess.Popen[bytes] | None]:
    file = open(path, "rb")
    magic = file.read(4)
    file.seek(0)
    if magic.startswith(_MAGIC_GZIP):
        return gzip.GzipFile(fileobj=file), None  # type: ignore[return-value]
    if magic != _MAGIC_ZSTD:
        return file, None
    try:
        program = subprocess.Popen(["zstd", "-dc"], stdin=file, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise Refused("zstd is missing, which a layer needs: apt-get install zstd") from None
    assert program.stdout is not None
    return program.stdout, program


def _complete(order: dict[str, Any]) -> dict[str, Any]:
    """Fill the folder of an image's own layer with all that its sandboxes need beside its layers.

    Returns the user, and what is found in the image as a whole.
    """
    uid = os.geteuid()
    _separate(uid != 0)
    os.chdir(order["layers"])
    options = "userxattr" if order["ids"] is None else "index=off,metacopy=off,redirect_dir=nofollow"
    lower = ":".join(order["lower"])
    layers = f"lowerdir={lower},upperdir={order['upper']},workdir={order['work']},{options}"
    _call("mount", b"overlay", order["merged"].encode(), b"overlay", _NOSUID_NODEV, layers.encode())
    _enter(order["merged"])
    ids = _Ids(order["ids"])
    top = os.open("/", _FOLDER)
    for path, mode, owner, group in order["attributes"]:
        _set_attributes(top, path, mode, owner, group)
    for path, target in order["links"]:
        with suppress(OSError):
            if not os.path.lexists(f"/{path}"):
                os.link(f"/{target}", f"/{path}", follow_symlinks=False)
    user = _user(order["user"])
    workdir = "/" + "/".join(_parts(order["workdir"]))
    _make_folders(top, ids, workdir, (user["user"], user["group"]))
    if not os.path.isdir(workdir):
        raise Refused(f"the image's working directory {workdir} is no folder")
    return {**user, "workdir": workdir, **_programs(order["path"])}


def _set_attributes(top: int, path: str, mode: int, owner: int, group: int) -> None:
    with suppress(OSError):
        found = os.lstat(path, dir_fd=top)
        if stat.S_ISDIR(found.st_mode):
            if owner >= 0:
                os.chown(path, owner, group, dir_fd=top, follow_symlinks=False)
            os.chmod(path, mode, dir_fd=top)


def _make_folders(top: int, ids: _Ids, workdir: str, owner: tuple[int, int]) -> None:
    for name in _MOUNTED:
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                os.unlink(name, dir_fd=top)
    for path, mode in _FOLDERS.items():
        _add_folder(top, ids, path, mode, (0, 0))
    parts = _parts(workdir)
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


def _add_folder(top: int, ids: _Ids, path: str, mode: int, owner: tuple[int, int]) -> None:
    with suppress(OSError):  # a link or a file is in the way
        os.mkdir(path, 0o755, dir_fd=top)
        os.chmod(path, mode, dir_fd=top)
        ids.give(*owner, top, path)


def _user(given: str) -> dict[str, Any]:
    """Return the ids of a user as an image's configuration names it: `name`, `0`, `name:group`.

    Without a group it is the user's own, with those that list the user. Raises Refused.
    """
    name, _, group_name = given.partition(":")
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
        raise Refused(f"the image's user {given[:100]!r} has no id")
    home = entry[5] if entry is not None and len(entry) > 5 and entry[5] else "/"
    return {"user": uid, "group": gid, "groups": sorted(set(groups))[:32], "home": home}


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


# ------------------------------------------------------------ confinement


def _confine(folder: str) -> None:
    """Make a folder the root of this process, in namespaces of its own."""
    _separate(os.geteuid() != 0)
    _enter(folder)


def _separate(is_user: bool) -> None:
    """Enter new namespaces; for an ordinary user, also one where this user is root."""
    ids = (os.geteuid(), os.getegid())
    _call("unshare", _NEWNS | _NEWNET | (_NEWUSER if is_user else 0))
    if is_user:
        for name, text in (
            ("setgroups", "deny"), ("uid_map", f"0 {ids[0]} 1"), ("gid_map", f"0 {ids[1]} 1")
        ):  # fmt: skip
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _call("mount", None, b"/", None, _PRIVATE_TREE, None)


def _enter(folder: str) -> None:
    os.umask(0)
    sys.path.clear()  # nothing is imported from an image
    os.chroot(folder)
    os.chdir("/")


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def main(order_path: str, answer_path: str) -> None:
    """Carry out an order, and write the answer; refusals are part of it."""
    with open(order_path) as file:
        order: dict[str, Any] = json.load(file)
    with open(answer_path, "w") as file:  # opened before the root changes
        json.dump(_answered(order), file)


def _answered(order: dict[str, Any]) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer = {"unpack": _unpack, "complete": _complete}[order["kind"]](order)
    except Refused as refused:
        answer = {"refused": str(refused)}
    except MemoryError:
        answer = {"refused": "a layer needs too much memory"}
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, ValueError, RecursionError) as error:
        answer = {"refused": f"a layer's archive is damaged: {error}"}
    except OSError as error:
        known = {errno.ENAMETOOLONG, errno.EINVAL, errno.EMLINK, errno.ELOOP, errno.ENOTDIR}
        kind = "refused" if error.errno in known else "failed"
        answer = {kind: f"{error.filename or ''}: {error.strerror}", "errno": error.errno}
    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
