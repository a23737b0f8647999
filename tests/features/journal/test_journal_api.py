"""The journal over HTTP: lists with filters, single records, jobs, replays; with a real database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import Service, exec_request, running_service
from policy_server import policy_server, says
from pydantic import SecretStr
from rollout_requests import ask, request, task
from sandbox_server import problem

from proctor_client import (
    AsyncClient,
    Client,
    InvalidRequestError,
    JournalOffError,
    NotFoundError,
    wire,
)
from proctor_service.errors import Overloaded
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

TOKENS = SecretStr(json.dumps({"red": "red-token", "blue": "blue-token"}))
RED, BLUE = ({"Authorization": f"Bearer {name}-token"} for name in ("red", "blue"))
NOTHING = "ev_00000000000000000000000000000000"


class Scripted:
    """A judge that goes by what the source says; `spoiled`: everything fails."""

    def __init__(self) -> None:
        self.spoiled = False
        self.seen: list[Submission] = []

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        self.seen.append(submission)
        source = submission.source
        if "overloaded" in source:
            raise Overloaded("too much")
        if self.spoiled or "wrong" in source:
            failures = (wire.Failure(index=1, test="assert \ud800", message="no"),)
            return Judgement("failed", 1, 2, failures, "1 of 2", "said\ud800", "cried")
        signals = ("early_exit",) if "cheat" in source else ()
        return Judgement("passed", 2, 2, hack_signals=signals, level="calls")


class World:
    """A service with a journal, its scripted judge, and a client of the tenant `red`."""

    def __init__(self, service: Service, client: httpx.Client, judge: Scripted) -> None:
        self.service = service
        self.client = client
        self.judge = judge

    def written(self) -> None:
        """Wait until all records are in the database."""
        journal = self.service.parts.feature("journal").recorder
        assert journal is not None
        self.service.until(lambda: journal.unwritten == 0)

    def reward(self, *sources: str, **fields: Any) -> list[str]:
        """Judge sources; return the evaluations' ids, once they are recorded."""
        content = json.dumps(exec_request(*sources, **fields))
        answer = self.client.post("/reward", content=content)
        assert answer.status_code == 200, answer.text
        self.written()
        return [result["evaluation_id"] for result in answer.json()["results"]]

    def page(self, **query: Any) -> wire.EvaluationPage:
        """Ask for a list."""
        answer = self.client.get("/evaluations", params=query)
        assert answer.status_code == 200, answer.text
        return wire.EvaluationPage.model_validate_json(answer.content)

    def ids(self, **query: Any) -> list[str]:
        """The ids of a list."""
        return [each.id for each in self.page(**query).evaluations]

    def detail(self, id_: str) -> wire.EvaluationDetail:
        """Ask for one evaluation."""
        answer = self.client.get(f"/evaluations/{id_}")
        assert answer.status_code == 200, answer.text
        return wire.EvaluationDetail.model_validate_json(answer.content)

    def replay(self, id_: str) -> wire.Replay:
        """Have one judged again."""
        answer = self.client.post(f"/evaluations/{id_}/replay")
        assert answer.status_code == 200, answer.text
        return wire.Replay.model_validate_json(answer.content)


def settings_at(path: Path, **fields: Any) -> Settings:
    journal = SecretStr(f"sqlite:///{path}")
    return Settings(tokens=TOKENS, journal=journal, workers=0, **fields)


def opened(settings: Settings) -> Iterator[World]:
    judge = Scripted()
    with (
        running_service(settings, judge=judge) as service,
        service.client(headers=RED) as client,
    ):
        yield World(service, client, judge)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from opened(settings_at(tmp_path_factory.mktemp("journal") / "journal.db"))


@pytest.fixture
def judge(world: World) -> Iterator[Scripted]:
    yield world.judge
    world.judge.spoiled = False


def test_the_list_has_what_was_judged_the_newest_first(world: World) -> None:
    ids = world.reward("x = 1", "x = 'wrong'", job="listed", step=7, tags=["a", "b"])
    newest, oldest = world.page(job="listed").evaluations
    assert {newest.id, oldest.id} == set(ids)
    by_id = {each.id: each for each in (newest, oldest)}
    right, wrong = (by_id[id_] for id_ in ids)
    assert (right.verdict, right.reward, wrong.verdict, wrong.reward) == ("passed", 1, "failed", 0)
    assert (wrong.tests.passed, wrong.tests.total, wrong.tests.failures) == (1, 2, [])
    assert (right.step, right.tags, right.cache, right.grader_kind) == (
        7,
        ["a", "b"],
        "miss",
        "exec",
    )
    assert (right.level, right.integrity, right.completion_characters) == ("calls", "separated", 5)
    assert newest.at.tzinfo is not None


