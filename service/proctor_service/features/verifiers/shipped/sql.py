"""Verifier `sql`: the completion's query returns the rows of the right query, in SQLite.

The query is the last fenced block (```) of the completion, of those with the tag `sql` if there are
any, or else the completion as a whole. It may read
and nothing else: an authorizer refuses each other operation, databases of files are opened read-only,
and a handler of SQLite bounds the CPU time.

`spider` follows the evaluator of Spider's test suites: columns in any order, duplicate rows count, the
order of rows counts where the right query has an ORDER BY, and DISTINCT is taken out of both queries.
`bird` follows the evaluator of BIRD: the same set of rows.
"""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

Row = tuple[Any, ...]

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*(\w*)[ \t]*\r?\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Matches "```sql\\nSELECT 1\\n```", also without its end."""
_TOKENS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|\w+|.", re.DOTALL
)
"""Matches tokens of SQL: `'it''s'`, `"a b"`, `-- note`, `distinct`."""
_SPACED = re.compile(r"([<>!]) =")  # "a > = 3"
_THIS_YEAR = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*", re.IGNORECASE)
"""Matches `YEAR(CURDATE())`, which SQLite lacks."""
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_REFUSED_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
)
_STEPS = 1000
"""Instructions of SQLite between two looks at the time."""
_LONGEST_VALUE_BYTES = 16 << 20
_MOST_ROWS = 1_000_000
_CLOSE = 1e-9


class InvalidTask(Exception):
    """The parameters of the task are wrong, whatever the completion."""


class Table(NamedTuple):
    """Rows of the right query."""

    columns: int
    rows: list[Row]


class WrongQuery(Exception):
    """The query of the completion fails, or takes too long."""


def verify(completion: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the score 1.0 for equal rows in each database."""
    query, gold = query_of(completion), params["gold"]
    if not query:
        return {"score": 0.0, "message": "the completion has no query"}
    compare = params["compare"]
    if compare == "spider":
        query, gold = _as_spider(query), _as_spider(gold)
    for database in _databases(params):
        with closing(_opened(database, params)) as connection:
            try:
                columns, right = _run(connection, gold, params["seconds"])
                expected = Table(columns, list(right))
            except WrongQuery as error:
                raise InvalidTask(f"params.gold: {error}") from None
            try:
                columns, found = _run(connection, query, params["seconds"])
                if not _is_same(columns, found, expected, gold, params):
                    return {"score": 0.0, "message": "other rows than those of the right query"}
            except WrongQuery as error:
                return {"score": 0.0, "message": f"the query fails: {error}"}
    return {"score": 1.0}


def query_of(completion: str) -> str:
    """Return the query in a completion."""
    blocks = [(match[2].lower(), match[3]) for match in _FENCE.finditer(completion)]
    tagged = [text for tag, text in blocks if tag in ("sql", "sqlite")]
    texts = tagged or [text for _, text in blocks] or [completion]
    return texts[-1].strip().rstrip(";").rstrip()


# ---------------------------------------------------------------- databases


def _databases(params: dict[str, Any]) -> Sequence[str | None]:
    """Return the paths of the databases; None: the one of `setup`. Raises InvalidTask."""
    database, setup = params.get("database"), params.get("setup")
    if (database is None) == (setup is None):
        raise InvalidTask("params: either a database or a setup")
    if database is None:
        return [None]
    paths = [database] if isinstance(database, str) else database
    if not paths:
        raise InvalidTask("params.database: an empty list")
    for path in paths:
        if not isinstance(path, str) or not path.startswith("/"):
            raise InvalidTask(f"params.database: {path!r} is no absolute path")
    return list(paths)


def _opened(path: str | None, params: dict[str, Any]) -> sqlite3.Connection:
    """Return a connection that can only read. Raises InvalidTask."""
    with ExitStack() as on_failure:
        try:
            connection = sqlite3.connect(_address(path), uri=True, isolation_level=None)
            on_failure.callback(connection.close)
            if path is None:
                _bound(connection, params["seconds"])
                connection.executescript(params["setup"])
            connection.text_factory = lambda data: data.decode(errors="ignore")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        except (sqlite3.Error, ValueError) as error:  # ValueError: a zero byte in the path
            if path is None:
                raise InvalidTask(f"params.setup: {error}") from None
            hint = "`paths` of the verifier's environment show it folders"
            raise InvalidTask(f"params.database: {path!r}: {error}; {hint}") from None
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(_authorized)
        on_failure.pop_all()
    return connection


def _address(path: str | None) -> str:
    """Return the URI of a database on disk, or of one in memory (https://sqlite.org/uri.html)."""
    if path is None:
        return ":memory:"
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode=ro&immutable=1"


