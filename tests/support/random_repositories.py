"""Random pairs of trees with everything that git's diff knows, and their commits in one repository."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from proctor_service.features.repositories.change import FileState

Tree = dict[bytes, FileState]

_NAMES = (
    b"a", b"core.py", b"x y.txt", b"caf\xc3\xa9.py", b'qu"ote', b"back\\slash", b"tab\there", b"new\nline",
    b"\xff\xfe.bin", b"lib", b"src", b"trail ", b"-dash", b"dev", b"null", b"'s'",
)  # fmt: skip
_LINES = (
    b"", b"    return x", b"def f():", b"}", b"--- a/x", b"+++ b/x", b"@@ -1,2 +1,2 @@",
    b"diff --git a/x b/x",
    b"\\ No newline at end of file", b"-- ", b"-- 2", b"  ", b"\t", b"\xff\xfe", b"a\rb", b"foo ", b"- x",
    b"GIT binary patch", b"-", b"+", b"rename from x",
)  # fmt: skip
_MODES = {"644": b"100644", "755": b"100755", "link": b"120000"}


class RandomTrees:
    """Makes a tree, and another tree by a few random edits."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pair(self) -> tuple[Tree, Tree]:
        before: Tree = {}
        for _ in range(self._random.randrange(1, 9)):
            _put(before, self._path(), self._state())
        return before, self.after(before)

    def after(self, tree: Tree) -> Tree:
        """Return a tree after a few edits."""
        after = dict(tree)
        for _ in range(self._random.randrange(1, 6)):
            self._edit_tree(after)
        return after

    def _path(self) -> bytes:
        depth = self._random.choice((1, 1, 2, 2, 3))
        return b"/".join(self._random.choice(_NAMES) for _ in range(depth))

    def _line(self) -> bytes:
        if self._random.random() < 0.6:
            return self._random.choice(_LINES)
        return b"%d" % self._random.randrange(1000)

    def _state(self) -> FileState:
        if self._random.random() < 0.12:
            return FileState("link", self._random.choice((b"core.py", b"../x", b"x y", b"n\nl")))
        mode = self._random.choice(("644", "644", "644", "755"))
        return FileState("755" if mode == "755" else "644", self._content())

    def _content(self) -> bytes:
        kind = self._random.random()
        if kind < 0.06:
            return b""
        if kind < 0.16:
            return self._random.randbytes(self._random.choice((1, 50, 3000))) + b"\0"
        end = b"\r\n" if self._random.random() < 0.2 else b"\n"
        lines = [self._line() for _ in range(self._random.choice((1, 2, 5, 20, 60)))]
        return end.join(lines) + end * (self._random.random() < 0.8)

    def _edited(self, content: bytes) -> bytes:
        if b"\0" in content:
            at = self._random.randrange(len(content))
            return content[:at] + self._random.randbytes(3) + content[at + 2 :]
        lines = content.split(b"\n")
        for _ in range(self._random.randrange(1, 4)):
            at, count = self._random.randrange(len(lines) + 1), self._random.randrange(3)
            added = [self._line() for _ in range(self._random.randrange(3))]
            lines[at : at + count] = added
        return b"\n".join(lines)

    def _edit_tree(self, tree: Tree) -> None:
        if not tree:
            _put(tree, self._path(), self._state())
            return
        path, kind = self._random.choice(sorted(tree)), self._random.random()
        state = tree[path]
        if state.mode == "link":
            changed = FileState("link", b"other")
        else:
            changed = FileState(state.mode, self._edited(state.content))
        if kind < 0.15:
            _put(tree, self._path(), self._state())
        elif kind < 0.5:
            tree[path] = changed
        elif kind < 0.58:
            del tree[path]
        elif kind < 0.72:
            _put(tree, self._path(), self._random.choice((tree.pop(path), changed)))
        elif kind < 0.8:
            _put(tree, self._path(), self._random.choice((state, changed)))
        elif kind < 0.88 and state.mode != "link":
            tree[path] = FileState("644" if state.mode == "755" else "755", state.content)
        elif kind < 0.94:
            tree[path] = self._state()
        else:
            other = self._random.choice(sorted(tree))
            tree[path], tree[other] = tree[other], tree[path]


def _put(tree: Tree, path: bytes, state: FileState) -> None:
    """Put a file, unless it would lie below another one, or in the place of a folder."""
    parts = path.split(b"/")
    above = {b"/".join(parts[:count]) for count in range(1, len(parts))}
    if not above & tree.keys() and not any(each.startswith(path + b"/") for each in tree):
        tree[path] = state


def commit_all(folder: Path, trees: Mapping[str, Tree]) -> None:
    """Make a bare repository with a branch for each tree."""
    subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    parts: list[bytes] = []
    for name, tree in trees.items():
        parts.append(b"commit refs/heads/%s\ncommitter t <t@t> 0 +0000\ndata 0\n" % name.encode())
        for path, state in tree.items():
            escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
            size = len(state.content)
            parts.append(b'M %s inline "%s"\ndata %d\n' % (_MODES[state.mode], escaped, size))
            parts.append(state.content + b"\n")
    done = ["git", "-C", str(folder), "fast-import", "--quiet", "--force"]
    subprocess.run(done, input=b"".join(parts), check=True)


def difference(folder: Path, first: str, second: str, options: Sequence[str]) -> bytes:
    """Return git's diff of two branches."""
    settings = [each for each in options if "=" in each and not each.startswith("-")]
    flags = [each for each in options if each not in settings]
    command = ["git", "-C", str(folder), *(word for each in settings for word in ("-c", each))]
    done = [*command, "diff", *flags, f"refs/heads/{first}", f"refs/heads/{second}"]
    return subprocess.run(done, capture_output=True, check=True).stdout
