"""Decides by path which changes of an agent a fresh sandbox of the same image takes over.

Files which interpreters, loaders and shells would read before a grading begins stay behind: all below
system folders and below the folders of variables such as PATH, and the dotfiles of home folders. The most
specific rule decides about a path: the working directory is taken over, even below a system folder. A
file or link never replaces a folder on the way to such a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from posixpath import normpath

_KERNEL = ("/dev", "/proc", "/sys")
_SYSTEM = (
    "bin", "boot", "etc", "installed-agent", "lib", "lib32", "lib64", "libexec", "libx32", "nix",
    "opt", "run", "sbin", "snap", "tmp", "usr",
)  # fmt: skip
_SYSTEM_IN_VAR = (
    "/var/cache", "/var/lib", "/var/lock", "/var/mail", "/var/run", "/var/spool", "/var/tmp",
)  # fmt: skip
_DATA = ("/opt", "/tmp")
"""System folders fit to be the working directory as a whole."""
TOOLS = (
    "PATH", "CARGO_HOME", "CONDA_PREFIX", "GOROOT", "JAVA_HOME", "PYTHONHOME", "RUSTUP_HOME",
    "VIRTUAL_ENV",
)  # fmt: skip
"""Variables with paths of installed programs."""
LIBRARIES = (
    "BASH_ENV", "CLASSPATH", "ENV", "GEM_HOME", "GEM_PATH", "LD_AUDIT", "LD_LIBRARY_PATH",
    "LD_PRELOAD", "LUA_CPATH", "LUA_PATH", "NODE_PATH", "PERL5LIB", "PYTHONPATH", "PYTHONSTARTUP",
    "PYTHONUSERBASE", "RUBYLIB", "R_LIBS", "R_LIBS_USER", "ZDOTDIR",
)  # fmt: skip
"""Variables with paths from which programs take more code."""


class Rule:
    """Rule of an image, and of a task.

    `kept_paths`: paths taken over everywhere. `left_out`: paths always staying behind, but for longer
    paths in `kept_paths`. All paths are absolute.
    """

    def __init__(
        self,
        directory: str,
        variables: Mapping[str, str],
        kept_paths: Iterable[str] = (),
        left_out: Iterable[str] = (),
    ) -> None:
        self._directory = normpath(directory)
        self._kept_paths = [normpath(path) for path in kept_paths]
        self._left_out = [normpath(path) for path in left_out]
        home = normpath(variables.get("HOME") or "/root")
        self._homes = [each for each in dict.fromkeys(("/root", home)) if each.strip("/")]
        self._code = list(dict.fromkeys((*_SYSTEM_IN_VAR, *self._folders_of_code(variables))))

    def retains(self, path: str, is_folder: bool) -> bool:
        """Return True if a change of this absolute path is taken over."""
        if path == "/" or any(_is_within(path, each) for each in _KERNEL):
            return False
        left_out, kept_length = _longest(path, self._left_out), _longest(path, self._kept_paths)
        if kept_length > left_out or (
            is_folder and any(_is_within(each, path) for each in self._kept_paths)
        ):
            return True
        if left_out:
            return False
        if not is_folder and any(_is_within(each, path) for each in (*self._code, *self._homes)):
            return False
        own = _longest(path, [self._directory]) if self._directory != "/" else 0
        dropped = max((len(each) for each in self._dropping(path)), default=0)
        if own == dropped > 0:
            return self._directory.count("/") > 1 or self._directory in _DATA
        return own > dropped or dropped == 0

    def _folders_of_code(self, variables: Mapping[str, str]) -> Iterator[str]:
        for name in (*TOOLS, *LIBRARIES):
            for entry in _paths(variables.get(name, "")):
                if is_open(entry, name, self._directory):
                    continue  # the verifier's variables do not have it
                above = entry.rpartition("/")[0]
                # The libraries of `/opt/venv/bin` are beside it.
                has_libraries = entry.endswith(("/bin", "/sbin")) and above not in (
                    "", self._directory, *self._homes,
                )  # fmt: skip
                is_home = above.rpartition("/")[0] == "/home"
                yield above if has_libraries and not is_home else entry

    def _dropping(self, path: str) -> Iterator[str]:
        """Yield the folders and dotfiles on the way to a path which stay behind."""
        top = path.split("/")[1]
        if top in _SYSTEM or top.startswith("."):
            yield f"/{top}"
        yield from (each for each in self._code if _is_within(path, each))
        homes = list(self._homes)
        if path.startswith("/home/"):
            homes.append("/".join(path.split("/")[:3]))
        for home in homes:
            name = path[len(home) + 1 :].split("/")[0] if _is_within(path, home) else ""
            if name.startswith("."):
                yield f"{home}/{name}"


def is_open(entry: str, name: str, directory: str) -> bool:
    """Return True if an entry of a variable lets an agent put code before the image's.

    Programs in a folder below the working directory, as of a virtual environment, stay as they are
    in the image.
    """
    if not entry.startswith("/"):
        return True  # empty or relative: the working directory
    entry = normpath(entry)
    return _is_within(directory, entry) or (name in LIBRARIES and _is_within(entry, directory))


def rule_of_image(kept_paths: Iterable[str], left_out: Iterable[str]) -> Rule:
    """Return the rule in a sandbox of processes with the image's variables."""
    return Rule(os.getcwd(), os.environ, kept_paths, left_out)


def _longest(path: str, folders: Iterable[str]) -> int:
    """Return the length of the longest of the folders around the path, else 0."""
    return max((len(each) for each in folders if _is_within(path, each)), default=0)


def _paths(value: str) -> Iterator[str]:
    """Yield the absolute paths of a variable; Lua's have a pattern at the end."""
    for entry in value.replace(";", ":").split(":"):
        if entry.startswith("/"):
            yield normpath(entry.partition("?")[0])


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder == "/" else f"{folder}/")
