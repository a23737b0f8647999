"""Operations on the files of a repository, inside of a sandbox.

Files cross as records in a stream: a kind (one byte), the lengths of its path and of its content, both
big-endian, then path and content. Paths are bytes below the repository's folder. Folders are opened one by
one, and no link is followed, except for links of the image above a file that is written, where they stay
inside of the repository.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

HEAD = struct.Struct(">cIQ")
FILE, EXECUTABLE, LINK = b"f", b"x", b"l"
"""A regular file of the mode 644 or 755; a symbolic link, whose content is its target."""
DELETED = b"d"
"""No file: to be deleted, or not there."""
UNCHANGED = b"="
"""A file that is as it was in the image."""
OTHER = b"o"
"""A FIFO, a socket, a device."""
ENVIRONMENT = b"e"
"""A folder with installed packages, whose files are no part of the repository."""
NESTED = b"g"
"""Another repository: the folder `.git` below the repository's own."""
TOO_MUCH = b"!"
"""End of a stream that a bound has cut; the content says which."""
ENVIRONMENTS = (b"node_modules", b".venv", b".tox", b".nox")
MARK_OF_ENVIRONMENT = b"pyvenv.cfg"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 18
_BUFFER_BYTES = 1 << 20
_CHANGES = 301
"""Descriptor of the folder with all changes against an image (`guest/session/layer.py`)."""
MOST_FILES = 1000000
DEEPEST = 200
_PREFIXES = (
    *("/usr", "/usr/local", "/opt/*", "/opt/*/envs/*", "/root/*", "/root/*/envs/*", "/home/*/*"),
    *("/root/.pyenv/versions/*", "/opt/pyenv/versions/*", "/usr/local/pyenv/versions/*", "/*"),
    "/root/.local/share/uv/python/*",
)
"""Folders where interpreters, conda's environments and virtual environments lie in images."""
_PACKAGES = (
    *("lib/python*/site-packages", "lib/python*/dist-packages", "lib64/python*/site-packages"),
    "lib/pypy*/site-packages",
)
_COMPILED = re.compile(rb"(.+?)\.[A-Za-z0-9_-]+(?:\.opt-[12])?\.pyc")
"""Matches `core.cpython-311.pyc` and `core.cpython-39.opt-1.pyc`: the first group is `core`."""


class _Out:
    """Writer of records to stdout."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def put(self, kind: bytes, path: bytes, content: bytes = b"") -> None:
        """Write a record."""
        self._buffer += HEAD.pack(kind, len(path), len(content))
        self._buffer += path
        self._buffer += content
        if len(self._buffer) > _BUFFER_BYTES:
            self.flush()

    def put_file(self, kind: bytes, path: bytes, descriptor: int, size: int) -> None:
        """Write a record with `size` bytes of a file; a shorter file is filled with zero bytes."""
        self._buffer += HEAD.pack(kind, len(path), size)
        self._buffer += path
        while size:
            data = os.read(descriptor, min(_CHUNK, size)) or b"\0" * min(_CHUNK, size)
            self._buffer += data
            size -= len(data)
            if len(self._buffer) > _BUFFER_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        view = memoryview(bytes(self._buffer))
        while view:
            view = view[os.write(1, view) :]
        self._buffer.clear()


class _In:
    """Reader of records from stdin."""

    def __init__(self) -> None:
        self._file = open(0, "rb", buffering=_CHUNK, closefd=False)

    def read(self, size: int) -> bytes:
        """Return so many bytes. Raises ValueError if there are fewer."""
        data = self._file.read(size)
        if len(data) < size:
            raise ValueError("the records end too early")
        return data

    def records(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield kind, path and size of the content of each record; the caller reads the content."""
        while head := self._file.read(HEAD.size):
            if len(head) < HEAD.size:
                raise ValueError("the records end too early")
            kind, path_bytes, content_bytes = HEAD.unpack(head)
            yield kind, self.read(path_bytes), content_bytes


def _kind_of(found: os.stat_result) -> bytes:
    if stat.S_ISREG(found.st_mode):
        return EXECUTABLE if found.st_mode & 0o100 else FILE
    return LINK if stat.S_ISLNK(found.st_mode) else OTHER


class _TooMuch(Exception):
    """A bound is reached; the message says which."""


