"""Graders as texts for pages: tests in the notation of source code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proctor_client.wire import long_integers

MOST_CASES = 100
Parts = Sequence[tuple[str, str]]
Grader = Mapping[str, Any]


def parts(grader: Grader) -> Parts:
    """Return titles and texts of a recorded grader, at most `MOST_CASES` of its cases."""
    write = _PARTS.get(grader["kind"])
    if write is None:
        return [("Grader", _json(grader))]
    found = list(write(grader))
    options = {
        name: grader[name]
        for name in _OPTIONS
        if grader.get(name) and grader[name] != _DEFAULTS.get(name)
    }
    return [*found, ("Options", _json(options))] if options else found


def _asserts(grader: Grader) -> Parts:
    setup = [("Setup", grader["setup"])] if grader.get("setup") else []
    return [*setup, ("Tests", "\n".join(grader["tests"]))]


def _calls(grader: Grader) -> Parts:
    lines = []
    for case in grader["cases"][:MOST_CASES]:
        arguments = [_json(each) for each in case.get("args", ())]
        arguments += [f"{name}={_json(each)}" for name, each in case.get("kwargs", {}).items()]
        lines.append(f"{grader['entry_point']}({', '.join(arguments)}) → {_json(case['expected'])}")
    return [(_title("Calls", grader), "\n".join(lines))]


def _stdio(grader: Grader) -> Parts:
    cases = grader["cases"]
    found = _generated(cases) if isinstance(cases, dict) else _cases(cases)
    checker = grader.get("checker")
    if isinstance(checker, str):
        found.append(("Checker", checker))
    elif checker is not None:
        found += _program("Checker", checker)
    if grader.get("interactor") is not None:
        found += _program("Interactor", grader["interactor"])
    if grader.get("subtasks"):
        found.append(("Subtasks", "\n".join(map(_json, grader["subtasks"][:MOST_CASES]))))
    return found


def _generated(cases: Grader) -> list[tuple[str, str]]:
    seeds = cases["seeds"]
    title = (
        "Seeds" if len(seeds) <= MOST_CASES else f"The first {MOST_CASES} of {len(seeds):,} seeds"
    )
    found = [(title, "\n".join(map(str, seeds[:MOST_CASES])))]
    found += _program("Generator", cases["generator"])
    return (
        found
        if cases.get("reference") is None
        else found + _program("Reference", cases["reference"])
    )


def _program(title: str, program: Grader) -> list[tuple[str, str]]:
    """Return the source of a program of the task's author, and its options."""
    options = {
        name: value
        for name, value in program.items()
        if name not in ("source", "files") and value not in (None, [], {})
    }
    found = [(title, program["source"])]
    if options:
        found.append((f"{title}: options", _json(options)))
    files = list(program.get("files", {}).items())
    return found + [(f"{title}: file {path}", text) for path, text in files[:MOST_CASES]]


def _cases(cases: Sequence[Grader]) -> list[tuple[str, str]]:
    found = []
    for index, case in enumerate(cases[:MOST_CASES]):
        title = f"Case {index}: "
        if case.get("argv"):
            found.append((f"{title}arguments", shlex.join(case["argv"])))
        found.append((f"{title}standard input", case.get("stdin", "")))
        found += [(f"{title}file {path}", text) for path, text in case.get("files", {}).items()]
        where = f" in {case['output_file']}" if case.get("output_file") else ""
        stdout = case.get("stdout")
        for each in [stdout] if isinstance(stdout, str) else stdout or ():
            found.append((f"{title}expected output{where}", each))
    return found


def _files(grader: Grader) -> Parts:
    files = list(grader.get("files", {}).items())
    return [(f"File {path}", content) for path, content in files[:MOST_CASES]]


def _command(grader: Grader) -> Parts:
    if grader.get("runner"):
        return [("Runner", grader["runner"]), *_files(grader)]
    code = grader.get("expect_exit_code", 0)
    command = f"{shlex.join(grader['argv'])}\nexpected exit code: {code}"
    return [("Command", command), *_files(grader)]


def _exec(grader: Grader) -> Parts:
    found = [
        (title.capitalize(), grader[title]) for title in ("setup", "tests") if grader.get(title)
    ]
    return found or [("Grader", "none: the program must reach its end, and exit with code 0")]


def _title(title: str, grader: Grader) -> str:
    count = len(grader["cases"])
    return title if count <= MOST_CASES else f"{title}, the first {MOST_CASES} of {count:,}"


def _json(value: Any) -> str:
    return long_integers.dumps(value, json.JSONEncoder(ensure_ascii=False))


_OPTIONS = (
    "entry_point", "method", "integrity", "equality", "tolerance", "compare", "ignore_case", "reveal",
    "empty_stderr",
)  # fmt: skip
_DEFAULTS = {"method": "as_named", "equality": "json"}
_PARTS: Mapping[str, Callable[[Grader], Parts]] = {
    "asserts": _asserts,
    "calls": _calls,
    "stdio": _stdio,
    "pytest": _files,
    "command": _command,
    "exec": _exec,
}
