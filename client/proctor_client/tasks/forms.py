"""Forms of rows, and the converter of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from proctor_client.tasks import language_rows, program_rows, python_rows
from proctor_client.tasks.fields import Row
from proctor_client.tasks.task import Task

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
    "humanevalx",
    "mbxp",
    "jsonl",
]


def _jsonl(row: Mapping[str, Any], place: str) -> Task:
    name = row.get("id") or place.rpartition(":")[2]
    fields = {key: value for key, value in row.items() if key not in ("id", "completion")}
    if "grader" not in fields:
        raise ValueError("no grader: every row needs one here")
    return Task(str(name), place, fields, row.get("completion"))


MAKERS: Mapping[Format, Callable[[Row, str], Task]] = MappingProxyType(
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
        "stdio": program_rows.stdio,
        "apps": program_rows.apps,
        "taco": program_rows.apps,
        "livecodebench": program_rows.livecodebench,
        "codecontests": program_rows.codecontests,
        "humanevalx": language_rows.humanevalx,
        "mbxp": language_rows.mbxp,
        "jsonl": _jsonl,
    }
)
"""Converters of a row and its place, `file:line`. They raise KeyError, TypeError, ValueError."""
