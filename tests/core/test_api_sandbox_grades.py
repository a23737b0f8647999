"""Grades of sandboxes over a real connection, with scripted sandboxes and a scripted judge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from requests_under_way import hanging_up
from sandbox_server import EXEC_GRADER, Held, ServerUnderTest, grade, serving

from proctor_service.errors import JudgeFailed


def test_the_final_state_is_judged(hotel: ServerUnderTest) -> None:
    sandbox = hotel.create(
        files={"solution.py": "x = 'ü'", "data": "1"},
        tags=["t"],
        limits={"disk_mb": 3, "total_cpu_seconds": 7},
    )["id"]
    found = grade(hotel, sandbox, grader=EXEC_GRADER, scoring="fraction")
    assert (found["index"], found["reward"], found["verdict"]) == (0, 1.0, "passed")
    assert (found["cache"], found["degraded"]) == ("miss", ["cgroups"])
    [judged] = hotel.judge.submissions
    assert (judged.source, judged.state) == ("x = 'ü'", b"data solution.py")
    assert (judged.scoring, judged.limits.disk_mb, judged.files) == ("fraction", 3, {})
    grade(hotel, sandbox, grader=EXEC_GRADER, limits={"cpu_seconds": 2})
    assert hotel.judge.submissions[1].limits.cpu_seconds == 2
    assert hotel.judge.submissions[1].limits.disk_mb == 3
    assert hotel.judge.submissions[1].limits.total_cpu_seconds == 7
    assert hotel.client.get(f"/sandboxes/{sandbox}").json()["status"] == "running"


def test_a_solution_is_judged_behind_its_prelude_and_its_prompt(hotel: ServerUnderTest) -> None:
    sandbox = hotel.create(files={"solution.py": "    return math.pi\n"})["id"]
    grader = {**EXEC_GRADER, "entry_point": "f"}
    grade(hotel, sandbox, grader=grader, prelude="import math", prompt_code="def f():\n")
    [judged] = hotel.judge.submissions
    assert judged.source == "import math\ndef f():\n    return math.pi\n"


def test_without_a_solution_there_is_no_code_or_the_state_alone(hotel: ServerUnderTest) -> None:
    sandbox = hotel.create()["id"]
    asserts = {"kind": "asserts", "tests": ["assert f()", "assert f()"]}
    found = grade(hotel, sandbox, grader=asserts)
    assert (found["verdict"], found["reward"]) == ("no_code", 0.0)
    assert found["tests"]["total"] == 2
    assert found["message"] == "There is nothing to judge: solution.py: no such file"
    assert hotel.judge.submissions == []
    for grader in (
        {"kind": "pytest", "files": {"test_x.py": ""}},
        {"kind": "command", "argv": ["true"]},
    ):
        assert grade(hotel, sandbox, grader=grader)["verdict"] == "passed"
        judged = hotel.judge.submissions[-1]
        assert (judged.source, judged.state) == ("", b"")


def test_files_that_the_agent_made_unreadable_are_a_verdict_and_no_error(
    hotel: ServerUnderTest,
) -> None:
    sandbox = hotel.create(files={"solution.py": ""})["id"]
    hotel.guest.full = True
    found = grade(hotel, sandbox, grader={"kind": "pytest", "files": {"test_x.py": ""}})
    assert (found["verdict"], found["reward"], found["error"]) == ("no_code", 0.0, None)
    assert "no means left" in found["message"]


def test_few_gradings_at_once_hold_the_files_of_a_sandbox() -> None:
    judge = Held()
    with serving(judge, slots=1) as hotel, ThreadPoolExecutor(10) as pool:

        def cancel_all() -> None:
            for batch in hotel.service.parts.core.running:
                batch.cancel("test")

        ids = [hotel.create(files={"solution.py": ""})["id"] for _ in range(10)]
        asked = [
            pool.submit(hotel.client.post, f"/sandboxes/{each}/grade", json={"grader": EXEC_GRADER})
            for each in ids
        ]
        gradings = hotel.service.parts.core.gradings
        hotel.service.until(lambda: gradings.queued == 8 and judge.entered == 1)
        assert sum(guest.snapshots for guest in hotel.inn.guests) == 2
        for each in ids:
            hotel.client.delete(f"/sandboxes/{each}")
        hotel.service.call(cancel_all)
        hotel.service.until(lambda: (gradings.busy, gradings.queued) == (0, 0))
        codes = sorted(each.result().status_code for each in asked)
        assert codes == [200] * 2 + [410] * 8


def test_a_solution_that_is_no_text_is_judged_all_the_same(hotel: ServerUnderTest) -> None:
    sandbox = hotel.create()["id"]
    hotel.client.put(f"/sandboxes/{sandbox}/files/solution.py", content=b"\xff")
    grade(hotel, sandbox, grader=EXEC_GRADER)
    grade(hotel, sandbox, grader={"kind": "command", "argv": ["true"]})
    assert [each.source for each in hotel.judge.submissions] == ["\udcff", ""]


def test_a_failure_to_judge_is_an_error_and_never_a_reward(hotel: ServerUnderTest) -> None:
    hotel.judge.failure = JudgeFailed("broken")
    sandbox = hotel.create(files={"solution.py": ""})["id"]
    found = grade(hotel, sandbox, grader=EXEC_GRADER)
    assert (found["reward"], found["verdict"]) == (None, None)
    assert found["error"]["reason"] == "judge_failed"


def test_a_client_that_hangs_up_ends_its_grading() -> None:
    judge = Held()
    with serving(judge) as hotel:
        sandbox = hotel.create(files={"solution.py": ""})["id"]
        kept = hotel.service.parts.core.registry.find("local", sandbox)
        url = f"/sandboxes/{sandbox}/grade"
        with hanging_up(hotel.service, url, {"grader": EXEC_GRADER}):
            hotel.service.until(lambda: judge.entered == 1)
            assert kept._uses == 1
        hotel.service.until(lambda: judge.cancelled == 1)
        hotel.service.until(lambda: kept._uses == 0)
        assert not hotel.service.parts.core.running