def _walk(
    folder: int, way: bytes, count: list[int]
) -> Iterator[tuple[int, bytes, bytes, os.DirEntry[str] | None]]:
    """Yield `(folder, way, name, entry)` of all below an open folder, but the content of environments.

    Folders come before what they hold; `(folder, way, name, None)`: an environment, or another repository.
    """
    if way.count(b"/") > DEEPEST:
        raise _TooMuch("folders lie too deep")
    with os.scandir(folder) as entries:
        found = sorted((os.fsencode(entry.name), entry) for entry in entries)
    for name, entry in found:
        if name == b".git":
            if way:
                yield folder, way, name, None
            continue
        count[0] += 1
        if count[0] > MOST_FILES:
            raise _TooMuch("there are too many files")
        if not entry.is_dir(follow_symlinks=False):
            yield folder, way, name, entry
            continue
        if name in ENVIRONMENTS:
            yield folder, way, name, None
            continue
        try:
            below = os.open(name, _FOLDER, dir_fd=folder)
        except OSError:
            continue
        try:
            if _is_regular(below, MARK_OF_ENVIRONMENT):
                yield folder, way, name, None
            else:
                yield from _walk(below, way + name + b"/", count)
        finally:
            os.close(below)


def _is_regular(folder: int, name: bytes) -> bool:
    try:
        return stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False


def list_files(directory: str) -> None:
    """Write a record for each file and link below a folder; the content is its size, 8 bytes."""
    out = _Out()
    top = os.open(directory, _FOLDER)
    for _, way, name, entry in _walk(top, b"", [0]):
        if entry is None:
            out.put(NESTED if name == b".git" else ENVIRONMENT, way + name)
            continue
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        out.put(_kind_of(found), way + name, found.st_size.to_bytes(8, "big"))
    out.flush()


def read_files(directory: str) -> None:
    """Write the states of files below a folder, of which stdin has the paths as records."""
    out = _Out()
    top = os.open(directory, _FOLDER)
    for _, path, _ in _In().records():
        try:
            _read_one(out, top, path)
        except OSError:
            out.put(DELETED, path)
    out.flush()


def _read_one(out: _Out, top: int, path: bytes) -> None:
    *above, name = path.split(b"/")
    folder = _enter(top, above)
    try:
        found = os.lstat(name, dir_fd=folder)
        kind = _kind_of(found)
        if kind == LINK:
            out.put(LINK, path, os.fsencode(os.readlink(name, dir_fd=folder)))
        elif kind == OTHER:
            out.put(DELETED, path)
        else:
            descriptor = os.open(name, _READ, dir_fd=folder)
            try:
                out.put_file(kind, path, descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)
    finally:
        os.close(folder)


def _enter(top: int, way: list[bytes]) -> int:
    """Return the descriptor of a folder below another. Raises OSError for a link on the way."""
    here = os.dup(top)
    try:
        for part in way:
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def save_changes(directory: str | None, most_bytes: int) -> None:
    """Write the repository as records; files as in the image are UNCHANGED, without content.

    All other processes are stopped, so nothing changes meanwhile. Beyond `most_bytes` of all contents, or
    too many files, the last record is TOO_MUCH.
    """
    out, left = _Out(), [most_bytes]
    directory = directory or os.getcwd()
    try:
        top = os.open(directory, _FOLDER)
    except OSError:
        return
    try:
        changes = _Changes(directory)
        for folder, way, name, entry in _walk(top, b"", [0]):
            _save_one(out, left, folder, way, name, entry, changes.have(way, name))
    except _TooMuch as error:
        out.put(TOO_MUCH, b"", str(error).encode())
    out.flush()


class _Changes:
    """Names in the layer with all changes below a repository; without a layer, all are changed."""

    def __init__(self, directory: str) -> None:
        self._way, self._names = b"", set[bytes]()
        self._folder: bytes | None = None
        with contextlib.suppress(OSError):
            os.fstat(_CHANGES)
            self._folder = b"/proc/self/fd/%d" % _CHANGES + os.fsencode(os.path.realpath(directory))
            self._names = self._listed(b"")

    def _listed(self, way: bytes) -> set[bytes]:
        assert self._folder is not None
        try:
            return set(os.listdir(self._folder + b"/" + way))
        except OSError:
            return set()

    def have(self, way: bytes, name: bytes) -> bool:
        """Return True if a file or folder of the repository is changed."""
        if self._folder is None:
            return True
        if way != self._way:
            self._way, self._names = way, self._listed(way)
        return name in self._names


def _save_one(
    out: _Out,
    left: list[int],
    folder: int,
    way: bytes,
    name: bytes,
    entry: os.DirEntry[str] | None,
    is_changed: bool,
) -> None:
    path = way + name
    if entry is None:
        if is_changed:
            out.put(NESTED if name == b".git" else ENVIRONMENT, path)
    elif not is_changed:
        out.put(UNCHANGED, path)
    elif entry.is_symlink():
        out.put(LINK, path, os.fsencode(os.readlink(name, dir_fd=folder)))
    elif not entry.is_file(follow_symlinks=False):
        out.put(OTHER, path)
    else:
        try:
            descriptor = os.open(name, _READ, dir_fd=folder)
        except OSError:  # unreadable for the image's user
            out.put(UNCHANGED, path)
            return
        try:
            found = os.fstat(descriptor)
            left[0] -= found.st_size
            if left[0] < 0:
                raise _TooMuch("the files are too large together")
            out.put_file(_kind_of(found), path, descriptor, found.st_size)
        finally:
            os.close(descriptor)


