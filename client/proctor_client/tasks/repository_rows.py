"""Rows about repositories: an issue, and the tests of a project that a right change makes pass.

For data sets with commands and parsers in a package or in a folder of its own, `proctor tasks convert` adds
them to the rows as columns: `eval_script`, `test_cmd`, `run_script`, `parser_source`, `env`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proctor_client.tasks.fields import decoded_value
from proctor_client.tasks.repository_commands import (
    commands_of_script,
    files_of_ids,
    is_doctest,
    modules_of_django,
    runnable_files_of,
    with_files,
)
from proctor_client.tasks.repository_diffs import diff_of_commit, files_of_diff, reversed_diff
from proctor_client.tasks.repository_fields import (
    column_of,
    command_of,
    distinct,
    image_of,
    list_of,
    named_tests,
    needed_text,
    object_of,
    text_of_column,
)
from proctor_client.tasks.repository_reports import (
    CUT_NAMES,
    ReportChoice,
    report_of_language,
    report_of_parser,
    script_of_function,
    script_of_program,
    with_silent_tests,
)
from proctor_client.tasks.task import BadTask, Row, Task

PARSER_SOURCE = "parser_source"
SECONDS: Mapping[str, float] = MappingProxyType({"swe_live": 3600, "swe_pro": 3600})
"""Wall time for build and tests together, by form; others have the default of the grader."""
_OF_LOGS = ("go", "cargo", "sympy")
_LOG_KB = 16_384
"""The service's ceiling: of a longer log the middle is not kept."""
_TESTBED = "/testbed"
_ACTIVATE = "conda:testbed"
_ACTIVATION = "source /opt/miniconda3/bin/activate; conda activate testbed; "
"""Begin of SWE-smith's commands in Python, which the field `activate` replaces."""
_PYTEST_OF_SMITH = "pytest --disable-warnings --color=no --tb=no --verbose"
_PYTEST = "pytest --no-header -rA --tb=no -p no:cacheprovider"
_ISSUE = re.compile(r"\[ISSUE\](.*?)(?:\[/ISSUE\]|\Z)", re.DOTALL)
"""The issue in a statement of R2E-Gym: `[ISSUE] … [/ISSUE]`."""
_OF_PYTHON = re.compile(r"[^\s:]+\.(?:py|rst|txt|md)::\S")
"""A node id of pytest: `tests/test_a.py::test_x`, and of a document's doctests: `README.rst::README.rst`."""
_NOISE: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "django": re.compile(r"(\w+ \([\w.]+\)) \.\.\. .*", re.DOTALL),
        "cargo": re.compile(r"(.*) - should panic"),
    }
)
"""By report, what parsers took for a part of a name: `test_a (admin.Tests) ... Testing against Django`,
`tests::full - should panic`."""
_ENDS_WITH_PYTEST = re.compile(r"\bpytest\b[^;&|\n]*\Z")
"""A command whose last words are arguments of pytest: `cd a; pytest -q`; not `pytest | tail`."""
_CHECKOUT = re.compile(r"git\s+checkout\s+([0-9A-Za-z][\w./-]*)\s+--\s+(.+)")
"""The tests of another commit, in SWE-bench Pro: `git checkout 3f1c0e -- test/a.js test/b.js`."""
_UPSTREAM_OUTCOMES: Mapping[str, str] = MappingProxyType(
    {
        "PASSED": "passed",
        "FAILED": "failed",
        "ERROR": "error",
        "SKIPPED": "skipped",
        "XFAIL": "expected_failure",
        "XPASS": "unexpected_pass",
    }
)
_SHELL: Mapping[str, str] = MappingProxyType(
    {
        "swe_bench": "exec 2>&1\nset -x\n",
        "swe_smith": "exec 2>&1\nset -x\n",
        "multi_swe": "exec 2>&1\n",
        "swe_live": "exec 2>&1\n",
    }
)
"""What parsers of texts find in a log by form: one stream, and each command before its output."""


Maker = Callable[[Row, str], Task]


