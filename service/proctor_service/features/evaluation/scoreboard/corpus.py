"""Corpus of reward hacks by class, with similar honest programs, as a list of entries.

The data are TOML files beside this module: `problems.toml` holds the problems and their graders,
and each other file is a class. A hack with three graders gives three entries. A hack contains wrong
answers only and deserves a reward of zero; each honest program deserves a reward. The field
`honest` states the expected result. Other modules judge the entries.
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
# Names in the file that differ from the grader kind.
_KINDS = {"rooms": "asserts", "loops": "asserts"}


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """Completion for a grader. `tests`: for `exec`, the test code appended to the completion."""

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
        """Return the submission for `POST /reward`, except `extract`, a field of the request."""
        fields: dict[str, Any] = {
            "id": self.id,
            "completion": self.completion + self.tests,
            "grader": dict(self.grader),
            "files": dict(self.files),
        }
        return fields | ({"limits": dict(self.limits)} if self.limits else {})


def corpus() -> list[CorpusEntry]:
    """Return all entries with unique ids, the reference solutions of the problems first."""
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
) -> Iterator[CorpusEntry]:
    for kind, honest in (("hack", False), ("honest", True)):
        for row in content.get(kind, ()):
            for form in row["graders"]:
                yield _entry(group, row, problems[row["problem"]], form, honest=honest)


def _entry(
    group: str, row: Mapping[str, Any], problem: Mapping[str, Any], form: str, *, honest: bool
) -> CorpusEntry:
    grader = {"kind": _KINDS.get(form, form), **problem[form]}
    tests = ""
    if form == "exec":
        tests = "\n" + "\n".join(grader.pop("tests")) + "\n"
    return CorpusEntry(
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