def _authorized(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow reading, and functions that reach no file."""
    if action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _bound(connection: sqlite3.Connection, seconds: float) -> float:
    """Bound the CPU time of what follows; return its end, by the clock of this process."""
    ends_at = time.process_time() + seconds
    connection.set_progress_handler(lambda: time.process_time() > ends_at, _STEPS)
    return ends_at


def _run(connection: sqlite3.Connection, query: str, seconds: float) -> tuple[int, Iterator[Row]]:
    """Start a query, and return the number of its columns and its rows. Raises WrongQuery, the rows too."""
    ends_at = _bound(connection, seconds)
    with _explained(ends_at):
        cursor = connection.execute(query)
    if cursor.description is None:
        raise WrongQuery("no query")
    return len(cursor.description), _fetched(cursor, ends_at)


def _fetched(cursor: sqlite3.Cursor, ends_at: float) -> Iterator[Row]:
    for count in range(_MOST_ROWS + 1):
        with _explained(ends_at):
            row = cursor.fetchone()
        if row is None:
            return
        if count == _MOST_ROWS:
            raise WrongQuery(f"more than {_MOST_ROWS} rows")
        yield row


@contextmanager
def _explained(ends_at: float) -> Iterator[None]:
    """Turn errors of a query into WrongQuery."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError, OverflowError) as error:
        is_late = time.process_time() > ends_at
        raise WrongQuery("its CPU time is over" if is_late else f"{error}"[:300]) from None


# ---------------------------------------------------------------- comparisons


def _is_same(
    columns: int, found: Iterator[Row], right: Table, gold: str, params: dict[str, Any]
) -> bool:
    """Compare the rows of a query with the right ones. Raises WrongQuery."""
    compare = params["compare"]
    if compare == "bird":
        return _is_same_set(found, right.rows)
    rows = _as_many(found, len(right.rows))
    if rows is None:
        return False
    if compare == "spider":
        return _is_same_but_for_columns(rows, right.rows, in_order="order by" in gold.lower())
    return columns == right.columns and _are_close(rows, right.rows, ordered=params["ordered"])


def _as_many(found: Iterator[Row], count: int) -> list[Row] | None:
    """Return as many rows; None for more or fewer."""
    rows: list[Row] = []
    for row in found:
        if len(rows) == count:
            return None
        rows.append(row)
    return rows if len(rows) == count else None


def _is_same_set(found: Iterable[Row], right: list[Row]) -> bool:
    wanted, seen = set(right), set()
    for row in found:
        if row not in wanted:
            return False
        seen.add(row)
    return len(seen) == len(wanted)


def _is_same_but_for_columns(found: list[Row], right: list[Row], *, in_order: bool) -> bool:
    """Tell whether some order of the columns of `found` makes equal rows."""
    if not right:
        return True
    theirs, ours = list(zip(*found, strict=True)), list(zip(*right, strict=True))
    if len(theirs) != len(ours):
        return False
    if in_order:
        return Counter(theirs) == Counter(ours)
    bags = [Counter(column) for column in theirs]
    choices = [
        [place for place, bag in enumerate(bags) if bag == Counter(column)] for column in ours
    ]
    return _matches(ours, theirs, choices, [])


def _matches(
    ours: list[Row], theirs: list[Row], choices: list[list[int]], taken: list[int]
) -> bool:
    """Assign the columns one by one, as long as the rows of those assigned are the same bag."""
    if len(taken) == len(ours):
        return True
    wanted = Counter(zip(*ours[: len(taken) + 1], strict=True))
    tried: set[Row] = set()
    for place in choices[len(taken)]:
        if place in taken or theirs[place] in tried:
            continue
        tried.add(theirs[place])
        order = [*taken, place]
        rows = Counter(zip(*(theirs[each] for each in order), strict=True))
        if rows == wanted and _matches(ours, theirs, choices, order):
            return True
    return False


def _are_close(found: list[Row], right: list[Row], *, ordered: bool) -> bool:
    if not ordered:
        found, right = sorted(found, key=_sort_key), sorted(right, key=_sort_key)
    pairs = zip(found, right, strict=True)
    return all(all(map(_is_close, *rows)) for rows in pairs)


def _sort_key(row: Row) -> list[tuple[int, Any]]:
    """Sort equal rows to equal places: numbers by seven digits, as a sum may differ in its last ones."""
    return [_comparable(value) for value in row]


def _comparable(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, float(f"{value:.7g}")
    return (2, value) if isinstance(value, str) else (3, value)


def _is_close(found: Any, right: Any) -> bool:
    """Compare two values: NULL equals NULL alone, and a number with a fraction may be off by 1e-9 of it."""
    if isinstance(found, int | float) and isinstance(right, int | float):
        has_fraction = isinstance(found, float) or isinstance(right, float)
        return found == right or (has_fraction and math.isclose(found, right, rel_tol=_CLOSE))
    return type(found) is type(right) and bool(found == right)


# ---------------------------------------------------------------- Spider's texts


def _as_spider(query: str) -> str:
    """Return a query without DISTINCT, and with what Spider's evaluator replaces."""
    query = _SPACED.sub(r"\1=", query)
    tokens = (token for token in _TOKENS.findall(query) if token.lower() != "distinct")
    return _THIS_YEAR.sub("2020", "".join(tokens))
