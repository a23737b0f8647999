"""The journal's database: what is written is found, once, within bounds, whatever the text."""

from __future__ import annotations

import json
import re
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from journal_store import FAILED, GRADER, HOSTILE, LIMITS, PASSED, Under, item
from sqlalchemy import event

from proctor_client.wire import RefineAgent, StdioCase, StdioGrader
from proctor_service.errors import SandboxLost, StartError
from proctor_service.features.journal.address import checked
from proctor_service.features.journal.entry import Entries
from proctor_service.features.journal.filters import Filter
from proctor_service.features.journal.reading import Reader, parsed
from proctor_service.features.journal.rows import TEXT_AGE_SECONDS
from proctor_service.features.journal.schema import metadata
from proctor_service.features.journal.store import JournalStore
from proctor_service.http.json import encode
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import (
    Item,
    NoCode,
    Origin,
    Outcome,
    Trajectory,
    TrajectoryPlan,
    TrajectoryTask,
)


def test_the_migrations_make_the_tables_of_the_schema(under: Under) -> None:
    with under.connected() as connection:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
    assert [each for each in found if "words" not in str(each)] == []


def test_the_file_is_for_its_owner_alone(under: Under) -> None:
    under.write((item(1), PASSED))
    files = list(under.path.parent.iterdir())
    assert under.path in files
    assert all(
        not stat.S_IMODE(file.stat().st_mode) & 0o077 for file in (*files, under.path.parent)
    )


def test_an_evaluation_comes_back_whole(under: Under) -> None:
    grader = StdioGrader(kind="stdio", cases=[StdioCase(stdin="1\n", stdout="2\n")])
    submission = Submission("print(2)", grader, LIMITS, "fraction", files={"a.txt": HOSTILE})
    judgement = Judgement(
        "runtime_error", 1, 2, message=HOSTILE, stdout="out", stderr=HOSTILE, exit_code=1,
        hack_signals=("exits",),
    )  # fmt: skip
    under.write((item(7, submission=submission, tags=("x", HOSTILE)), Outcome(judgement, 0.5)))
    found = under.whole("ev_7")
    assert (found["verdict"], found["reward"], found["passed"], found["total"]) == (
        "runtime_error", 0.5, 1, 2,
    )  # fmt: skip
    assert (found["job"], found["step"], found["task"], found["submission_id"]) == (
        "job", 7, "p1", "s7",
    )  # fmt: skip
    assert found["tags"] == ["x", HOSTILE]
    assert found["signals"] == ["exits"]
    assert found["source"] == "print(2)"
    assert found["source_begin"] is None  # it is no part of the completion
    assert found["grader"] == grader.model_dump()
    assert found["files"] == {"a.txt": HOSTILE}
    assert found["conditions"]["scoring"] == "fraction"
    assert found["output"]["message"] == found["output"]["stderr"] == HOSTILE
    assert found["version"] == "1.2.3"


def test_the_extracted_code_is_marked_in_the_completion(under: Under) -> None:
    under.write((item(3), PASSED))
    found = under.whole("ev_3")
    begin = found["source_begin"]
    assert found["completion_text"][begin:].startswith("def f(x):")
    assert found["source"] == "def f(x):\n    return x  # 3"


def test_a_failure_and_a_completion_without_code_are_recorded(under: Under) -> None:
    lost = Outcome(failure=SandboxLost("gone"))
    none = Outcome(Judgement("no_code", total=2), 0.0)
    under.write((item(1), lost), (item(2, submission=NoCode(2)), none))
    assert under.ids(error="*") == under.ids(error="sandbox_lost") == ["ev_1"]
    assert under.ids(verdict="no_code") == ["ev_2"]
    first, second = under.whole("ev_1"), under.whole("ev_2")
    assert (first["reward"], first["verdict"]) == (None, None)
    assert first["output"] == {"message": "gone", "stdout": "", "stderr": ""}
    assert second["completion_text"].startswith("Say:")
    assert second["source"] is second["grader"] is None


