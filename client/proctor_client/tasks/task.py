"""Problems of a data set, and how a completion becomes the program that is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Completion = str | list[dict[str, Any]]


class DatasetError(ValueError):
    """Raised for an unreadable file and for an unusable row; the message names the row."""


@dataclass(frozen=True, slots=True)
class Task:
    """Problem. `fields`: the fields of a wire.Submission that judge a completion.

    `text` is what a policy reads; None where the row has none, or where the program is assembled
    from an answer that is no program (CRUXEval).
    """

    id: str
    place: str
    fields: Mapping[str, Any]
    reference: Completion | None = None
    stub: Stub | Imports | Method | Answer | Beginning | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Stub:
    """HumanEval's prompt: a Python function that ends after its docstring."""

    prompt: str
    entry_point: str


@dataclass(frozen=True, slots=True)
class Imports:
    """Statements of a problem, which come before the program of a completion."""

    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """Function that the tests call, as a method of `class Solution` or alone.

    A completion may have either. `imports`: as in Imports.
    """

    name: str
    in_class: bool
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Python expression in place of a program: the value of a call, or the arguments of one.

    `function`: the name that an answer with arguments may call. `code`: what the answer's names mean.
    """

    of_arguments: bool
    function: str = "f"
    code: str = ""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Prompt in another language: a function that ends after its first line.

    `entry_point`: the function's name. `definition`: what its definition in a whole program looks
    like. `enclosing`: the line that opens the class around the function, or an empty text.
    `imports`: lines of the prompt that a whole program may lack. `ending`: what closes the program.
    """

    prompt: str
    entry_point: str
    definition: re.Pattern[str]
    enclosing: str = ""
    imports: tuple[str, ...] = ()
    ending: str = ""
