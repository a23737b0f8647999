"""The packages in an environment: installed by uv, listed, and imported as a check.

Build scripts of packages run with the rights of the caller.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from proctor_service.errors import StartError
from proctor_service.features.environments.programs import Ran, run_program
from proctor_service.settings import worker_environment

Progress = Callable[[str], None]
IMPORT_SECONDS = 300.0
"""Time limit of one import, for large packages on slow disks."""
_LIST_SECONDS = 120.0
_MOST_LINES = 30
_ALWAYS = ("--color", "never", "--no-progress", "--no-python-downloads")
_ERRORS = ("error", "×")
"""Begin the first line of uv's error message."""
_NO_PROGRESS = "Using "
"""Begins the line with the temporary path of the interpreter."""
_NO_VARIABLES = ("PYTHON", "VIRTUAL_ENV", "CONDA_", "UV_PYTHON", "UV_SYSTEM_PYTHON")
"""Variables of the caller with other interpreters."""
_DISTRIBUTION = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*($|[\[(<>=!~;@ ])")
"""Matches `numpy=` in `numpy==2.1`, and `ruamel.yaml`; not `-r other.txt`."""
_CREDENTIALS = re.compile(r"(://)[^/@\s]+@")  # "://me:secret@" in "https://me:secret@host/"
_LIST = """
import json, sys
from importlib import metadata
found = {}
for each in metadata.distributions():
    name = each.metadata["Name"]
    if not name or name in found:
        continue
    modules = set()
    for file in each.files or ():
        top = file.parts[0]
        if file.suffix not in (".py", ".so"):
            continue
        top = top.partition(".")[0] if len(file.parts) == 1 else top
        if top.isidentifier() and not top.startswith("_"):
            modules.add(top)
    has_url = each.read_text("direct_url.json") is not None
    found[name] = [each.version, sorted(modules), has_url]
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""
_IMPORT = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution. `modules`: its public modules at the top level.

    `has_url`: installed from a path or a URL.
    """

    name: str
    version: str
    modules: tuple[str, ...]
    has_url: bool


def install(python: Path, requirements: Sequence[str], venv: Path, progress: Progress) -> None:
    """Create a virtual environment with packages. Raises StartError with uv's own words, OSError."""
    folder = venv.parent
    command = ["venv", "--no-project", "--relocatable", "--python", str(python), str(venv)]
    _run_uv(command, folder, None)
    command = ["pip", "install", "--python", str(venv / "bin" / "python")]
    # A copy does not change with uv's cache.
    command += ["--link-mode", "copy", "--compile-bytecode", "--", *requirements]
    _run_uv(command, folder, progress)


def installed_packages(python: Path) -> dict[str, Distribution]:
    """Return the distributions of an interpreter by normalized name. Raises StartError."""
    listed = _answer(python, _LIST)
    found = [Distribution(n, v, tuple(m), u) for n, (v, m, u) in listed.items()]
    return {normalized(each.name): each for each in found}


def import_problems(
    python: Path,
    requirements: Sequence[str],
    packages: Mapping[str, Distribution],
    variables: Mapping[str, str],
) -> list[str]:
    """Import each required package alone; return a text for each failure.

    The module with the distribution's name must be importable, or else any of its public modules.
    `variables`: all variables of the packages: the environment's.
    """
    problems = []
    for distribution in _required(requirements, packages):
        own = [m for m in distribution.modules if normalized(m) == normalized(distribution.name)]
        failures: list[str] = []
        for module in own or distribution.modules:
            failure = _import_failure(python, [module], variables)
            if failure is None:
                failures = []
                break
            failures.append(f"{distribution.name}: module {module} cannot be imported: {failure}")
        problems += failures[:1]
    return problems


def preload_problems(
    python: Path, modules: Sequence[str] | None, variables: Mapping[str, str]
) -> list[str]:
    """Import all modules in one process, as in a sandbox; return a text on failure."""
    failure = _import_failure(python, modules, variables) if modules else None
    return [] if failure is None else [f"preload: {failure}"]


def normalized(name: str) -> str:
    """Return a distribution's name in the form compared by packaging tools."""
    return re.sub(r"[-_.]+", "-", name).lower()  # "." in "ruamel.yaml"


def shortened(output: str) -> str:
    """Return the beginning and the end of an output, without credentials in URLs."""
    lines = [line.rstrip()[:500] for line in output.splitlines() if line.strip()]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES // 3], "…", *lines[-_MOST_LINES * 2 // 3 :]]
    return _CREDENTIALS.sub(r"\1****@", "\n".join(lines))


def _required(
    requirements: Iterable[str], packages: Mapping[str, Distribution]
) -> list[Distribution]:
    """Return the distributions named by the requirements; for a bare path or URL, the distributions
    of URLs.

    A requirement excluded by its marker lacks a distribution.
    """
    found: dict[str, Distribution] = {}
    for each in requirements:
        match = _DISTRIBUTION.match(each)
        if match is None:
            found |= {name: package for name, package in packages.items() if package.has_url}
        elif (name := normalized(match[1])) in packages:
            found[name] = packages[name]
    return list(found.values())


def _answer(python: Path, code: str) -> Any:
    """Run code in an interpreter; return the JSON of its output file. Raises StartError."""
    with tempfile.TemporaryDirectory(prefix="proctor-packages-") as scratch:
        file = Path(scratch, "answer.json")
        ran = _run_python(python, code, [str(file)], {}, Path(scratch), _LIST_SECONDS)
        try:
            return json.loads(file.read_text())
        except (OSError, ValueError):
            why = shortened(ran.output) or f"status {ran.status}"
            raise StartError(f"{python} does not list its packages:\n{why}") from None


def _import_failure(
    python: Path, modules: Sequence[str], variables: Mapping[str, str]
) -> str | None:
    with tempfile.TemporaryDirectory(prefix="proctor-import-") as scratch:
        ran = _run_python(python, _IMPORT, modules, variables, Path(scratch), IMPORT_SECONDS)
    if ran.timed_out:
        return f"no end within {IMPORT_SECONDS:.0f} s"
    if ran.status == 0:
        return None
    if ran.status > 128:
        return f"ended by signal {ran.status - 128}"
    return shortened(ran.output).rpartition("\n")[2] or f"exit code {ran.status}"


def _run_python(
    python: Path,
    code: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    wall_seconds: float,
) -> Ran:
    environment = {
        "LANG": "C.UTF-8",
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
        **variables,
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    # Bytecode is written by the installation, or not at all.
    command = [str(python), "-I", "-B", "-c", code, *arguments]
    return run_program(command, folder, environment, wall_seconds=wall_seconds)


def _run_uv(arguments: Sequence[str], folder: Path, progress: Progress | None) -> None:
    environment = {
        name: value
        for name, value in worker_environment().items()
        if not name.startswith(_NO_VARIABLES)
    }
    environment["GIT_TERMINAL_PROMPT"] = "0"
    try:
        command = [find_uv_bin(), *_ALWAYS, *arguments]
    except FileNotFoundError as error:
        raise StartError(f"uv is missing: {error}; install the package uv") from None
    failing = False

    def relay(line: str) -> None:
        nonlocal failing
        failing = failing or line.lstrip().startswith(_ERRORS)
        if progress is not None and not failing and not line.startswith(_NO_PROGRESS):
            progress(line)

    ran = run_program(command, folder, environment, on_line=relay)
    if ran.status != 0:
        lines = ran.output.splitlines()
        errors = (i for i, line in enumerate(lines) if line.lstrip().startswith(_ERRORS))
        why = shortened("\n".join(lines[next(errors, 0) :])) or f"status {ran.status}"
        raise StartError(f"uv failed:\n{why}")
