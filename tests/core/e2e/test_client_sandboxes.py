"""The client's sandboxes, sessions and rollouts with the real service and real sandboxes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from client_blocking import Kind, a_client, a_session
from harness import Service
from policy_server import Act, Asked, calls, fails, hangs, policy_server, says
from waits import WAIT_SECONDS

import proctor_client
from proctor_client import (
    AsyncClient,
    AsyncSandbox,
    AsyncSession,
    Client,
    InvalidRequestError,
    ProctorError,
    SandboxFileError,
    SandboxNotFoundError,
    SandboxStoppedError,
    SandboxTimeoutError,
    wire,
)

DOUBLE = {"kind": "asserts", "tests": ["assert double(2) == 4", "assert double(5) == 10"]}
RIGHT = "def double(n):\n    return 2 * n\n"
API_KEY = "sk-do/not+show=me"


@pytest.fixture(params=["threads", "loops"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(autouse=True)
def _none_left(service: Service) -> Iterator[None]:
    """Whatever a test does, it leaves no sandbox."""
    yield
    with Client(service.url) as client:
        assert client.count_active().total == 0


# ---------------------------------------------------------------- one sandbox


def test_an_agents_loop(service: Service, kind: Kind) -> None:
    test = "from solution import double\nassert double(5) == 10, double(5)\nprint('fine')\n"
    files = {"solution.py": "def double(n):\n    return n + 2\n", "tests/check.py": test}
    with a_client(kind, service.url) as client:
        with client.sandbox(tags=["agent"], files=files) as sandbox:
            check = ["bash", "-c", "PYTHONPATH=. python3 tests/check.py"]
            seen = sandbox.exec(check, timeout_seconds=30)
            assert (seen.exit_code, seen.ending) == (1, "exited")
            assert "AssertionError: 7" in seen.stderr
            code = sandbox.read_file("solution.py").decode()
            sandbox.write_file("solution.py", code.replace("n + 2", "2 * n"))
            seen = sandbox.exec(check, timeout_seconds=30)
            assert (seen.exit_code, seen.stdout) == (0, "fine\n")
            result = sandbox.grade(DOUBLE)
            assert (result.reward, result.verdict, result.error) == (1.0, "passed", None)
            assert sandbox.refresh().exec_stats == sandbox.exec_stats
            assert sandbox.exec_stats == wire.ExecStats(total=2, successes=1, failures=1)
        with pytest.raises(SandboxStoppedError):
            sandbox.exec(["true"])


def test_the_state_stays_from_call_to_call(service: Service, kind: Kind) -> None:
    with a_client(kind, service.url) as client, client.sandbox() as sandbox:
        sandbox.exec(code="import os; os.environ['SEEN'] = 'yes'; open('f', 'w').write('1')")
        assert sandbox.exec(code="import os; print(os.environ['SEEN'])").stdout == "yes\n"
        assert sandbox.exec(["cat", "f", "-"], stdin="2").stdout == "12"
        assert sandbox.exec(["no-such-program"]).exit_code == 127


def test_a_command_at_its_time_limit(service: Service, kind: Kind) -> None:
    with a_client(kind, service.url) as client, client.sandbox() as sandbox:
        with pytest.raises(SandboxTimeoutError, match=r"timed out after 0\.5 seconds") as caught:
            sandbox.exec(["sh", "-c", "echo half; sleep 60"], timeout_seconds=0.5)
        assert caught.value.result.stdout == "half\n"
        with pytest.raises(SandboxTimeoutError) as caught:
            list(
                sandbox.stream(code="print('x', flush=True)\nwhile True: pass", timeout_seconds=0.5)
            )
        assert caught.value.result.stdout == "x\n"
        assert sandbox.exec(["echo", "alive"]).stdout == "alive\n"
        assert sandbox.exec_stats == wire.ExecStats(total=3, successes=1, errors=2)
        assert sandbox.refresh().exec_stats == sandbox.exec_stats


def test_output_comes_while_the_command_runs(service: Service, kind: Kind) -> None:
    program = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo last >&2; exit 3"
    with a_client(kind, service.url) as client, client.sandbox() as sandbox:
        output = sandbox.stream(["sh", "-c", program])
        assert next(output).stdout == "first\n"
        sandbox.write_file("go", b"")
        assert [each.stderr for each in output] == ["last\n", None]
        assert (output.result.exit_code, output.result.stdout) == (3, "first\n")


def test_files_of_every_kind(service: Service, kind: Kind) -> None:
    large = bytes(range(256)) * 8192
    with a_client(kind, service.url) as client, client.sandbox(limits={"disk_mb": 16}) as sandbox:
        for path in ("a", "deep/er/ü ?#%.bin", "/tmp/absolute", "./b/./c", "..."):
            sandbox.write_file(path, large)
            assert sandbox.read_file(path) == large
        assert sandbox.exec(["test", "-s", "deep/er/ü ?#%.bin"]).exit_code == 0
        assert sandbox.exec(["test", "-s", "/tmp/absolute"]).exit_code == 0
        for path, reason in (("none", "file_not_found"), ("deep", "invalid_request")):
            with pytest.raises(SandboxFileError) as caught:
                sandbox.read_file(path)
            assert caught.value.reason == reason
        with pytest.raises(SandboxFileError):
            sandbox.write_file("deep", b"")
        with pytest.raises(SandboxFileError):
            sandbox.write_file("too-large", b"x" * (17 << 20))
        with pytest.raises(SandboxFileError):
            sandbox.write_file("a\0b", b"")


def test_an_order_that_the_service_refuses(service: Service, kind: Kind) -> None:
    with a_client(kind, service.url) as client:
        sandbox = client.sandbox(limits={"memory_mb": 1 << 30})
        with pytest.raises(InvalidRequestError, match="memory_mb"):
            sandbox.start()
        refused = client.sandbox(files={"../../escape": "x"})
        with pytest.raises(InvalidRequestError):
            refused.start()


def test_one_made_elsewhere_and_one_that_is_nobodys(service: Service, kind: Kind) -> None:
    with a_client(kind, service.url) as client, Client(service.url) as other:
        mine = client.sandbox(tags=["mine"])
        mine.start()
        attached = other.attach(mine.id)
        attached.write_file("f", "1")
        assert mine.read_file("f") == b"1"
        assert [each.id for each in other.sandboxes(tags=["mine"], status="running")] == [mine.id]
        assert attached.stop()
        with pytest.raises(SandboxStoppedError):
            mine.stop()
        mine.close()
        with pytest.raises(SandboxNotFoundError):
            client.attach("sb_nobodys").refresh()


# ---------------------------------------------------------------- many


def test_a_hundred_sandboxes_each_with_what_is_its_own(service: Service, kind: Kind) -> None:
    with a_client(kind, service.url) as client:
        with a_session(client, tags=["hundred"], limits={"memory_mb": 64}) as session:
            made = session.start(100)
            assert client.count_active(tags=["hundred"]).running == 100
            program = "import sys; open('mine', 'x').write(sys.stdin.read())"
            pending = [session.submit(each, code=program, stdin=each.id) for each in made]
            seen = 0
            while pending:
                done, pending = session.wait(pending, num_returns=7)
                seen += len(done)
                assert [each.result().exit_code for each in done] == [0] * len(done)
            assert seen == 100
            pending = [session.submit(each, ["cat", "mine"]) for each in made]
            done, rest = session.wait(pending, num_returns=100)
            assert not rest
            assert {each.result().stdout for each in done} == {each.id for each in made}
            assert all(each.result().stdout == each.sandbox.id for each in done)
            assert session.stats.sandboxes_created == 100
            assert (session.stats.executions, session.stats.success_rate) == (200, 1.0)
            made[0].stop()
            client.attach(made[1].id).stop()
        assert client.count_active().total == 0


def test_an_exception_ends_all(service: Service, kind: Kind) -> None:
    def work(client: Any) -> None:
        with a_session(client) as session:
            made = session.start(20)
            session.submit(made[0], ["sleep", "60"])
            with session.sandbox():
                raise ZeroDivisionError

    with a_client(kind, service.url) as client:
        with pytest.raises(ZeroDivisionError):
            work(client)
        assert client.count_active().total == 0


# ---------------------------------------------------------------- broken off in the middle

WORKER = """
import sys
from proctor_client import Client, Session

