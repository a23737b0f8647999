"""Tasks in the format of Harbor: `task.toml`, `instruction.md`, `environment/`, `tests/test.sh`.

    task = read_task("tasks/hello")
    proctor.rollout([task.rollout_task()], policy=policy, agent=agent)

A rollout task holds the instruction and the tests; its sandboxes come from the environment
`task.environment`, which the service has to know (docs/harbor.md). Fields of a `task.toml` that
would need several sandboxes or images are refused.
"""

from __future__ import annotations

import base64
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proctor_client import wire

_NOT_IN_A_NAME = re.compile(r"[^a-z0-9_.-]+")
"""Characters to replace in the name of an environment: the blank of `my task`."""
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
"""A variable of the user: `${API_KEY}`, or with a default `${API_KEY:-none}`."""
_SIZE = re.compile(r"\s*([0-9.]+)\s*([GMK])\s*", re.IGNORECASE)
"""An amount of memory or disk: `2G`, `512 M`."""
_MEGABYTES: Mapping[str, float] = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
LONGEST_NAME = 63
MOST_FILE_BYTES = 64 << 20


class HarborTaskError(ValueError):
    """Invalid or unsupported task; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task's folder as values.

    `environment`: name of its environment at the service. `image`: `docker_image`, or None for a
    Dockerfile. `timeout_seconds` is the agent's, or None. `solution_variables` are for
    `solution/solve.sh`. `memory_mb`, `disk_mb`: None for the service's default.
    """

    folder: Path
    id: str
    instruction: str
    grader: wire.HarborGrader
    environment: str
    image: str | None
    timeout_seconds: float | None
    working_directory: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    solution_variables: Mapping[str, str] = field(default_factory=dict)
    memory_mb: int | None = None
    disk_mb: int | None = None
    build_timeout_seconds: float = 600.0

    @property
    def context(self) -> Path:
        """Folder `environment/`, with its Dockerfile, if any."""
        return self.folder / "environment"

    @property
    def solution(self) -> Path:
        """Folder `solution/`, which may be missing."""
        return self.folder / "solution"

    def rollout_task(self, **metadata: Any) -> wire.RolloutTask:
        """Return the task for POST /rollout; `metadata` is echoed."""
        return wire.RolloutTask(
            id=self.id,
            prompt=self.instruction,
            grader=self.grader,
            environment=self.environment,
            metadata=metadata,
        )


def read_tasks(folder: Path | str) -> list[HarborTask]:
    """Return the task in a folder, or the tasks in its subfolders in the order of their names.

    Raises HarborTaskError, also for a folder without tasks and for two tasks of the same name.
    """
    folder = Path(folder)
    if (folder / "task.toml").is_file():
        return [read_task(folder)]
    try:
        found = sorted(each for each in folder.iterdir() if (each / "task.toml").is_file())
    except OSError as error:
        raise HarborTaskError(f"{folder}: {error.strerror}") from None
    if not found:
        raise HarborTaskError(f"{folder}: neither a task.toml, nor folders with one")
    tasks = [read_task(each) for each in found]
    places: dict[str, Path] = {}
    for task in tasks:
        other = places.setdefault(task.id, task.folder)
        if other != task.folder:
            raise HarborTaskError(f"{task.folder}: {other} has the name {task.id!r} too")
    return tasks


def read_task(folder: Path | str) -> HarborTask:
    """Return the task in a folder. Raises HarborTaskError."""
    folder = Path(folder).resolve()
    file = folder / "task.toml"
    toml = _Table(file, "", _loaded(file))
    _refuse_unsupported(toml)
    for section in ("task", "metadata", "agent", "verifier", "environment", "solution"):
        toml.table(section)
    environment, verifier = toml.table("environment"), toml.table("verifier")
    metadata = toml.table("metadata")
    name = toml.table("task").text("name") or folder.name
    if not environment.text("docker_image") and not (folder / "environment/Dockerfile").is_file():
        raise HarborTaskError(f"{folder}: neither environment/Dockerfile nor docker_image")
    return HarborTask(
        folder=folder,
        id=name,
        instruction=_text(folder / "instruction.md"),
        grader=_grader(folder, toml, verifier, metadata),
        environment=_environment(toml, name),
        image=environment.text("docker_image"),
        timeout_seconds=toml.table("agent").number("timeout_sec"),
        working_directory=environment.text("workdir"),
        variables=environment.variables("env"),
        solution_variables=toml.table("solution").variables("env"),
        memory_mb=environment.size_mb("memory_mb", "memory"),
        disk_mb=environment.size_mb("storage_mb", "storage"),
        build_timeout_seconds=environment.number("build_timeout_sec") or 600.0,
    )


def environment_of(folder: Path | str) -> str:
    """Return the name of a task's environment at the service. Raises HarborTaskError.

    The name is `proctor_environment` in `[metadata]`, or `harbor-` and the end of the task's name.
    """
    folder = Path(folder).resolve()
    file = folder / "task.toml"
    toml = _Table(file, "", _loaded(file))
    return _environment(toml, toml.table("task").text("name") or folder.name)


def _environment(toml: _Table, name: str) -> str:
    own = toml.table("metadata").text("proctor_environment")
    short = _NOT_IN_A_NAME.sub("-", name.rpartition("/")[2].lower()).strip("-_.")
    if not (own or short):
        raise HarborTaskError(f"{toml.file}: no name of an environment can be made of {name!r}")
    return own or f"harbor-{short}"[:LONGEST_NAME]