def put_files(directory: str) -> None:
    """Put the files of the records on stdin below a folder, and delete those of the kind DELETED.

    A folder without files goes with its last one. Compiled files of written Python files go, too.
    """
    root, incoming = os.fsencode(os.path.realpath(directory)).rstrip(b"/"), _In()
    folder, way = -1, [b""]  # the folder of the last written file, and its path
    for kind, path, size in incoming.records():
        *above, name = path.split(b"/")
        if {b"", b".", b".."}.intersection(path.split(b"/")):
            raise ValueError("no path of a repository")
        if kind == DELETED or above != way or folder < 0:
            if folder >= 0:
                os.close(folder)
            found = _make_way(root, above, kind != DELETED)
            folder, way = -1 if found is None else found, above
        if folder < 0:
            continue
        if kind == DELETED:
            _remove(folder, name)
            _drop_compiled(folder, name)
            _remove_empty(root, above)
            os.close(folder)
            folder = -1
        elif kind == LINK:
            _remove(folder, name)
            os.symlink(incoming.read(size), name, dir_fd=folder)
        else:
            _write(incoming, folder, name, size, 0o755 if kind == EXECUTABLE else 0o644)
            _drop_compiled(folder, name)
    if folder >= 0:
        os.close(folder)


def _make_way(root: bytes, way: list[bytes], makes: bool) -> int | None:
    """Return the descriptor of a folder, made where it is missing; None if it is and `makes` is false.

    Links of the image are followed inside of the repository. Raises ValueError for others.
    """
    here = os.open(root or b"/", _FOLDER)
    done = root
    try:
        for part in way:
            done += b"/" + part
            try:
                below = os.open(part, _FOLDER, dir_fd=here)
            except FileNotFoundError:
                if not makes:
                    os.close(here)
                    return None
                os.mkdir(part, 0o755, dir_fd=here)
                os.chmod(part, 0o755, dir_fd=here)
                below = os.open(part, _FOLDER, dir_fd=here)
            except OSError:
                target = os.path.realpath(done)
                if not os.path.isdir(target):
                    if not makes:
                        os.close(here)
                        return None
                    os.unlink(part, dir_fd=here)
                    os.mkdir(part, 0o755, dir_fd=here)
                    target = done
                elif not target.startswith(root + b"/"):
                    raise ValueError(
                        "a folder of the repository is a link that leads out of it"
                    ) from None
                below = os.open(target, _FOLDER)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def _write(incoming: _In, folder: int, name: bytes, size: int, mode: int) -> None:
    try:
        descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
    except OSError:  # there is a file, or a folder, or a link
        _remove(folder, name)
        descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
    try:
        while size:
            view = memoryview(incoming.read(min(size, _CHUNK)))
            size -= len(view)
            while view:
                view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _remove(folder: int, name: bytes) -> None:
    """Remove a file, or a folder with all that it holds, if present."""
    try:
        os.unlink(name, dir_fd=folder)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        pass
    below = os.open(name, _FOLDER, dir_fd=folder)
    try:
        for each in os.listdir(below):
            _remove(below, os.fsencode(each))
    finally:
        os.close(below)
    os.rmdir(name, dir_fd=folder)


def _remove_empty(root: bytes, way: list[bytes]) -> None:
    """Remove the folders on the way to a deleted file that are empty now."""
    while way:
        try:
            os.rmdir(root + b"/" + b"/".join(way))
        except OSError:
            return
        way = way[:-1]


def _drop_compiled(folder: int, name: bytes) -> None:
    """Remove what an interpreter has compiled of a Python file."""
    stem, dot, ending = name.rpartition(b".")
    if ending != b"py" or not dot:
        return
    try:
        caches = os.open(b"__pycache__", _FOLDER, dir_fd=folder)
    except OSError:
        return
    try:
        for each in map(os.fsencode, os.listdir(caches)):
            match = _COMPILED.fullmatch(each)
            if match and match.group(1) == stem:
                os.unlink(each, dir_fd=caches)
    finally:
        os.close(caches)


def mark_files(directory: str, patterns: list[str], sign: str) -> None:
    """Write the states of the files that `collect_files` finds now, as JSON.

    Files that begin with a text that has `sign`, if there is one, are removed: a runner that keeps its
    results (Gradle) would not run tests anew.
    """
    found = {}
    for folder, name, place in _matching(directory, patterns):
        with contextlib.suppress(OSError):
            if sign and _begins_with(folder, name, sign.encode()):
                os.unlink(name, dir_fd=folder)
            else:
                found[place] = _state(os.lstat(name, dir_fd=folder))
    with open(1, "w", closefd=False) as out:
        json.dump(found, out)


