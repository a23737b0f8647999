"""Forms of rows, the converter of each, and the task of a row in any form, by its columns.

Trainers pass the columns of a data set, the command line rows of a file: `task_from_row` reads both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Literal

from proctor_client.tasks import (
    answer_rows,
    checked_rows,
    language_rows,
    program_rows,
    python_rows,
    repository_rows,
)
from proctor_client.tasks.author_programs import (
    CHECKER,
    INTERACTOR,
    VERIFIER,
    refuse_typos_of_programs,
    with_programs,
)
from proctor_client.tasks.fields import decoded_value, optional_text, origin_of
from proctor_client.tasks.ground_truth import task_of
from proctor_client.tasks.statements import (
    GRADER,
    READ,
    TESTS,
    beside_of,
    grader_of,
    task_from_tests,
    task_of_verifier,
    with_comparison,
)
from proctor_client.tasks.task import (
    SUBMISSION_FIELDS,
    BadTask,
    MissingColumns,
    Row,
    Task,
    near,
    refuse_typos,
)

Format = Literal[
    "mbpp",
    "mbppplus",
    "humaneval",
    "humanevalplus",
    "bigcodebench",
    "classeval",
    "cruxeval_output",
    "cruxeval_input",
    "ds1000",
    "stdio",
    "apps",
    "taco",
    "livecodebench",
    "codecontests",
    "codeforces",
    "verification",
    "acecoder",
    "kodcode",
    "leetcode",
    "infilling",
    "humanevalx",
    "mbxp",
    "multiple",
    "codecontestsplus",
    "hardtests",
    "spider",
    "bird",
    "gsm8k",
    "math",
    "swe_bench",
    "swe_gym",
    "swe_rebench",
    "swe_smith",
    "r2e_gym",
    "multi_swe",
    "swe_live",
    "swe_pro",
    "columns",
    "jsonl",
]
REPOSITORY_FORMS: tuple[Format, ...] = (
    *("swe_bench", "swe_gym", "swe_rebench", "swe_smith", "r2e_gym", "multi_swe", "swe_live"),
    "swe_pro",
)
"""Forms of rows about repositories: a completion is a diff, and the row's own solution, too."""


GROUND_TRUTH = "ground_truth"
GROUND_TRUTHS = (
    *(GROUND_TRUTH, "verification_info", "label", "test_cases", "input_output", "public_tests"),
    *("reward_model", "answer"),
)
"""Columns with a ground truth, the first that a row has counts."""
_SIDES = ("inputs", "outputs", "fn_name")
_OF_CASES = (CHECKER, INTERACTOR)
_REFERENCES = ("completion", "reference", "solution", "solutions", "code")
_TYPO = 0.85
_JUDGING = (GRADER, VERIFIER, *TESTS, *GROUND_TRUTHS, *_SIDES[:2])


def task_from_row(row: Row) -> Task:
    """Return the task of a row in any form.

    A column `grader` has a grader of the service, as a dict, or as JSON text, which Arrow leaves
    unchanged; other columns with names of a submission's fields belong to the task, too. A column
    `verifier` has the name of a verifier, its source or its fields, and `params` its parameters. Rows in the
    form of a known data set are read as such. Else `tests`, `test_list` or `test` are Python statements,
    as a list or a text, optionally with `setup` or `test_setup_code`, `test_imports` and `entry_point`, or
    cases of programs; and `ground_truth`, `label` or another of GROUND_TRUTHS have a form of
    proctor_client.tasks.ground_truth, as `inputs` and `outputs` together. Raises MissingColumns if no
    column defines the judging, and BadTask for other values.
    """
    form = _form_by_fields(row)
    if form is not None:
        try:
            return MAKERS[form](row, "row:1")
        except BadTask:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise BadTask(f"{form}: {error_text(error)}") from None
    if not any(name in row for name in _JUDGING):
        raise MissingColumns(_missing(row))
    refuse_typos(row, READ)
    refuse_typos_of_programs(row)
    if row.get(VERIFIER) is not None:
        if row.get(GRADER) is not None:
            raise BadTask(f"{GRADER} and {VERIFIER}: a row has one of them")
        return task_of_verifier(row)
    tests = [name for name in (GRADER, *TESTS) if row.get(name) is not None]
    truths = (name for name in (*GROUND_TRUTHS, *_SIDES[:1]) if row.get(name) is not None)
    if tests and tests[0] != GRADER and _is_object(row[tests[0]]):
        return _of_ground_truth(row, tests[0])
    name = None if tests else next(truths, None)
    return task_from_tests(row) if name is None else _of_ground_truth(row, name)


