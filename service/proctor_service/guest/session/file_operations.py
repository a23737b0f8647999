"""File operations of the service in a stateful sandbox: read and write a file, save all files.

Each operation runs in its own process as the sandbox's user, after the isolation is active, so a path can
reach only files in reach of the sandbox's own programs. A failure is an exit code and a line on stderr.

`restore` unpacks saved files in another sandbox, for a grading. The tar archive follows the job's line on
the channel; only parts of the archive are in memory. A hostile agent made the archive. The process
unpacks as the sandbox's user, inside the isolation, before any code of the submission runs. Writes never
follow links and stay inside work/, home/ and tmp/; devices, pipes and sockets are skipped. Of an image,
`layer.py` applies the changes. An invalid or too large archive raises `work_files.Unfit`, which leads to
a verdict, since only the agent can have caused the error.
"""

from __future__ import annotations

import os
import resource
import stat
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .. import work_files
from ..channel import Channel
from . import layer, retained
from .streams import WholeFile, write_all

_CHUNK = 1 << 18
_BLOCK = 1 << 14  # tarfile copies a whole block for each small member
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
REFUSED, MISSING, OF_THE_MACHINE = 2, 3, 4
SAVED = ("work", "home", "tmp")


def read(path: str, most_bytes: int) -> None:
    """Write a regular file of at most `most_bytes` to stdout."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            _fail(REFUSED, f"{path}: is a directory")
        if not stat.S_ISREG(found.st_mode):
            _fail(REFUSED, f"{path}: is no regular file")
        if found.st_size > most_bytes:
            _fail(
                REFUSED, f"{path}: holds {found.st_size} bytes, and {most_bytes} are read at most"
            )
        while data := os.read(descriptor, _CHUNK):
            write_all(1, data)
    except (OSError, ValueError) as error:
        _fail_for(error, path)


def write(path: str) -> None:
    """Write stdin to a file, replace an existing file, and make missing directories."""
    try:
        target = os.path.realpath(path)
        if path.endswith("/") or os.path.isdir(target):
            _fail(REFUSED, f"{path}: is a directory")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.isfile(target) else 0o644
        draft = f"{os.path.dirname(target)}/.{os.getpid()}.{os.urandom(6).hex()}"
        descriptor = os.open(draft, _NEW, 0o600)
        try:
            while data := os.read(0, _CHUNK):
                write_all(descriptor, data)
            os.fchmod(descriptor, mode)
            os.rename(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except (OSError, ValueError) as error:
        _fail_for(error, path)


def save(most_bytes: int) -> None:
    """Write a tar archive of all files of the sandbox to stdout.

    Paths are relative to the working directory's parent. Only files, links and directories are
    archived. Unreadable entries are skipped, and so are files beyond `most_bytes`, a total in reach
    of sparse files alone. In an image: all differences from the image (see `layer.py`).
    """
    if layer.is_present():
        layer.save(most_bytes)
        return
    import tarfile  # imported here: slow to import, and few sandboxes need tarfile

    # Otherwise tarfile would look up the owner's name in /etc/passwd for every file.
    vars(tarfile).update(pwd=None, grp=None)
    left = most_bytes
    os.chdir("..")
    with open(1, "wb", closefd=False) as out, tarfile.open(
        fileobj=out, mode="w|", format=tarfile.PAX_FORMAT
    ) as archive:
        todo = [name for name in SAVED if os.path.isdir(name)]
        while todo:
            path = todo.pop()
            try:
                member = archive.gettarinfo(path)
                if member is None:
                    continue  # for example a socket
                if member.isreg():
                    if member.size > left:
                        continue
                    with WholeFile(path) as file:
                        archive.addfile(member, file)
                    left -= member.size
                elif member.isdir():
                    archive.addfile(member)
                    todo += [f"{path}/{name}" for name in os.listdir(path)]
                elif member.issym() or member.islnk():
                    archive.addfile(member)
            except (OSError, ValueError):  # ValueError: a name or a time that tar cannot store
                continue
            finally:
                vars(archive)["members"].clear()  # tarfile would keep all members in memory


def take_over(size_bytes: int, kept_paths: list[str], left_out: list[str]) -> None:
    """Apply the archive of `save` in another sandbox of the same image, of `size_bytes` on stdin.

    `kept_paths` and `left_out`: see `retained.Rule`.
    """
    layer.apply(_Input(size_bytes), retained.rule_of_image(kept_paths, left_out))


class _Input:
    """File object which reads stdin forward only."""

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes

    def read(self, size: int) -> bytes:
        data = os.read(0, min(size, self._left)) if self._left else b""
        self._left -= len(data)
        return data


def operate(source: str, most_written_bytes: int, arguments: list[Any]) -> None:
    """Run the function `main` of a source of the service; `main` may read the standard input."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_written_bytes,) * 2)
    namespace: dict[str, Any] = {"__name__": "operation"}
    exec(compile(source, "<operation>", "exec", dont_inherit=True), namespace)
    try:
        namespace["main"](*arguments)
    except OSError as error:
        _fail_for(error, str(error.filename or ""))
    except ValueError as error:
        _fail(REFUSED, str(error))