def test_each_filter_takes_what_it_says(world: World) -> None:
    body = exec_request("x = 'wrong unusual'", job="filtered", step=3, tags=["t"])
    body["submissions"][0] |= {"group": "g1", "id": "c0"}
    body["submissions"] += [
        {"completion": "x = 'cheat'", "group": "g2"},
        {"completion": "overloaded"},
    ]
    results = world.client.post("/reward", json=body).json()["results"]
    world.written()
    wrong, cheat, error = (each["evaluation_id"] for each in results)
    job = {"job": "filtered"}
    assert sorted(world.ids(**job, step=3, tag="t")) == sorted([wrong, cheat, error])
    assert world.ids(**job, step=4) == world.ids(**job, tag="u") == []
    assert world.ids(**job, verdict="failed") == world.ids(**job, task="g1") == [wrong]
    assert world.ids(**job, signal="early_exit") == world.ids(**job, reward=1) == [cheat]
    assert world.ids(**job, reward="0.0") == world.ids(**job, text="unusual wrong") == [wrong]
    assert world.ids(**job, error="*") == world.ids(**job, error="overloaded") == [error]
    assert world.ids(**job, error="deadline") == world.ids(**job, rollout_id="ro_1") == []
    assert world.ids(**job, text='unusual" OR x') == world.ids(**job, text='"') == []
    assert world.ids(**job, verdict="passed", task="g1") == []
    [found] = world.page(**job, verdict="failed").evaluations
    assert (found.submission_id, found.task) == ("c0", "g1")


def test_pages_have_everything_once(world: World) -> None:
    ids = world.reward(*(f"page = {number}" for number in range(7)), job="paged")
    found, cursor, lengths = [], None, []
    while True:
        page = world.page(job="paged", limit=3, **({} if cursor is None else {"cursor": cursor}))
        found += [each.id for each in page.evaluations]
        lengths.append(len(page.evaluations))
        world.reward("late = 1", job="late")  # what comes later moves no page
        cursor = page.next
        if cursor is None:
            break
    assert lengths == [3, 3, 1]
    assert sorted(found) == sorted(ids)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("verdikt=passed", "verdikt: unknown field"),
        ("verdict=good", "verdict"),
        ("error=everything", "error"),
        ("step=-1", "step"),
        ("step=99999999999999999999", "step"),
        ("reward=nan", "reward"),
        ("reward=x", "reward"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("cursor=-1", "cursor"),
        ("cursor=9999999999999999999", "cursor"),
        ("cursor=%D9%A1", "cursor"),
        ("text=", "text"),
        ("job=" + "j" * 201, "job"),
        ("rollout_id=" + "r" * 129, "rollout_id"),
    ],
)
def test_a_wrong_query_is_a_422_that_names_it(world: World, query: str, named: str) -> None:
    found = problem(world.client.get(f"/evaluations?{query}"), 422, "invalid_request")
    assert named in found.message


@pytest.mark.parametrize("path", ["/evaluations/{}", "/evaluations/{}/replay", "/rollouts/{}"])
@pytest.mark.parametrize(("id_", "status"), [(NOTHING, 404), ("%00", 404), ("x" * 129, 422)])
def test_an_unknown_id_is_a_404_and_a_long_one_a_422(
    world: World, path: str, id_: str, status: int
) -> None:
    world.reward("x = 1", job="known")  # the tables are there once a record is
    method = "POST" if path.endswith("replay") else "GET"
    answer = world.client.request(method, path.format(id_))
    problem(answer, status, "not_found" if status == 404 else "invalid_request")


