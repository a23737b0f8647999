"""Files of a repository that the commands of a task edit themselves, before or beside its tests. Pure.

Such a file stays writable in a run. Where the text of a command does not tell which files are edited, all do:
a task whose own commands fail is worse than a file that is not guarded.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from proctor_service.features.repositories import command_scripts

_MOST_TEXTS = 200
_EDIT_OPERANDS = frozenset(
    ["rm", "rmdir", "unlink", "touch", "truncate", "tee", "chmod", "chown", "chgrp", "dos2unix", "unix2dos",
     "2to3", "futurize", "pyupgrade", "black", "isort", "autopep8", "yapf", "rename", "shred", "mv", "dd",
     "rimraf", "del-cli", "prettier"]
)  # fmt: skip
"""Programs that edit, move or remove the files that they are given."""
_COPY = frozenset(["cp", "ln", "install", "rsync", "scp", "cpx", "ncp", "copyfiles", "cpy"])
_EDIT_ANY = frozenset(
    ["patch", "unzip", "tar", "gunzip", "bunzip2", "unxz", "ed", "ex", "hg", "svn"]
)
"""Programs with input that says which files they write."""
_RUNNERS = frozenset(["npx", "shx", "bunx", "yarn", "pnpm"])
"""Programs whose first operand may be a program."""
_EDIT_FOUND_FILES = frozenset(["sed", "perl", "cp", "mv", "tee", "patch", "git", "chmod", "touch"])
"""Programs that `find … -exec` and `xargs` run on files that the text does not tell; not `rm`, for caches."""
_IN_PLACE = {"sed": re.compile(r"-[a-zA-Z]*i|--in-place"), "perl": re.compile(r"-[a-zA-Z]*i")}
_GIT_EDITS = frozenset(
    ["apply", "am", "checkout", "restore", "reset", "stash", "clean", "switch", "merge", "pull", "rebase",
     "cherry-pick", "revert", "rm", "mv", "submodule", "worktree"]
)  # fmt: skip
_EDIT_BY_OPERAND = {
    "git": _GIT_EDITS,
    **dict.fromkeys(("find", "xargs", "parallel", "fd"), _EDIT_FOUND_FILES),
}
"""Programs that may edit any file where one of these is an operand."""
_SHELLS = frozenset(["bash", "sh", "dash", "zsh", "ksh", "source", "."])
_REDIRECTION = re.compile(r"(?:\d|&)?>{1,2}\|?(.*)")
"""Matches `>out.txt` and `2>>log`: the group is the file, empty where it is the next word."""
_DEEP = re.compile(r"-[a-zA-Z]*[raRT]|--")
"""Matches the options of `cp -r a b`, with which whole folders are copied."""
_VARIABLE = re.compile(r"[$`{]")
_PATTERN = re.compile(r"[*?\[]")
_PROGRAM_FOLDERS = ("/bin/", "/sbin/", "/usr/", "/opt/", "/root/", "/home/", "/snap/")


@dataclass(slots=True)
class Edits:
    """Files that commands edit. `files`, `folders`: paths in the repository; `patterns`: of fnmatch(3).

    `is_any`: it may be any file.
    """

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)
    is_any: bool = False

    def has(self, path: str) -> bool:
        """Return True if the commands edit, or may edit, this file."""
        if self.is_any or path in self.files:
            return True
        if any(path == each or path.startswith(each + "/") for each in self.folders):
            return True
        return any(fnmatchcase(path, each) for each in self.patterns)


def edits_of(commands: Sequence[str], directory: str, read: command_scripts.Read) -> Edits:
    """Return the edits of commands, and of the scripts of the repository that they run.

    `directory`: absolute path of the repository. `read`: text of one of its files, or None.
    """
    found = _Finder(directory.rstrip("/"))
    texts = [*commands, *(read(each) or "" for each in _shell_scripts(commands, read))]
    for text in texts[:_MOST_TEXTS]:
        found.look_at(text, command_scripts.MAX_DEPTH)
    edits = found.edits
    if found.outside_scripts - found.written:
        edits.is_any = True
    return edits


def _shell_scripts(commands: Sequence[str], read: command_scripts.Read) -> Iterator[str]:
    """Yield the scripts whose lines are commands of a shell, such as `run_tests.sh` and `Makefile`."""
    for path in sorted(command_scripts.scripts_of(commands, read)):
        ending = posixpath.splitext(path)[1]
        if ending not in (".py", ".js", ".cjs", ".mjs", ".ts", ".rb", ".pl", ".php"):
            yield path
    if command_scripts.programs_of(commands) & (command_scripts.PACKAGE_RUNNERS - {"npx"}):
        yield "package.json"


class _Finder:
    def __init__(self, directory: str) -> None:
        self.edits = Edits()
        self.written: set[str] = set()
        self.outside_scripts: set[str] = set()
        self._directory = directory
        self._folder = ""

    def look_at(self, text: str, depth: int) -> None:
        self._folder = ""
        for words in command_scripts.simple_commands(text):
            for word in words if depth > 1 else ():
                if re.search(r"\s", word):  # the command in `bash -c "…"`
                    folder = self._folder
                    self.look_at(word.rstrip(","), depth - 1)
                    self._folder = folder
            if words[0] == "cd" and len(words) > 1:
                self._folder = self._inside(words[1]) or ""
                continue
            self._redirections(words)
            for program, *rest in command_scripts.programs_with_operands(words):
                self._program(posixpath.basename(program.lstrip("@-")), program, rest)

    def _redirections(self, words: Sequence[str]) -> None:
        for at, word in enumerate(words):
            match = _REDIRECTION.fullmatch(word)
            if match:
                target = match[1] or (words[at + 1] if at + 1 < len(words) else "")
                self.written.add(target)
                self._file(target)

    def _program(self, name: str, program: str, rest: Sequence[str]) -> None:
        operands = [each for each in rest if not each.startswith("-")]
        if name in _RUNNERS and operands:
            at = rest.index(operands[0])
            self._program(posixpath.basename(rest[at]), rest[at], rest[at + 1 :])
        elif name in _EDIT_ANY or not _EDIT_BY_OPERAND.get(name, frozenset()).isdisjoint(operands):
            self.edits.is_any = True
        elif name in _IN_PLACE and any(map(_IN_PLACE[name].match, rest)):
            self.edits.is_any |= any(map(_VARIABLE.search, operands[1:]))
            self._paths(operands[1:] or operands)
        elif name in _EDIT_OPERANDS:
            self._paths(operands)
        elif name in _COPY and operands:
            self._copy(operands, is_deep=any(map(_DEEP.match, rest)))
        elif name in _SHELLS and operands and operands[0].startswith("/"):
            self._script(operands[0])
        elif program.startswith("/") and not program.startswith(_PROGRAM_FOLDERS):
            self._script(program)

    def _script(self, path: str) -> None:
        if self._inside(path) is None:
            self.outside_scripts.add(path)

    def _copy(self, operands: Sequence[str], *, is_deep: bool) -> None:
        *sources, target = operands
        names = [posixpath.basename(each.rstrip("/")) for each in sources]
        is_vague = any(_VARIABLE.search(each) or _PATTERN.search(each) for each in names)
        if is_deep or is_vague or not sources:
            self._paths([target])
            return
        self._file(target)
        for name in names:
            self._file(posixpath.join(target, name))

    def _paths(self, words: Collection[str]) -> None:
        for word in words:
            path = self._inside(word)
            if path == "":
                self.edits.is_any = True
            elif path is not None and _PATTERN.search(path):
                self.edits.patterns |= {path, f"{path}/*"}
            elif path is not None:
                self.edits.folders.add(path)

    def _file(self, word: str) -> None:
        path = self._inside(word)
        if path:
            self.edits.files.add(path)

    def _inside(self, word: str) -> str | None:
        """Return the path in the repository that a word means, up to its first variable; None for others."""
        match = _VARIABLE.search(word)
        if match is not None:
            if match.start() == 0:
                return None
            word = posixpath.dirname(word[: match.start()]) or "."
        path = posixpath.normpath(posixpath.join(self._directory, self._folder, word))
        if path == self._directory:
            return ""
        below = path.removeprefix(self._directory + "/")
        return None if below == path else below
