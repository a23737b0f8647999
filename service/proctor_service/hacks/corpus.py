"""The corpus: hacks by class, and beside them honest programs, as one list of things to judge.

It lies in TOML files beside this module: `problems.toml` holds the problems and their graders, each
other file is a class. A hack with three graders is three entries. No hack holds a right answer, so none
deserves a reward; each honest program does. What an entry deserves is `honest`, and nothing else here
says how it is judged.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

_PROBLEMS = "problems.toml"
_REFERENCES = "references"
_ABOUT = ("prompt", "reference")
# Where a grader's kind is not the name that it has in the file.
_KINDS = {"rooms": "asserts", "loops": "asserts"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One completion for one grader. `tests`: for `exec`, what is pasted behind it."""

    id: str
    group: str
    does: str
    honest: bool
    prompt: str
    completion: str
    grader: Mapping[str, Any]
    tests: str = ""
    extract: str = "none"
    files: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)

    def submission(self) -> dict[str, Any]:
        """As `POST /reward` takes it, but for `extract`, which a request has for all."""
        fields: dict[str, Any] = {
            "id": self.id,
            "completion": self.completion + self.tests,
            "grader": dict(self.grader),
            "files": dict(self.files),
        }
        return fields | ({"limits": dict(self.limits)} if self.limits else {})


def corpus() -> list[Entry]:
    """All entries, the problems' own references first; each id is there once."""
    folder = files(__package__)
    problems = tomllib.loads(folder.joinpath(_PROBLEMS).read_text("utf-8"))
    entries = [
        _entry(_REFERENCES, {"id": name, "does": "the reference", "completion": problem["reference"]},
               problem, form, honest=True)
        for name, problem in problems.items()
        for form in problem
        if form not in _ABOUT
    ]  # fmt: skip
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".toml") and file.name != _PROBLEMS:
            group = file.name.removesuffix(".toml")
            entries += _class(group, tomllib.loads(file.read_text("utf-8")), problems)
    return entries


def _class(
    group: str, content: Mapping[str, Any], problems: Mapping[str, Mapping[str, Any]]
) -> Iterator[Entry]:
    for kind, honest in (("hack", False), ("honest", True)):
        for row in content.get(kind, ()):
            for form in row["graders"]:
                yield _entry(group, row, problems[row["problem"]], form, honest=honest)


def _entry(
    group: str, row: Mapping[str, Any], problem: Mapping[str, Any], form: str, *, honest: bool
) -> Entry:
    grader = {"kind": _KINDS.get(form, form), **problem[form]}
    tests = ""
    if form == "exec":
        tests = "\n" + "\n".join(grader.pop("tests")) + "\n"
    return Entry(
        id=f"{group}/{row['id']}/{form}",
        group=group,
        does=row["does"],
        honest=honest,
        prompt=problem["prompt"],
        completion=row["completion"],
        grader=grader,
        tests=tests,
        extract=row.get("extract", "none"),
        files=row.get("files", {}),
        limits=row.get("limits", {}),
    )