def test_an_evaluation_has_all_that_was_recorded(world: World) -> None:
    completion = "Look:\n```python\nx = 'wrong'\n```\nDone."
    body = {
        "submissions": [
            {"completion": completion, "files": {"a.txt": "\ud800"}, "limits": {"cpu_seconds": 2}}
        ],
        "prompt": [{"role": "user", "content": "\ud800 <b>", "name": "n"}],
        "grader": {"kind": "asserts", "tests": ["assert f(\N{SNOWMAN})"]},
        "scoring": "fraction",
        "job": "detailed",
    }
    answer = world.client.post("/reward", content=json.dumps(body))
    [result] = answer.json()["results"]
    world.written()
    found = world.detail(result["evaluation_id"])
    assert (found.completion, found.source, found.extract) == (completion, "x = 'wrong'", "auto")
    assert found.source_begin == completion.index("x = ")
    assert found.prompt == [{"role": "user", "content": r"\ud800 <b>", "name": "n"}]
    assert found.grader is not None
    assert found.limits is not None
    assert found.grader["tests"] == ["assert f(\N{SNOWMAN})"]
    assert (found.limits["cpu_seconds"], found.limits["network"]) == (2.0, False)
    assert (found.scoring, found.language, found.files) == (
        "fraction",
        "python",
        {"a.txt": r"\ud800"},
    )
    assert (found.message, found.stdout, found.stderr) == ("1 of 2", r"said\ud800", "cried")
    assert [each.test for each in found.tests.failures] == [r"assert \ud800"]
    assert (found.reward, found.replayable, found.error_message) == (0.5, True, "")


def test_an_assembled_program_is_the_judged_code_and_each_prompt_its_own(
    world: World, judge: Scripted
) -> None:
    body = {
        "submissions": [
            {"completion": "    return 1", "prompt": "own"},
            {"completion": "def f():\n    return 2", "extract": {"fence": "none"}, "prelude": ""},
        ],
        "grader": {"kind": "exec", "entry_point": "f"},
        "prelude": "import math",
        "prompt_code": "def f():\n",
        "prompt": "of all",
    }
    ids = [
        each["evaluation_id"] for each in world.client.post("/reward", json=body).json()["results"]
    ]
    world.written()
    first, second = (world.detail(each) for each in ids)
    assert (first.completion, first.source) == (
        "    return 1",
        "import math\ndef f():\n    return 1",
    )
    assert (first.prompt, second.prompt) == ("own", "of all")
    assert (second.source, second.source_begin) == (second.completion, 0)
    assert second.extract == wire.ExtractRule(fence="none")
    world.client.post(f"/evaluations/{ids[0]}/replay")
    judged = [each.source for each in judge.seen[-3:]]
    assert judged == [first.source, second.source, first.source]


def test_hits_errors_and_completions_without_code_are_recorded_as_such(world: World) -> None:
    [first] = world.reward("cached = 1", job="kinds")
    [second] = world.reward("cached = 1", job="kinds")
    assert [world.detail(id_).cache for id_ in (first, second)] == ["miss", "hit"]
    [error] = world.reward("overloaded", job="kinds")
    found = world.detail(error)
    assert (found.verdict, found.reward, found.error) == (None, None, "overloaded")
    assert (found.error_message, found.source, found.replayable) == ("too much", "overloaded", True)
    [nothing] = world.reward("Only prose here, no program.", job="kinds", extract="xml")
    found = world.detail(nothing)
    assert (found.verdict, found.reward, found.source, found.replayable) == (
        "no_code",
        0,
        None,
        False,
    )
    assert found.completion == "Only prose here, no program."
    refused = problem(world.client.post(f"/evaluations/{nothing}/replay"), 409, "not_replayable")
    assert "no code" in refused.message


def test_a_replay_judges_the_same_again_and_is_not_recorded(world: World, judge: Scripted) -> None:
    completion = "<answer>\nx = 'right \ud800'\n</answer>"
    limits = {"cpu_seconds": 3, "memory_mb": 99}
    [id_] = world.reward(completion, extract="auto", limits=limits, job="again", scoring="fraction")
    original = judge.seen[-1]
    count = len(world.ids(limit=500))
    found = world.replay(id_)
    assert (found.id, found.same) == (id_, True)
    assert (found.recorded.verdict, found.replayed.verdict) == ("passed", "passed")
    again = judge.seen[-1]
    assert replace(again, deadline=original.deadline, asked_at=original.asked_at) == original
    assert again is not original  # judged, not remembered
    world.written()
    assert len(world.ids(limit=500)) == count


def test_a_replay_shows_the_difference(world: World, judge: Scripted) -> None:
    [good, wrong, error] = world.reward(
        "d = 1", "d = 'wrong'", "overloaded = 1", scoring="fraction"
    )
    judge.spoiled = True
    found = world.replay(good)
    assert not found.same
    assert (found.recorded.verdict, found.recorded.reward) == ("passed", 1.0)
    assert (found.replayed.verdict, found.replayed.reward) == ("failed", 0.5)
    assert (found.replayed.message, found.replayed.stderr) == ("1 of 2", "cried")
    again = world.replay(wrong)
    assert again.same
    assert again.recorded == again.replayed
    assert again.recorded.tests.failures[0].message == "no"
    failed = world.replay(error)
    assert failed.same
    assert (failed.replayed.error, failed.replayed.message) == ("overloaded", "too much")


