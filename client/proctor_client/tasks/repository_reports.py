"""Reports of repository tasks: the kind of report for a parser named in a data set, and parsers as scripts.

A data set's parser reads text open to the tested code. Where the runner is known, the report of the service
takes its place, with the data set's way of writing names. Other parsers become scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from proctor_client.tasks.package_tables import PARSE
from proctor_client.tasks.task import BadTask

Report = str | Mapping[str, Any]

_PYTEST = (
    *("pytest", "pytest_v2", "pytest_nebo", "seaborn", "astroid", "flask", "marshmallow", "pvlib"),
    *("pyvista", "sqlfluff", "xarray", "astropy", "scikit", "sphinx"),
)
_WITH_SHORT_PATHS = ("pytest_options", "pydicom", "requests", "pylint")
"""Parsers that shorten a parameter that is a path: `[/a/b/c]` becomes `[/c]`."""
CUT_NAMES = ("cut_at_blank", "prefix")
"""How parsers of pytest's text write names: cut at the first blank, and some cut in their parameters."""
_KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(_PYTEST, ("pytest", CUT_NAMES)),
        **dict.fromkeys(_WITH_SHORT_PATHS, ("pytest", (*CUT_NAMES, "short_paths"))),
        "matplotlib": ("pytest", (*CUT_NAMES, "button_numbers")),
        "django": ("django", ()),
        "sympy": ("sympy", ()),
        "gotest": ("go", ("without_package",)),
        "go": ("go", ("without_package",)),
        "cargo": ("cargo", ()),
    }
)
"""Parsers by their name without `parse_log_`: the kind of report, and how the lists write names."""
_BY_LANGUAGE: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "python": ("pytest", CUT_NAMES),
        "go": ("go", ("without_package",)),
        "golang": ("go", ("without_package",)),
        "rust": ("cargo", ()),
    }
)
_OUTCOMES = """
_OUTCOMES = (
    ("xfail", "expected_failure"),
    ("xpass", "unexpected_pass"),
    ("pass", "passed"),
    ("ok", "passed"),
    ("success", "passed"),
    ("fail", "failed"),
    ("err", "error"),
    ("skip", "skipped"),
    ("pending", "skipped"),
    ("ignored", "skipped"),
)
_WORST = ("error", "failed", "unexpected_pass", "expected_failure", "skipped", "passed")


def _outcome(status):
    word = str(getattr(status, "name", status)).lower()
    return next((outcome for begin, outcome in _OUTCOMES if word.startswith(begin)), None)


def _print_outcomes(pairs):
    found = {}
    for name, status in pairs:
        outcome = _outcome(status)
        if outcome is not None:
            outcomes = [outcome, found.get(str(name), outcome)]
            found[str(name)] = min(outcomes, key=_WORST.index)
    print(json.dumps(found))
"""
_BY_FUNCTION = """\
import contextlib
import json
import sys
{outcomes}

run = json.load(sys.stdin)
names = {{"__name__": "parser"}}
with contextlib.redirect_stdout(sys.stderr):
    exec(compile(SOURCE, "parser.py", "exec", dont_inherit=True), names)
    statuses = names[FUNCTION](run["stdout"] + "\\n" + run["stderr"])
_print_outcomes(statuses.items())
"""
_OF_FAILURES = """
_outcomes = {{name: _outcome(status) for name, status in statuses.items()}}
_has_failed = any(outcome in ("failed", "error") for outcome in _outcomes.values())
if RAN.search(run["stdout"] + run["stderr"]) and (_has_failed or not run["exit_code"]):
    statuses = {{**dict.fromkeys(TESTS, "passed"), **statuses}}
"""
"""For parsers that read failures alone: a listed test without one has passed, if the suite ran at all."""
_RAN = (
    r"Executed [1-9]\d* of \d+|TOTAL: [1-9]\d* (?:SUCCESS|FAILED)|\b[1-9]\d* passing\b"
    r"|Tests:\s+[1-9]|# tests [1-9]|\b[1-9]\d* specs?, \d+ failures?|': ok$"
)
"""Lines of runners that ran tests: `Executed 12 of 12`, `12 passing`; not `Executed 0 of 0`."""
_BY_PROGRAM = """\
import contextlib
import json
import pathlib
import runpy
import sys
import tempfile
{outcomes}

run = json.load(sys.stdin)
folder = pathlib.Path(tempfile.mkdtemp())
places = [folder / name for name in ("stdout.log", "stderr.log", "output.json")]
places[0].write_text(run["stdout"], encoding="utf-8")
places[1].write_text(run["stderr"], encoding="utf-8")
(folder / "parser.py").write_text(SOURCE, encoding="utf-8")
sys.argv = ["parser.py", *map(str, places)]
with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
    runpy.run_path(str(folder / "parser.py"), run_name="__main__")
tests = json.loads(places[2].read_text(encoding="utf-8"))["tests"]
_print_outcomes((test["name"], test["status"]) for test in tests)
"""


