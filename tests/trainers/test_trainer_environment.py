"""A rollout's sandbox and its tools, at a real service: what a policy is told, and what it is worth."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from harness import Service, running_service
from pydantic import SecretStr
from recorded_steps import recorded_steps
from scripted_sandboxes import FakeBackend
from waits import WAIT_SECONDS

from proctor_client import Client, InvalidRequestError, UnauthorizedError, wire
from proctor_client.tasks.task import MissingColumns
from proctor_client.testing import FakeProctor
from proctor_service.sandboxes.registry import ENDINGS
from proctor_service.settings import Settings
from proctor_trainers.extras import MissingExtra
from proctor_trainers.observations import observe, tail
from proctor_trainers.trl import EnvironmentFactory, environment_factory
from proctor_trainers.trl.environment import Rules
from proctor_trainers.trl.toolbox import Tool, environment_class, unfenced
from proctor_trainers.trl.workplaces import OWN_ENDS, Order, Workplaces

TOOLS: tuple[Tool, ...] = get_args(Tool)
ROW = {"prompt": "Double it.", "tests": ["assert f(2) == 4"]}
RIGHT, WRONG = "def f(n):\n    return 2 * n\n", "def f(n):\n    return n\n"


@pytest.fixture
def factory(service: Service) -> Iterator[EnvironmentFactory]:
    with environment_factory(service.url, tools=TOOLS, retry_seconds=0, tags=["mine"]) as made:
        yield made


def begun(factory: EnvironmentFactory, **row: Any) -> Any:
    """An environment at the beginning of a rollout."""
    environment: Any = factory()
    environment.reset(**(row or ROW))
    return environment


def active(service: Service) -> int:
    with Client(service.url) as client:
        return client.count_active(tags=["trl-grpo", "mine"]).total


# ---------------------------------------------------------------- tools and rewards


@pytest.mark.slow
def test_the_tools_keep_their_state(factory: EnvironmentFactory) -> None:
    environment = begun(factory)
    assert environment.write_file("data/n.txt", "41") == "Wrote 2 bytes."
    assert environment.execute_code("print(int(open('data/n.txt').read()) + 1)") == "42\n"
    assert environment.bash("cat data/n.txt; exit 3") == "Exit code: 3\n41"
    assert environment.read_file("data/n.txt") == "41"
    assert environment.execute_code("pass") == "(no output)"
    assert "ZeroDivisionError" in environment.execute_code("1 / 0")
    assert environment.get_reward() == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "worth"),
    [
        (lambda each: each.submit_solution(RIGHT), 1.0),
        (lambda each: each.submit_solution(f"```python\n{RIGHT}```"), 1.0),
        (lambda each: each.submit_solution(WRONG), 0.0),
        (lambda each: each.write_file("solution.py", RIGHT), 1.0),
        (lambda each: each.execute_code(f"open('solution.py', 'w').write({RIGHT!r})"), 1.0),
        (lambda each: None, 0.0),
    ],
)
def test_the_reward_is_what_the_final_state_is_worth(
    act: Any, worth: float, factory: EnvironmentFactory, service: Service
) -> None:
    environment = begun(factory)
    act(environment)
    assert environment.get_reward() == worth
    assert environment.get_reward() == worth
    assert active(service) == 0


@pytest.mark.slow
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_of_a_factory_stops_its_own_sandboxes(
    copied: Callable[[EnvironmentFactory], EnvironmentFactory],
    factory: EnvironmentFactory,
    service: Service,
) -> None:
    with copied(factory) as other:
        assert begun(other).bash("echo here") == "here\n"
        assert active(service) == 1
    assert active(service) == 0


@pytest.mark.slow
def test_a_submission_ends_the_task(factory: EnvironmentFactory) -> None:
    environment = begun(factory)
    assert environment.submit_solution(WRONG) == "Submitted."
    over = "Error: the solution was submitted, the task is over"
    assert environment.submit_solution(RIGHT) == over
    assert environment.bash("rm solution.py") == over
    assert environment.get_reward() == 0.0


@pytest.mark.slow
def test_files_limits_and_scoring_of_a_task(service: Service) -> None:
    def task(row: Any) -> dict[str, Any]:
        tests = ["assert f(2) == 4", "assert f(0) == 1"]
        return {
            "grader": {"kind": "asserts", "tests": tests},
            "files": {"n.txt": row["n"]},
            "limits": {"memory_mb": 100},
            "scoring": "fraction",
        }

    with environment_factory(service.url, tools=TOOLS, task=task) as factory:
        environment = begun(factory, n="7")
        assert environment.bash("cat n.txt") == "7"
        assert "memory" in environment.execute_code("x = bytearray(300 << 20)").lower()
        environment.submit_solution(RIGHT)
        assert environment.get_reward() == 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("bash", ["sleep 60"], "Error: command timed out after 0.3 seconds"),
        ("execute_code", ["while True: pass"], "Error: command timed out after 0.3 seconds"),
        ("read_file", ["nowhere"], "Error: nowhere: No such file or directory"),
        ("write_file", ["../x", "x"], "Error: path: it has .. in it"),
        ("write_file", ["a\0b", "x"], "Error: path: it holds a NUL"),
        ("bash", ["echo \0"], "Error: a command cannot hold a NUL"),
        ("execute_code", ["'\ud800'"], "Error: the text cannot be written as UTF-8"),
        ("submit_solution", [7], "Error: every argument must be a string"),
        ("bash", [None], "Error: every argument must be a string"),
    ],
)
def test_what_a_policy_does_to_itself_is_told_to_it(
    tool: str, arguments: list[Any], told: str, service: Service
) -> None:
    with environment_factory(service.url, tools=TOOLS, exec_timeout_seconds=0.3) as factory:
        environment = begun(factory)
        assert getattr(environment, tool)(*arguments).startswith(told)
        environment.submit_solution(RIGHT)
        assert environment.get_reward() == 1.0


# ---------------------------------------------------------------- what is no doing of the policy


def test_a_service_that_is_gone_takes_the_reward_and_nobody_waits_twice() -> None:
    with environment_factory("http://127.0.0.1:1", tools=TOOLS, retry_seconds=0) as factory:
        environment = begun(factory)
        assert environment.submit_solution(RIGHT) == "Error: the sandbox cannot be used"
        assert environment.bash("ls") == "Error: the sandbox cannot be used"
        assert environment.get_reward() is None
        assert begun(factory).get_reward() is None


def test_a_wrong_token_ends_the_training_at_the_first_reward() -> None:
    settings = Settings(tokens=SecretStr('{"ours": "right-token"}'))
    with (
        running_service(settings) as service,
        environment_factory(service.url, token="wrong-token", tools=TOOLS) as factory,
    ):
        environment = begun(factory)
        assert environment.submit_solution(RIGHT) == "Error: the sandbox cannot be used"
        with pytest.raises(UnauthorizedError):
            environment.get_reward()
        environment.reset(**ROW)
        with pytest.raises(UnauthorizedError):
            environment.get_reward()


@pytest.mark.parametrize(
    ("own", "refused", "is_fatal"),
    [
        ({}, "limits.memory_mb: 64 is above this server's 32", True),
        ({}, "environment: no 'mine' here, only: default", True),
        ({"limits": {"memory_mb": 64}}, "limits.memory_mb: 64 is above this server's 32", False),
        ({"environment": "mine"}, "environment: no 'mine' here, only: default", False),
        ({"environment": "mine"}, "limits.memory_mb: 64 is above this server's 32", True),
        ({}, "files: '/a' is not relative", False),
    ],
)
def test_a_setting_that_the_service_refuses_ends_the_training_unless_it_is_a_rows_own(
    own: dict[str, Any], refused: str, is_fatal: bool
) -> None:
    def task(row: Any) -> dict[str, Any]:
        return {"grader": {"kind": "exec"}, **own}

    proctor = FakeProctor()
    with proctor.client() as client:
        workplaces = Workplaces(client, client, Order(limits={"memory_mb": 64}, environment="mine"))
        environment: Any = environment_class("proctor", TOOLS)(workplaces, Rules(task=task))
        environment.reset(**ROW)
        proctor.fail_next(1, status=422, reason="invalid_request", message=refused, retryable=False)
        assert environment.submit_solution(RIGHT) == "Error: the sandbox cannot be used"
        if is_fatal:
            with pytest.raises(InvalidRequestError, match=refused.partition(":")[0]):
                environment.get_reward()
        else:
            assert environment.get_reward() is None


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"limits": {"memory_mb": 1 << 30}}, "limits.memory_mb"),
        ({"environment": "nowhere"}, "environment"),
        ({"exec_timeout_seconds": 1e9}, "timeout_seconds"),
    ],
)
def test_settings_that_the_service_refuses_end_the_training_at_the_first_reward(
    settings: dict[str, Any], field: str
) -> None:
    with (
        running_service(backend=FakeBackend()) as service,
        environment_factory(service.url, tools=TOOLS, retry_seconds=0, **settings) as factory,
    ):
        environment = begun(factory)
        assert environment.bash("ls") == "Error: the sandbox cannot be used"
        with pytest.raises(InvalidRequestError, match=field):
            environment.get_reward()


@pytest.mark.slow
def test_a_rollout_after_a_failure_is_judged_again(
    factory: EnvironmentFactory, service: Service
) -> None:
    environment = begun(factory)
    environment.bash("true")
    with Client(service.url) as client:
        assert client.stop_sandboxes(["mine"]) == 1
    assert environment.submit_solution(RIGHT) == "Error: the sandbox cannot be used"
    assert environment.get_reward() is None
    environment.reset(**ROW)
    assert environment.submit_solution(RIGHT) == "Submitted."
    assert environment.get_reward() == 1.0


@pytest.mark.slow
def test_broken_tests_are_no_reward(factory: EnvironmentFactory) -> None:
    rows: list[dict[str, Any]] = [
        {"tests": ["assert f( =="]},
        {"tests": []},
        {"grader": {"kind": "nonsense"}},
    ]
    for row in rows:
        environment = begun(factory, **row)
        environment.submit_solution(RIGHT)
        assert environment.get_reward() is None


@pytest.mark.slow
def test_an_environment_that_was_never_reset_has_no_reward(factory: EnvironmentFactory) -> None:
    assert factory().get_reward() is None


@pytest.mark.slow
def test_a_data_set_that_says_nothing_of_judging_ends_the_training_at_once(
    factory: EnvironmentFactory,
) -> None:
    with pytest.raises(MissingColumns, match="the columns are: prompt"):
        begun(factory, prompt="…")


def test_a_sandbox_that_a_policy_brought_to_its_end_is_followed_by_another() -> None:
    inn = FakeBackend()
    with (
        running_service(backend=inn) as service,
        environment_factory(service.url, tools=TOOLS, retry_seconds=0) as factory,
    ):
        environment = begun(factory)
        environment.write_file("a", "1")
        service.call(lambda: inn.guests[0].end("memory_limit"))
        service.until(lambda: not inn.guests)
        told = environment.write_file("b", "2")
        assert told.startswith("Error: the sandbox ended: it used up its memory")
        assert environment.write_file("c", "3") == "Wrote 1 bytes."
        assert [list(each.files) for each in inn.guests] == [["c"]]
        service.call(lambda: inn.guests[0].end("memory_limit"))
        service.until(lambda: not inn.guests)
        assert environment.get_reward() == 0.0  # what a new one holds: no solution
        environment.reset(**ROW)
        environment.write_file("d", "4")
        service.call(lambda: inn.guests[0].kill())  # not the policy
        service.until(lambda: not inn.guests)
        assert environment.write_file("e", "5") == "Error: the sandbox cannot be used"
        assert environment.get_reward() is None


def test_the_ends_that_are_a_policys_own_are_those_of_the_service() -> None:
    assert {text for ending, text in ENDINGS.items() if ending != "killed"} == OWN_ENDS


# ---------------------------------------------------------------- sandboxes come and go


@pytest.mark.slow
def test_a_sandbox_is_made_when_it_is_needed_and_gone_when_the_next_rollout_begins(
    factory: EnvironmentFactory, service: Service
) -> None:
    environment = begun(factory)
    assert active(service) == 0
    environment.bash("true")
    assert active(service) == 1
    environment.reset(**ROW)
    assert active(service) == 0
    assert "No such file" in environment.read_file("solution.py")
    assert active(service) == 1
    factory.close()
    assert active(service) == 0


ENDS = """
import sys
from proctor_trainers.trl import environment_factory
environment = environment_factory(sys.argv[1], tags=["mine"])()
environment.reset(tests=["assert True"])
print(environment.execute_code("print('here')"), flush=True)
raise KeyboardInterrupt
"""


@pytest.mark.slow
def test_an_interrupted_process_leaves_no_sandbox(service: Service) -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", ENDS, service.url],
        env={"PYTHONPATH": f"{root}/client:{root}/trainers"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert (done.stdout, done.returncode != 0) == ("here\n\n", True), done.stderr
    assert active(service) == 0


# ---------------------------------------------------------------- steps, for the journal


def test_a_grade_has_the_step_of_the_trainer_with_the_callback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TrainerCallback:
        """As transformers' own, which is not installed here."""

    monkeypatch.setitem(
        sys.modules, "transformers", SimpleNamespace(TrainerCallback=TrainerCallback)
    )
    path = tmp_path / "journal.db"
    settings = Settings(journal=SecretStr(f"sqlite:///{path}"), workers=0)
    with (
        running_service(settings, backend=FakeBackend()) as service,
        environment_factory(service.url, tools=TOOLS, retry_seconds=0) as factory,
    ):
        callback: Any = factory.callback()
        assert issubclass(type(callback), TrainerCallback)
        environment = begun(factory)

        def rewarded() -> None:
            environment.reset(**ROW)
            environment.submit_solution(RIGHT)
            assert environment.get_reward() == 1.0

        rewarded()
        first, resumed = SimpleNamespace(global_step=0), SimpleNamespace(global_step=5)
        callback.on_init_end(None, first, None)
        rewarded()
        callback.on_train_begin(None, resumed, None, model=None)
        resumed.global_step += 1
        rewarded()
        assert recorded_steps(service.url, path) == {None: 1, 0: 1, 6: 1}


