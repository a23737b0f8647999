"""Training problems: a few toy problems, MBPP, or a file of your own.

A problem consists of a text and of columns that define the judging of an answer. The prompt shows
the first test, because the test shows the required names. The other tests stay hidden; otherwise
the policy would learn to print their answers.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO, cast

from proctor_client.datasets.columns import GRADER, SETUP, TESTS, BadTask, task_from_columns
from proctor_trainers.extras import require

HUB_NAMES = {"mbpp": "google-research-datasets/mbpp"}
ANSWER = (
    "You are an expert Python programmer. Think briefly, then write the whole program between "
    "<answer> and </answer>."
)
_TEXTS = ("text", "prompt", "question")
_KEPT = (GRADER, *TESTS, *SETUP, "test_imports", "entry_point")


TOYS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "Write a function that doubles a number.": (
            "assert double(2) == 4",
            "assert double(-3) == -6",
        ),
        "Write a function that adds two numbers.": (
            "assert add(2, 3) == 5",
            "assert add(-1, 1) == 0",
        ),
        "Write a function for the largest number of a list.": (
            "assert largest([1, 7, 3]) == 7",
            "assert largest([-2]) == -2",
        ),
        "Write a function that tells whether a number is even.": (
            "assert is_even(4) == True",
            "assert is_even(7) == False",
        ),
        "Write a function that reverses a text.": (
            "assert reverse('abc') == 'cba'",
            "assert reverse('') == ''",
        ),
        "Write a function for the factorial of a number.": (
            "assert factorial(5) == 120",
            "assert factorial(0) == 1",
        ),
        "Write a function that counts the vowels of a word.": (
            "assert vowels('banana') == 3",
            "assert vowels('sky') == 0",
        ),
        "Write a function for the sorted distinct numbers of a list.": (
            "assert unique([3, 1, 3]) == [1, 3]",
            "assert unique([]) == []",
        ),
    }
)


class DatasetError(ValueError):
    """Raised for unavailable problems, and for an unusable row; the message names the row."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The text of a problem, and the columns that define the judging of an answer."""

    id: str
    text: str
    columns: Mapping[str, Any]

    @property
    def grader(self) -> Mapping[str, Any]:
        """The service's grader for this problem."""
        grader: Mapping[str, Any] = task_from_columns(self.columns)["grader"]
        return grader

    def messages(self, system: str | None = ANSWER) -> list[dict[str, str]]:
        """Return the prompt as chat messages."""
        asked = {"role": "user", "content": self.text}
        return [asked] if system is None else [{"role": "system", "content": system}, asked]

    def row(self, system: str | None = ANSWER) -> dict[str, Any]:
        """Return a data set row for a trainer: `prompt`, `task_id`, and the judging columns."""
        return {"prompt": self.messages(system), "task_id": self.id, **self.columns}


def load_problems(
    name: str, *, split: str = "train", limit: int | None = None, extra: str = "trl"
) -> list[Problem]:
    """Load problems from `toy`, `mbpp`, a file of JSON lines (also .gz), or a data set of the hub.

    A row of a file has a `text` (or `prompt`, `question`) and the columns known to
    task_from_columns, for example in MBPP's form. `extra` names the package extra with `datasets`,
    which the hub requires. Raises DatasetError and MissingExtra.
    """
    if limit is not None and limit < 1:
        raise DatasetError("the limit must be 1 or more")
    if name == "toy":
        rows: Iterable[tuple[str, Mapping[str, Any]]] = _toys()
    elif Path(name).is_file():
        rows = _rows_of_file(Path(name))
    elif name.endswith((".json", ".jsonl", ".gz")):
        raise DatasetError(f"{name}: no such file")
    else:
        rows = _rows_of_hub(HUB_NAMES.get(name, name), split, extra)
    problems = [_problem(place, row) for place, row in islice(rows, limit)]
    if not problems:
        raise DatasetError(f"{name}: no rows")
    return problems


def _problem(place: str, row: Mapping[str, Any]) -> Problem:
    text = next((row[key] for key in _TEXTS if isinstance(row.get(key), str)), None)
    if not text:
        raise DatasetError(f"{place}: no text: one of {', '.join(_TEXTS)} is needed")
    columns = {key: row[key] for key in _KEPT if row.get(key)}
    if isinstance(columns.get(GRADER), Mapping):
        # As text, because a table would give every grader the fields of all graders.
        columns[GRADER] = json.dumps(columns[GRADER])
    try:
        grader = task_from_columns(columns)["grader"]
    except (ValueError, BadTask) as error:
        raise DatasetError(f"{place}: {error}") from None
    shown = f"\n\nIt must pass tests such as:\n{grader['tests'][0]}" if "tests" in grader else ""
    return Problem(str(row.get("task_id", place)), text.strip() + shown, columns)


def _rows_of_file(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    number = 0
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise DatasetError(f"{path}:{number}: not a JSON object")
                    yield f"{path}:{number}", row
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from None
    except (EOFError, UnicodeDecodeError):
        raise DatasetError(f"{path}:{number + 1}: damaged, or not UTF-8") from None
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path}:{number}: not JSON: {error.msg}") from None


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")


def _rows_of_hub(name: str, split: str, extra: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    require(extra, "datasets")
    import datasets

    try:
        loaded = datasets.load_dataset(name, split=split)
    except Exception as error:  # includes any error of its file systems
        raise DatasetError(
            f"the data set {name} ({split}) could not be loaded: {error}\n"
            "give a local file with --dataset PATH"
        ) from None
    for number, row in enumerate(loaded):
        yield f"{name}:{number}", row


def _toys() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for text, tests in TOYS.items():
        yield (
            tests[0],
            {"task_id": tests[0].split("(")[0].split()[-1], "text": text, "tests": tests},
        )