phase, url, tag = sys.argv[1:]
with Client(url) as client, Session(client, tags=[tag]) as session:
    if phase == "creating":
        print("go", flush=True)
        while True:
            session.start(50)
    made = session.start(10)
    if phase == "waiting":
        pending = [session.submit(each, ["sleep", "60"]) for each in made]
        print("go", flush=True)
        session.wait(pending, num_returns=10)
    if phase == "executing":
        print("go", flush=True)
        with session.sandbox() as sandbox:
            sandbox.exec(["sleep", "60"])
    if phase == "streaming":
        for line in made[0].stream(["sh", "-c", "echo go; sleep 60"]):
            print(line.stdout, flush=True)
"""


# asyncio.run has no wake-up descriptor for signals: a loop does not notice a signal that arrives just
# before it begins to wait, until something else ends the wait. So this loop never waits for long.
ASYNC_WORKER = """
import asyncio, sys
from proctor_client import AsyncClient, AsyncSession

async def wake_up():
    while True:
        await asyncio.sleep(0.1)

async def main(phase, url, tag):
    waking = asyncio.create_task(wake_up())
    async with AsyncClient(url) as client, AsyncSession(client, tags=[tag]) as session:
        if phase == "creating":
            print("go", flush=True)
            while True:
                await session.start(50)
        made = await session.start(10)
        if phase == "waiting":
            pending = [session.submit(each, ["sleep", "60"]) for each in made]
            print("go", flush=True)
            await session.wait(pending, num_returns=10)
        if phase == "executing":
            print("go", flush=True)
            async with session.sandbox() as sandbox:
                await sandbox.exec(["sleep", "60"])
        if phase == "streaming":
            async for line in made[0].stream(["sh", "-c", "echo go; sleep 60"]):
                print(line.stdout, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("program", [WORKER, ASYNC_WORKER], ids=["threads", "loops"])
@pytest.mark.parametrize("phase", ["creating", "waiting", "executing", "streaming"])
def test_ctrl_c_leaves_no_sandbox(service: Service, phase: str, program: str) -> None:
    home = Path(proctor_client.__file__).parents[1]
    tag = f"{phase}-{'loops' if program == ASYNC_WORKER else 'threads'}"
    with subprocess.Popen(
        [sys.executable, "-c", program, phase, service.url, tag],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(home), "NO_PROXY": "127.0.0.1"},
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "go\n"
        if phase == "creating":
            service.until(lambda: service.parts.core.registry.census()["running"] >= 5)
        worker.send_signal(signal.SIGINT)
        _, said = worker.communicate(timeout=WAIT_SECONDS)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert "not stopped" not in said
    assert "never retrieved" not in said
    with Client(service.url) as client:
        assert len(client.sandboxes(tags=[tag], status="stopped")) >= 5
        assert client.stop_sandboxes([tag]) == 0


def test_a_cancelled_task_leaves_no_sandbox_wherever_it_is(service: Service) -> None:
    async def work(client: AsyncClient, ready: asyncio.Event) -> None:
        async with AsyncSession(client) as session, client.sandbox() as own:
            made = await session.start(5)
            session.submit(made[0], ["sleep", "60"])
            ready.set()
            await own.exec(["sleep", "60"])

    async def cancelled_after(turns: int | None) -> None:
        async with AsyncClient(service.url) as client:
            ready = asyncio.Event()
            task = asyncio.create_task(work(client, ready))
            if turns is None:
                await ready.wait()
            for _ in range(turns or 5):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.count_active()).total == 0

    for turns in (None, 1, 10, 20, 40, 80):
        asyncio.run(cancelled_after(turns))