def test_filters_and_pages(under: Under) -> None:
    under.write(
        *((item(n, tags=("odd",) if n % 2 else ()), FAILED if n % 3 else PASSED) for n in range(20))
    )
    assert under.ids(job="other") == under.ids(job="job", step=99) == []
    assert under.ids(tag="odd") == [f"ev_{n}" for n in range(19, 0, -2)]
    assert under.ids(tag="odd", reward=1.0) == ["ev_15", "ev_9", "ev_3"]
    assert under.ids(step=4) == ["ev_4"]
    assert under.ids(task="p1", verdict="passed") == ["ev_15", "ev_9", "ev_3"]
    seen: list[str] = []
    before = None
    while True:
        page = under.reader.evaluations("t", Filter(job="job"), 7, before)
        seen += [row["id"] for row in page.rows]
        before = page.following
        if before is None:
            break
    assert seen == [f"ev_{n}" for n in range(19, -1, -1)]


def test_words_of_completions_are_found(under: Under) -> None:
    for number, text in enumerate(("alpha beta", "beta gamma", f"gamma {HOSTILE}")):
        origin = Origin(text, "none")
        under.write(
            (item(number, submission=Submission(text, GRADER, LIMITS), origin=origin), PASSED)
        )
    assert under.ids(words="beta") == ["ev_1", "ev_0"]
    assert under.ids(words="gamma beta") == ["ev_1"]
    assert under.ids(words="script") == ["ev_2"]
    for odd in ('"', "AND", "a OR", "NEAR(", "*", "-", "^x", "\0", "\ud800", "(", "completion:"):
        under.ids(words=odd)  # no error


def test_long_names_are_short_and_still_differ(under: Under) -> None:
    names = ["p" * 200, "p" * 201, "\ud800" * 5000 + "a", "\ud800" * 5000 + "b"]
    for number, name in enumerate(names):
        under.write((item(number, origin=Origin("x", "none", name, name)), PASSED))
        assert under.ids(task=name) == [f"ev_{number}"]
    rows = under.reader.evaluations("t", Filter()).rows
    assert all(len(row["task"]) <= 200 and row["task"] == row["submission_id"] for row in rows)
    assert len({row["task"] for row in rows}) == 4
    assert rows[-1]["task"] == names[0]
    assert [under.ids(task=row["task"]) for row in rows] == [[row["id"]] for row in rows]


def test_a_tenant_sees_its_own(under: Under) -> None:
    under.write((item(1), PASSED), (item(2, tenant="u"), PASSED))
    assert under.ids() == ["ev_1"]
    assert under.reader.evaluation("t", "ev_2") is None
    assert under.reader.evaluation(None, "ev_2") is not None
    assert [row["tenant"] for row in under.reader.jobs("u")] == ["u"]
    assert len(under.reader.jobs(None)) == 2
    assert under.reader.job("u", "nothing") is None


def test_records_that_come_twice_are_written_once(under: Under) -> None:
    for _ in range(2):
        under.write((item(1), PASSED), (item(2), FAILED))
        assert under.ids(words="return") == under.ids(tag="a") == ["ev_2", "ev_1"]