def _grader(folder: Path, toml: _Table, verifier: _Table, metadata: _Table) -> wire.HarborGrader:
    separate = verifier.text("environment_mode") == "separate"
    keep = metadata.texts("proctor_keep")
    if separate:
        keep = [*keep, *_artifacts(toml)]
    texts, others = _contents(folder / "tests")
    try:
        return wire.HarborGrader(
            kind="harbor",
            tests=texts,
            binary_tests=others,
            env=dict(verifier.variables("env")),
            timeout_seconds=verifier.number("timeout_sec") or 600.0,
            separate=separate,
            keep=keep,
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][:1]))
        message = first["msg"].removeprefix("Value error, ")
        raise HarborTaskError(f"{folder}: {where}: {message}") from None


def _artifacts(toml: _Table) -> list[str]:
    found = []
    for each in toml.values.get("artifacts", []):
        source = each.get("source") if isinstance(each, dict) else each
        if not isinstance(source, str) or not source.startswith("/"):
            raise HarborTaskError(f"{toml.file}: artifacts: {source!r} is no absolute path")
        found.append(source)
    return found


def _refuse_unsupported(toml: _Table) -> None:
    """Raise HarborTaskError for unsupported fields that change the task."""
    environment, verifier = toml.table("environment"), toml.table("verifier")
    problems = {
        "steps": toml.values.get("steps"),
        "environment.os": (environment.text("os") or "linux").lower() != "linux",
        "environment.gpus": environment.values.get("gpus"),
        "environment.tpu": environment.values.get("tpu"),
        "environment.mcp_servers": environment.values.get("mcp_servers"),
        "environment.healthcheck": environment.values.get("healthcheck"),
        "verifier.environment": verifier.values.get("environment"),
        "verifier.collect": verifier.values.get("collect"),
        "agent.user": toml.table("agent").values.get("user") not in (None, "root", 0, "0"),
        "verifier.user": verifier.values.get("user") not in (None, "root", 0, "0"),
        "environment.network_mode": environment.text("network_mode") == "allowlist",
    }
    for name, is_used in problems.items():
        if is_used:
            raise HarborTaskError(f"{toml.file}: {name} is not supported here")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (toml.file.parent / "environment" / name).exists():
            raise HarborTaskError(f"{toml.file.parent}: environment/{name} is not supported here")
    is_separate = verifier.text("environment_mode") == "separate"
    if is_separate and (toml.file.parent / "tests/Dockerfile").exists():
        raise HarborTaskError(f"{toml.file.parent}: tests/Dockerfile is not supported here")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of task.toml, read with types. Methods raise HarborTaskError."""

    file: Path
    name: str
    values: Mapping[str, Any]

    def table(self, name: str) -> _Table:
        found = self.values.get(name, {})
        if not isinstance(found, dict):
            raise self._wrong(name, "is no table")
        return _Table(self.file, f"{name}.", found)

    def text(self, name: str) -> str | None:
        found = self.values.get(name)
        if found is not None and not (isinstance(found, str) and found):
            raise self._wrong(name, "is no text")
        return found

    def texts(self, name: str) -> list[str]:
        found = self.values.get(name, [])
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self._wrong(name, "is no list of texts")
        return found

    def number(self, name: str) -> float | None:
        found = self.values.get(name)
        if found is None:
            return None
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if not is_number or not math.isfinite(found) or found <= 0:
            raise self._wrong(name, "is no number above 0")
        return float(found)

    def size_mb(self, name: str, old_name: str) -> int | None:
        """Return megabytes; the old name has a text such as `2G`."""
        number = self.number(name)
        if number is not None:
            return math.ceil(number)
        text = self.text(old_name)
        if text is None:
            return None
        found = _SIZE.fullmatch(text)
        if found is None:
            raise self._wrong(old_name, "is no size such as 2G")
        return math.ceil(float(found[1]) * _MEGABYTES[found[2].upper()])

    def variables(self, name: str) -> dict[str, str]:
        """Return variables; `${NAME}` and `${NAME:-default}` stand for variables of this process."""
        found = self.table(name).values
        made = {}
        for key, value in found.items():
            if not isinstance(value, str):
                raise self._wrong(f"{name}.{key}", "is no text")
            template = _TEMPLATE.fullmatch(value)
            if template is not None:
                variable = os.environ.get(template[1], template[2])
                if variable is None:
                    raise self._wrong(f"{name}.{key}", f"needs the variable {template[1]}")
                value = variable
            made[key] = value
        return made

    def _wrong(self, name: str, what: str) -> HarborTaskError:
        return HarborTaskError(f"{self.file}: {self.name}{name} {what}")


def _loaded(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise HarborTaskError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise HarborTaskError(f"{file}: {error}") from None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise HarborTaskError(f"{file}: {error.strerror}") from None
    except ValueError:
        raise HarborTaskError(f"{file}: it is not UTF-8") from None


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the regular files below a folder by their relative path. Raises HarborTaskError."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            if path.stat().st_size > MOST_FILE_BYTES:
                raise HarborTaskError(f"{path}: larger than {MOST_FILE_BYTES >> 20} MB")
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def _contents(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of a folder: texts unchanged, other files in base64."""
    texts, others = {}, {}
    for path, data in files_of(folder).items():
        try:
            texts[path] = data.decode()
        except UnicodeDecodeError:
            others[path] = base64.b64encode(data).decode()
    return texts, others