def test_a_cancelled_command_is_killed_and_its_sandbox_lives(service: Service) -> None:
    async def work(sandbox: AsyncSandbox) -> None:
        async with sandbox.stream(["sh", "-c", "echo $$; exec sleep 61"]) as output:
            first = await anext(output)
            pid = (first.stdout or "").strip()
            alive = ["sh", "-c", f"kill -0 {pid} 2>/dev/null && echo alive"]
            assert (await sandbox.exec(alive)).stdout == "alive\n"
        async with asyncio.timeout(WAIT_SECONDS):
            while (await sandbox.exec(alive)).exit_code == 0:
                pass

    async def cancelled() -> None:
        async with AsyncClient(service.url) as client, client.sandbox() as sandbox:
            await work(sandbox)

    asyncio.run(cancelled())


def test_threads_share_a_client_and_a_sandbox(service: Service) -> None:
    def used(number: int) -> str:
        sandbox.write_file(f"f{number}", str(number))
        return sandbox.exec(["cat", f"f{number}"]).stdout

    with Client(service.url) as client, client.sandbox() as sandbox:
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(used, range(40))) == [str(number) for number in range(40)]
        assert sandbox.exec_stats == wire.ExecStats(total=40, successes=40)
        assert sandbox.refresh().exec_stats == sandbox.exec_stats


