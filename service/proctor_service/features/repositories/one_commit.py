"""Writes a `.git` with one commit of a folder's files, by no program of the image.

The formats are those of gitformat-pack(5) and gitformat-index(5). Standard library only: this module runs in
a sandbox, too, from Python 3.8; `enclosing` returns it as a text.
"""

import hashlib
import os
import re
import shutil
import stat
import struct
import zlib
from typing import (
    BinaryIO,
    Callable,
    Collection,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

_CHUNK_BYTES = 1 << 20
_MOST_NAME_BYTES = 1 << 14
_COMMIT, _TREE, _BLOB, _TAG = 1, 2, 3, 4
_KINDS = {_COMMIT: b"commit", _TREE: b"tree", _BLOB: b"blob", _TAG: b"tag"}
_PERSON = b"base <base@localhost> %d +0000"
_TAG_NAME = re.compile(
    r"(?!.*(?:\.\.|//|/\.|\.lock(?:/|$)|[/.]$))[A-Za-z0-9][\w./+@-]{0,200}\Z", re.A
)
"""Matches `v1.2.3` and `release/2024-01`, and no name that leaves the folder of tags."""
_CONFIG = b"""[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
\tcheckStat = minimal
\ttrustctime = false
"""
"""The folder may lie in a layer that is mounted elsewhere: times of change and inodes differ there."""


class TreeFile(NamedTuple):
    """A file to commit. `object_id`: 20 bytes."""

    path: bytes
    stat: os.stat_result
    object_id: bytes

    @property
    def mode(self) -> int:
        if stat.S_ISLNK(self.stat.st_mode):
            return 0o120000
        return 0o100755 if self.stat.st_mode & 0o100 else 0o100644


def write_repository(
    folder: bytes,
    tag: str = "",
    message: str = "base",
    is_ignored: Optional[Callable[[bytes, bool], bool]] = None,
    time_seconds: int = 0,
) -> str:
    """Replace `folder`/.git by one with a single commit, and return the commit's id (40 hex digits).

    A folder that `.git` names, as a file or link, is removed. Files `.git` of submodules that name no folder
    then are removed, too: from there, git finds the new commit.

    The commit has all files and links but those in a `.git` of any depth, and those that `is_ignored` tells
    of (a path, and whether it is a folder) and that the present `.git` does not track. `tag`: a name that
    `git describe` finds, as projects take their version from it. Raises ValueError for a name of a tag that
    git refuses, OSError for files that cannot be read.
    """
    if tag and not is_tag_name(tag):
        raise ValueError(f"no name of a tag: {tag!r}")
    git = os.path.join(folder, b".git")
    old = git_folder(folder) or git
    tracked = tracked_paths(os.path.join(old, b"index"))
    submodules: List[bytes] = []
    paths = _paths(folder, tracked, is_ignored, submodules)
    files = [_hashed(folder, path) for path in paths]
    files.sort()
    new = git + b"-%d" % os.getpid()
    try:
        commit = _write(new, folder, files, tag, message, time_seconds)
        _remove(git)
        _remove(old)
        os.rename(new, git)
    finally:
        _remove(new)
    for each in submodules:
        if git_folder(each) is None:
            os.unlink(os.path.join(each, b".git"))
    return commit.hex()


def git_folder(folder: bytes) -> Optional[bytes]:
    """Return the folder that `folder`/.git is or names, as a file or link; None without one."""
    git = os.path.join(folder, b".git")
    if os.path.isfile(git):
        with open(git, "rb") as file:
            head, _, named = file.read(_MOST_NAME_BYTES).partition(b"gitdir: ")
        git = os.path.join(folder, named.rstrip(b"\r\n"))
        if head or not named:
            return None
    return os.path.realpath(git) if os.path.isdir(git) else None


def is_tag_name(name: str) -> bool:
    """Return True for a name of a tag that `write_repository` takes."""
    return _TAG_NAME.match(name) is not None


def _remove(path: bytes) -> None:
    if os.path.islink(path) or not os.path.isdir(path):
        if os.path.lexists(path):
            os.unlink(path)
    else:
        shutil.rmtree(path)


# ---------------------------------------------------------------- the files


def _paths(
    folder: bytes,
    tracked: Set[bytes],
    is_ignored: Optional[Callable[[bytes, bool], bool]],
    submodules: List[bytes],
) -> Iterator[bytes]:
    """Yield the paths of all files and links to commit. No link is followed.

    Folders below with a file `.git` are added to `submodules`.
    """
    tracked_folders = {
        path[:at] for path in tracked for at, byte in enumerate(path) if byte == 0x2F
    }
    waiting = [b""]
    while waiting:
        below = waiting.pop()
        with os.scandir(os.path.join(folder, below) if below else folder) as entries:
            for entry in entries:
                path = below + b"/" + entry.name if below else entry.name
                if entry.name.lower() == b".git":
                    if below and entry.name == b".git" and entry.is_file(follow_symlinks=False):
                        submodules.append(os.path.join(folder, below))
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                is_tracked = path in (tracked_folders if is_folder else tracked)
                if is_ignored is not None and not is_tracked and is_ignored(path, is_folder):
                    continue
                if is_folder:
                    waiting.append(path)
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    yield path


def tracked_paths(index: bytes) -> Set[bytes]:
    """Return the paths in an index of version 2, 3 or 4; none for a file that is no such index."""
    try:
        with open(index, "rb") as file:
            data = file.read()
        signature, version, count = struct.unpack_from(">4sII", data)
        if signature != b"DIRC" or version not in (2, 3, 4):
            return set()
        return _index_paths(data, version, count)
    except (OSError, struct.error, IndexError, ValueError):
        return set()


def _index_paths(data: bytes, version: int, count: int) -> Set[bytes]:
    found: Set[bytes] = set()
    at, path = 12, b""
    for _ in range(count):
        flags = struct.unpack_from(">H", data, at + 60)[0]
        begin = at + 62 + (2 if flags & 0x4000 else 0)
        if version == 4:  # the name is a cut of the name before, and what follows
            cut, begin = _offset(data, begin)
            end = data.index(b"\0", begin)
            path = path[: len(path) - cut] + data[begin:end]
            at = end + 1
        else:
            end = data.index(b"\0", begin)
            path = data[begin:end]
            at += (end - at) // 8 * 8 + 8
        found.add(path)
    return found


def _offset(data: bytes, at: int) -> Tuple[int, int]:
    """Return a number in the encoding of offset deltas, and the place behind it."""
    number = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        number = (number + 1 << 7) | (data[at] & 0x7F)
    return number, at + 1


def _hashed(folder: bytes, path: bytes) -> TreeFile:
    whole = os.path.join(folder, path)
    state = os.lstat(whole)
    if stat.S_ISLNK(state.st_mode):
        return TreeFile(path, state, _object_id(_BLOB, os.readlink(whole)))
    with _opened(whole) as file:
        state = os.fstat(file.fileno())
        digest = hashlib.sha1(b"blob %d\0" % state.st_size)
        length = 0
        while True:
            chunk = file.read(_CHUNK_BYTES)
            if not chunk:
                break
            digest.update(chunk)
            length += len(chunk)
    if length != state.st_size:
        raise OSError(f"{path!r} changes while it is read")
    return TreeFile(path, state, digest.digest())


def _opened(path: bytes) -> BinaryIO:
    """Open a regular file, and no link."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(number, "rb")


def _object_id(kind: int, content: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0" % (_KINDS[kind], len(content)) + content).digest()


# ---------------------------------------------------------------- the objects


class _Pack:
    """A pack of git, of a number of objects that is known before."""

    def __init__(self, file: BinaryIO, count: int) -> None:
        self._file = file
        self._digest = hashlib.sha1()
        self._offset = 0
        self.objects: List[Tuple[bytes, int, int]] = []
        """Id, CRC-32 and offset of each object."""
        self._write(b"PACK" + struct.pack(">II", 2, count))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._offset += len(data)

    def add(self, kind: int, object_id: bytes, size: int, chunks: Iterator[bytes]) -> None:
        """Write an object of `size` bytes."""
        begin = self._offset
        head = bytearray([kind << 4 | size & 15])
        rest = size >> 4
        while rest:
            head[-1] |= 0x80
            head.append(rest & 0x7F)
            rest >>= 7
        crc = zlib.crc32(head)
        self._write(bytes(head))
        packing = zlib.compressobj(1)
        length = 0
        for chunk in chunks:
            length += len(chunk)
            data = packing.compress(chunk)
            crc = zlib.crc32(data, crc)
            self._write(data)
        if length != size:
            raise OSError("a file changes while it is read")
        data = packing.flush()
        self._write(data)
        self.objects.append((object_id, zlib.crc32(data, crc), begin))

    def end(self) -> bytes:
        """Write the end, and return the pack's digest."""
        digest = self._digest.digest()
        self._file.write(digest)
        return digest


def _pack_index(objects: List[Tuple[bytes, int, int]], digest: bytes) -> bytes:
    objects = sorted(objects)
    counts = [0] * 256
    for object_id, _, _ in objects:
        counts[object_id[0]] += 1
    fanout: List[int] = []
    total = 0
    for count in counts:
        total += count
        fanout.append(total)
    small: List[int] = []
    large: List[int] = []
    for _, _, offset in objects:
        if offset < 1 << 31:
            small.append(offset)
        else:
            small.append(1 << 31 | len(large))
            large.append(offset)
    number = len(objects)
    data = b"\377tOc" + struct.pack(">I256I", 2, *fanout)
    data += b"".join(object_id for object_id, _, _ in objects)
    data += struct.pack(f">{number}I", *(crc for _, crc, _ in objects))
    data += struct.pack(f">{number}I", *small) + struct.pack(f">{len(large)}Q", *large) + digest
    return data + hashlib.sha1(data).digest()


def _trees(files: Collection[TreeFile]) -> List[Tuple[bytes, bytes]]:
    """Return id and content of all trees, the root last."""
    entries: Dict[bytes, List[Tuple[bytes, bytes]]] = {b"": []}
    for file in files:
        folder, _, name = file.path.rpartition(b"/")
        entry = b"%o %s\0" % (file.mode, name) + file.object_id
        entries.setdefault(folder, []).append((name, entry))
    for folder in list(entries):
        while folder:
            folder = folder.rpartition(b"/")[0]
            entries.setdefault(folder, [])
    found = []
    # a folder before the one above it
    for folder in sorted(
        entries, key=lambda each: (each.count(b"/") + bool(each), each), reverse=True
    ):
        content = b"".join(entry for _, entry in sorted(entries[folder]))
        object_id = _object_id(_TREE, content)
        found.append((object_id, content))
        if folder:
            above, _, name = folder.rpartition(b"/")
            # git sorts the name of a folder as if it ended with a slash
            entries[above].append((name + b"/", b"40000 %s\0" % name + object_id))
    return found


def _write(
    git: bytes, folder: bytes, files: List[TreeFile], tag: str, message: str, time_seconds: int
) -> bytes:
    """Write a whole `.git`, and return the id of its commit."""
    for name in (b"objects/pack", b"objects/info", b"refs/heads", b"refs/tags", b"info"):
        os.makedirs(os.path.join(git, name))
    person = _PERSON % time_seconds
    trees = _trees(files)
    content = b"tree %s\nauthor %s\ncommitter %s\n\n%s\n" % (
        trees[-1][0].hex().encode(), person, person, message.encode(),
    )  # fmt: skip
    commit = _object_id(_COMMIT, content)
    others = {object_id: (_TREE, tree) for object_id, tree in trees}
    others[commit] = (_COMMIT, content)
    reference = commit
    if tag:
        content = b"object %s\ntype commit\ntag %s\ntagger %s\n\n%s\n" % (
            commit.hex().encode(), tag.encode(), person, tag.encode(),
        )  # fmt: skip
        reference = _object_id(_TAG, content)
        others[reference] = (_TAG, content)
    blobs = {file.object_id: file for file in files}
    pack_path = os.path.join(git, b"objects/pack/new")
    with open(pack_path, "wb") as file:
        pack = _Pack(file, len(blobs) + len(others))
        for object_id, (kind, content) in others.items():
            pack.add(kind, object_id, len(content), iter([content]))
        for blob in blobs.values():
            pack.add(_BLOB, blob.object_id, blob.stat.st_size, _content(folder, blob))
        digest = pack.end()
    stem = os.path.join(git, b"objects/pack/pack-" + digest.hex().encode())
    os.rename(pack_path, stem + b".pack")
    _put(stem + b".idx", _pack_index(pack.objects, digest))
    for ending in (b".pack", b".idx"):
        os.chmod(stem + ending, 0o444)
    if tag:
        tag_path = os.path.join(git, b"refs/tags", tag.encode())
        os.makedirs(os.path.dirname(tag_path), exist_ok=True)
        _put(tag_path, reference.hex().encode() + b"\n")
    _put(os.path.join(git, b"refs/heads/main"), commit.hex().encode() + b"\n")
    _put(os.path.join(git, b"HEAD"), b"ref: refs/heads/main\n")
    _put(os.path.join(git, b"config"), _CONFIG)
    _put(os.path.join(git, b"index"), _index(files))
    return commit


def _content(folder: bytes, file: TreeFile) -> Iterator[bytes]:
    whole = os.path.join(folder, file.path)
    if stat.S_ISLNK(file.stat.st_mode):
        yield os.readlink(whole)
        return
    with _opened(whole) as opened:
        while True:
            chunk = opened.read(_CHUNK_BYTES)
            if not chunk:
                return
            yield chunk


def _put(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _index(files: List[TreeFile]) -> bytes:
    """Return an index of version 2, in which all files are as committed."""
    parts = [b"DIRC" + struct.pack(">II", 2, len(files))]
    for file in files:
        state = file.stat
        numbers = (
            *divmod(state.st_ctime_ns, 10**9), *divmod(state.st_mtime_ns, 10**9), state.st_dev,
            state.st_ino, file.mode, state.st_uid, state.st_gid, state.st_size,
        )  # fmt: skip
        entry = struct.pack(">10I", *(number & 0xFFFFFFFF for number in numbers))
        entry += file.object_id + struct.pack(">H", min(len(file.path), 0xFFF)) + file.path
        parts.append(entry + b"\0" * (8 - len(entry) % 8))
    data = b"".join(parts)
    return data + hashlib.sha1(data).digest()