def _begins_with(folder: int, name: str, sign: bytes) -> bool:
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and sign in file.read(_CHUNK)


def _state(found: os.stat_result) -> list[int]:
    """Return what no program can restore once it has written a file."""
    return [found.st_ino, found.st_ctime_ns]


def collect_files(directory: str, patterns: list[str], most_bytes: int) -> None:
    """Write files by pattern, with their absolute paths: by glob(7), or below a folder by fnmatch(3).

    Links are left out, and so are files that are as `mark_files` found them (its output is on stdin), and
    files beyond `most_bytes` in total.
    """
    out, before = _Out(), json.load(sys.stdin)
    for folder, name, place in _matching(directory, patterns):
        most_bytes -= _collect(out, folder, name, place, most_bytes, before)
    out.flush()


def _matching(directory: str, patterns: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield folder, name and absolute path of files by pattern; see `collect_files`."""
    root = os.open("/", _FOLDER)
    below = [os.fsencode(each) for each in patterns if not each.startswith("/")]
    for pattern in patterns:
        if pattern.startswith("/"):
            for found in sorted(glob.glob(pattern, recursive=True, include_hidden=True)):
                yield root, found, found
    top = os.open(directory, _FOLDER)
    for folder, way, name, entry in _walk(top, b"", [0]) if below else ():
        is_wanted = any(fnmatch.fnmatchcase(way + name, pattern) for pattern in below)
        if entry is not None and is_wanted:
            yield folder, os.fsdecode(name), os.path.join(directory, os.fsdecode(way + name))


def _collect(
    out: _Out, folder: int, name: str, place: str, most_bytes: int, before: dict[str, list[int]]
) -> int:
    """Write a regular file; return its size, or 0 for one that is left out."""
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except OSError:
        return 0
    try:
        status = os.fstat(descriptor)
        is_file = stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes
        if not is_file or before.get(place) == _state(status):
            return 0
        out.put_file(FILE, os.fsencode(place), descriptor, status.st_size)
        return status.st_size
    finally:
        os.close(descriptor)


def print_facts(directory: str | None, programs: list[str]) -> None:
    """Print the repository's folder, and which of these files the image has, as JSON."""
    folder = os.path.realpath(directory or os.getcwd())
    found = [each for each in programs if os.path.exists(each)]
    facts = [folder, os.path.isdir(folder), found]
    os.write(1, json.dumps(facts).encode())


def print_site_packages(directory: str) -> None:
    """Print the folders with packages of the image's interpreters, as far as writable, as JSON."""
    own = (f"{directory}/{each}" for each in (".venv", "venv", ".tox/*", ".nox/*"))
    found: set[str] = set()
    for prefix in (*_PREFIXES, *own):
        for folder in _PACKAGES:
            places = glob.glob(f"{prefix}/{folder}", include_hidden=True)
            found.update(map(os.path.realpath, places))
    writable = [each for each in found if os.path.isdir(each) and os.access(each, os.W_OK)]
    os.write(1, json.dumps(sorted(writable)).encode())


def print_modules(folders: list[str]) -> None:
    """Print the names of the modules in folders with packages, as JSON."""
    found = set()
    for folder in folders:
        for name in os.listdir(folder):
            stem, _, ending = name.partition(".")
            if ending in ("", "py") or ending.endswith("so"):
                found.add(stem)
    os.write(1, json.dumps(sorted(found)).encode("ascii", "backslashreplace"))


def _place(directory: str, pattern: str) -> str:
    if pattern.startswith("/"):
        return pattern.rstrip("/")
    return os.path.join(glob.escape(directory), pattern.rstrip("/"))


def remove_paths(directory: str, patterns: list[str]) -> None:
    """Remove files and folders by pattern: absolute ones, and those below a folder."""
    for pattern in patterns:
        for found in sorted(
            glob.glob(_place(directory, pattern), recursive=True, include_hidden=True)
        ):
            above, name = os.path.split(os.fsencode(found))
            if not name:
                continue
            folder = os.open(above or b"/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _remove(folder, name)
            finally:
                os.close(folder)


_ACTIONS: dict[str, Callable[..., None]] = {
    "list": list_files,
    "read": read_files,
    "save": save_changes,
    "put": put_files,
    "remove": remove_paths,
    "collect": collect_files,
    "mark": mark_files,
    "facts": print_facts,
    "site_packages": print_site_packages,
    "modules": print_modules,
}


def main(action: str, *arguments: Any) -> None:
    """Do an action. Raises OSError and ValueError."""
    sys.setrecursionlimit(10_000)
    _ACTIONS[action](*arguments)