# ---------------------------------------------------------------- rollouts


def answers(asked: Asked) -> Act:
    """Errs first, and then answers rightly; task `down` fails for good."""
    if asked.task == "down":
        return fails(400, f"your key is {API_KEY}")
    if asked.turn == 0:
        return calls(("execute_code", {"code": "print(double(2))"}))
    assert "NameError" in asked.last
    return calls(("submit_solution", {"code": RIGHT}))


def test_a_rollout_whole_and_as_it_comes(service: Service, kind: Kind) -> None:
    tasks = [
        {"id": "good", "prompt": "Write double(n).", "grader": DOUBLE, "metadata": {"a": [1]}},
        {"id": "bad", "prompt": "down", "grader": DOUBLE},
    ]
    with policy_server(answers) as server, a_client(kind, service.url) as client:
        policy = {"base_url": server.url, "model": "policy", "api_key": API_KEY}
        whole = client.rollout(tasks, policy=policy, trajectories_per_task=2)
        with client.rollout_stream(tasks, policy=policy, trajectories_per_task=2) as stream:
            lines = list(stream)
            assert (stream.summary.count, stream.summary.errors) == (4, 2)
        assert {each.headers["authorization"] for each in server.received} == {f"Bearer {API_KEY}"}
    assert [each.task_id for each in whole.trajectories] == ["good", "good", "bad", "bad"]
    assert [each.reward for each in whole.trajectories] == [1.0, 1.0, None, None]
    assert sorted((each.task_id, each.reward or 0.0) for each in lines) == [
        *[("bad", 0.0)] * 2,
        *[("good", 1.0)] * 2,
    ]
    failed = whole.trajectories[2].error
    assert failed is not None
    assert failed.reason == "policy_unavailable"
    assert whole.trajectories[0].metadata == {"a": [1]}
    assert API_KEY not in whole.model_dump_json() + "".join(map(repr, lines))


def test_a_refine_rollout_sees_what_failed(service: Service, kind: Kind) -> None:
    def script(asked: Asked) -> Act:
        return says(f"<answer>\n{'x = 1' if asked.turn == 0 else RIGHT}\n</answer>")

    task = {"id": "t", "prompt": "Write double(n).", "grader": DOUBLE}
    with policy_server(script) as server, a_client(kind, service.url) as client:
        policy = {"base_url": server.url, "model": "policy"}
        agent = {"kind": "refine", "max_attempts": 2}
        [trajectory] = client.rollout([task], policy=policy, agent=agent).trajectories
    assert (trajectory.reward, trajectory.metrics["turns"]) == (1.0, 2)


def test_leaving_a_rollout_ends_it(service: Service) -> None:
    def script(asked: Asked) -> Act:
        return hangs if asked.task == "hang" else says("no")

    tasks = [{"id": name, "prompt": name, "grader": DOUBLE} for name in ("hang", "now")]
    with policy_server(script) as server, Client(service.url) as client:
        policy = {"base_url": server.url, "model": "policy"}
        agent = {"kind": "refine", "max_attempts": 1}
        with client.rollout_stream(tasks, policy=policy, agent=agent) as trajectories:
            assert next(trajectories).task_id == "now"
        service.until(lambda: service.parts.core.registry.census()["running"] == 0)


def test_a_policy_that_no_rollout_may_ask(service: Service, kind: Kind) -> None:
    task = {"id": "t", "prompt": "p", "grader": DOUBLE}
    policy = {"base_url": "http://169.254.169.254/v1", "model": "m", "api_key": API_KEY}
    refused = pytest.raises(ProctorError, match=r"policy\.base_url")
    with a_client(kind, service.url) as client, refused as caught:
        client.rollout([task], policy=policy)
    assert API_KEY not in repr(caught.value)