def test_series_by_step(under: Under) -> None:
    under.write(
        *((item(n, origin=Origin(step=n // 4)), FAILED if n % 4 else PASSED) for n in range(8))
    )
    under.write((item(9, origin=Origin(step=1)), Outcome(failure=SandboxLost("gone"))))
    found = under.reader.job("t", "job")
    assert found is not None
    first, second = found["series"]
    assert (first["step"], first["count"], first["judged"], first["mean_reward"]) == (0, 4, 4, 0.25)
    assert first["verdicts"] == {"passed": 1, "failed": 3}
    assert first["spread"] == pytest.approx((0.25 * 0.75) ** 0.5)
    assert (second["count"], second["judged"], second["verdicts"]["error"]) == (5, 4, 1)


def test_figures_of_a_job(under: Under) -> None:
    def evaluated(
        number: int, task: str, step: int, passed: bool, **more: Any
    ) -> tuple[Item, Outcome]:
        origin = Origin(task=task, step=step)
        return item(number, origin=origin, **more), PASSED if passed else FAILED

    pairs = [evaluated(n, "some", n // 4, n % 2 == 0) for n in range(8)]
    pairs += [evaluated(8 + n, "nobody", n // 4, False) for n in range(8)]
    pairs += [evaluated(16 + n, "everybody", 0, True) for n in range(4)]
    pairs.append((item(20, origin=Origin()), Outcome(failure=SandboxLost("gone"))))
    cheat = Outcome(Judgement("failed", 0, 1, hack_signals=("exits",)), 0.0)
    pairs.append((item(21, origin=Origin()), cheat))
    flaky = Submission("def f(x): return random()", GRADER, LIMITS)
    pairs += [evaluated(22 + n, "flaky", 2, n == 0, submission=flaky) for n in range(2)]
    under.write(*pairs)
    found = under.reader.figures("t", "job")
    assert found is not None
    assert (found["evaluations"], found["judged"], found["verdicts"]["error"]) == (24, 23, 1)
    assert found["mean_reward"] == pytest.approx(9 / 23)
    assert found["tasks"]["nobody"] == ["nobody"]
    assert found["tasks"]["everybody"] == ["everybody"]
    assert found["groups"] == {"count": 6, "without_spread": 3}
    # Of 8 of `some` 4 passed: 1 - C(4,2)/C(8,2); `nobody` 0, `everybody` 1, `flaky` 1.
    assert found["pass_at"]["2"] == pytest.approx((1 - 6 / 28 + 0 + 1 + 1) / 4)
    assert found["pass_at"]["4"] == pytest.approx((1 - 1 / 70 + 0 + 1) / 3)
    assert found["signals"] == {"exits": 1}
    assert found["latest"]["flaky_programs"] == 1
    assert found["latest"]["sampled"] == 24
    warnings = "\n".join(found["warnings"])
    assert "4.2% of the evaluations have no reward" in warnings
    assert "two verdicts from the same tests: 1" in warnings
    assert "signals of a hack: 1" in warnings
    assert under.reader.figures("u", "job") is None


def test_texts_are_stored_once(under: Under) -> None:
    under.write(*((item(n), PASSED) for n in range(50)))
    with under.connected() as connection:
        count = connection.exec_driver_sql("SELECT count(*) FROM texts").scalar_one()
    assert count == 50 + 2  # completions; a grader and the conditions


def test_without_texts_no_text_is_written(under: Under) -> None:
    bare = Entries(with_texts=False)
    secret = Submission("SECRET", GRADER, LIMITS, files={"SECRET": "SECRET"})
    outcome = Outcome(Judgement("failed", 0, 1, message="SECRET", stdout="SECRET"), 0.0)
    under.store.write(
        [bare.evaluation(item(1, submission=secret, origin=Origin("SECRET")), outcome, 0.1)]
    )
    found = under.reader.evaluation("t", "ev_1")
    assert found is not None
    assert (found["verdict"], found["with_texts"], found["source"]) == ("failed", False, None)
    under.store.close()
    under.reader.close()
    assert all(b"SECRET" not in file.read_bytes() for file in under.path.parent.iterdir())


def test_old_records_go_with_all_that_was_theirs_alone(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    under.write(*((item(n, tags=("old",)), PASSED) for n in range(10)))
    between = time.time()
    under.write((item(10), PASSED))
    assert under.store.prune(between, 4) == 4
    assert under.store.prune(between) == 6
    under.store.prune_texts()
    assert under.ids() == under.ids(words="return") == ["ev_10"]
    assert under.ids(tag="old") == []
    under.write((item(10, evaluation_id="ev_11"), PASSED))
    found = under.reader.evaluation("t", "ev_11")
    assert found is not None
    assert found["source"].endswith("# 10")
    assert under.store.prune(time.time() + 1) == 2
    later = time.time() + 2 * TEXT_AGE_SECONDS  # the texts of this minute wait
    monkeypatch.setattr(time, "time", lambda: later)
    under.store.prune_texts()
    with under.connected() as connection:
        for table in ("evaluations", "texts", "labels"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() == 0


def test_unused_texts_go_in_pieces_and_those_in_use_stay(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.time() - 1e5
    for number in range(20):  # with one grader, which is used by all
        monkeypatch.setattr(time, "time", lambda at=begun + 1000.0 * number: at)
        under.write((item(number), PASSED))
    monkeypatch.undo()
    assert under.store.prune_texts() == 0
    assert under.store.prune_oldest(0.5) == 10
    assert [under.store.prune_texts(4) for _ in range(4)] == [4, 4, 2, 0]
    assert under.ids() == [f"ev_{number}" for number in range(19, 9, -1)]
    for number in range(10, 20):
        found = under.whole(f"ev_{number}")
        assert found["source"].endswith(f"# {number}")
        assert found["grader"]["tests"] == GRADER.tests
        assert found["conditions"]["language"] == "python"


def test_the_time_of_a_texts_use_never_goes_back(under: Under) -> None:
    """Processes of older versions write later times than this one, and count on them."""
    under.write((item(1), PASSED))
    later = time.time() + 3600.0
    with under.connected() as connection:
        connection.exec_driver_sql("UPDATE texts SET used_at = ?", (later,))
        connection.commit()
    under.store.close()
    other = JournalStore(under.url, "1.2.3")
    other.write([under.entries.evaluation(item(1, evaluation_id="ev_2"), PASSED, 0.5)])
    other.close()
    with under.connected() as connection:
        assert connection.exec_driver_sql("SELECT min(used_at) FROM texts").scalar_one() == later


def test_pruning_reads_no_table_to_its_end(under: Under) -> None:
    under.write(*((item(n), PASSED) for n in range(20)))
    statements: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        if statement.startswith(("SELECT", "DELETE")):
            statements.append((statement, values[0] if isinstance(values, list) else values))

    event.listen(under.store._engine, "before_cursor_execute", note)
    assert under.store.prune_oldest(0.1)
    under.store.prune_texts()
    with under.connected() as connection:
        plans = [
            row.detail
            for statement, values in statements
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        ]
    assert any("texts_by_use (used_at<?)" in each for each in plans)
    assert any("rollouts_by_at (at<?)" in each for each in plans)
    whole = re.compile(r"SCAN (texts|rollouts|evaluations)$|TEMP B-TREE")  # no index
    assert [each for each in plans if whole.search(each)] == []


def test_a_journal_without_the_indices_of_pruning_gets_them(under: Under) -> None:
    under.write((item(1), PASSED))
    with under.connected() as connection:
        for statement in (
            "DROP INDEX texts_by_use",
            "DROP INDEX rollouts_by_at",
            "ALTER TABLE evaluations DROP COLUMN control_seconds",
            "ALTER TABLE evaluations DROP COLUMN negative_control",
            "ALTER TABLE evaluations DROP COLUMN prompt",
            "UPDATE alembic_version SET version_num = '0002'",
        ):
            connection.exec_driver_sql(statement)
        connection.commit()
    under.store.open()
    with under.connected() as connection:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
    assert [each for each in found if "words" not in str(each)] == []
    assert under.ids() == ["ev_1"]


def test_texts_that_another_process_knows_as_stored_stay(under: Under) -> None:
    """A command prunes everything while the service runs, which then judges the same again."""
    under.write((item(1), PASSED))
    other = JournalStore(under.url, "1.2.3")
    assert other.prune(time.time() + 1) == 1
    other.prune_texts()
    other.close()
    under.write((item(1, evaluation_id="ev_2"), PASSED))
    found = under.whole("ev_2")
    assert found["source"].endswith("# 1")
    assert found["grader"]["tests"] == GRADER.tests


def test_submissions_with_the_files_of_a_sandbox_say_so(under: Under) -> None:
    for number, state in ((1, None), (2, b"archive")):
        submission = Submission("x = 1", GRADER, LIMITS, state=state)
        under.write((item(number, submission=submission), PASSED))
        found = under.reader.evaluation("t", f"ev_{number}")
        assert found is not None
        assert found["conditions"]["with_state"] is (state is not None)


def test_the_oldest_part_goes_when_there_is_too_much(under: Under) -> None:
    under.write(*((item(n), PASSED) for n in range(50)))
    under.store.write([Entries(True).evaluation(item(50 + n), PASSED, 0.1) for n in range(50)])
    assert under.store.size_bytes() > 10_000
    removed = under.store.prune_oldest(0.1)
    assert 1 <= removed <= 50
    assert under.ids()[0] == "ev_99"


def test_the_oldest_part_of_rollouts_goes_where_there_is_nothing_else(under: Under) -> None:
    task = TrajectoryTask("task-1", ({"role": "user", "content": "go"},), GRADER, {})
    for number in range(50):
        plan = TrajectoryPlan(f"ro_{number}", task, None, LIMITS, "all", "auto", "t", "job", 0.0)  # type: ignore[arg-type]
        played = Trajectory(messages_and_choices=(), reward=1.0, verdict="passed")
        under.store.write([under.entries.rollout(plan, played)])
    assert under.store.prune_oldest(0.1) == 5
    assert under.reader.rollout("t", "ro_4") is None
    assert under.reader.rollout("t", "ro_5") is not None


def test_a_rollout_with_its_evaluations(under: Under) -> None:
    task = TrajectoryTask("task-1", ({"role": "user", "content": HOSTILE},), GRADER, {})
    agent = RefineAgent(kind="refine")
    plan = TrajectoryPlan(
        "ro_1", task, agent, LIMITS, "all", "auto", "t", "job", 0.0, ("a",), step=3
    )
    said = encode({"role": "user", "content": HOSTILE})
    played = Trajectory([said], reward=1.0, verdict="passed", metrics={"turns": 2.0})
    under.store.write([under.entries.rollout(plan, played)])
    under.write((item(1, rollout_id="ro_1"), PASSED))
    found = under.reader.rollout("t", "ro_1")
    assert found is not None
    assert (found["step"], found["task"], found["reward"], found["metrics"]) == (
        3, "task-1", 1.0, {"turns": 2.0},
    )  # fmt: skip
    conversation = parsed(found)["conversation"]
    assert conversation["messages_and_choices"] == [json.loads(said)]
    assert [each["id"] for each in found["evaluations"]] == ["ev_1"]
    assert under.reader.rollout("u", "ro_1") is None


@pytest.mark.parametrize(
    "url", ["", "nothing", "sqlite://", "mysql://host/x", "sqlite:///", "http://x"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(StartError, match="PROCTOR_JOURNAL"):
        checked(url)


def test_a_path_that_nobody_may_write_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        JournalStore(checked(f"sqlite:///{tmp_path}/file/journal.db"), "1").open()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_two_writers_of_one_new_file_wait_for_each_other(tmp_path: Path) -> None:
    url, count = checked(f"sqlite:///{tmp_path / 'journal.db'}"), 3
    together = threading.Barrier(count)

    def write(writer: int) -> None:
        store = JournalStore(url, "1")
        entries = Entries(with_texts=True)
        together.wait()
        store.open()
        for number in range(20):
            store.write([entries.evaluation(item(100 * writer + number), PASSED, 0.5)])
        store.close()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(write, range(count)))
    reader = Reader(url)
    rows = reader.evaluations("t", Filter(), most=100).rows
    reader.close()
    wanted = {f"ev_{100 * writer + number}" for writer in range(count) for number in range(20)}
    assert {row["id"] for row in rows} == wanted
