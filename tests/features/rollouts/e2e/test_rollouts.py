"""POST /rollout for real: sandboxes, judge, and a policy server that errs as policies do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from constants import constants
from grace import grace_period
from harness import Service, running_service
from policy_server import Act, Asked, PolicyServer, calls, hangs, policy_server, says
from shared_data import shared_data
from waits import WAIT_SECONDS

from proctor_service.features.rollouts import workplaces
from proctor_service.settings import Settings

Row = dict[str, Any]
DOUBLE = {"kind": "asserts", "tests": ["assert double(2) == 4", "assert double(5) == 10"]}
RIGHT = "def double(n):\n    return 2 * n\n"
NDJSON = {"Accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with constants(policy_attempts=2), running_service(judge=None) as running:
        yield running


def request(server: PolicyServer, agent: Row, *tasks: Row, **fields: Any) -> Row:
    """A request for these tasks; those that lack something are about `double`."""
    return {
        "tasks": [
            {"id": str(number), "prompt": "Write double(n).", "grader": DOUBLE, **task}
            for number, task in enumerate(tasks or ({},))
        ],
        "policy": {"base_url": server.url, "model": "policy"},
        "agent": agent,
        **fields,
    }


def play(service: Service, body: Row) -> list[Row]:
    with service.client() as client:
        answer = client.post("/rollout", json=body, timeout=WAIT_SECONDS)
        assert answer.status_code == 200, answer.text
        found: list[Row] = answer.json()["trajectories"]
        return found


def play_one(service: Service, script: Any, agent: Row, **task: Any) -> Row:
    with policy_server(script) as server:
        [trajectory] = play(service, request(server, agent, task))
    return trajectory


def observations(trajectory: Row) -> list[str]:
    return [
        each["content"] for each in trajectory["messages_and_choices"] if each.get("role") == "tool"
    ]


def left_behind(service: Service) -> dict[str, int]:
    """The stateful sandboxes that are not over."""
    census = service.call(service.parts.core.registry.census)
    return {status: census[status] for status in ("pending", "running")}


NONE_LEFT = {"pending": 0, "running": 0}


# ---------------------------------------------------------------- MBPP


def problems() -> list[Row]:
    lines = shared_data("mbpp/mbpp.jsonl").read_text().splitlines()[:50]
    return [json.loads(line) for line in lines]


def as_task(problem: Row) -> Row:
    grader = {
        "kind": "asserts",
        "tests": problem["test_list"],
        "setup": problem["test_setup_code"],
    }
    prompt = f"{problem['task_id']}: {problem['text']}"
    return {"id": str(problem["task_id"]), "prompt": prompt, "grader": grader}


class Student:
    """Errs first, in its own way for each problem, and then gives the reference."""

    def __init__(self) -> None:
        self.code = {str(each["task_id"]): each["code"] for each in problems()}

    def name(self, asked: Asked) -> str:
        return asked.task.partition(":")[0]

    def refine(self, asked: Asked) -> Act:
        name = self.name(asked)
        if asked.turn == 0:
            return says(f"```python\nraise KeyError('slip {name}')\n```")
        return says(f"I see.\n```python\n{self.code[name]}\n```")

    def use_tools(self, asked: Asked) -> Act:
        name = self.name(asked)
        if asked.turn == 0:
            return calls(("execute_code", {"code": f"raise KeyError('slip {name}')"}))
        return calls(("submit_solution", {"code": self.code[name]}))


@pytest.mark.parametrize("kind", ["refine", "tools"])
def test_mbpp_is_solved_by_one_who_errs_first(service: Service, kind: str) -> None:
    student = Student()
    script = student.refine if kind == "refine" else student.use_tools
    with policy_server(script) as server:
        trajectories = play(service, request(server, {"kind": kind}, *map(as_task, problems())))
    assert [each["task_id"] for each in trajectories] == list(student.code)
    assert [each["error"] for each in trajectories] == [None] * 50
    assert [each["reward"] for each in trajectories] == [1.0] * 50
    second = {student.name(asked): asked.last for asked in server.received if asked.turn == 1}
    for name in student.code:
        assert f"slip {name}" in second[name], name
    assert left_behind(service) == NONE_LEFT


# ---------------------------------------------------------------- what goes wrong around it


@pytest.mark.parametrize("kind", ["refine", "tools"])
def test_a_policy_that_dies_in_the_middle_is_an_error_and_never_a_reward(
    service: Service, kind: str
) -> None:
    def script(asked: Asked) -> Act:
        if asked.turn:
            return hangs
        return says("prose") if kind == "refine" else calls(("execute_code", {"code": "1"}))

    with policy_server(script) as server:
        body = request(server, {"kind": kind}, trajectories_per_task=20)
        found: list[list[Row]] = []
        asking = threading.Thread(target=lambda: found.append(play(service, body)))
        asking.start()
        server.wait_for(40)
        server.kill()
        asking.join()
    [trajectories] = found
    assert [each["index"] for each in trajectories] == list(range(20))
    for each in trajectories:
        assert (each["reward"], each["verdict"]) == (None, None)
        assert each["error"]["reason"] == "policy_unavailable"
        assert each["error"]["retryable"] is True
        assert each["metrics"]["turns"] == 1
    assert left_behind(service) == NONE_LEFT


@pytest.mark.parametrize("headers", [{}, NDJSON])
def test_a_client_that_disappears_ends_its_rollouts(
    service: Service, headers: dict[str, str]
) -> None:
    def script(asked: Asked) -> Act:
        if asked.turn == 0:
            return calls(("execute_code", {"code": "open('a', 'w').close()"}))
        if asked.task == "talk":
            return hangs
        return calls(("bash", {"command": "sleep 1000"}))

    with policy_server(script) as server:
        agent = {"kind": "tools", "tools": ["execute_code", "bash"], "exec_timeout_seconds": 1000}
        body = request(server, agent, {"prompt": "talk"}, {}, trajectories_per_task=5)
        with (
            service.client() as client,
            client.stream("POST", "/rollout", json=body, headers=headers),
        ):
            server.wait_for(20)
            assert left_behind(service)["running"] == 10
        service.until(lambda: not service.parts.core.running)
        service.until(lambda: service.parts.core.registry.census()["running"] == 0)
        asked = len(server.received)
        assert service.parts.core.queue.busy == 0
    assert asked == 20


def test_a_deadline_ends_a_trajectory_without_a_reward(service: Service) -> None:
    with policy_server(lambda asked: hangs) as server:
        [trajectory] = play(service, request(server, {"kind": "tools"}, deadline_seconds=0.3))
    assert trajectory["error"]["reason"] == "deadline"
    assert trajectory["reward"] is None


def test_a_sandbox_that_somebody_else_stops_is_no_doing_of_the_policy(service: Service) -> None:
    def script(asked: Asked) -> Act:
        if asked.turn == 1:
            with service.client() as client:
                stopped = client.delete("/sandboxes", params={"tag": "run-7"}).json()["stopped"]
                assert stopped == 1
        return calls(("execute_code", {"code": "print(1)"}))

    with policy_server(script) as server:
        [trajectory] = play(service, request(server, {"kind": "tools"}, tags=["run-7"]))
    assert trajectory["error"]["reason"] == "cancelled"
    assert trajectory["reward"] is None


# ---------------------------------------------------------------- the agent's sandbox


def in_turn(*acts: Act) -> Any:
    """A script that goes through these acts, whoever asks."""
    return lambda asked: acts[min(asked.turn, len(acts) - 1)]


def test_files_and_processes_stay_from_call_to_call(service: Service) -> None:
    script = in_turn(
        calls(
            ("write_file", {"path": "pkg/one.py", "content": "ONE = 'é1'\n"}),
            ("bash", {"command": "pwd; cat given.txt; (sleep 100; echo no) & echo $! > pid"}),
        ),
        calls(
            ("execute_code", {"code": "from pkg.one import ONE; print(ONE)"}),
            ("bash", {"command": "kill -0 $(cat pid) && echo alive; exit 3"}),
            ("read_file", {"path": "pkg/one.py"}),
            ("read_file", {"path": "nothing.py"}),
        ),
        calls(("submit_solution", {"code": RIGHT})),
    )
    agent = {
        "kind": "tools",
        "tools": ["execute_code", "bash", "read_file", "write_file", "submit_solution"],
    }
    trajectory = play_one(service, script, agent, files={"given.txt": "given\n"})
    wrote, began, ran, alive, read, missing = observations(trajectory)
    assert wrote == "Wrote 12 bytes."
    assert began.endswith("\ngiven\n")
    assert ran == "é1\n"
    assert alive == "Exit code: 3\nalive\n"
    assert read == "ONE = 'é1'\n"
    assert missing.startswith("Error: ")
    assert "nothing.py" in missing
    assert trajectory["reward"] == 1.0
    assert trajectory["metrics"]["exec_errors"] == 2
    assert trajectory["metrics"]["tool_calls"] == 7
    assert trajectory["sandbox_id"].startswith("sb_")


def test_a_command_that_never_ends_is_told_to_the_policy(service: Service) -> None:
    script = in_turn(
        calls(("execute_code", {"code": "while True: pass"})),
        calls(("bash", {"command": "echo still here; sleep 1000"})),
        calls(("submit_solution", {"code": RIGHT})),
    )
    agent = {
        "kind": "tools",
        "tools": ["execute_code", "bash", "submit_solution"],
        "exec_timeout_seconds": 0.5,
    }
    trajectory = play_one(service, script, agent)
    spun, slept = observations(trajectory)
    assert spun == "Error: command timed out after 0.5 seconds"
    assert slept == "Error: command timed out after 0.5 seconds\nstill here\n"
    assert trajectory["reward"] == 1.0


BOMB = "b = []\nwhile True: b.append(bytearray(1 << 20))"
KILL_ALL = "import os, signal\nos.kill(-1, signal.SIGKILL)"


@pytest.mark.parametrize("act", [BOMB, KILL_ALL, "import os\nwhile True: os.fork()"])
def test_what_an_agent_does_to_its_sandbox_is_no_failure(service: Service, act: str) -> None:
    script = in_turn(
        calls(("execute_code", {"code": act})),
        calls(("bash", {"command": "cat given.txt"})),
        calls(("submit_solution", {"code": RIGHT})),
    )
    agent = {
        "kind": "tools",
        "tools": ["execute_code", "bash", "submit_solution"],
        "exec_timeout_seconds": 5,
    }
    with policy_server(script) as server:
        limits = {"memory_mb": 64, "processes": 16}
        body = request(server, agent, {"files": {"given.txt": "given"}}, limits=limits)
        [trajectory] = play(service, body)
    assert trajectory["error"] is None, trajectory["error"]
    assert trajectory["reward"] == 1.0
    assert observations(trajectory)[-1].endswith("given")
    assert left_behind(service) == NONE_LEFT


def test_long_output_is_cut_to_its_end(service: Service) -> None:
    script = in_turn(
        calls(("execute_code", {"code": "print('x' * 5000); raise ValueError('the end')"})),
        calls(("submit_solution", {"code": RIGHT})),
    )
    agent = {"kind": "tools", "observation_characters": 300}
    [text] = observations(play_one(service, script, agent))
    assert len(text) <= 300
    assert text.startswith("Exit code: 1\n[… ")
    assert text.endswith("ValueError: the end\n")


# ---------------------------------------------------------------- the verdict


PATCHES = """
import builtins, os, pathlib, subprocess, sys
for path in ("solution.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "/tmp/sitecustomize.py"):
    pathlib.Path(path).write_text("import builtins\\nbuiltins.double = lambda n: 2 * n\\n")
os.environ["PYTHONPATH"] = os.getcwd()
os.environ["PYTHONSTARTUP"] = os.getcwd() + "/sitecustomize.py"
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
"""


def test_nothing_that_an_agent_did_in_its_sandbox_touches_the_verdict(service: Service) -> None:
    script = in_turn(
        calls(("execute_code", {"code": PATCHES})),
        calls(("submit_solution", {"code": "def double(n):\n    return n\n"})),
    )
    trajectory = play_one(service, script, {"kind": "tools"})
    assert (trajectory["verdict"], trajectory["reward"]) == ("failed", 0.0)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (RIGHT, "passed"),
        (f"Here:\n```python\n{RIGHT}```", "passed"),
        (f"<answer>\n{RIGHT}</answer>", "passed"),
        (f'"""Not\n```python\nthis\n```\n"""\n{RIGHT}', "passed"),
        ("def double(n):\n    return n\n", "failed"),
        ("def double(n:\n", "syntax_error"),
        ("  \n", "no_code"),
        ("", "no_code"),
    ],
)
def test_what_a_submission_is_worth(service: Service, code: str, verdict: str) -> None:
    script = in_turn(calls(("submit_solution", {"code": code})))
    trajectory = play_one(service, script, {"kind": "tools"})
    assert trajectory["verdict"] == verdict
    assert trajectory["reward"] == (1.0 if verdict == "passed" else 0.0)


def test_a_submission_is_judged_with_the_tasks_files_as_they_were(service: Service) -> None:
    script = in_turn(
        calls(("execute_code", {"code": "open('factor.txt', 'w').write('7')"})),
        calls(
            (
                "submit_solution",
                {"code": "F = int(open('factor.txt').read())\ndef double(n): return F * n"},
            )
        ),
    )
    trajectory = play_one(service, script, {"kind": "tools"}, files={"factor.txt": "2"})
    assert trajectory["reward"] == 1.0


WORKER = {"kind": "tools", "tools": ["bash", "read_file", "write_file"]}


def test_without_submit_solution_the_final_state_is_judged(service: Service) -> None:
    script = in_turn(
        calls(("bash", {"command": "sed -i s/7/2/ factor.py"})),
        calls(
            (
                "write_file",
                {
                    "path": "solution.py",
                    "content": "from factor import F\ndef double(n): return F * n",
                },
            )
        ),
        says("Done."),
    )
    files = {"factor.py": "F = 7"}
    trajectory = play_one(service, script, WORKER, files=files)
    assert (trajectory["verdict"], trajectory["reward"]) == ("passed", 1.0)
    test = {
        "kind": "pytest",
        "files": {"test_it.py": "import factor\ndef test(): assert factor.F == 2"},
    }
    fixed = in_turn(calls(("bash", {"command": "sed -i s/7/2/ factor.py"})), says("Done."))
    trajectory = play_one(service, fixed, WORKER, files=files, grader=test)
    assert (trajectory["verdict"], trajectory["reward"]) == ("passed", 1.0)
    trajectory = play_one(service, in_turn(says("Done.")), WORKER, files=files, grader=test)
    assert (trajectory["verdict"], trajectory["reward"]) == ("no_code", 0.0)


def test_a_final_state_is_judged_while_the_service_drains() -> None:
    answers_last, released = threading.Event(), threading.Event()

    def last(handler: Any) -> None:
        answers_last.set()
        released.wait(WAIT_SECONDS)
        says("Done.")(handler)

    script = in_turn(calls(("write_file", {"path": "solution.py", "content": RIGHT})), last)
    with (
        grace_period() as grace,
        policy_server(script) as server,
        running_service(Settings(grace_seconds=grace.seconds), judge=None) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(play, service, request(server, WORKER))
        try:
            assert answers_last.wait(WAIT_SECONDS)
            service.drain()
        finally:
            released.set()
        [trajectory] = asked.result()
        assert (trajectory["verdict"], trajectory["reward"]) == ("passed", 1.0), trajectory


def test_a_final_state_without_a_solution_is_no_code(service: Service) -> None:
    for script in (
        in_turn(says("Done.")),
        in_turn(calls(("bash", {"command": "ls"})), says("Done.")),
    ):
        trajectory = play_one(service, script, WORKER)
        assert (trajectory["verdict"], trajectory["reward"]) == ("no_code", 0.0)
    trajectory = play_one(service, in_turn(says("Fine.")), WORKER, files={"solution.py": RIGHT})
    assert trajectory["reward"] == 1.0


@pytest.mark.parametrize("reveal", [False, True])
def test_feedback_tells_expected_values_only_where_the_grader_reveals_them(
    service: Service, reveal: bool
) -> None:
    grader = {
        "kind": "calls",
        "entry_point": "f",
        "cases": [{"args": [1], "expected": "sesame"}],
        "reveal": reveal,
    }
    script = in_turn(says("```python\ndef f(n): return 'guess'\n```"))
    with policy_server(script) as server:
        body = request(server, {"kind": "refine", "max_attempts": 2}, {"grader": grader})
        [trajectory] = play(service, body)
        told = server.received[1].last
    assert "guess" in told
    assert ("sesame" in json.dumps(trajectory)) is reveal
    assert told.endswith("Fix it and answer with the whole program.")
    assert trajectory["metrics"]["attempts"] == 2
    assert trajectory["metrics"]["hit_max_turns"] == 1
    assert trajectory["reward"] == 0.0


# ---------------------------------------------------------------- room and time


def test_trajectories_wait_where_there_is_room_for_one_sandbox_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workplaces, "ASK_AGAIN_SECONDS", 0.01)
    script = in_turn(
        calls(("bash", {"command": "ls"})), calls(("submit_solution", {"code": RIGHT}))
    )
    agent = {"kind": "tools", "tools": ["bash", "submit_solution"]}
    with (
        policy_server(script) as server,
        running_service(Settings(max_stateful_sandboxes=1), judge=None) as service,
    ):
        trajectories = play(service, request(server, agent, trajectories_per_task=6))
    assert [each["reward"] for each in trajectories] == [1.0] * 6


def test_files_that_no_sandbox_has_room_for_are_the_tasks_fault(service: Service) -> None:
    with policy_server(in_turn(calls(("execute_code", {"code": "1"})))) as server:
        task = {"files": {"large.txt": "x" * (3 << 20)}}
        body = request(server, {"kind": "tools"}, task, limits={"disk_mb": 1})
        [trajectory] = play(service, body)
    assert trajectory["error"]["reason"] == "invalid_task"
    assert trajectory["error"]["retryable"] is False
    assert trajectory["reward"] is None


def test_many_trajectories_keep_their_sandboxes_apart(service: Service) -> None:
    def script(asked: Asked) -> Act:
        name = asked.task
        if asked.turn == 0:
            return calls(("bash", {"command": f"ls; echo {name} > mine; echo {name} > /tmp/mine"}))
        if asked.turn == 1:
            return calls(("bash", {"command": "cat mine /tmp/mine; ls /tmp"}))
        return calls(("submit_solution", {"code": RIGHT}))

    agent = {"kind": "tools", "tools": ["bash", "submit_solution"]}
    with policy_server(script) as server:
        tasks = [{"prompt": f"p{number}"} for number in range(60)]
        trajectories = play(service, request(server, agent, *tasks))
    for number, trajectory in enumerate(trajectories):
        assert trajectory["error"] is None
        assert observations(trajectory) == ["(no output)", f"p{number}\np{number}\nmine\n"]
    assert len({each["sandbox_id"] for each in trajectories}) == 60
    assert left_behind(service) == NONE_LEFT