def swe_bench(row: Row, place: str) -> Task:
    """SWE-bench from version 5, also Verified, Lite and Multilingual: image and script are in the row.

    Rows of version 4 get both from the package `swebench` when they are converted.
    """
    assets = object_of(column_of(row, "image_assets"), "image_assets")
    if assets.get("test_patch") not in (None, [], {}):
        raise BadTask("image_assets: the tests need files that the row has only as addresses")
    script = text_of_column(row, "eval_script")
    if not script:
        raise BadTask(
            "eval_script: the row has no test command, which is in the package swebench: convert the "
            "rows with `proctor tasks convert --form swe_bench`"
        )
    parser = text_of_column(row, "log_parser")
    choice = report_of_parser(parser, text_of_column(row, PARSER_SOURCE))
    is_python = choice.report in ("pytest", "django", "sympy", "unittest")
    commands = commands_of_script(script, is_python=is_python)
    if text_of_column(row, "eval_type") == "fail_only":
        listed = [test for tests in _lists(row) for test in tests]
        choice = ReportChoice(with_silent_tests(choice.report, listed), choice.names)
    fields = {
        "activate": commands.activate,
        "build": commands.build,
        "build_if": commands.build_if,
        "test": commands.test,
    }
    image = _image_by_id(row, "swebench", "_1776_")
    return _listed("swe_bench", row, place, image, fields, choice)


def swe_gym(row: Row, place: str) -> Task:
    """SWE-Gym: as SWE-bench, in images of its own; the test command is a column, a script, or pytest's."""
    if text_of_column(row, "eval_script"):
        return swe_bench({**row, "image": _image_by_id(row, "xingyaoww", "_s_")}, place)
    fields = _of_command(row, text_of_column(row, "test_cmd") or _PYTEST)
    image = _image_by_id(row, "xingyaoww", "_s_")
    return _listed("swe_gym", row, place, image, fields, ReportChoice("pytest", CUT_NAMES))


def swe_rebench(row: Row, place: str) -> Task:
    """SWE-rebench 1 and 2: the commands are in `install_config`, the parser by its name.

    Rows of version 2 name their image and the parser of any of twenty languages.
    """
    config = object_of(column_of(row, "install_config"), "install_config")
    command = command_of(config.get("test_cmd"), "install_config.test_cmd")
    if not command:
        raise BadTask("install_config.test_cmd: no command")
    parser = str(config.get("log_parser") or "pytest")
    source = text_of_column(row, PARSER_SOURCE)
    choice = report_of_parser(parser, source)
    if not _is_second_rebench(row, config):
        image = _image_by_id(row, "swerebench", "_1776_")
        return _listed("swe_rebench", row, place, image, _of_command(row, command), choice)
    names = dict.fromkeys([*choice.names, "without_timing"])
    repository = needed_text(row, "repo").rpartition("/")[2]
    fields = {"directory": f"/{repository}", "test": command}
    image = image_of(needed_text(row, "image_name", "docker_image"))
    return _listed("swe_rebench", row, place, image, fields, ReportChoice(choice.report, [*names]))


def swe_smith(row: Row, place: str) -> Task:
    """SWE-smith: `patch` makes the bug in the image's repository, and its reverse is the solution.

    Columns of the package: `test_cmd`, `test_files`, `parser_source`, `timeout`. Without them, rows of
    Python run pytest on the files of their tests.
    """
    name = needed_text(row, "instance_id")
    bug = needed_text(row, "patch")
    fail_to_pass, pass_to_pass = _lists(row)
    source, command = text_of_column(row, PARSER_SOURCE), text_of_column(row, "test_cmd")
    files = files_of_ids([*fail_to_pass, *pass_to_pass])
    is_pytest = all(_OF_PYTHON.match(each) for each in [*fail_to_pass, *pass_to_pass])
    is_activated = is_pytest or command.startswith(_ACTIVATION)
    command = command.removeprefix(_ACTIVATION)
    if not command and not is_pytest:
        raise BadTask(
            "test_cmd: the row has no test command, which is in the package swesmith: convert the rows "
            "with `proctor tasks convert --form swe_smith`"
        )
    if is_pytest:
        choice = ReportChoice("pytest")
        command = command or _PYTEST_OF_SMITH
        if _ENDS_WITH_PYTEST.search(command) and not any(each in command for each in files):
            command = with_files(command, sorted(files))
    else:
        choice = report_of_parser(text_of_column(row, "log_parser"), source)
    fields = {
        "prepare": {"patch": _ended(bug)},
        "hide": files_of_ids(each for each in fail_to_pass if not is_doctest(each)),
        "activate": _ACTIVATE if is_activated else None,
        "test": command,
    }
    image = text_of_column(row, "image_name") or _image_of_smith(name)
    image = image if "/" in image else f"swebench/{image}"
    seconds = _number(row, "timeout")
    reference = {**row, "patch": reversed_diff(_ended(bug)), "test_patch": None}
    return _listed("swe_smith", reference, place, image_of(image), fields, choice, seconds=seconds)