# ---------------------------------------------------------------- as TRL takes it


@pytest.mark.slow
def test_every_public_method_is_a_tool_with_types_and_a_docstring(
    factory: EnvironmentFactory,
) -> None:
    environment = factory()
    methods = dict(inspect.getmembers(type(environment), predicate=inspect.isfunction))
    public = {name for name in methods if not name.startswith("_")}
    assert public == {*TOOLS, "reset", "get_reward"}
    for tool in TOOLS:
        described = inspect.getdoc(methods[tool])
        assert described is not None
        for name in inspect.signature(getattr(environment, tool)).parameters:
            assert f"    {name}: " in described.partition("Args:")[2]


@pytest.mark.slow
def test_a_factory_gives_the_tools_that_were_asked_for(service: Service) -> None:
    with environment_factory(service.url, tools=["bash"], name="shell") as factory:
        environment = factory()
        assert type(environment).__name__ == "shell"
        assert hasattr(environment, "bash")
        assert not hasattr(environment, "submit_solution")
    tools: Any = ["bsh"]
    with pytest.raises(ValueError, match="there is no bsh, only: execute_code, bash"):
        environment_factory(service.url, tools=tools)
    with pytest.raises(ValueError, match="none is named"):
        environment_factory(service.url, tools=[])
    with pytest.raises(InvalidRequestError, match="ttl_seconds"):
        environment_factory(service.url, ttl_seconds=-1)


