"""`proctor journal` on journals in files, and `proctor replay` against the real app over HTTP."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import forget_settings, proctor
from harness import running_service
from journals import DOUBLE, FAILED, GRADER, LIMITS, PASSED, Evaluated, written
from typer.testing import Result

from proctor_client.wire import CallsGrader, CommandGrader, HarborGrader
from proctor_service.errors import DeadlinePassed, InvalidTask
from proctor_service.features.journal.entry import Entries, Record
from proctor_service.http.json import encode
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Trajectory, TrajectoryPlan, TrajectoryTask
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

pytestmark = pytest.mark.usefixtures("no_settings")

NASTY = 'x = "\x1b[2J\x9b31m\u202e\ud800\0"\r\nprint(x)\t# [bold]no[/bold]'


def said_of(*arguments: str | Path, **environment: str) -> str:
    """What a command prints that works."""
    result = proctor(*arguments, **environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def ids(text: str) -> list[int]:
    """The numbers of the evaluations in a table."""
    return [int(each, 16) for each in re.findall(r"ev_([0-9a-f]{32})", text)]


def refused(*arguments: str | Path, **environment: str) -> str:
    """The one line on stderr of a command that cannot work."""
    result = proctor(*arguments, **environment)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("proctor: ")
    assert "Traceback" not in result.output
    return result.stderr


def played(id_: str = "ro_1") -> Record:
    """The record of a rollout with a tool call."""
    call = {"id": "c1", "function": {"name": "bash", "arguments": '{"command": "ls \x1b[2J"}'}}
    messages: list[Any] = [
        {"role": "user", "content": "Write double."},
        {"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [call]}},
        {"role": "tool", "tool_call_id": "c1", "content": "solution.py\x1b]0;owned\x07"},
    ]
    task = TrajectoryTask("t1", [], GRADER, {})
    agent: Any = None
    plan = TrajectoryPlan(
        id_, task, agent, LIMITS, "all", "auto", "anyone", "run", 0.0, ("x",), step=3
    )
    trajectory = Trajectory(
        [*map(encode, messages)], reward=1.0, verdict="passed", metrics={"turns": 2}
    )
    return Entries(True).rollout(plan, trajectory)


# ------------------------------------------------------------ list


def test_list_shows_the_newest_first_and_as_many_as_asked(tmp_path: Path) -> None:
    url = written(tmp_path / "j", *(Evaluated(number) for number in range(1, 8)))
    assert ids(said_of("journal", "list", PROCTOR_JOURNAL=url)) == [7, 6, 5, 4, 3, 2, 1]
    assert ids(said_of("journal", "list", "--limit", "2", PROCTOR_JOURNAL=url)) == [7, 6]


def test_list_goes_by_each_filter(tmp_path: Path) -> None:
    late = DeadlinePassed("too late")
    signals = Judgement("failed", total=2, hack_signals=("exit",))
    url = written(
        tmp_path / "j",
        Evaluated(1, step=7, tags=("a",)),
        Evaluated(2, judgement=FAILED, reward=0.5, completion="a peculiar thought\n" + DOUBLE),
        Evaluated(3, judgement=None, reward=None, failure=late),
        Evaluated(4, judgement=signals, reward=0.0, job="other", tenant="b"),
    )

    def found(*options: str) -> list[int]:
        return ids(said_of("journal", "list", *options, PROCTOR_JOURNAL=url))

    assert found("--job", "run") == [3, 2, 1]
    assert found("--tenant", "b") == [4]
    assert found("--step", "7") == found("--tag", "a") == [1]
    assert found("--verdict", "passed") == [1]
    assert found("--text", "peculiar thought") == [2]
    assert found("--error", "deadline") == found("--error", "*") == [3]
    assert found("--signal", "exit") == [4]
    assert found("--task", "task-1", "--job", "other") == [4]
    assert "no evaluations" in said_of("journal", "list", "--job", "unknown", PROCTOR_JOURNAL=url)


def test_a_list_says_what_became_of_each(tmp_path: Path) -> None:
    late = DeadlinePassed("too late")
    url = written(
        tmp_path / "j",
        Evaluated(1, step=7),
        Evaluated(2, judgement=None, reward=None, failure=late),
    )
    head, second, first = said_of("journal", "list", PROCTOR_JOURNAL=url).splitlines()
    assert head.split() == ["id", "age", "job", "step", "task", "verdict", "reward"]
    assert second.split()[3:] == ["run", "-", "task-2", "deadline", "-"]
    assert first.split()[3:] == ["run", "7", "task-1", "passed", "1"]


def test_json_lines_have_all_but_the_texts(tmp_path: Path) -> None:
    url = written(tmp_path / "j", Evaluated(1), Evaluated(2, judgement=FAILED, reward=0.0))
    lines = said_of("journal", "list", "--json", PROCTOR_JOURNAL=url).splitlines()
    second, first = map(json.loads, lines)
    assert (first["verdict"], first["reward"], first["level"]) == ("passed", 1.0, "calls")
    assert (second["id"], second["passed"], second["total"]) == (Evaluated(2).id, 1, 2)


def test_the_environment_says_which_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_JOURNAL", written(tmp_path / "j", Evaluated(5)))
    assert ids(said_of("journal", "list")) == [5]


# ------------------------------------------------------------ show


def test_show_has_what_explains_a_reward(tmp_path: Path) -> None:
    url = written(tmp_path / "j", Evaluated(1, judgement=FAILED, reward=0.0, step=4, tags=("t",)))
    said = said_of("journal", "show", Evaluated(1).id, PROCTOR_JOURNAL=url)
    for part in (
        "failed, reward 0",
        "1 of 2 passed",
        "cpu_seconds 5.0",
        "\ncompletion\n    Here:\n    ```python\n    def double(n):\n        return 2 * n",
        "\ncode that was judged\n    def double(n):",
        "\ntest 1\n    assert double(5) == 10",
        "\nfailed test 1\n    assert double(5) == 10\n    AssertionError",
        "\nmessage\n    1 of 2 tests failed",
        "\nstdout\n    said",
    ):
        assert part in said
    assert re.search(r"^step +4$", said, re.MULTILINE)


def test_show_names_an_error_and_its_message(tmp_path: Path) -> None:
    failure = InvalidTask("test 0 is not Python")
    url = written(tmp_path / "j", Evaluated(1, judgement=None, reward=None, failure=failure))
    said = said_of("journal", "show", Evaluated(1).id, PROCTOR_JOURNAL=url)
    assert "no reward, error invalid_task" in said
    assert "test 0 is not Python" in said


def test_show_plays_a_rollout_as_a_conversation(tmp_path: Path) -> None:
    graded = Evaluated(9, more={"rollout_id": "ro_1"})
    url = written(tmp_path / "j", graded, records=[played()])
    said = said_of("journal", "show", "ro_1", PROCTOR_JOURNAL=url)
    assert "passed, reward 1" in said
    assert "\nuser\n    Write double." in said
    assert "\nassistant\n    calls bash({" in said
    assert "\ntool\n    solution.py\\x1b]0;owned\\x07" in said
    assert graded.id in said
    assert all(each.isprintable() for each in said.split("\n"))


def test_nothing_recorded_acts_on_the_terminal(tmp_path: Path) -> None:
    """Only spaces and newlines of all control characters come out, whatever field they are in."""
    nasty = Judgement("failed", total=1, message=NASTY, stdout=NASTY, stderr=NASTY)
    evaluated = Evaluated(
        1,
        NASTY,
        nasty,
        0.0,
        completion=NASTY,
        grader=CommandGrader(kind="command", argv=["sh", NASTY]),
        job=NASTY,
        tenant=NASTY,
        tags=(NASTY,),
    )
    url = written(tmp_path / "j", evaluated)
    shown = said_of("journal", "show", evaluated.id, PROCTOR_JOURNAL=url)
    listed = said_of("journal", "list", PROCTOR_JOURNAL=url)
    lines = said_of("journal", "list", "--json", PROCTOR_JOURNAL=url)
    whole = said_of("journal", "show", evaluated.id, "--json", PROCTOR_JOURNAL=url)
    for said in (shown, listed, lines, whole):
        assert all(line.isprintable() for line in said.split("\n"))
    assert '    x = "\\x1b[2J\\x9b31m\\u202e\\ud800\\x00"\\r\n    print(x)' in shown
    assert "[bold]no[/bold]" in shown
    assert json.loads(whole)["source"] == NASTY


def test_a_journal_without_texts_says_so(tmp_path: Path) -> None:
    url = written(tmp_path / "j", Evaluated(1, with_texts=False))
    said = said_of("journal", "show", Evaluated(1).id, PROCTOR_JOURNAL=url)
    assert "were not recorded" in said
    assert "double" not in said


# ------------------------------------------------------------ export


def test_an_export_has_every_evaluation_of_the_job_with_its_texts(tmp_path: Path) -> None:
    made = [Evaluated(number, step=number) for number in range(1, 251)]
    made += [Evaluated(900, job="other"), Evaluated(901, judgement=FAILED, reward=0.0)]
    url, out = written(tmp_path / "j", *made), tmp_path / "run.jsonl"
    said = said_of("journal", "export", "--job", "run", "--out", out, PROCTOR_JOURNAL=url)
    assert said == f"wrote 251 evaluations to {out}\n"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["id"] for row in rows} == {each.id for each in made if each.job == "run"}
    assert len(rows) == 251
    [failed] = [row for row in rows if row["verdict"] == "failed"]
    assert failed["source"] == DOUBLE
    assert failed["source"] in failed["completion"]
    assert json.loads(failed["grader"])["tests"] == GRADER.tests
    assert json.loads(failed["failures"])[0]["index"] == 1
    assert json.loads(failed["limits"])["memory_mb"] == 256
    assert out.stat().st_mode & 0o077 == 0
    assert list(tmp_path.glob("run.jsonl*")) == [out]


def test_an_export_begins_with_a_value_in_each_column(tmp_path: Path) -> None:
    """`datasets` takes the types of the columns from the beginning of the file."""
    late = DeadlinePassed("too late")
    url = written(
        tmp_path / "j",
        Evaluated(1, judgement=None, reward=None, failure=late),
        Evaluated(2, step=3, tags=("a",), more={"graded_sandbox_id": "sb_1"}),
        *(Evaluated(number) for number in range(3, 400)),
    )
    out = tmp_path / "run.jsonl"
    said_of("journal", "export", "--job", "run", "--out", out, PROCTOR_JOURNAL=url)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == len({row["id"] for row in rows}) == 399
    for name in ("error", "step", "tags", "graded_sandbox_id", "reward"):
        assert any(row[name] for row in rows[:10]), name


def test_lone_surrogates_are_not_in_an_export(tmp_path: Path) -> None:
    grader = CallsGrader.model_validate(
        {"kind": "calls", "entry_point": "f", "cases": [{"args": ["\ud800"], "expected": 1}]}
    )
    url = written(tmp_path / "j", Evaluated(1, "x = '\ud800 \U0001f600'", grader=grader))
    out = tmp_path / "run.jsonl"
    said_of("journal", "export", "--job", "run", "--out", out, PROCTOR_JOURNAL=url)
    row = json.loads(out.read_text())
    assert row["source"] == "x = '\ufffd \U0001f600'"
    assert json.loads(row["grader"])["cases"][0]["args"] == ["\ud800"]


def test_parquet_names_the_package_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    url, out = written(tmp_path / "j", Evaluated(1)), tmp_path / "run.parquet"
    said = refused("journal", "export", "--job", "run", "--out", out, PROCTOR_JOURNAL=url)
    assert "pyarrow" in said
    assert not out.exists()


def test_parquet_has_the_rows_of_the_json_lines(tmp_path: Path) -> None:
    import pyarrow.parquet

    made = [Evaluated(number, f"x = {number} # \ud800") for number in range(1, 1502)]
    url = written(tmp_path / "j", *made, Evaluated(1502, judgement=None, reward=None))
    for name in ("run.jsonl", "run.parquet"):
        said_of("journal", "export", "--job", "run", "--out", tmp_path / name, PROCTOR_JOURNAL=url)
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    file = pyarrow.parquet.ParquetFile(tmp_path / "run.parquet")
    assert file.read().to_pylist() == rows
    assert file.num_row_groups == 2


def test_datasets_loads_both(tmp_path: Path) -> None:
    from datasets import load_dataset

    late = DeadlinePassed("too late")
    long = "# " + "x" * 200_000
    url = written(
        tmp_path / "j",
        Evaluated(1, judgement=None, reward=None, failure=late),
        Evaluated(2, step=3, tags=("a",), more={"graded_sandbox_id": "sb_1"}),
        *(Evaluated(number, f"{long}{number} \ud800") for number in range(3, 80)),
    )
    for form in ("jsonl", "parquet"):
        out = tmp_path / f"run.{form}"
        said_of("journal", "export", "--job", "run", "--out", out, PROCTOR_JOURNAL=url)
        loaded = load_dataset(
            "json" if form == "jsonl" else form,
            data_files=str(out),
            split="train",
            cache_dir=str(tmp_path / "cache"),
        )
        assert len(loaded) == 79
        assert sorted(loaded["reward"], key=str)[-1] is None
        assert set(loaded["error"]) == {None, "deadline"}


# ------------------------------------------------------------ report


def test_the_report_of_a_job(tmp_path: Path) -> None:
    late = Evaluated(3, judgement=None, reward=None, failure=DeadlinePassed("too late"))
    url = written(tmp_path / "j", Evaluated(1), Evaluated(2), late)
    said = said_of("journal", "report", "--job", "run", PROCTOR_JOURNAL=url)
    assert "3, 2 with a reward" in said
    assert "warning: 33.3% of the evaluations have no reward" in said
    found = json.loads(said_of("journal", "report", "--job", "run", "--json", PROCTOR_JOURNAL=url))
    assert (found["evaluations"], found["judged"]) == (3, 2)
    said = refused("journal", "report", "--job", "no \x1b[2J", PROCTOR_JOURNAL=url)
    assert "has no evaluation of this job" in said
    assert "\x1b" not in said


# ------------------------------------------------------------ prune


def test_prune_removes_what_is_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(
        "proctor_service.features.journal.entry.time.time", lambda: now - 10 * 86_400
    )
    old = [Evaluated(number).record() for number in range(1, 602)]
    old.append(played())
    monkeypatch.undo()
    forget_settings(monkeypatch)
    url = written(tmp_path / "j", Evaluated(1000), records=old)
    assert said_of("journal", "prune", "--days", "30", PROCTOR_JOURNAL=url) == "removed 0 records\n"
    assert (
        said_of("journal", "prune", "--days", "7", PROCTOR_JOURNAL=url) == "removed 602 records\n"
    )
    assert ids(said_of("journal", "list", "--limit", "9", PROCTOR_JOURNAL=url)) == [1000]
    said = said_of("journal", "show", Evaluated(1000).id, PROCTOR_JOURNAL=url)
    assert "return 2 * n" in said, "the texts of what stays are there"
    assert said_of("journal", "prune", "--days", "0", PROCTOR_JOURNAL=url) == "removed 1 record\n"


# ------------------------------------------------------------ replay


async def strict(submission: Submission, backend: Sandboxes) -> Judgement:
    """A judge of another version: sources say what becomes of them."""
    if "fault" in submission.source:
        raise DeadlinePassed("no answer today")
    if "worse" in submission.source:
        return FAILED
    return PASSED


def replayed(url: str, settings: Settings | None = None) -> Result:
    """A replay of the job `run` by a service with that judge."""
    with running_service(settings or Settings(), judge=strict) as service:
        return proctor("replay", "--job", "run", PROCTOR_URL=service.url, PROCTOR_JOURNAL=url)


def counts(result: Result) -> dict[str, str]:
    """The counts at the end of a replay."""
    pairs = (re.split(r"  +", line.strip(), maxsplit=1) for line in result.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def test_a_replay_without_changes_is_accepted(tmp_path: Path) -> None:
    url = written(tmp_path / "j", *(Evaluated(number) for number in range(1, 1202)))
    result = replayed(url)
    assert result.exit_code == 0, result.output
    assert counts(result) == {"judged again": "1201", "unchanged": "1201", "changed": "0"}


def test_a_replay_lists_exactly_what_changed(tmp_path: Path) -> None:
    url = written(
        tmp_path / "j",
        Evaluated(1),
        Evaluated(2, "x = 'worse'"),
        Evaluated(3, judgement=FAILED, reward=0.0),
        Evaluated(4, "x = 'worse'", FAILED, 0.0),
        Evaluated(5, judgement=Judgement("timeout"), reward=0.0, job="other"),
        Evaluated(6, "x = 'worse'", Judgement("timeout"), 0.0),
    )
    result = replayed(url)
    assert result.exit_code == 1, result.output
    found = counts(result)
    assert (found["judged again"], found["unchanged"], found["changed"]) == ("5", "2", "3")
    assert found["rewards changed"] == "2 (0 → 1 1, 1 → 0 1)"
    assert set(ids(result.stdout)) == {2, 3, 6}


def test_an_answer_without_a_reward_is_no_change(tmp_path: Path) -> None:
    url = written(tmp_path / "j", Evaluated(1), Evaluated(2, "x = 'fault'"))
    result = replayed(url)
    assert result.exit_code == 2, "not accepted either"
    found = counts(result)
    assert (found["judged again"], found["changed"]) == ("1", "0")
    assert found["no reward now"] == "1 (deadline 1)"
    changed = replayed(written(tmp_path / "k", Evaluated(1, "fault"), Evaluated(2, "worse")))
    assert changed.exit_code == 1


def test_what_cannot_be_judged_again_is_counted(tmp_path: Path) -> None:
    url = written(
        tmp_path / "j",
        Evaluated(1),
        Evaluated(2, no_code=True, judgement=Judgement("no_code", total=2), reward=0.0),
        Evaluated(3, judgement=None, reward=None, failure=DeadlinePassed("too late")),
        Evaluated(4, with_texts=False),
        Evaluated(5, state=b"archive"),
        Evaluated(6, more={"graded_sandbox_id": "sb_1"}),
        Evaluated(7, grader=HarborGrader(kind="harbor", tests={"test.sh": ""})),
    )
    result = replayed(url)
    assert result.exit_code == 0, result.output
    assert counts(result)["judged again"] == "1"
    said = re.sub(r"\s+", " ", result.stdout)
    for part in (
        "6 (the files of a stateful sandbox were judged, and these are not recorded: 3;",
        "its texts were not recorded (PROCTOR_JOURNAL_TEXTS=false): 1",
        "it was recorded without a reward: 1",
        "the completion had no code: 1",
    ):
        assert part in said


def test_submissions_that_the_service_refuses_leave_the_others(tmp_path: Path) -> None:
    wide = LIMITS.__class__(**{**{n: getattr(LIMITS, n) for n in LIMITS.__slots__}, "memory_mb": 9})
    url = written(
        tmp_path / "j",
        *(Evaluated(number, limits=wide) for number in range(1, 8)),
        Evaluated(8),
        Evaluated(9, "x = '\ud800'", limits=wide),
    )
    result = replayed(url, settings=Settings(memory_mb=16, max_memory_mb=16))
    assert result.exit_code == 2
    assert counts(result)["judged again"] == "7"
    assert counts(result)["no reward now"] == "2 (invalid_request 2)"
    assert "refused:" in result.stderr


def test_a_replay_judges_what_was_recorded(tmp_path: Path) -> None:
    """Source, grader, limits and files are those of the record; no cache answers."""
    seen: list[Submission] = []

    async def watching(submission: Submission, backend: Sandboxes) -> Judgement:
        seen.append(submission)
        return PASSED

    source = "\n\n  x = 1  # kept as it was judged\n"
    url = written(tmp_path / "j", Evaluated(1, source), Evaluated(2, source))
    with running_service(judge=watching) as service:
        result = proctor("replay", "--job", "run", PROCTOR_URL=service.url, PROCTOR_JOURNAL=url)
    assert result.exit_code == 0, result.output
    assert [each.source for each in seen] == [source, source]
    assert {each.limits for each in seen} == {LIMITS}
    assert all(each.grader == GRADER and each.scoring == "all" for each in seen)


# ------------------------------------------------------------ wrong use


def test_each_wrong_use_is_one_clear_line(tmp_path: Path) -> None:
    url, other = written(tmp_path / "j", Evaluated(1, with_texts=False)), tmp_path / "other.db"
    missing = tmp_path / "missing.db"
    other.write_text("this is no database, but a text of some length " * 40)
    out = tmp_path / "out.jsonl"
    show = ("journal", "show")

    def listed(journal: str, *options: str) -> str:
        return refused("journal", "list", *options, PROCTOR_JOURNAL=journal)

    assert "the journal is off" in listed("off")
    assert f"no journal is at {missing}" in listed(f"sqlite:///{missing}")
    assert not missing.exists()
    assert "PROCTOR_JOURNAL: expected sqlite:" in listed("nonsense")
    assert "PROCTOR_JOURNAL: expected sqlite:" in listed("mysql://localhost/x")
    assert "file is not a database" in listed(f"sqlite:///{other}")
    assert "no such record" in refused(*show, "ev_5", PROCTOR_JOURNAL=url)
    assert "no such record" in refused(*show, "ro_5", PROCTOR_JOURNAL=url)
    assert "of an evaluation is ev_" in refused(*show, "five", PROCTOR_JOURNAL=url)
    assert "--verdict good: it is one of passed" in listed(url, "--verdict", "good")
    export = ("journal", "export", "--out", out, "--job")
    assert "has no evaluations of the job none" in refused(*export, "none", PROCTOR_JOURNAL=url)
    assert not out.exists()
    where = ("journal", "export", "--job", "run", "--out")
    assert "No such file" in refused(*where, tmp_path / "no" / "folder", PROCTOR_JOURNAL=url)
    assert "it is no file" in refused(*where, tmp_path, PROCTOR_JOURNAL=url)
    with running_service() as service:
        here = {"PROCTOR_JOURNAL": url, "PROCTOR_URL": service.url}
        assert "the job none: it has no evaluations" in refused("replay", "--job", "none", **here)
        assert "can be judged again: 1 (its texts were not" in refused(
            "replay", "--job", "run", **here
        )
    nobody = proctor(
        "replay", "--job", "run", PROCTOR_JOURNAL=url, PROCTOR_URL="http://127.0.0.1:1"
    )
    assert (nobody.exit_code, "no service answers" in nobody.stderr) == (2, True)