def r2e_gym(row: Row, place: str) -> Task:
    """R2E-Gym: the outcome of each test is expected; the tests are in the image, outside the repository."""
    expected = _expected(row)
    name = (
        f"{needed_text(row, 'repo_name', 'repo')}__{needed_text(row, 'commit_hash', 'base_commit')}"
    )
    commit = column_of(row, "parsed_commit_content", "parsed_commit")
    try:
        reference = diff_of_commit(object_of(commit, "parsed_commit_content")) if commit else ""
    except (KeyError, TypeError, AttributeError):
        reference = ""  # another layout of the commit: the row has no reference then
    statement = text_of_column(row, "problem_statement")
    issue = _ISSUE.search(statement)
    grader = {
        "directory": _TESTBED,
        "activate": f"{_TESTBED}/.venv",
        "hide": ["/r2e_tests", "/run_tests.sh", "run_tests.sh"],
        "test": "ln -s /r2e_tests r2e_tests\nbash run_tests.sh",
        "report": "pytest",
        "names": ["dotted"],
        "expected": expected,
        "rule": {"unlisted": "none_failed"},
    }
    text = issue[1].strip() if issue else statement
    image = image_of(needed_text(row, "docker_image", "image_name"))
    return _task("r2e_gym", name, place, image, grader, reference, text)


def multi_swe(row: Row, place: str) -> Task:
    """Multi-SWE-bench and Multi-SWE-RL: the image's own script applies the change and runs the tests."""
    org, repo = needed_text(row, "org"), needed_text(row, "repo")
    number = needed_text(row, "number")
    choice = report_of_language(
        text_of_column(row, "lang", "language"), text_of_column(row, PARSER_SOURCE)
    )
    fixed: dict[str, None] = {}
    for column in ("f2p_tests", "s2p_tests", "n2p_tests"):
        fixed |= dict.fromkeys(named_tests(row, column))
    grader = {
        "directory": f"/home/{repo}",
        "hide": ["/home/*.patch", "/home/*.sh"],
        "deliver": "/home/fix.patch",
        "test": text_of_column(row, "test_cmd") or "bash /home/fix-run.sh",
        "protect": [each.path for each in files_of_diff(text_of_column(row, "test_patch"))],
        "report": choice.report,
        "names": [*choice.names],
        "fail_to_pass": list(fixed),
        "pass_to_pass": [each for each in named_tests(row, "p2p_tests") if each not in fixed],
    }
    image = image_of(f"mswebench/{org}_m_{repo}:pr-{number}".lower())
    reference = text_of_column(row, "fix_patch")
    name = f"{org}__{repo}-{number}"
    return _task("multi_swe", name, place, image, grader, reference, _issues(row))


def swe_live(row: Row, place: str) -> Task:
    """SWE-bench-Live, also MultiLang: the commands are in the row, and so is the source of its parser."""
    if text_of_column(row, "platform", "os").lower().startswith("win"):
        raise BadTask("platform: images of Windows are not run")
    tests = command_of(column_of(row, "test_cmds", "test_cmd"), "test_cmds")
    if not tests:
        raise BadTask("test_cmds: no command")
    printed = command_of(column_of(row, "print_cmds"), "print_cmds")
    parser = text_of_column(row, "log_parser", "parser") or "pytest"
    is_source = re.search(r"^def\s+parser\s*\(", parser, re.MULTILINE) is not None
    if is_source:
        choice = ReportChoice(script_of_function(parser, "parser"))
    else:
        choice = report_of_parser(parser, text_of_column(row, PARSER_SOURCE))
    fields = {
        "build": command_of(column_of(row, "rebuild_cmds", "rebuild_cmd"), "rebuild_cmds"),
        "test": f"{tests}\n{printed}" if printed else tests,
        "rule": {"pass_to_pass": ["passed", "skipped", "missing"]},
    }
    image = _image_by_id(row, "starryzhang", "_1776_")
    return _listed("swe_live", row, place, image, fields, choice)


