"""Commands of repository tasks: evaluation scripts taken apart, and the files of a test patch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proctor_client.tasks.repository_diffs import files_of_diff
from proctor_client.tasks.task import BadTask

_START = ">>>>> Start Test Output"
_END = ">>>>> End Test Output"
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
"""The begin of a text inside a script: `<<'EOF_114329324912'`."""
_ACTIVATES = re.compile(r"(?:source|\.)\s+\S*activate(?:\s+(\S+))?|conda\s+activate\s+(\S+)")
"""`source /opt/miniconda3/bin/activate`, `conda activate testbed`."""
_INSTALLS = re.compile(r"(?:^|[;&|]\s*)(?:python\S*\s+-m\s+)?pip3?\s+install\b|\bsetup\.py\s")
"""`python -m pip install -e .`, `python setup.py build; python setup.py install`."""
_IN_PLACE = re.compile(
    r"(?:\s-e\s|\s--editable\b|\bsetup\.py\s+develop\b|\bbuild_ext\s.*--inplace)"
)
"""`pip install -e .`: the tests import the repository itself."""
_BEFORE = re.compile(r"#!|set\s+[-+]|cd\s+/\S*$|git\s|:\s*['\"]?>>>>>|echo\s+[\"']No test files")
"""Lines of an evaluation script that the service does itself: `git checkout …`, `set -uxo pipefail`."""
_NO_TESTS = (
    *(".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml"),
    ".toml",
)
"""Ends of names of files that SWE-bench takes for data of tests."""
_OFFLINE = "export PIP_NO_INDEX=1 PIP_NO_DEPS=1 PIP_NO_BUILD_ISOLATION=false"
"""pip reads `false` as: without an isolated environment, which would need the network."""
COMPILED = (
    *("*.pyx", "*.pxd", "*.pxi", "*.c", "*.cc", "*.cpp", "*.h", "*.hpp", "*.f", "*.f90"),
    *("setup.py", "setup.cfg", "pyproject.toml", "meson.build", "CMakeLists.txt"),
)
"""Files after whose change a package in place is built again."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands of a task, as fields of the grader. `build_if`: patterns; empty: build in any case."""

    test: str
    build: str = ""
    build_if: Sequence[str] = ()
    activate: str | None = None


def commands_of_script(script: str, *, is_python: bool) -> Commands:
    """Return the commands in an evaluation script of SWE-bench. Raises BadTask.

    The tests are between its two marks. Earlier commands, except for git's, prepare the tests; in Python,
    installing is a build of its own, without network.
    """
    lines = script.splitlines()
    marks = [place for place, line in enumerate(lines) if _START in line]
    ends = [place for place, line in enumerate(lines) if _END in line]
    if not marks or not ends or ends[-1] <= marks[0]:
        raise BadTask("eval_script: no marks around its tests")
    test = "\n".join(line for line in lines[marks[0] + 1 : ends[-1]] if line.strip())
    if not test:
        raise BadTask("eval_script: no command between its marks")
    activate, before = _before(lines[: marks[0]])
    installs = [line for line in before if is_python and _INSTALLS.search(line)]
    rest = [line for line in before if line not in installs]
    if not is_python:
        exports = [line for line in rest if line.startswith("export ")]
        return Commands("\n".join([*exports, test]), "\n".join(rest), activate=activate)
    return Commands(
        "\n".join([*rest, test]),
        "\n".join([_OFFLINE, *installs]) if installs else "",
        COMPILED if installs and all(_IN_PLACE.search(f"{line} ") for line in installs) else (),
        activate,
    )


def _before(lines: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the activation, and the lines for preparing the tests."""
    activate: str | None = None
    found = []
    until: str | None = None
    for line in lines:
        if until is not None:
            until = None if line.strip() == until else until
            continue
        text = line.strip()
        heredoc = _HEREDOC.search(text)
        activation = _ACTIVATES.fullmatch(text)
        if text.startswith("git ") and heredoc is not None:
            until = heredoc[2]
        elif activation is not None:
            name = activation[2] or activation[1]
            activate = f"conda:{name}" if name else activate
        elif text and not text.startswith("#") and not _BEFORE.match(text):
            found.append(text)
    return activate, found


def with_files(command: str, files: Iterable[str]) -> str:
    """Return the command with these files as its last arguments."""
    names = " ".join(shlex.quote(each) for each in dict.fromkeys(files))
    return f"{command} {names}" if names else command


def runnable_files_of(test_patch: str) -> list[str]:
    """Return the files of a test patch taken by a runner as arguments, as in SWE-bench.

    Deleted files are left out: with a missing file, a runner ends at once.
    """
    found = files_of_diff(test_patch)
    return [
        each.path for each in found if not each.is_deleted and not each.path.endswith(_NO_TESTS)
    ]


def modules_of_django(files: Iterable[str]) -> list[str]:
    """Return files as modules for django's runner: `tests/admin/test_x.py` is `admin.test_x`."""
    return [each.removesuffix(".py").removeprefix("tests/").replace("/", ".") for each in files]


def files_of_ids(tests: Iterable[str]) -> list[str]:
    """Return the files of pytest's node ids, each once: `tests/test_a.py` of `tests/test_a.py::test_x`."""
    return list(dict.fromkeys(each.partition("::")[0] for each in tests if "::" in each))


def is_doctest(test: str) -> bool:
    """Return True for the node id of a doctest in a source or a document: `src/ring.py::ring.push`."""
    _, colons, name = test.partition("::")
    return bool(colons) and "." in name.partition("[")[0]