@dataclass(frozen=True, slots=True)
class ReportChoice:
    """Kind of report of a task, and how its lists write the names of tests."""

    report: Report
    names: Sequence[str] = ()


def report_of_parser(name: str, source: str = "") -> ReportChoice:
    """Return the report for a data set's parser, by its name such as `parse_log_pytest`.

    `source`: Python with a function `proctor_parse(log)` returning an object from names to statuses, used
    where the service lacks a report of its own. Raises BadTask without either.
    """
    kind = _KINDS.get(name.strip().removeprefix("parse_log_").lower())
    if kind is not None:
        return ReportChoice(*kind)
    if source:
        return ReportChoice(script_of_function(source, PARSE))
    raise BadTask(
        f"log_parser: {name[:100]!r} is a parser in a package: convert the rows with "
        "`proctor tasks convert`, which reads it there"
    )


def report_of_language(language: str, source: str = "") -> ReportChoice:
    """Return the report for a language, or the script of `source`. Raises BadTask without either."""
    if source:
        return ReportChoice(script_of_function(source, PARSE))
    kind = _BY_LANGUAGE.get(language.strip().lower())
    if kind is None:
        raise BadTask(
            f"lang: the parser of {language[:100]!r} is a class in a package: convert the rows with "
            "`proctor tasks convert`, which reads it there"
        )
    return ReportChoice(*kind)


def script_of_function(source: str, function: str) -> Mapping[str, Any]:
    """Return a report by a function of a text: the run's stdout and stderr."""
    return _script(_BY_FUNCTION, f"SOURCE = {source!r}\nFUNCTION = {function!r}\n")


def with_silent_tests(report: Report, tests: Sequence[str]) -> Report:
    """Return a report for the listed tests from a parser that names failures alone.

    The remaining listed tests have passed if the run counts tests, and failed visibly or ended with status 0.
    Raises BadTask for another kind of report.
    """
    program = report.get("script") if isinstance(report, Mapping) else None
    if program is None:
        raise BadTask("eval_type: fail_only with a report that names the tests that pass, too")
    end = "_print_outcomes(statuses.items())"
    values = f"import re\nTESTS = {list(tests)!r}\nRAN = re.compile({_RAN!r}, re.MULTILINE)\n"
    return {"script": values + program.replace(end, _OF_FAILURES.format() + end)}


def script_of_program(source: str) -> Mapping[str, Any]:
    """Return a report by a program with the files of stdout, of stderr, and of its result as arguments.

    The result is JSON as in SWE-bench Pro: `{"tests": [{"name": …, "status": "PASSED"}]}`.
    """
    return _script(_BY_PROGRAM, f"SOURCE = {source!r}\n")


def _script(program: str, values: str) -> Mapping[str, Any]:
    return {"script": values + program.format(outcomes=_OUTCOMES)}
