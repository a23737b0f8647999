"""What is ours before a program's first statement: it costs the program no time, and fails it in no depth."""

from __future__ import annotations

import pytest
from archives import archive
from state_judging import DOUBLE, EXEC, GRADERS, LIMITS, WRONG, Ask, Places

from proctor_client.wire import AssertsGrader, StdioCase, StdioGrader
from proctor_service.errors import InvalidTask, SandboxLost
from proctor_service.sandbox.interface import Command
from proctor_service.sandbox.linux import time_limits

MANY = [(f"work/d{number // 100}/f{number}.py", "x = 1\n") for number in range(15_500)]
ROOM = {"cpu_seconds": 1, "disk_mb": 256}


@pytest.mark.parametrize("kind", ["exec", "asserts in two rooms", "command"])
def test_unpacking_costs_the_program_nothing(judge: Ask, kind: str) -> None:
    judged = judge(DOUBLE, {**GRADERS, "exec": EXEC}[kind], archive(*MANY), limits=ROOM)
    assert (judged.verdict, judged.message) == ("passed", "")
    assert judged.usage.cpu_seconds < 0.5


def test_nor_does_it_cost_a_compiled_program_anything(judge: Ask) -> None:
    state = archive(("work/head", "#!/bin/sh\n"), ("work/data", "42"), *MANY)
    grader = StdioGrader(kind="stdio", cases=[StdioCase(stdout="42")])
    judged = judge("cat data", grader, state, limits=ROOM, language="glued")
    assert (judged.verdict, judged.message) == ("passed", "")
    assert judged.usage.cpu_seconds < 0.8


@pytest.mark.parametrize(
    "source", ["while True: pass", "import time\ntime.sleep(60)"], ids=["cpu", "idle"]
)
def test_after_it_a_program_has_its_own_time_and_no_more(judge: Ask, source: str) -> None:
    limits = {"cpu_seconds": 0.5, "wall_seconds": 0.5, "disk_mb": 256}
    assert judge(source, EXEC, archive(*MANY[:5000]), limits=limits).verdict == "timeout"


DEEP = archive((f"work/{'a/' * 1900}near", "1"), (f"work/{'b/' * 3000}far", "2"))


@pytest.mark.parametrize("kind", [*GRADERS, "exec"])
def test_folders_deeper_than_any_path_stand_beside_a_solution(judge: Ask, kind: str) -> None:
    grader = {**GRADERS, "exec": EXEC}[kind]
    judged = judge(DOUBLE, grader, DEEP)
    assert (judged.verdict, judged.message) == ("passed", "")
    if kind != "exec":
        assert judge(WRONG, grader, DEEP).verdict == "failed"


DIVE = """
import os
for _ in range({depth}):
    os.mkdir("d")
    os.chdir("d")
    open("f", "w").close()
"""


@pytest.mark.parametrize("depth", [2043, 2050, 5000])
def test_what_an_agent_dug_is_graded(places: Places, depth: int) -> None:
    async def dug() -> bytes:
        async with places.backend.open(LIMITS) as sandbox:
            ended = await sandbox.exec(Command(code=DIVE.format(depth=depth)))
            assert (ended.exit_code, ended.stderr) == (0, b"")
            return await sandbox.snapshot()

    judged = places.judge(DOUBLE, GRADERS["asserts"], places.runner.run(dug()))
    assert (judged.verdict, judged.message) == ("passed", "")


# ---------------------------------------------------------------- the tests' setup

TESTS = {"calls": ["assert f(1) == 2"], "values": ["for n in range(5):\n    assert f(n) == n + n"]}
BURNS = "import time\nwhile time.process_time() < 0.9: pass\n"
NAPS = "import time\ntime.sleep(1.2)\n"
ENDLESS = ("while True: pass", "import time\ntime.sleep(60)")
FORGES = """
import os
for number in range(3, 1024):
    try: os.write(number, b"!began 900000000 1\\n")
    except OSError: pass
while True: pass
"""


@pytest.mark.parametrize("level", TESTS)
def test_setup_that_runs_before_the_submission_is_not_its_time(judge: Ask, level: str) -> None:
    limits = {"cpu_seconds": 0.6, "wall_seconds": 0.6}
    for setup in (BURNS, NAPS):
        grader = AssertsGrader(kind="asserts", tests=TESTS[level], setup=setup)
        assert judge(DOUBLE, grader, None, limits=limits).verdict == "passed", setup
    # What lies beside the submission may run in the setup, and could say that the program begins.
    grader = AssertsGrader(kind="asserts", tests=TESTS[level], setup="import beside")
    for beside in (BURNS, NAPS, FORGES):
        state = archive(("work/beside.py", beside))
        assert judge(DOUBLE, grader, state, limits=limits).verdict == "timeout", beside


@pytest.mark.parametrize("level", TESTS)
def test_setup_without_an_end_is_an_invalid_task(
    judge: Ask, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "PREPARATION_SECONDS", 0.5)
    for setup in ENDLESS:
        grader = AssertsGrader(kind="asserts", tests=TESTS[level], setup=setup)
        with pytest.raises(InvalidTask, match="took too much time"):
            judge(DOUBLE, grader, None, limits={"cpu_seconds": 0.1, "wall_seconds": 0.1})


def test_unpacking_without_an_end_is_our_error(judge: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limits, "PREPARATION_SECONDS", 0.05)
    limits = {"cpu_seconds": 0.05, "disk_mb": 256}
    with pytest.raises(SandboxLost, match="took too much time"):
        judge(DOUBLE, EXEC, archive(*MANY), limits=limits)