def test_a_replay_takes_no_fields(world: World) -> None:
    [id_] = world.reward("fields = 1")
    path = f"/evaluations/{id_}/replay"
    assert world.client.post(path, json={}).status_code == 200
    problem(world.client.post(path, json={"grader": {"kind": "exec"}}), 422, "invalid_request")


def test_jobs_and_their_series(world: World) -> None:
    for step in (1, 2):
        world.reward(
            f"s = {step}", f"s = 'wrong {step}'", "overloaded", job="a/b \N{SNOWMAN}", step=step
        )
    answer = world.client.get("/jobs")
    jobs = wire.JobList.model_validate_json(answer.content).jobs
    assert jobs[0].job == "a/b \N{SNOWMAN}"
    assert (jobs[0].evaluations, jobs[0].judged, jobs[0].mean_reward, jobs[0].last_step) == (
        6,
        4,
        0.5,
        2,
    )
    answer = world.client.get("/jobs/a%2Fb%20%E2%98%83")
    found = wire.JobSeries.model_validate_json(answer.content)
    series = found.series
    assert [point.step for point in series] == [1, 2]
    assert (series[0].mean_reward, series[0].spread) == (0.5, 0.5)
    assert series[0].verdicts == {"passed": 1, "failed": 1, "error": 1}
    assert (series[0].last_step, series[0].at, found.by, found.width_seconds) == (
        1,
        None,
        "step",
        None,
    )
    figures = found.figures
    assert figures is not None
    assert (figures.evaluations, figures.judged, figures.mean_reward) == (6, 4, 0.5)
    assert (figures.tasks.count, figures.latest.sampled) == (0, 6)
    assert sum(each.count for each in figures.lengths) == 4
    assert any("have no reward" in each for each in figures.warnings)
    problem(world.client.get("/jobs/nothing"), 404, "not_found")
    wrong = problem(world.client.get("/jobs/a%2Fb%20%E2%98%83?by=hour"), 422, "invalid_request")
    assert "by" in wrong.message
    problem(world.client.get("/jobs/" + "j" * 201), 422, "invalid_request")


def test_a_series_by_time(world: World) -> None:
    world.reward("t = 1", "t = 'wrong'", job="timed", step=1)
    answer = world.client.get("/jobs/timed?by=time")
    found = wire.JobSeries.model_validate_json(answer.content)
    assert (found.by, found.width_seconds) == ("time", 10)
    listed = world.page(job="timed").evaluations
    begins = [point.at for point in found.series if point.at is not None]
    assert begins == sorted(set(begins))
    assert all(begin.timestamp() % 10 == 0 for begin in begins)
    assert begins[0] <= listed[-1].at < begins[0] + timedelta(seconds=10)
    assert sum(point.count for point in found.series) == 2
    assert "step" not in answer.json()["series"][0]


def test_a_long_answer_comes_whole(world: World) -> None:
    source = "x = 1  # " + "\N{SNOWMAN}\0" * 300_000
    [id_] = world.reward(source, job="long", extract="none")
    with world.client.stream("GET", f"/evaluations/{id_}") as answer:
        content = b"".join(answer.iter_raw())
    assert len(content) == int(answer.headers["content-length"]) > 1 << 20
    assert wire.EvaluationDetail.model_validate_json(content).source == source
    assert world.replay(id_).same


def test_a_rollout_has_its_conversation_and_its_evaluations(world: World) -> None:
    replies = ["```python\nf = 'wrong'\n```", "```python\nf = 1\n```"]
    fields = {"job": "rolled", "step": 4, "tags": ["t"], "agent": {"kind": "refine"}}
    with policy_server(lambda asked: says(replies.pop(0))) as server:
        [played] = ask(world.client, request(server.url, task("p1"), **fields))["trajectories"]
    world.written()
    answer = world.client.get(f"/rollouts/{played['rollout_id']}")
    found = wire.RolloutRecord.model_validate_json(answer.content)
    assert (found.id, found.job, found.step, found.task) == (
        played["rollout_id"],
        "rolled",
        4,
        "p1",
    )
    assert (found.verdict, found.reward, found.error, found.error_message) == (
        "passed",
        1,
        None,
        "",
    )
    assert found.messages_and_choices == played["messages_and_choices"]
    assert found.metrics == played["metrics"]
    assert [each.verdict for each in found.evaluations] == ["failed", "passed"]
    assert sorted(world.ids(rollout_id=found.id)) == sorted(each.id for each in found.evaluations)
    assert world.replay(found.evaluations[0].id).same
    with world.service.client(headers=BLUE) as blue:
        problem(blue.get(f"/rollouts/{found.id}"), 404, "not_found")