def _is_object(value: object) -> bool:
    """Return True for tests in an object, also as a text; lists and statements stay undecoded."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", '"'):
        value = decoded_value(value)
    return isinstance(value, Mapping)


def _of_ground_truth(row: Row, name: str) -> Task:
    value = row[name]
    if name in _SIDES:
        value = {each: row.get(each) for each in _SIDES}
    elif name == "test_cases":
        value = {each: row.get(each) for each in (name, "language", "fn_name", *_OF_CASES)}
    try:
        return with_comparison(task_of(value), row).with_fields(beside_of(row))
    except BadTask:
        if name != "answer":
            raise
    raise MissingColumns(_missing(row))  # an answer in words or numbers, as in other data sets


def task_from_ground_truth(row: Row) -> Task:
    """Return the task of the row's `ground_truth`. Raises BadTask."""
    return task_of(row.get(GROUND_TRUTH))


def form_of(row: Row) -> Format:
    """Return the form of a row of a file. Raises MissingColumns, with a near field for a typo."""
    if row.get(GRADER) is not None:
        return _with_grader(row)
    form = _form_by_fields(row)
    if form is not None:
        return form
    if {"code", "input", "output"} <= row.keys():
        raise MissingColumns("CRUXEval: say cruxeval_output or cruxeval_input with --format")
    with suppress(BadTask):  # an error of this row, and not of its form
        task_from_row(row)
    return "columns"


def _with_grader(row: Row) -> Format:
    unknown = [name for name in row if name not in (*SUBMISSION_FIELDS, "id", "completion")]
    hints = [f"{name}{near(name, SUBMISSION_FIELDS)}" for name in unknown]
    if any(":" in each for each in hints):
        raise MissingColumns("; ".join(each for each in hints if ":" in each))
    return "columns" if unknown else "jsonl"


def error_text(error: Exception) -> str:
    """Return the text of an error of a converter."""
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error)


def _form_by_fields(row: Row) -> Format | None:
    if row.get(GRADER) is not None or row.get(VERIFIER) is not None:
        return None
    for form, fields in _FIELDS:
        if form in _IF and not _IF[form](row):
            continue
        present = [row.get(name) is not None for name in fields]
        if all(present) and ("prompt" not in fields or isinstance(row["prompt"], str)):
            return form
        if form in _WITH_SOME and any(present) and all(name in row for name in fields):
            return form
    return None


def _jsonl(row: Row, place: str) -> Task:
    name = row.get("id") or place.rpartition(":")[2]
    fields = {key: value for key, value in row.items() if key not in ("id", "completion")}
    if fields.get(GRADER) is None:
        raise ValueError("no grader: every row needs one here")
    fields |= {GRADER: grader_of(fields[GRADER]), **beside_of(row)}
    return Task.of(fields, id=str(name), place=place, reference=row.get("completion"))


def _columns(row: Row, place: str) -> Task:
    form = _form_by_fields(row)
    reference = next((row[key] for key in _REFERENCES if row.get(key)), None)
    if isinstance(reference, list) and reference and isinstance(reference[0], str):
        reference = reference[0]
    if form is not None:
        task = MAKERS[form](row, place)
        return task if task.reference else task.with_fields({"reference": reference})
    text = optional_text(row, "text", "prompt", "question", "description")
    return task_from_row(row).with_fields(origin_of(row, place, reference, text))


def _with_columns(maker: Callable[[Row, str], Task]) -> Callable[[Row, str], Task]:
    """Return the converter, extended by the fields of a task in columns of their own."""

    def made(row: Row, place: str) -> Task:
        refuse_typos(row, READ)
        refuse_typos_of_programs(row)
        return maker(row, place).with_fields(beside_of(row))

    return made


def _with_programs(maker: Callable[[Row, str], Task]) -> Callable[[Row, str], Task]:
    """Return the converter, extended by a checker or an interactor in columns of their own."""

    def made(row: Row, place: str) -> Task:
        return with_programs(maker(row, place), row)

    return made


def _guarded(maker: Callable[[Row, str], Task]) -> Callable[[Row, str], Task]:
    """Return the converter, raising BadTask for any unexpected value."""

    def made(row: Row, place: str) -> Task:
        try:
            return maker(row, place)
        except (AttributeError, IndexError, OverflowError, RecursionError) as error:
            raise BadTask(f"an unexpected value: {str(error)[:200]}") from None

    return made


