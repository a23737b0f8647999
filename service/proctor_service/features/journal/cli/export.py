"""Export of a job's evaluations, as JSON lines or Parquet, a page at a time.

Both load with `datasets.load_dataset`. This library decides the type of a column of JSON lines by the
first 10 MB, so the first rows are some in which each column has a value; then the newest come first.
Values with a shape by the grader are JSON texts. UTF-8 lacks lone surrogates: they become
U+FFFD, except in these JSON texts, which escape them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from proctor_client.wire import long_integers
from proctor_service.cli.console import plain
from proctor_service.cli.failures import Trouble
from proctor_service.features.journal.cli.recorded import Row, rows

if TYPE_CHECKING:
    from proctor_service.features.journal.reading import Reader

PAGE = 100
GROUP_ROWS = 1000
GROUP_CHARACTERS = 32_000_000
_TEXTS = (
    "id", "tenant", "job", "task", "submission_id", "rollout_id", "verdict", "error", "level",
    "integrity", "negative_control", "cache", "sandbox_id", "graded_sandbox_id", "trace_id", "version",
    "grader_kind",
)  # fmt: skip
_NUMBERS = (
    "at", "reward", "cpu_seconds", "wall_seconds", "queue_seconds", "seconds", "peak_memory_mb",
    "compile_seconds", "control_seconds",
)  # fmt: skip
_INTEGERS = ("step", "passed", "total", "exit_code")
_LISTS = ("tags", "signals")
_OF_CONDITIONS = ("language", "scoring", "environment")


def exported(reader: Reader, tenant: str | None, job: str, path: Path) -> int:
    """Write all evaluations of a job to a file; return how many. Raises Trouble.

    The file is Parquet if its name ends so, else JSON lines. The file appears when complete.
    """
    from proctor_service.features.journal.filters import Filter
    from proctor_service.features.journal.reading import parsed

    write: Callable[[IO[bytes], Iterable[Row]], int] = _write_lines
    if path.suffix == ".parquet":
        check_parquet()
        write = _write_parquet
    wanted = Filter(job=job)
    first = reader.with_values(tenant, wanted)
    if not first:
        raise Trouble(f"the journal has no evaluations of the job {plain(job, 60)}")
    first_numbers = {row["number"] for row in first}
    others = (
        row
        for row in rows(reader.whole_evaluations, tenant, wanted, page=PAGE)
        if row["number"] not in first_numbers
    )
    with replaced(path) as file:
        return write(file, (exported_row(parsed(row)) for row in chain(first, others)))


def exported_row(row: Row) -> Row:
    """Return the row of an export for an evaluation (`Reader.evaluation`, `parsed`)."""
    conditions, output = row["conditions"] or {}, row["output"] or {}
    message, rule = output.get("message"), conditions.get("extract")
    values: Row = {
        **{name: row[name] for name in (*_TEXTS, *_NUMBERS, *_INTEGERS, *_LISTS)},
        "completion": row["completion_text"],
        "source": row["source"],
        **{name: conditions.get(name) for name in _OF_CONDITIONS},
        "extract": rule if isinstance(rule, str) else _json(rule),
        "message": message if row["error"] is None else None,
        "error_message": None if row["error"] is None else message,
        "stdout": output.get("stdout"),
        "stderr": output.get("stderr"),
        "truncated": row["truncated"],
        "with_state": bool(conditions.get("with_state")),
        **{name: _json(row[name]) for name in ("grader", "files", "failures", "prompt")},
        "limits": _json(conditions.get("limits")),
    }
    return {name: _unicode(value) for name, value in values.items()}


def check_parquet() -> None:
    """Raise Trouble, with the name of the extra, if pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise Trouble(
            "Parquet needs pyarrow: python -m pip install 'proctor-service[parquet]'"
        ) from None


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Return a file which takes the place of `path` when the block ends without an error.

    Only its owner may read it, as the journal. Raises Trouble.
    """
    if path.exists() and not path.is_file():
        raise Trouble(f"{path}: it is no file")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
            try:
                yield file
                file.close()
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None


def _write_lines(file: IO[bytes], found: Iterable[Row]) -> int:
    count = 0
    for row in found:
        file.write(long_integers.dumps(row).encode() + b"\n")
        count += 1
    return count


def _write_parquet(file: IO[bytes], found: Iterable[Row]) -> int:
    import pyarrow
    import pyarrow.parquet

    types = {
        **dict.fromkeys(_NUMBERS, pyarrow.float64()),
        **dict.fromkeys(_INTEGERS, pyarrow.int64()),
        **dict.fromkeys(_LISTS, pyarrow.list_(pyarrow.string())),
        **dict.fromkeys(("truncated", "with_state"), pyarrow.bool_()),
    }
    count, writer = 0, None
    try:
        for group in _groups(found):
            if writer is None:
                fields = [(name, types.get(name, pyarrow.string())) for name in group[0]]
                schema = pyarrow.schema(fields)
                writer = pyarrow.parquet.ParquetWriter(file, schema, compression="zstd")
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
            count += len(group)
    finally:
        if writer is not None:
            writer.close()
    return count


def _groups(found: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in groups within bounds of number and characters."""
    group: list[Row] = []
    characters = 0
    for row in found:
        group.append(row)
        characters += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(group) == GROUP_ROWS or characters > GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _json(value: object) -> str | None:
    return None if value is None else long_integers.dumps(value)


def _unicode(value: Any) -> Any:
    """Return the value with U+FFFD in place of lone surrogates."""
    if isinstance(value, list):
        return [_unicode(each) for each in value]
    if isinstance(value, Mapping) or not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