OPERATE, FROZEN = "operate", "operate_frozen"
KINDS: dict[str, Callable[..., None]] = {
    "read": read, "write": write, "save": save, "take_over": take_over, OPERATE: operate,
    FROZEN: operate,
}  # fmt: skip
FREEZING = ("save", FROZEN)
"""Kinds of runs during which all other processes are stopped."""
UNTRACED = (OPERATE, FROZEN)
"""Kinds of runs that no other process of the sandbox may trace: they have files of the service."""


def _fail_for(error: Exception, path: str) -> NoReturn:
    code = REFUSED
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        code = MISSING
    elif getattr(error, "errno", None) in work_files.SHORTAGES:  # reading /proc may raise EIO
        code = OF_THE_MACHINE
    _fail(code, f"{path}: {getattr(error, 'strerror', None) or error}")


def _fail(code: int, message: str) -> NoReturn:
    sys.stderr.flush()
    os.write(2, message.encode("utf-8", "surrogateescape")[:2000])
    os._exit(code)


def restore(channel: Channel, size_bytes: int) -> None:
    """Unpack an archive of `size_bytes` beside the working directory. Raises `work_files.Unfit`."""
    loaded = set(sys.modules)
    import tarfile  # imported here, as in save()

    incoming = _Incoming(channel, size_bytes)
    try:
        if layer.is_present():
            layer.apply(incoming, retained.rule_of_image([], []))
        else:
            with tarfile.open(fileobj=incoming, mode="r|", bufsize=_BLOCK) as archive:  # type: ignore[call-overload]
                _unpack(archive, os.path.dirname(os.getcwd()))
    except Exception as error:  # forged archives raise more exceptions than tarfile documents
        if work_files.is_of_the_machine(error):
            raise
        raise work_files.Unfit(f"{type(error).__name__}: {error}") from None
    while incoming.read(_CHUNK):
        pass
    # The submission must find the modules of a fresh interpreter: it may have modules with these
    # names.
    for name in sys.modules.keys() - loaded:
        del sys.modules[name]


class _Incoming:
    """File object which reads the archive forward only."""

    def __init__(self, channel: Channel, size_bytes: int) -> None:
        self._channel = channel
        self._left = size_bytes

    def read(self, size: int) -> bytes:
        data = self._channel.read(min(size, self._left)) if self._left else b""
        self._left -= len(data)
        return data


def _unpack(archive: Any, box: str) -> None:
    """Unpack in a single pass, by descriptors of folders: names may be longer than a path may be."""
    here, there = _Walk(box), _Walk(box)
    folders: dict[str, Any] = {}
    while (member := archive.next()) is not None:
        archive.members.clear()
        parts = _parts_of(member.name)
        if parts is None:
            continue
        if member.isdir():
            here.enter(parts)
            folders[member.name] = member
            continue
        *above, name = parts
        folder = here.enter(above)
        if member.isreg():
            _unpack_file(folder, name, archive.extractfile(member), member)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=folder)
            times = (member.mtime, member.mtime)
            os.utime(name, times, dir_fd=folder, follow_symlinks=False)
        elif member.islnk():
            _link(there, _parts_of(member.linkname), folder, name)
    there.close()
    for name, member in reversed(folders.items()):  # a folder that was shut cannot be entered
        *above, last = _parts_of(name) or [""]
        folder = here.enter(above)
        os.utime(last, (member.mtime, member.mtime), dir_fd=folder)
        os.chmod(last, member.mode & 0o777, dir_fd=folder)
    here.close()


def _parts_of(name: str) -> list[str] | None:
    """Return the parts of a member's name; None for a name outside of the saved folders."""
    parts = name.split("/")
    if parts[0] not in SAVED or len(parts) < 2 or {"", ".", ".."}.intersection(parts):
        return None
    return parts


class _Walk:
    """An open folder below the box, and the way to it. Moves along real folders, and makes missing ones.

    The walk holds a single descriptor, since a hostile agent chose the depth.
    """

    def __init__(self, box: str) -> None:
        self._way: list[str] = []
        self._here = os.open(box, _FOLDER)

    def enter(self, way: list[str]) -> int:
        """Return the descriptor of a folder, valid until the next call. Raises OSError."""
        if way == self._way:
            return self._here
        shared = 0
        for old, new in zip(self._way, way):
            if old != new:
                break
            shared += 1
        while len(self._way) > shared:
            self._move("..")
            self._way.pop()
        for name in way[shared:]:
            try:
                self._move(name)
            except FileNotFoundError:
                os.mkdir(name, 0o700, dir_fd=self._here)
                self._move(name)
            self._way.append(name)
        return self._here

    def close(self) -> None:
        os.close(self._here)

    def _move(self, name: str) -> None:
        opened = os.open(name, _FOLDER, dir_fd=self._here)
        os.close(self._here)
        self._here = opened


def _link(walk: _Walk, target: list[str] | None, folder: int, name: str) -> None:
    """Make another name for a file unpacked before; ignore other targets."""
    if target is None:
        return
    *above, last = target
    try:
        os.link(last, name, src_dir_fd=walk.enter(above), dst_dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        pass


def _unpack_file(folder: int, name: str, source: Any, member: Any) -> None:
    descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
    try:
        while data := source.read(_CHUNK):
            write_all(descriptor, data)
        os.fchmod(descriptor, member.mode & 0o777)
        os.utime(descriptor, (member.mtime, member.mtime))
    finally:
        os.close(descriptor)