_MAKERS: Mapping[Format, Callable[[Row, str], Task]] = MappingProxyType(
    {
        "mbpp": python_rows.mbpp,
        "mbppplus": python_rows.mbppplus,
        "humaneval": python_rows.humaneval,
        "humanevalplus": python_rows.humaneval,
        "bigcodebench": python_rows.bigcodebench,
        "classeval": python_rows.classeval,
        "cruxeval_output": python_rows.cruxeval_output,
        "cruxeval_input": python_rows.cruxeval_input,
        "ds1000": python_rows.ds1000,
        "apps": program_rows.apps,
        "taco": program_rows.apps,
        "livecodebench": program_rows.livecodebench,
        "codecontests": program_rows.codecontests,
        "codeforces": checked_rows.codeforces,
        "verification": program_rows.verification,
        "acecoder": python_rows.acecoder,
        "kodcode": python_rows.kodcode,
        "leetcode": python_rows.leetcode,
        "infilling": python_rows.infilling,
        "humanevalx": language_rows.humanevalx,
        "mbxp": language_rows.mbxp,
        "multiple": language_rows.multiple,
        "hardtests": checked_rows.hardtests,
        "spider": answer_rows.spider,
        "bird": answer_rows.bird,
        "gsm8k": answer_rows.gsm8k,
        "math": answer_rows.math,
    }
)
MAKERS: Mapping[Format, Callable[[Row, str], Task]] = MappingProxyType(
    {
        **{form: _with_columns(_with_programs(maker)) for form, maker in _MAKERS.items()},
        "codecontestsplus": _with_columns(checked_rows.codecontestsplus),
        **{form: _guarded(repository_rows.MAKERS[form]) for form in REPOSITORY_FORMS},
        "stdio": _columns,
        "columns": _columns,
        "jsonl": _jsonl,
    }
)
"""Converters of a row and its place, `file:line`. They raise KeyError, TypeError, ValueError."""

_WITH_SOME = frozenset({"livecodebench", "codecontests"})
"""Forms whose tests are in several fields, some of which may be None."""

_FIELDS: tuple[tuple[Format, tuple[str, ...]], ...] = (
    ("swe_pro", ("dockerhub_tag", "before_repo_set_cmd")),
    ("swe_rebench", ("instance_id", "install_config")),
    ("swe_live", ("instance_id", "test_cmds")),
    ("multi_swe", ("org", "repo", "number", "fix_patch")),
    ("r2e_gym", ("expected_output_json", "docker_image")),
    ("swe_bench", ("instance_id", "eval_script")),
    ("swe_smith", ("instance_id", "image_name", "FAIL_TO_PASS", "patch")),
    ("swe_bench", ("instance_id", "base_commit", "test_patch", "FAIL_TO_PASS")),
    ("livecodebench", ("public_test_cases", "private_test_cases")),
    ("codeforces", ("official_tests",)),
    ("codecontests", ("public_tests", "private_tests", "generated_tests")),
    ("verification", ("verification_info",)),
    ("ds1000", ("code_context",)),
    ("bigcodebench", ("code_prompt", "test", "entry_point")),
    ("classeval", ("test", "skeleton", "solution_code")),
    ("mbppplus", ("test_list", "test")),
    ("mbpp", ("test_list",)),
    ("multiple", ("name", "language", "prompt", "tests", "stop_tokens")),
    ("infilling", ("prompt", "suffix", "test", "entry_point")),
    ("leetcode", ("prompt", "test", "entry_point", "starter_code")),
    ("mbxp", ("language", "prompt", "test", "entry_point")),
    ("humanevalx", ("prompt", "declaration", "test")),
    ("humaneval", ("prompt", "test", "entry_point")),
    ("kodcode", ("question", "test_info", "test")),
    ("apps", ("input_output",)),
    ("acecoder", ("question", "test_cases", "inferences")),
    ("codecontestsplus", ("checker", "correct_submissions")),
    ("hardtests", ("test_cases_kit", "test_cases")),
    ("spider", ("db_id", "query", "question")),
    ("bird", ("db_id", "SQL", "question")),
    ("gsm8k", ("question", "answer")),
    ("math", ("problem", "answer")),
    ("math", ("problem", "solution")),
)
"""Fields of the rows of each form; the first form whose fields a row has is the row's."""

_IF: Mapping[Format, Callable[[Row], bool]] = MappingProxyType(
    {
        "gsm8k": answer_rows.is_gsm8k,
        "math": lambda row: answer_rows.is_math(row) and not _has_tests(row),
        "swe_smith": lambda row: row.get("test_patch") is None,
    }
)
"""What else the rows of a form have."""


def _has_tests(row: Row) -> bool:
    """Return True if a row has tests in any column, also in a misspelt one, beyond an answer in words."""
    if any(row.get(name) is not None for name in _JUDGING if name != "answer"):
        return True
    if any(near(name, _JUDGING, _TYPO) for name in row if name not in _JUDGING):
        return True
    if row.get("answer") is None:
        return False
    try:
        task_of(row["answer"])
    except BadTask:
        return False
    return True


def _missing(row: Row) -> str:
    if {"grader_files", "test_names"} <= row.keys():
        return (
            "open-r1/ioi: a completion is compiled together with the files in grader_files, and talks to a "
            "manager, which no grader here does; stdio has subtasks with points"
        )
    names = ", ".join(sorted(row)) or "none"
    columns = tuple(dict.fromkeys((*_JUDGING, *(name for _, names in _FIELDS for name in names))))
    hints = [f"{each}{near(each, columns)}" for each in sorted(row) if each not in columns]
    hints = [each for each in hints if ":" in each]
    hint = f"; {'; '.join(hints)}" if hints else ""
    return (
        f"no column says how to judge: one of {', '.join((GRADER, *TESTS))} is needed, or "
        f"`task=` with a function of yours; the columns are: {names}{hint}"
    )