@pytest.mark.usefixtures("old_trl")
def test_a_trl_that_does_not_mask_is_refused() -> None:
    with pytest.raises(MissingExtra, match=r"TRL 1\.15 or later"):
        environment_factory()


# ---------------------------------------------------------------- texts


def test_observations_are_cut_at_the_front() -> None:
    assert tail("abc", 3) == "abc"
    cut = tail("x" * 100 + "end", 40)
    assert len(cut) <= 40
    assert cut.endswith("end")
    assert tail("x" * 100, 5) == ""
    result = wire.ExecResult(exit_code=1, stdout="a", stderr="b" * 100, ending="exited")
    told = observe(result, 1, 60)
    assert told.startswith("Exit code: 1\n[… ")
    assert len(told) <= 60
    over = wire.ExecResult(exit_code=None, ending="memory_limit", truncated=True, stdout="z")
    assert observe(over, 1, 200) == (
        "Error: command used more memory than it may\n[the output was longer than what is kept]\nz"
    )


@pytest.mark.parametrize(
    ("code", "program"),
    [
        ("x = 1\n", "x = 1\n"),
        ("```python\nx = 1\n```", "x = 1\n"),
        ("  ```\nx = 1\n```\n", "x = 1\n"),
        ("'''\n```\n'''", "'''\n```\n'''"),
        ("```", "```"),
        ("", ""),
    ],
)
def test_a_fence_around_a_submission_is_taken_off(code: str, program: str) -> None:
    assert unfenced(code) == program
