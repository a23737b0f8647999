"""The verifier `sql`: equal rows by three rules, and queries that do more than read."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from proctor_service.features.verifiers.shipped import sql

SETUP = """
CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, country TEXT, fee REAL);
INSERT INTO singer VALUES (1, 'Ann', 30, 'FR', 0.1), (2, 'Bob', 25, 'US', 0.2), (3, 'Cid', 30, 'FR', 0.7),
  (4, 'Dee', NULL, 'US', NULL), (5, 'Eve', 41, 'NL', 1.0);
CREATE TABLE song (singer INTEGER, title TEXT, year INTEGER);
INSERT INTO song VALUES (1, 'one', 2020), (1, 'two', 2021), (3, 'six', 2020), (3, 'six', 2020);
CREATE TABLE empty (a INTEGER);
"""
RULES = ("rows", "spider", "bird")
# what is compared, the right query, the completion, and by which of the rules they are equal. The evaluators
# of Spider and of BIRD say the same, but for the pairs of OTHERWISE.
PAIRS = (
    ("equal", "SELECT name FROM singer", "SELECT name FROM singer", "rows spider bird"),
    (
        "another spelling",
        "SELECT name FROM singer WHERE age > 28",
        "select s.name from singer as s where not s.age <= 28",
        "rows spider bird",
    ),
    ("another column", "SELECT name FROM singer", "SELECT country FROM singer", ""),
    ("a row less", "SELECT name FROM singer", "SELECT name FROM singer LIMIT 4", ""),
    (
        "other order, none asked",
        "SELECT name FROM singer",
        "SELECT name FROM singer ORDER BY name DESC",
        "rows spider bird",
    ),
    (
        "other order, one asked",
        "SELECT name FROM singer ORDER BY name",
        "SELECT name FROM singer ORDER BY name DESC",
        "rows bird",
    ),
    (
        "the order asked",
        "SELECT name FROM singer ORDER BY id",
        "SELECT name FROM singer ORDER BY name",
        "rows spider bird",
    ),
    (
        "duplicates in place of none",
        "SELECT DISTINCT title FROM song",
        "SELECT title FROM song",
        "spider bird",
    ),
    (
        "none in place of duplicates",
        "SELECT title FROM song",
        "SELECT DISTINCT title FROM song",
        "spider bird",
    ),
    (
        "duplicates by a join",
        "SELECT name FROM singer WHERE id IN (SELECT singer FROM song)",
        "SELECT name FROM singer JOIN song ON id = singer",
        "bird",
    ),
    (
        "as many duplicates of others",
        "SELECT title FROM song",
        "SELECT title FROM song WHERE year = 2020 UNION ALL SELECT 'two'",
        "rows spider bird",
    ),
    (
        "DISTINCT in an aggregate",
        "SELECT count(DISTINCT title) FROM song",
        "SELECT count(title) FROM song",
        "spider",
    ),
    (
        "columns changed over",
        "SELECT name, age FROM singer",
        "SELECT age, name FROM singer",
        "spider",
    ),
    (
        "columns changed over, in order",
        "SELECT name, age FROM singer ORDER BY id",
        "SELECT age, name FROM singer ORDER BY id",
        "spider",
    ),
    (
        "columns of several rows mixed",
        "SELECT 1, 2 UNION ALL SELECT 2, 1",
        "SELECT 1, 1 UNION ALL SELECT 2, 2",
        "",
    ),
    ("a column more", "SELECT name FROM singer", "SELECT name, age FROM singer", ""),
    ("a column twice", "SELECT name, name FROM singer", "SELECT name, country FROM singer", ""),
    (
        "aliases",
        "SELECT count(*) FROM singer",
        "SELECT count(id) AS how_many FROM singer AS s",
        "rows spider bird",
    ),
    ("NULL is NULL", "SELECT age FROM singer", "SELECT age + 0 FROM singer", "rows spider bird"),
    ("NULL is not 0", "SELECT age FROM singer", "SELECT coalesce(age, 0) FROM singer", ""),
    ("NULL is not ''", "SELECT NULL", "SELECT ''", ""),
    ("1 is 1.0", "SELECT 1", "SELECT 1.0", "rows spider bird"),
    ("1 is not '1'", "SELECT 1", "SELECT '1'", ""),
    ("a text is not a blob", "SELECT 'a'", "SELECT x'61'", ""),
    ("the last digit of a sum", "SELECT 0.1 + 0.2", "SELECT 0.3", "rows"),
    ("a sum of other terms", "SELECT 0.1 + 0.2 + 0.3", "SELECT 0.3 + 0.2 + 0.1", "rows"),
    ("a rounded number", "SELECT 2.0 / 3", "SELECT round(2.0 / 3, 4)", ""),
    ("a quotient of integers", "SELECT 7 / 2", "SELECT 7 / 2.0", ""),
    ("upper case of a value", "SELECT 'a'", "SELECT 'A'", ""),
    ("no rows", "SELECT a FROM empty", "SELECT name FROM singer WHERE 0", "rows spider bird"),
    (
        "no rows of more columns",
        "SELECT a FROM empty",
        "SELECT name, age FROM singer WHERE 0",
        "spider bird",
    ),
    ("no rows in place of some", "SELECT name FROM singer", "SELECT name FROM singer WHERE 0", ""),
    ("a mistake", "SELECT name FROM singer", "SELECT nam FROM singer", ""),
    ("no SQL", "SELECT name FROM singer", "I do not know", ""),
    ("two queries", "SELECT 1", "SELECT 1; SELECT 1", ""),
    ("a semicolon", "SELECT 1", "SELECT 1 ; ", "rows spider bird"),
    (
        "spaces in operators",
        "SELECT name FROM singer WHERE age >= 30",
        "SELECT name FROM singer WHERE age > = 30",
        "spider",
    ),
    ("constants", "SELECT count(*) FROM singer", "SELECT 5", "rows spider bird"),
    (
        "rows with equal columns",
        "SELECT id, age, id FROM singer",
        "SELECT age, id, id FROM singer",
        "spider",
    ),
    ("an integer and a fraction of one size", "SELECT 1, 15", "SELECT 1.0, 15", "rows spider bird"),
    (
        "MySQL's year",
        "SELECT 2020 - year FROM song",
        "SELECT YEAR(CURDATE()) - year FROM song",
        "spider",
    ),
    ("infinity", "SELECT 9e999", "SELECT 1e300", ""),
)
# Pair and rule, and why another result is right here.
OTHERWISE = {
    ("two queries", "spider"): "its evaluator reads the first one alone",
    (
        "an integer and a fraction of one size",
        "spider",
    ): "its evaluator sorts a row by text, 1 and 1.0 apart",
}


def score(completion: str, gold: str, **params: Any) -> float:
    given = {"compare": "rows", "ordered": False, "seconds": 2, **params}
    if "database" not in given:
        given.setdefault("setup", SETUP)
    found: float = sql.verify(completion, {"gold": gold, **given})["score"]
    return found


def test_rows_are_compared_as_the_evaluators_do() -> None:
    found = {
        name: " ".join(rule for rule in RULES if score(completion, gold, compare=rule) == 1.0)
        for name, gold, completion, _ in PAIRS
    }
    assert found == {name: rules for name, _, _, rules in PAIRS}
    assert {name for name, _ in OTHERWISE} <= found.keys()


def test_the_order_of_rows_counts_where_the_task_says_so() -> None:
    gold, changed = (
        "SELECT name FROM singer ORDER BY id",
        "SELECT name FROM singer ORDER BY id DESC",
    )
    assert score(changed, gold) == 1.0
    assert score(changed, gold, ordered=True) == 0.0
    assert score(gold, gold, ordered=True) == 1.0


QUERIES = {
    "```sql\nSELECT 1\n```": "SELECT 1",
    "So:\n```sql\nSELECT 1;\n```\nIt prints:\n```\n1\n```\n": "SELECT 1",
    "```\nSELECT 2\n```\n```\nSELECT 1\n```": "SELECT 1",
    "```SQL\nSELECT 1": "SELECT 1",
    " SELECT 1 ;; ": "SELECT 1",
    "```sql\n```": "",
}


def test_the_query_is_the_last_fenced_block_or_the_whole_text() -> None:
    assert {text: sql.query_of(text) for text in QUERIES} == QUERIES


ENDLESS = "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t) SELECT "
WRITES = (
    "INSERT INTO singer VALUES (9, 'Zoe', 1, 'FR', 1)",
    "UPDATE singer SET age = 1",
    "DELETE FROM singer",
    "DROP TABLE song",
    "CREATE TABLE t (a)",
    "CREATE TEMP VIEW v AS SELECT 1",
    "REPLACE INTO singer VALUES (1, 'Zoe', 1, 'FR', 1)",
    "VACUUM INTO '{folder}/copy.sqlite'",
    "ATTACH DATABASE '{folder}/other.sqlite' AS other",
    "ATTACH DATABASE '{folder}/secret.sqlite' AS secret",
    "DETACH DATABASE main",
    "PRAGMA writable_schema = ON",
    "PRAGMA journal_mode = WAL",
    "PRAGMA user_version = 7",
    "PRAGMA query_only = OFF",
    "SELECT * FROM pragma_table_info('singer')",
    "BEGIN IMMEDIATE",
    "REINDEX",
    "ANALYZE",
    "WITH t AS (SELECT 1) DELETE FROM singer",
    "SELECT load_extension('{folder}/evil.so')",
    "SELECT writefile('{folder}/written', 'x')",
    "SELECT readfile('{folder}/secret.sqlite')",
    "SELECT edit('x', 'sh')",
    "SELECT fts3_tokenizer('simple', x'00')",
    "SELECT name FROM secret.sqlite_master",
    "EXPLAIN SELECT count(*) FROM singer",
    "SELECT 5; DELETE FROM singer",
    "-- nothing",
    ENDLESS + "count(*) FROM t",
    ENDLESS + "5 FROM t",
    "SELECT length(group_concat(hex(zeroblob(10000000)))) FROM singer, singer, singer",
)
"""None of these is the answer of `SELECT count(*) FROM singer`."""


def test_a_query_reads_and_nothing_else(tmp_path: Path) -> None:
    for name in ("data", "secret"):
        with sqlite3.connect(tmp_path / f"{name}.sqlite") as connection:
            connection.executescript(SETUP)
        connection.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    gold, params = (
        "SELECT count(*) FROM singer",
        {"database": str(tmp_path / "data.sqlite"), "seconds": 0.3},
    )
    accepted = []
    for compare in ("rows", "bird"):
        for each in WRITES:
            query = each.format(folder=tmp_path)
            if score(query, gold, compare=compare, **params):
                accepted.append((compare, query))
    assert accepted == []
    assert score("SELECT 5", gold, **params) == 1.0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_setup_stays_as_it_is() -> None:
    gold = "SELECT count(*) FROM singer"
    assert not any(score(each, gold, seconds=0.3) for each in WRITES if "{" not in each)


def test_a_query_must_be_right_in_each_database(tmp_path: Path) -> None:
    paths = []
    for count in (1, 2):
        path = tmp_path / f"{count} ?#%.sqlite"
        connection = sqlite3.connect(path)
        connection.executescript("CREATE TABLE t (a);" + "INSERT INTO t VALUES (1);" * count)
        connection.close()
        paths.append(str(path))
    gold = "SELECT count(*) FROM t"
    assert score("SELECT 1", gold, database=paths[0]) == 1.0
    assert score("SELECT 1", gold, database=paths) == 0.0
    assert score("SELECT sum(a) FROM t", gold, database=paths) == 1.0


def test_columns_are_matched_within_a_bound() -> None:
    columns = ", ".join(f"abs(random() % 2) AS c{place}" for place in range(12))
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300)"
    setup = f"CREATE TABLE t AS {numbers} SELECT {columns} FROM n"
    swapped = ", ".join(f"c{place}" for place in reversed(range(12)))
    params: dict[str, Any] = {"setup": setup, "compare": "spider"}
    assert score(f"SELECT {swapped} FROM t", "SELECT * FROM t", **params) == 1.0
    assert score(f"SELECT 1{', 1' * 29}", f"SELECT 1{', 1' * 29}", compare="spider") == 1.0


BROKEN = (
    {"gold": "SELECT nothing"},
    {"gold": "DELETE FROM singer"},
    {"gold": ENDLESS + "count(*) FROM t"},
    {"gold": "SELECT 1", "setup": "CREATE"},
    {"gold": "SELECT 1", "setup": f"CREATE TABLE x AS {ENDLESS} count(*) FROM t;"},
    {"gold": "SELECT 1", "setup": "SELECT 1", "database": "/x"},
    {"gold": "SELECT 1", "database": "/no/such.sqlite"},
    {"gold": "SELECT 1", "database": "/zero\0byte.sqlite"},
    {"gold": "SELECT 1", "database": "relative.sqlite"},
    {"gold": "SELECT 1", "database": []},
    {"gold": "SELECT 1", "database": __file__},
)


@pytest.mark.parametrize("params", BROKEN, ids=lambda params: str(params)[:60])
def test_a_broken_task_is_no_reward_of_0(params: dict[str, Any]) -> None:
    with pytest.raises(sql.InvalidTask):
        score("SELECT 1", seconds=0.2, **params)
