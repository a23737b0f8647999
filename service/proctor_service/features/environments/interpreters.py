"""Interpreters of this machine by version: from uv, pyenv, the system, and PATH.

`uv python find` returns the first interpreter on PATH rather than the newest, and overlooks
pyenv's versions outside of PATH; `uv` gives the folder of its own interpreters."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from proctor_service.errors import StartError
from proctor_service.features.environments.programs import Ran, run_program
from proctor_service.settings import worker_environment

OLDEST = (3, 11)
"""Least version of a sandbox's interpreter."""
_ANSWER_SECONDS = 60.0
_ROOT = Path("/")
_VERSION = re.compile(r"\d{1,2}(\.\d{1,3}){0,2}")  # "3", "3.12", "3.12.1"
_NAME = re.compile(r"python(3\.\d{1,3})")  # "python3.12"
_ASK = """
import sys
sys.path[:1] = []
import json, os, platform, sysconfig
base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
abi = [sysconfig.get_config_var("SOABI"), sysconfig.get_platform()]
virtual = sys.prefix != getattr(sys, "base_prefix", sys.prefix)
version = [platform.python_implementation(), platform.python_version(), list(sys.version_info)]
print("")
print(json.dumps([sys.executable, base, virtual, abi] + version))
"""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter.

    `executable`: the path to run, in a virtual environment its link. `base`: real path of the
    interpreter itself. `is_virtual`: part of a virtual environment. `abi`: the binary interface
    of packages, and the platform. `order`: puts versions in order.
    """

    executable: Path
    base: Path
    is_virtual: bool
    abi: str
    version: str
    order: tuple[int | str, ...]


def find_python(wanted: str, default: Path) -> Path:
    """Return the path of an interpreter for `3.12`, `3.12.1`, an absolute path or "".

    The newest fitting version wins; shims of pyenv are resolved. Raises StartError: missing, too old, or
    other than CPython. Blocks while interpreters are asked for their version.
    """
    return find_interpreter(wanted, default).executable


def find_interpreter(wanted: str, default: Path) -> Python:
    """Return the interpreter, as `find_python`."""
    wanted = wanted.strip()
    if _VERSION.fullmatch(wanted):
        return _of_version(wanted)
    path = Path(wanted).expanduser() if wanted else default
    if not path.is_absolute():
        raise StartError(
            f"python = {wanted!r} is neither a version such as 3.12 nor an absolute path"
        )
    minor = _NAME.fullmatch(path.name)
    if minor and _is_script(path) and _query(path).status != 0:
        return _of_version(minor[1])  # pyenv's shim of an unselected version
    return _checked(inspect(path))


def inspect(path: Path) -> Python:
    """Ask an interpreter for its version and its real path. Raises StartError without an answer.

    Follows a script around an interpreter, such as a shim of pyenv.
    """
    try:
        path.stat()
    except OSError as error:
        raise StartError(f"{path}: {error.strerror}") from None
    answered = _query(path)
    try:
        answer = json.loads(answered.output.rstrip().rpartition("\n")[2])
        executable, base, virtual, abi, implementation, version, order = answer
    except (ValueError, TypeError):
        last = answered.output.rstrip().rpartition("\n")[2][:200]
        why = "no answer in time" if answered.timed_out else last or f"status {answered.status}"
        raise StartError(f"{path} is no interpreter of Python that runs: {why}") from None
    own = Path(executable) if _is_script(path) else path
    return Python(
        executable=own if virtual else Path(base),
        base=Path(base),
        is_virtual=virtual,
        abi=" ".join([implementation, *map(str, abi)]),
        version=version,
        order=tuple(order),
    )


def _of_version(wanted: str) -> Python:
    parts = tuple(map(int, wanted.split(".")))
    if parts[:2] < OLDEST[: len(parts)]:
        raise StartError(f"Python {wanted} is too old: sandboxes need {_oldest()} or later")
    found = [each for each in installed(parts[1:2]) if each.order[: len(parts)] == parts]
    usable = [each for each in found if each.order >= OLDEST and _is_cpython(each)]
    if usable:
        # The first of equal versions wins, so the order of the places decides between them.
        return max(usable, key=lambda each: (each.order[3] == "final", each.order))
    others = sorted({(each.order, each.version) for each in installed(()) if each.order >= OLDEST})
    listed = ", ".join(version for _, version in others) or "none"
    raise StartError(
        f"Python {wanted} was not found among those of uv, pyenv, the system and PATH, which are "
        f"{listed}; install it by `uv python install {wanted}`, pyenv or the system's packages, or "
        "name a path"
    )


def installed(minor: tuple[int, ...]) -> list[Python]:
    """Return the interpreters of this machine, or all `3.minor`, each once.

    Ordered by place: uv, pyenv, the system, PATH.
    """
    environment = worker_environment()
    name = f"python3.{minor[0]}" if minor else "python3.*"
    found: dict[Path, Python] = {}
    real_paths = set()
    for path in _candidates(name, environment):
        real = path.resolve()
        if real in real_paths:
            continue
        real_paths.add(real)
        try:
            python = inspect(path)
        except (StartError, OSError):
            continue  # a broken interpreter does not count
        found.setdefault(python.base, _without_virtual(python))
    return list(found.values())


def _candidates(name: str, environment: dict[str, str]) -> Iterator[Path]:
    """Yield the files with this name in all places; scripts start interpreters of other places."""
    home = Path(environment.get("HOME") or _ROOT)
    pyenv = Path(environment.get("PYENV_ROOT") or home / ".pyenv")
    folders = [*_managed_folders(environment), *sorted(pyenv.glob("versions/*/bin"))]
    folders += [Path("/usr/local/bin"), Path("/usr/bin")]
    folders += [Path(each) for each in environment.get("PATH", "").split(":") if each[:1] == "/"]
    for folder in dict.fromkeys(folders):
        try:
            for path in sorted(folder.glob(name)):
                if _NAME.fullmatch(path.name) and _is_program(path) and not _is_script(path):
                    yield path
        except OSError:
            continue


def _managed_folders(environment: dict[str, str]) -> list[Path]:
    """Return the folders of uv's own interpreters."""
    try:
        ran = run_program(
            [find_uv_bin(), "python", "dir", "--color", "never", "--no-config"],
            _ROOT,
            environment,
            wall_seconds=_ANSWER_SECONDS,
        )
    except OSError as error:  # also uv's own error for a missing program
        raise StartError(f"uv does not run: {error}; install the package uv") from None
    folder = Path(ran.output.strip().rpartition("\n")[2] or _ROOT)
    return sorted(folder.glob("*/bin")) if ran.status == 0 and folder.is_absolute() else []


def _without_virtual(python: Python) -> Python:
    """Return the interpreter itself instead of a virtual environment's link."""
    return Python(python.base, python.base, False, python.abi, python.version, python.order)


def _checked(python: Python) -> Python:
    if not _is_cpython(python):
        raise StartError(f"{python.executable} is no CPython, which sandboxes need")
    if python.order < OLDEST:
        raise StartError(
            f"{python.executable} is Python {python.version}, which is too old: sandboxes need "
            f"{_oldest()} or later"
        )
    return python


def _query(path: Path) -> Ran:
    command = [
        str(path),
        "-E",
        "-s",
        "-c",
        _ASK,
    ]  # `-I` is unknown to too old interpreters
    try:
        return run_program(command, _ROOT, worker_environment(), wall_seconds=_ANSWER_SECONDS)
    except OSError as error:
        raise StartError(f"{path} does not run: {error.strerror}") from None


def _is_cpython(python: Python) -> bool:
    return python.abi.startswith("CPython ")


def _is_program(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _oldest() -> str:
    return ".".join(map(str, OLDEST))