def test_the_clients_read_the_journal(world: World) -> None:
    [good, wrong] = world.reward("c = 1", "c = 'wrong'", job="a client's/job \N{SNOWMAN}", step=1)
    url = world.service.url
    with Client(url, token="red-token") as client:
        page = client.evaluations(job="a client's/job \N{SNOWMAN}", limit=1)
        assert page.next is not None
        rest = client.evaluations(job="a client's/job \N{SNOWMAN}", cursor=page.next)
        ids = [each.id for each in page.evaluations + rest.evaluations]
        assert (sorted(ids), rest.next) == (sorted([good, wrong]), None)
        assert client.evaluation(wrong).source == "c = 'wrong'"
        assert client.replay(good).same
        assert client.jobs()[0].job == "a client's/job \N{SNOWMAN}"
        assert client.job("a client's/job \N{SNOWMAN}").series[0].count == 2
        by_time = client.job("a client's/job \N{SNOWMAN}", by="time")
        assert (by_time.by, by_time.width_seconds) == ("time", 10)
        with pytest.raises(NotFoundError):
            client.recorded_rollout("ro_1")
        with pytest.raises(InvalidRequestError, match="limit"):
            client.evaluations(limit=501)
        with pytest.raises(InvalidRequestError):
            client.evaluation("..")

    async def with_async() -> list[str]:
        async with AsyncClient(url, token="red-token") as client:
            found = await client.evaluations(verdict="failed", text="wrong", step=1)
            series = await client.job("a client's/job \N{SNOWMAN}", by="time")
            assert series.figures is not None
            return [each.id for each in found.evaluations]

    assert wrong in asyncio.run(with_async())


def test_the_client_says_why_there_is_nothing(service: Service) -> None:
    off = pytest.raises(JournalOffError, match="PROCTOR_JOURNAL")
    with Client(service.url, max_attempts=1) as client, off:
        client.jobs()


def test_a_tenant_sees_its_own(world: World) -> None:
    [id_] = world.reward("mine = 1", job="of-red")
    with world.service.client(headers=BLUE) as blue:
        assert blue.get("/evaluations").json() == {"evaluations": [], "next": None}
        assert blue.get("/evaluations?job=of-red").json()["evaluations"] == []
        assert blue.get("/jobs").json() == {"jobs": []}
        problem(blue.get("/jobs/of-red"), 404, "not_found")
        problem(blue.get(f"/evaluations/{id_}"), 404, "not_found")
        problem(blue.post(f"/evaluations/{id_}/replay"), 404, "not_found")
    with world.service.client() as nobody:
        problem(nobody.get(f"/evaluations/{id_}"), 401, "unauthorized")


def test_without_texts_there_is_no_replay(tmp_path: Path) -> None:
    for world in opened(settings_at(tmp_path / "journal.db", journal_texts=False)):
        [id_] = world.reward("x = 1")
        found = world.detail(id_)
        assert (found.verdict, found.with_texts, found.replayable) == ("passed", False, False)
        assert (found.completion, found.source, found.grader, found.stdout) == (None,) * 4
        refused = problem(world.client.post(f"/evaluations/{id_}/replay"), 409, "not_replayable")
        assert "PROCTOR_JOURNAL_TEXTS" in refused.message


def test_a_limit_above_the_ceiling_of_today_is_not_replayable(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for world in opened(settings_at(path)):
        [id_] = world.reward("x = 1", limits={"memory_mb": 900})
    for world in opened(settings_at(path, max_memory_mb=800)):
        refused = problem(world.client.post(f"/evaluations/{id_}/replay"), 409, "not_replayable")
        assert "memory_mb" in refused.message


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/evaluations"),
        ("GET", f"/evaluations/{NOTHING}"),
        ("POST", f"/evaluations/{NOTHING}/replay"),
        ("GET", "/rollouts/ro_1"),
        ("GET", "/jobs"),
        ("GET", "/jobs/default"),
    ],
)
def test_without_a_journal_every_route_says_how_to_have_one(
    client: httpx.Client, method: str, path: str
) -> None:
    found = problem(client.request(method, path), 404, "journal_off")
    assert "PROCTOR_JOURNAL" in found.message