def swe_pro(row: Row, place: str) -> Task:
    """SWE-bench Pro: `run_script` and `parser_source` are files beside the data set, added as columns."""
    script, parser = text_of_column(row, "run_script"), text_of_column(row, PARSER_SOURCE)
    if not script or not parser:
        raise BadTask(
            "run_script: the row has no test command, which is in the repository of SWE-bench Pro: "
            "convert the rows with `proctor tasks convert --form swe_pro --folder SWE-bench_Pro-os`"
        )
    files = [str(each) for each in list_of(column_of(row, "selected_test_files_to_run"), "tests")]
    tag = needed_text(row, "dockerhub_tag")
    fields = {
        "directory": "/app",
        "env": {str(k): str(v) for k, v in object_of(column_of(row, "env"), "env").items()},
        "files_from": _files_from(text_of_column(row, "before_repo_set_cmd")),
        "test": _in_a_file(script, ",".join(files)),
    }
    parts = [
        text_of_column(row, each) for each in ("problem_statement", "requirements", "interface")
    ]
    text = "\n\n".join(filter(None, parts))
    choice = ReportChoice(script_of_program(parser))
    image = image_of(f"jefzda/sweap-images:{tag}")
    return _listed("swe_pro", {**row, "problem_statement": text}, place, image, fields, choice)


MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        "swe_bench": swe_bench,
        "swe_gym": swe_gym,
        "swe_rebench": swe_rebench,
        "swe_smith": swe_smith,
        "r2e_gym": r2e_gym,
        "multi_swe": multi_swe,
        "swe_live": swe_live,
        "swe_pro": swe_pro,
    }
)
"""Converters by form. They raise BadTask, KeyError, TypeError and ValueError."""


def _listed(
    form: str,
    row: Row,
    place: str,
    image: str,
    fields: Mapping[str, Any],
    choice: ReportChoice,
    *,
    seconds: float | None = None,
) -> Task:
    """Return the task of a row with `FAIL_TO_PASS` and `PASS_TO_PASS`."""
    fail_to_pass, pass_to_pass = _lists(row)
    noise = _NOISE.get(str(choice.report))
    if noise is not None:
        fail_to_pass, pass_to_pass = (
            distinct((noise.sub(r"\1", each) for each in names), form)
            for names in (fail_to_pass, pass_to_pass)
        )
    grader = {
        "directory": _TESTBED,
        "test_patch": _ended(text_of_column(row, "test_patch")),
        "report": choice.report,
        "names": [*choice.names],
        "fail_to_pass": fail_to_pass,
        "pass_to_pass": pass_to_pass,
        **fields,
    }
    name = text_of_column(row, "instance_id", "id") or place.rpartition(":")[2]
    text = text_of_column(row, "problem_statement")
    patch = _ended(text_of_column(row, "patch"))
    return _task(form, name, place, image, grader, patch, text, seconds)


def _task(
    form: str,
    name: str,
    place: str,
    image: str,
    grader: Mapping[str, Any],
    reference: str,
    text: str,
    seconds: float | None = None,
) -> Task:
    if not grader.get("expected") and not grader["fail_to_pass"] and not grader["pass_to_pass"]:
        raise BadTask("FAIL_TO_PASS and PASS_TO_PASS are empty: no test decides")
    fields = {**grader, "reference": _ended(reference) or None}
    if isinstance(grader["report"], Mapping):
        fields["test"] = _SHELL.get(form, "") + grader["test"]
    wall_seconds = seconds or SECONDS.get(form)
    return Task(
        grader={
            "kind": "repository",
            **{name: _plain(value) for name, value in fields.items() if value},
        },
        environment={"image": image},
        limits=_limits(wall_seconds, grader["report"]),
        id=name,
        place=place,
        reference=_ended(reference) or None,
        text=text or None,
    )


