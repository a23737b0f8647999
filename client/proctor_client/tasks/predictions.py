"""Public files of predictions: diffs by the ids of repository tasks.

| data set | file | fields |
|---|---|---|
| SWE-bench, SWE-Gym, SWE-rebench 1, SWE-smith | JSON lines, a list, or an object by id | `instance_id`, `model_patch`, `model_name_or_path` |
| SWE-bench-Live | an object by id | `model_patch` |
| SWE-bench Pro, SWE-rebench-V2 | a list | `instance_id`, `patch`, `prefix` |
| Multi-SWE | JSON lines | `org`, `repo`, `number`, `fix_patch` |
"""  # noqa: E501

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor_client.tasks.repository_fields import is_null
from proctor_client.tasks.task import DatasetError, Task

GOLD = "gold"
_IDS = ("instance_id", "task_id", "id")
_PATCHES = ("model_patch", "patch", "fix_patch", "prediction", "completion")
_MODELS = ("model_name_or_path", "prefix", "model")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Diff of a model for a task; None or blank: absent."""

    id: str
    patch: str | None
    model: str = ""

    @property
    def is_empty(self) -> bool:
        """True for a prediction without a diff; it is left unjudged."""
        return self.patch is None or not self.patch.strip()


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions in their order, a single one for a task: the last counts, as in the public harness.

    `left_out`: reasons for malformed entries.
    """

    predictions: Sequence[Prediction]
    left_out: Sequence[str] = ()

    @property
    def model(self) -> str:
        """Name of the first prediction's model."""
        return next((each.model for each in self.predictions if each.model), "model")


def gold_predictions(tasks: Sequence[Task]) -> Predictions:
    """Return the tasks' own solutions as predictions."""
    found = [
        Prediction(task.id, task.reference if isinstance(task.reference, str) else None, GOLD)
        for task in tasks
    ]
    return Predictions(found)


def read_predictions(path: Path) -> Predictions:
    """Return the predictions of a file. Raises DatasetError for an unreadable file."""
    found: dict[str, Prediction] = {}
    left_out = []
    for place, entry in _entries(path):
        try:
            prediction = prediction_of(entry)
        except ValueError as error:
            left_out.append(f"{path}:{place}: {error}")
            continue
        found.pop(prediction.id, None)
        found[prediction.id] = prediction
    return Predictions(list(found.values()), left_out)


def prediction_of(entry: Any) -> Prediction:
    """Return the prediction of an entry. Raises ValueError."""
    if not isinstance(entry, Mapping):
        raise ValueError("no object")
    patch = next((entry[name] for name in _PATCHES if not is_null(entry.get(name))), None)
    if patch is not None and not isinstance(patch, str):
        raise ValueError("its patch is no text")
    model = next((entry[name] for name in _MODELS if isinstance(entry.get(name), str)), "")
    return Prediction(_id(entry), patch, model)


def _id(entry: Mapping[str, Any]) -> str:
    name = next((entry[each] for each in _IDS if not is_null(entry.get(each))), None)
    if name is None and all(not is_null(entry.get(each)) for each in ("org", "repo", "number")):
        name = f"{entry['org']}__{entry['repo']}-{entry['number']}"
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ValueError(f"no {_IDS[0]}")
    return str(name)


def _entries(path: Path) -> Iterator[tuple[int, Any]]:
    text = _text(path)
    try:
        value = json.loads(text)
    except RecursionError:
        raise DatasetError(f"{path}: nested too deep") from None
    except ValueError:
        yield from _lines(path, text)
        return
    if isinstance(value, list):
        yield from enumerate(value, 1)
    elif isinstance(value, Mapping) and not any(name in value for name in (*_IDS, "org")):
        for number, (name, entry) in enumerate(value.items(), 1):
            fields = entry if isinstance(entry, Mapping) else {"model_patch": entry}
            yield number, {"instance_id": name, **fields}
    else:
        yield 1, value


def _lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError):
            raise DatasetError(f"{path}:{number}: not JSON") from None


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        return content.decode("utf-8")
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DatasetError(f"{path}: not UTF-8") from None
    except (EOFError, zlib.error):
        raise DatasetError(f"{path}: the compressed file is damaged or cut off") from None
