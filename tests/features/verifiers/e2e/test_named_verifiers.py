"""Verifiers by name in a real service: the ready ones, attacks on each, and one of the operator."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import Service, running_service
from judging import ask, judge
from visible_folder import visible_folder, visible_python

from proctor_client import Client
from proctor_service.settings import Settings

pytest.importorskip("math_verify", reason="math-verify is not installed")

SETUP = "CREATE TABLE singer (name TEXT, age INTEGER); INSERT INTO singer VALUES ('Ann', 30), ('Bob', 25);"
ENDLESS = "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a FROM t) SELECT a FROM t"
WORDS = """
def verify(completion, params):
    return min(1.0, len(completion.split()) / params["count"])
"""


@dataclass(frozen=True)
class World:
    """A service with environments and a folder of verifiers. `database`: a file that sandboxes see."""

    service: Service
    verifiers: Path
    database: Path


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with visible_folder() as folder, visible_python() as python:
        (folder / "data").mkdir()
        database = folder / "data" / "singers.sqlite"
        connection = sqlite3.connect(database)
        connection.executescript(SETUP)
        connection.close()
        environments = folder / "environments.toml"
        environments.write_text(
            f'[environments.math]\npython = "{python}"\npreload = ["math_verify"]\n'
            f'[environments.json_schema]\npython = "{python}"\npreload = ["jsonschema"]\n'
            f'[environments.data]\npaths = ["{folder}/data"]\n'
        )
        verifiers = folder / "verifiers"
        verifiers.mkdir()
        (verifiers / "words.toml").write_text(
            "description = 'Share of the words.'\nfile = 'words.py'\n"
            "[params.count]\ntype = 'integer'\ndefault = 4\n"
        )
        (verifiers / "words.py").write_text(WORDS)
        settings = Settings(
            workers=0,
            environments=environments,
            environments_folder=folder / "store",
            verifiers=verifiers,
        )
        with running_service(settings, judge=None) as service:
            yield World(service, verifiers, database)


def named(name: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "verifier", "name": name, "params": params, **more}


def scores(
    world: World, grader: dict[str, Any], *completions: str, **more: Any
) -> list[float | None]:
    items = [{"completion": each, "grader": grader, **more} for each in completions]
    return [each["reward"] for each in judge(world.service, *items)]


def test_the_list_has_all_with_their_parameters(world: World) -> None:
    with Client(world.service.url) as client:
        listed = {each.name: each for each in client.verifiers().verifiers}
    assert list(listed) == ["exact", "json_schema", "math", "regex", "sql", "words"]
    assert all(each.available and each.reason is None for each in listed.values())
    assert listed["words"].params["count"].model_dump() == {
        "types": ["integer"],
        "required": False,
        "default": 4,
        "choices": [],
        "description": "",
    }
    limits = listed["math"].limits
    assert limits is not None
    assert (listed["math"].environment, limits.memory_mb) == ("math", 1024)
    assert listed["sql"].params["compare"].choices == ["rows", "spider", "bird"]


def test_a_service_without_the_environment_says_what_to_do(service: Service) -> None:
    with Client(service.url) as client:
        listed = {each.name: each for each in client.verifiers().verifiers}
    reason = "define it in PROCTOR_ENVIRONMENTS, as in docs/named-verifiers.md, and run proctor env build"
    assert not listed["math"].available
    assert str(listed["math"].reason).endswith(reason)
    body = {"grader": named("math", {"answer": "1"}), "submissions": [{"completion": "1"}]}
    with service.client() as http:
        response = http.post("/reward", json=body)
    assert response.status_code == 422
    assert response.json()["error"]["message"].startswith("grader.name: the verifier math needs")


# verifier, parameters, and completions with their rewards
JUDGED: tuple[tuple[str, dict[str, Any], dict[str, float]], ...] = (
    ("exact", {"answer": "yes"}, {" yes\n": 1, "no": 0}),
    ("regex", {"pattern": r"\d+", "after": "####"}, {"so #### 42": 1, "so 42": 0}),
    (
        "json_schema",
        {"schema": {"type": "object", "required": ["x"]}},
        {'{"x": 1}': 1, '```json\n{"x": 1}\n```': 1, '{"y": 1}': 0, "x": 0},
    ),
    (
        "math",
        {"answer": r"\frac{3}{4}"},
        {r"so \boxed{0.75}": 1, "#### 6/8": 1, r"The answer is $\frac34$.": 1, r"\boxed{\frac{4}{3}}": 0},
    ),
    ("math", {"answer": "9 - 4 = 5\n#### 5"}, {"#### 5": 1, r"\boxed{x = 5}": 1, "#### 6": 0}),
    ("math", {"answer": r"(1,3)\cup(5,7)"}, {r"\boxed{(5,7) \cup (1,3)}": 1, r"\boxed{(1,7)}": 0}),
    (
        "sql",
        {"gold": "SELECT name FROM singer WHERE age > 26", "setup": SETUP},
        {"```sql\nSELECT name FROM singer WHERE age = 30;\n```": 1, "SELECT name FROM singer": 0},
    ),
    ("words", {}, {"one two three four": 1, "one": 0.25}),
    ("words", {"count": 2}, {"one": 0.5}),
)  # fmt: skip


def test_each_judges_completions(world: World) -> None:
    items = [
        ({"completion": completion, "grader": named(name, params)}, reward)
        for name, params, completions in JUDGED
        for completion, reward in completions.items()
    ]
    results = judge(world.service, *[item for item, _ in items])
    found = [(each["reward"], each["error"], each["integrity"]) for each in results]
    assert found == [(reward, None, "separated") for _, reward in items]


def test_a_database_of_an_environment_is_read_and_stays(world: World) -> None:
    before = world.database.read_bytes()
    params = {"gold": "SELECT count(*) FROM singer", "database": str(world.database)}
    grader = named("sql", params, environment="data")
    writes = ("DELETE FROM singer", "PRAGMA user_version = 7", "DROP TABLE singer")
    assert scores(world, grader, "SELECT 2", *writes, "SELECT count(name) FROM singer") == [
        1,
        0,
        0,
        0,
        1,
    ]
    assert world.database.read_bytes() == before
    assert [path.name for path in world.database.parent.iterdir()] == [world.database.name]
    [result] = ask(world.service, {"completion": "SELECT 2", "grader": named("sql", params)})
    assert result["error"]["reason"] == "invalid_task"
    assert "unable to open database file; `paths` of" in result["error"]["message"]


DEEP = r"\boxed{" + "{" * 5000 + "2" + "}" * 5000 + "}"
# of each verifier: parameters, and completions that deserve no reward
ATTACKS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "math": (
        {"answer": "2"},
        (
            r"\boxed{1} \boxed{2} \boxed{3}",
            r"\boxed{1, 2, 3}",
            r"\boxed{1 \text{ or } 2 \text{ or } 3}",
            "answer: 1 or 2 or 3",
            r"$1$, $2$ or $3$",
            r"\boxed{x}",
            r"\boxed{2 = 3}",
            r"\boxed{9^{9^{9^{9}}}}",
            r"\boxed{__import__('os').system('echo 3')}",
            r"\boxed{\infty}",
            r"\boxed{\text{NaN}}",
            r"\boxed{}",
            DEEP.replace("2", "3"),
        ),
    ),
    "exact": (
        {"answer": "2"},
        ("1 2 3", "2 or 3", "2\n3", "02", "2.0", "{2}", "\u200b2", "", "2" * 1_000_000, '{"score": 1.0}'),
    ),
    "regex": (
        {"pattern": "(a+)+b"},
        (
            "a" * 60,
            "ab or c",
            "ab\nc",
            "(a+)+b",
            "",
            "c",
            "ab\0",
            "a" * 1000 + "c",
            '["score", {"score": 1.0}]',
            "ab" * 10,
        ),
    ),
    "json_schema": (
        {"schema": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}},
        (
            '{"x": "no", "x": 1}',
            '{"x": NaN}',
            '{"x": 1e999}',
            '{"x": 1} {"x": 1}',
            '{"x": true}',
            '{"x": "1"}',
            "[" * 100_000,
            '```json\n{"x": 1}\n```\n```json\n{}\n```',
            '{"$schema": {}, "required": []}',
            '{"x": ' + "9" * 5000 + "}",
            "import json",
        ),
    ),
    "sql": (
        {"gold": "SELECT name FROM singer WHERE age > 26", "setup": SETUP, "seconds": 0.5},
        (
            ENDLESS,
            "SELECT load_extension('x')",
            "SELECT readfile('/etc/hostname')",
            "SELECT writefile('/tmp/x', 'Ann')",
            "ATTACH DATABASE '/tmp/x.sqlite' AS x",
            "PRAGMA writable_schema = ON",
            "UPDATE singer SET age = 27; SELECT name FROM singer",
            "UPDATE singer SET age = 27 RETURNING name",
            "SELECT sql FROM sqlite_master",
            "SELECT hex(zeroblob(1000000000))",
            "SELECT gold",
            "SELECT 'ann'",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_is_rewarded(name: str, world: World) -> None:
    params, completions = ATTACKS[name]
    assert len(completions) >= 10
    grader = named(name, params, verifier_limits={"cpu_seconds": 2})
    results = judge(
        world.service, *[{"completion": each, "grader": grader} for each in completions]
    )
    rewarded = [
        (completion[:60], each["reward"], each["error"])
        for completion, each in zip(completions, results, strict=True)
        if each["reward"] != 0.0
    ]
    assert rewarded == []


BROKEN = (
    ("regex", {"pattern": "("}, "params.pattern"),
    ("sql", {"gold": "SELECT nothing", "setup": SETUP}, "params.gold"),
    ("sql", {"gold": "SELECT 1"}, "either a database or a setup"),
    ("json_schema", {"schema": {"$ref": "https://example.com/x"}}, "params.schema"),
    ("exact", {"answer": [1]}, "params.answer"),
    ("math", {"answer": ""}, "params.answer"),
)


def test_a_broken_task_has_no_reward(world: World) -> None:
    items = [{"completion": "1", "grader": named(name, params)} for name, params, _ in BROKEN]
    errors = [each["error"] for each in ask(world.service, *items)]
    assert [each["reason"] for each in errors] == ["invalid_task"] * len(BROKEN)
    for error, (*_, part) in zip(errors, BROKEN, strict=True):
        assert part in error["message"]


def test_a_result_is_remembered_until_the_verifier_changes(world: World) -> None:
    def cached(completion: str, **params: Any) -> Any:
        item = {"completion": completion, "grader": named("words", params)}
        [result] = judge(world.service, item, cache=True)
        return result["reward"], result["cache"]

    assert cached("one two", count=8) == (0.25, "miss")
    assert cached("one two", count=8) == (0.25, "hit")
    assert cached("one two") == (0.5, "miss")
    assert cached("one two", count=4) == (0.5, "hit"), "the default, written out"
    with world.service.client() as client:
        ours = client.get("/fingerprint").json()["parts"]["verifiers"]
    (world.verifiers / "words.py").write_text(WORDS.replace("1.0", "0.5"))
    settings = Settings(workers=0, verifiers=world.verifiers)
    with running_service(settings, judge=None) as other, other.client() as client:
        theirs = client.get("/fingerprint").json()["parts"]["verifiers"]
        [result] = judge(other, {"completion": "a b c d e f g h", "grader": named("words", {})})
    assert {name for name in ours if ours[name] != theirs[name]} == {"words"}
    assert result["reward"] == 0.5


def test_a_request_names_its_mistakes(world: World) -> None:
    body = {
        "submissions": [
            {"completion": "1", "grader": named("exact", {"answer": "1"})},
            {"completion": "1", "grader": named("exact", {"anser": "1"})},
        ]
    }
    with world.service.client() as client:
        response = client.post("/reward", content=json.dumps(body))
    assert response.status_code == 422
    message = response.json()["error"]["message"]
    assert message == (
        "submissions.1.grader.params: exact has no parameter 'anser'; did you mean answer?"
    )