def _limits(wall_seconds: float | None, report: Any) -> dict[str, Any] | None:
    """Return limits that differ from the grader's: outcomes in a log need more output than usual."""
    limits: dict[str, Any] = {} if wall_seconds is None else {"wall_seconds": wall_seconds}
    if report in _OF_LOGS or isinstance(report, Mapping):
        limits["output_kb"] = _LOG_KB
    return limits or None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _lists(row: Row) -> tuple[list[str], list[str]]:
    fail_to_pass = named_tests(row, "FAIL_TO_PASS")
    both = set(fail_to_pass)
    return fail_to_pass, [each for each in named_tests(row, "PASS_TO_PASS") if each not in both]


def _ended(patch: str) -> str:
    """Return a diff with a final line break, which some rows have lost."""
    return patch if not patch or patch.endswith("\n") else f"{patch}\n"


def _image_by_id(row: Row, owner: str, separator: str) -> str:
    """Return the image of a row's column, or the image named after the row's id by its data set."""
    named = text_of_column(row, "image", "docker_image", "image_name")
    if named:
        return image_of(named)
    name = needed_text(row, "instance_id").lower().replace("__", separator)
    return image_of(f"{owner}/sweb.eval.x86_64.{name}:latest")


def _image_of_smith(instance: str) -> str:
    """Return the image of the repository in `owner__repo.commit8.bug__hash`. Raises BadTask."""
    repository = instance.rpartition(".")[0].lower()
    if "__" not in repository:
        raise BadTask("instance_id: no repository and commit in it")
    return f"swebench/swesmith.x86_64.{repository.replace('__', '_1776_', 1)}"


def _of_command(row: Row, command: str) -> dict[str, Any]:
    """Return the fields of a command with the test patch's files as arguments."""
    files = runnable_files_of(text_of_column(row, "test_patch"))
    if text_of_column(row, "repo").lower() == "django/django":
        files = modules_of_django(files)
    return {"activate": _ACTIVATE, "test": with_files(command, files)}


def _is_second_rebench(row: Row, config: Mapping[str, Any]) -> bool:
    """Return True for a row of SWE-rebench-V2: its images have `/repo` instead of conda."""
    if any(config.get(name) is not None for name in ("base_image_name", "docker_specs")):
        return True
    return "swerebenchv2" in text_of_column(row, "image_name", "docker_image").lower()


def _number(row: Row, name: str) -> float | None:
    value = column_of(row, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value <= SECONDS["swe_live"] else None


def _expected(row: Row) -> dict[str, str]:
    found = object_of(column_of(row, "expected_output_json"), "expected_output_json")
    expected = {}
    for name, status in found.items():
        outcome = _UPSTREAM_OUTCOMES.get(str(status).upper())
        if outcome is None:
            raise BadTask(f"expected_output_json: {str(status)[:100]!r} is no outcome of a test")
        if name.strip():
            expected[name] = outcome
    if "passed" not in expected.values():
        raise BadTask("expected_output_json: no test passes")
    return expected


def _issues(row: Row) -> str:
    """Return the issues resolved by a pull request, or else its own title and text."""
    issues = decoded_value(column_of(row, "resolved_issues"))
    found: Sequence[Any] = issues if isinstance(issues, list) else []
    sources = [each for each in found if isinstance(each, Mapping)] or [row]
    texts = []
    for each in sources:
        parts = [text_of_column(each, name) for name in ("title", "body")]
        texts.append("\n\n".join(part for part in parts if part))
    return "\n\n".join(filter(None, texts))


def _files_from(commands: str) -> dict[str, Any] | None:
    """Return the commit and the paths in the last line of the commands before the tests."""
    found = _CHECKOUT.fullmatch(commands.strip().rpartition("\n")[2].strip())
    if found is None:
        return None
    try:
        paths = shlex.split(found[2])
    except ValueError:
        raise BadTask("before_repo_set_cmd: an open quotation mark") from None
    return {"commit": found[1], "paths": paths}


def _in_a_file(script: str, argument: str) -> str:
    """Return commands for writing a script outside the repository and running it with an argument."""
    end = "END_OF_RUN_SCRIPT"
    if end in script:
        raise BadTask("run_script: it has the line that ends it here")
    place = "/tmp/proctor_run_script.sh"
    text = script if script.endswith("\n") else f"{script}\n"
    return f"cat > {place} <<'{end}'\n{text}{end}\nbash {place} {shlex.quote(argument)}"
