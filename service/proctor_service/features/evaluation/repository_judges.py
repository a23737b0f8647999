"""Changes of a repository, some of which repair it, and the public ways to judge them.

The public judges have one run of the tests in a fresh copy, with the task's tests in place: its exit code,
its log as SWE-bench reads it, or the XML that pytest writes.
"""

from __future__ import annotations

import difflib
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

_CASES = "repository_cases.toml"
_LOG, _XML, _EXIT = "@log of the tests", "@xml of the tests", "@exit of the tests"
_STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
"""Of SWE-bench's `TestStatus`."""
_SCRIPT = f"""cd repository || exit 1
git apply ../change.diff || exit 1
cp -r ../task/. .
python3 -m pytest -rA --junitxml="$PWD/../report.xml" tests > ../log 2>&1 < /dev/null
status=$?
cd ..
echo {shlex.quote(_EXIT)}; echo "$status"
echo {shlex.quote(_LOG)}; cat log
echo {shlex.quote(_XML)}; cat report.xml
"""


@dataclass(frozen=True, slots=True)
class RepositoryCase:
    """A change. `honest`: it deserves a reward."""

    id: str
    group: str
    does: str
    honest: bool
    diff: str


@dataclass(frozen=True, slots=True)
class PublicRun:
    """What the public judges see. `exit_code`: None for a diff that `git apply` refuses."""

    exit_code: int | None
    log: str = ""
    xml: str = ""


@dataclass(frozen=True, slots=True)
class RepositoryTask:
    """The repository before the changes, the task's tests, and the cases."""

    directory: str
    base: Mapping[str, str]
    tests: Mapping[str, str]
    fail_to_pass: Sequence[str]
    pass_to_pass: Sequence[str]
    cases: Sequence[RepositoryCase]

    def grader(self) -> dict[str, Any]:
        """Return the task for the grader `repository`."""
        writes = [
            f"mkdir -p {shlex.quote(path.rpartition('/')[0] or '.')} && "
            f"printf %s {shlex.quote(text)} > {shlex.quote(path)}"
            for path, text in self.base.items()
        ]
        return {
            "kind": "repository",
            "directory": self.directory,
            "prepare": {"commands": writes},
            "files": dict(self.tests),
            "test": "python3 -m pytest -q tests",
            "fail_to_pass": list(self.fail_to_pass),
            "pass_to_pass": list(self.pass_to_pass),
        }

    def public_grader(self, case: RepositoryCase) -> dict[str, Any]:
        """Return a grader that runs the tests after a change, and prints what public judges read."""
        return {
            "kind": "command",
            "argv": ["sh", "judge.sh"],
            "files": {
                "judge.sh": _SCRIPT,
                "change.diff": case.diff,
                **{f"repository/{path}": text for path, text in self.base.items()},
                **{f"task/{path}": text for path, text in self.tests.items()},
            },
        }

    def by_exit_code(self, run: PublicRun) -> bool:
        """Judge by the exit code of the tests."""
        return run.exit_code == 0

    def by_log(self, run: PublicRun) -> bool:
        """Judge by the log as SWE-bench's parser for pytest reads it."""
        statuses: dict[str, str] = {}
        for line in run.log.split("\n"):
            if line.startswith(_STATUSES):
                words = line.replace(" - ", " ").split()
                if len(words) > 1:
                    statuses[words[1]] = words[0]
        return self._all_in(
            {name for name, word in statuses.items() if word in ("PASSED", "XFAIL")}
        )

    def by_xml(self, run: PublicRun) -> bool:
        """Judge by the file of results: each named test is there, and passed."""
        try:
            cases = list(ElementTree.fromstring(run.xml).iter("testcase"))
        except ElementTree.ParseError:
            return False
        names = ((case.get("classname", ""), case.get("name", ""), len(case)) for case in cases)
        return self._all_in(
            {f"{owner.replace('.', '/')}.py::{name}" for owner, name, n in names if not n}
        )

    def _all_in(self, passed: set[str]) -> bool:
        return passed.issuperset([*self.fail_to_pass, *self.pass_to_pass])

    @property
    def public_judges(self) -> Mapping[str, Callable[[PublicRun], bool]]:
        """The public judges by name."""
        return {"exit code": self.by_exit_code, "log": self.by_log, "XML": self.by_xml}


def read_run(output: str) -> PublicRun:
    """Return what `public_grader` printed."""
    _, begins, rest = output.partition(f"{_EXIT}\n")
    if not begins:
        return PublicRun(None)
    status, _, rest = rest.partition(f"\n{_LOG}\n")
    log, _, xml = rest.rpartition(f"{_XML}\n")
    return PublicRun(int(status), log, xml)


def repository_task() -> RepositoryTask:
    """Return the repository and all cases."""
    content = tomllib.loads(files(__package__).joinpath(_CASES).read_text("utf-8"))
    base = {path: text.lstrip("\n") for path, text in content["base"].items()}
    rows = [(row, kind == "honest") for kind in ("attack", "honest") for row in content[kind]]
    by_id = {row["id"]: row for row, _ in rows}
    return RepositoryTask(
        content["directory"],
        base,
        {path: text.lstrip("\n") for path, text in content["tests"].items()},
        content["fail_to_pass"],
        content["pass_to_pass"],
        [
            RepositoryCase(
                row["id"],
                row["group"],
                row["does"],
                is_honest,
                _written(
                    _diff(base, by_id[row.get("as", row["id"])]["after"]), row.get("written", "")
                ),
            )
            for row, is_honest in rows
        ],
    )


def _diff(base: Mapping[str, str], after: Mapping[str, str]) -> str:
    found = []
    for path, text in after.items():
        before, new = base.get(path), text.lstrip("\n")
        found.append(f"diff --git a/{path} b/{path}\n")
        if before is None:
            found.append("new file mode 100644\n")
        old_lines = (before or "").splitlines(keepends=True)
        old_name = "/dev/null" if before is None else f"a/{path}"
        lines = difflib.unified_diff(
            old_lines, new.splitlines(keepends=True), old_name, f"b/{path}"
        )
        found += lines
    return "".join(found)


def _written(diff: str, form: str) -> str:
    """Return a diff in a form that models write, and `git apply` refuses."""
    match form:
        case "wrong_counts":
            return "".join(
                "@@ -1,2 +1,2 @@\n" if line.startswith("@@") else line
                for line in diff.splitlines(keepends=True)
            )
        case "no_last_newline":
            return diff.rstrip("\n")
        case "crlf":
            return diff.replace("\n", "\r\n")
        case _:
            return diff
