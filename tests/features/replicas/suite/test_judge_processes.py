"""A service with judge processes and real sandboxes: kills, stops, hostile values, ends, secrets."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from constants import constants
from harness import Service, running_service
from judging import calls
from service_process import ServiceProcess, judge_processes
from slow_judges import SLOW
from waits import WAIT_SECONDS

from aviato_gateway.stand_in import KEY, has_other_users, stand_in
from faults.test_memory_around import HOLDS, surroundings_of
from proctor_client.wire import MAX_SUBMISSIONS
from proctor_service.features.replicas.judge_processes.pool import JudgePool
from proctor_service.sandbox.linux import procfs
from proctor_service.settings import Settings, worker_environment

SUPPORT = Path(__file__).resolve().parents[3] / "support"
WORKERS = {"PROCTOR_WORKERS": "2", "PROCTOR_SLOTS": "4"}
SQUARES = {"kind": "asserts", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}
RIGHT = "def f(x):\n    return x * x  # {}"
WRONG = "def f(x):\n    return x  # {}"
LEAVES = "import os\nos._exit(0)\n# {}"
WORTH = {RIGHT: 1.0, WRONG: 0.0, LEAVES: 0.0}
NDJSON = {"Accept": "application/x-ndjson"}
COMPUTES = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceProcess]:
    with ServiceProcess(**WORKERS, PROCTOR_LOG_FORMAT="json") as running:
        yield running


def until(condition: Callable[[], Any], otherwise: str) -> None:
    """Looks again and again: another process has no event for us."""
    for _ in range(int(WAIT_SECONDS / 0.02)):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError(otherwise)


def client(service: ServiceProcess) -> httpx.Client:
    return httpx.Client(base_url=service.url, timeout=4 * WAIT_SECONDS, trust_env=False)


def mixed(count: int) -> tuple[list[dict[str, Any]], list[float]]:
    """Different submissions, right ones and wrong ones, and what each is worth."""
    sources = [list(WORTH)[n % len(WORTH)] for n in range(count)]
    items = [
        {"completion": source.format(n), "grader": SQUARES, "id": str(n)}
        for n, source in enumerate(sources)
    ]
    return items, [WORTH[source] for source in sources]


def streamed(
    url: str, items: list[dict[str, Any]], each: Callable[[int], None] = lambda count: None
) -> list[dict[str, Any]]:
    """The results of a request in their order; `each` is told how many there are so far."""
    body = {"submissions": items, "extract": "none", "cache": False, "deadline_seconds": 600}
    found: dict[int, dict[str, Any]] = {}
    with (
        httpx.Client(timeout=4 * WAIT_SECONDS, trust_env=False) as client,
        client.stream("POST", f"{url}/reward", json=body, headers=NDJSON) as answer,
    ):
        assert answer.status_code == 200
        for line in answer.iter_lines():
            result = json.loads(line)
            if "index" in result:
                assert result["index"] not in found
                found[result["index"]] = result
                each(len(found))
    assert sorted(found) == list(range(len(items)))
    return [found[index] for index in range(len(items))]


def exec_items(source: str, count: int) -> list[dict[str, Any]]:
    grader = {"kind": "exec"}
    return [{"completion": f"{source}\n# {n}", "grader": grader} for n in range(count)]


def capacity(service: ServiceProcess) -> dict[str, Any]:
    with client(service) as http:
        found: dict[str, Any] = http.get("/capacity").json()
        return found


def is_idle(service: ServiceProcess) -> bool:
    found = capacity(service)
    return bool(found["busy"] == found["queued"] == 0)


def figures(service: ServiceProcess) -> dict[str, float]:
    """The metrics, by name and labels."""
    with client(service) as http:
        lines = http.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def settled(service: ServiceProcess) -> list[int]:
    """The two judge processes, once both are ready for work."""
    until(lambda: figures(service)["proctor_workers"] == 2, "they were not replaced")
    ready = 'proctor_sandboxes{status="ready"}'
    until(lambda: figures(service).get(ready, 0) >= 4, "the sandboxes are not ready")
    return judge_processes(service.pid)


class Background:
    """A function in a thread; `result` waits for what it returns."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._found: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._found.append(function()))
        self._thread.start()

    @property
    def result(self) -> Any:
        self._thread.join(4 * WAIT_SECONDS)
        return self._found[0]


# ---------------------------------------------------------------- kills


@pytest.mark.parametrize("at_once", [1, 2], ids=["one", "all"])
def test_kills_in_a_batch_cost_no_reward_and_none_is_wrong(
    service: ServiceProcess, at_once: int
) -> None:
    items, worth = mixed(600)
    killed: list[int] = []

    def kill(count: int) -> None:
        if count % 75 == 0:
            for pid in judge_processes(service.pid)[:at_once]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    results = streamed(service.url, items, kill)
    assert len(killed) >= 6
    assert [result["error"] for result in results] == [None] * len(items)
    assert [result["reward"] for result in results] == worth
    until(lambda: is_idle(service), "items are left in the queue")
    until(lambda: len(judge_processes(service.pid)) == 2, "they were not replaced")


def test_a_killed_judge_process_leaves_nothing_behind(service: ServiceProcess) -> None:
    [first, second] = settled(service)
    below = procfs.tree(first)
    assert len(below) > 3
    os.kill(first, signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "processes are left")
    groups = Path("/sys/fs/cgroup")
    until(lambda: not list(groups.glob(f"*/proctor-{first}-*")), "cgroups are left")
    until(lambda: len(judge_processes(service.pid)) == 2, "it was not replaced")
    assert second in judge_processes(service.pid)


def test_sandboxes_are_lost_with_their_judge_process_and_new_ones_work(
    service: ServiceProcess,
) -> None:
    settled(service)
    with client(service) as http:
        names = [http.post("/sandboxes", json={}).json()["id"] for _ in range(4)]

        def sleeps(name: str) -> httpx.Response:
            command = {"command": ["sh", "-c", "echo begun; sleep 100"]}
            return httpx.post(
                f"{service.url}/sandboxes/{name}/exec",
                json=command,
                timeout=WAIT_SECONDS,
                trust_env=False,
            )

        running = [Background(lambda name=name: sleeps(name)) for name in names[:2]]  # type: ignore[misc]
        until(lambda: capacity(service)["busy"] == 2 or _sleeping(service) >= 2, "none begins")
        for pid in judge_processes(service.pid):
            os.kill(pid, signal.SIGKILL)
        for command in running:
            assert "sandbox_lost" in command.result.text
        for name in names:
            answer = http.post(f"/sandboxes/{name}/exec", json={"command": ["true"]})
            assert "sandbox_lost" in answer.text
        [again] = [http.post("/sandboxes", json={}).json()["id"]]
        answer = http.post(f"/sandboxes/{again}/exec", json={"command": ["echo", "here"]})
        assert answer.json()["stdout"] == "here\n"
        assert http.delete(f"/sandboxes/{again}").status_code < 300


def _sleeping(service: ServiceProcess) -> int:
    return sum(
        Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
        for judge in judge_processes(service.pid)
        for pid in procfs.tree(judge)
        if Path(f"/proc/{pid}/comm").exists()
    )


def test_a_stopped_judge_process_holds_up_nobody_else(service: ServiceProcess) -> None:
    items, worth = mixed(120)
    stopped, _ = settled(service)
    os.kill(stopped, signal.SIGSTOP)
    counts: list[int] = []
    try:
        batch = Background(lambda: streamed(service.url, items, counts.append))
        until(lambda: len(counts) > 60, "the other one does not work")
    finally:
        with suppress(ProcessLookupError):  # on a slow machine the service has replaced it
            os.kill(stopped, signal.SIGCONT)
    assert [result["reward"] for result in batch.result] == worth


# ---------------------------------------------------------------- values


@pytest.fixture
def slow_service() -> Iterator[Service]:
    """Two judge processes with real sandboxes, which take 10 s to read a certain value."""
    settings = Settings(workers=2, slots=4)
    environment = {**worker_environment(), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    async def clear(pid: int) -> None:
        """What is left is removed by the service process of the tests."""

    command = (sys.executable, str(SUPPORT / "slow_judges.py"))
    pool = JudgePool(settings.for_workers(), environment, lambda cause: None, clear, command)
    with running_service(settings, judge=pool.judge, backend=pool.backend) as running:
        yield running


def test_a_value_that_takes_long_to_read_holds_up_nobody_else(slow_service: Service) -> None:
    hostile = f"def f(x):\n    return {SLOW!r}"
    fields = {"extract": "none", "cache": False}
    with slow_service.client() as http, slow_service.client() as other:
        body = {"submissions": [{"completion": hostile}], "grader": calls(([1], 1)), **fields}
        asked = Background(lambda: http.post("/reward", json=body).json()["results"])
        turns = 0
        while not asked._found:
            assert other.get("/healthz").status_code == 200
            item = {"completion": f"def f(x):\n    return x  # {turns}"}
            again = {"submissions": [item], "grader": calls(([1], 1)), **fields}
            [result] = other.post("/reward", json=again).json()["results"]
            assert result["reward"] == 1.0
            turns += 1
        [result] = asked.result
    assert turns > 10
    assert (result["reward"], result["verdict"]) == (0.0, "output_limit")
    assert "the service too much time" in result["message"]


HEAVY = {
    "lists": "def f(x):\n    return [[] for _ in range(1_500_000)]",
    "text": "def f(x):\n    return '\\ud800' * 8_000_000",
    "number": "def f(x):\n    return 10 ** 1_000_000",
    "nested": "def f(x):\n    v = []\n    for _ in range(900):\n        v = [v]\n    return v",
    "sets": "def f(x):\n    return [set(range(1000)) for _ in range(1000)]",
}


def test_large_files_of_a_sandbox_cost_no_other_its_sandbox() -> None:
    # Of 150 MB there are some copies on the way.
    write = "open('big', 'wb').write(bytes(150 << 20)); open('solution.py', 'w').write('x = 1')"
    settings = Settings(workers=2, slots=4)
    with (
        constants(worker_memory_mb=300),
        running_service(settings, judge=None) as service,
        service.client() as client,
    ):
        others = [client.post("/sandboxes", json={}).json()["id"] for _ in range(4)]
        limits = {"disk_mb": 300, "memory_mb": 1024}
        large = client.post("/sandboxes", json={"limits": limits}).json()["id"]
        made = client.post(f"/sandboxes/{large}/exec", json={"code": write}, timeout=WAIT_SECONDS)
        assert made.json()["exit_code"] == 0, made.text
        body = {"grader": {"kind": "asserts", "tests": ["assert x == 1"]}}
        for _ in range(3):
            graded = client.post(f"/sandboxes/{large}/grade", json=body, timeout=WAIT_SECONDS)
            assert graded.json()["verdict"] == "passed", graded.text
        for each in others:
            answer = client.post(f"/sandboxes/{each}/exec", json={"command": ["true"]})
            assert answer.json().get("exit_code") == 0, answer.text


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_values_have_a_verdict(service: ServiceProcess, name: str) -> None:
    grader = calls(([1], 1), ([2], 2))
    [result] = streamed(service.url, [{"completion": HEAVY[name], "grader": grader}])
    assert result["error"] is None
    assert result["reward"] == 0.0


# ---------------------------------------------------------------- deadlines, cancelling, figures


def test_what_waits_at_a_judge_keeps_its_deadline(service: ServiceProcess) -> None:
    streamed(service.url, mixed(100)[0])  # now submissions are sent ahead
    for deadline_seconds in (2, 8, 32, 128):  # on a slow machine nothing is done within 2 s
        body = {
            # They compute, since those that sleep would lend their slots.
            "submissions": exec_items(COMPUTES, min(100 * deadline_seconds, MAX_SUBMISSIONS)),
            "extract": "none", "cache": False, "deadline_seconds": deadline_seconds,
        }  # fmt: skip
        with client(service) as http:
            results = http.post("/reward", json=body).json()["results"]
        rewards = [result["reward"] for result in results if result["error"] is None]
        reasons = {result["error"]["reason"] for result in results if result["error"] is not None}
        assert set(rewards) <= {1.0}
        assert reasons == {"deadline"}
        if rewards:
            break
    assert rewards
    until(lambda: is_idle(service), "items are left in the queue")


def test_a_client_that_leaves_takes_its_items_along(service: ServiceProcess) -> None:
    streamed(service.url, mixed(100)[0])
    items = exec_items("import time\ntime.sleep(0.2)", 400)
    body = {"submissions": items, "extract": "none", "cache": False}
    with client(service) as http, http.stream("POST", "/reward", json=body, headers=NDJSON) as got:
        next(got.iter_lines())
        found = capacity(service)
        assert 0 <= found["busy"] <= 4 + 4  # with those that sleep
        assert found["busy"] + found["queued"] <= 400
    until(lambda: is_idle(service), "items are left in the queue")
    items, worth = mixed(20)
    assert [result["reward"] for result in streamed(service.url, items)] == worth


def test_the_metrics_know_the_judge_processes(service: ServiceProcess) -> None:
    settled(service)
    found = figures(service)
    assert found["proctor_slots"] == 4
    assert found["proctor_slots_busy"] == 0
    assert found["proctor_workers"] == 2


def test_log_lines_of_judge_processes_name_them(service: ServiceProcess) -> None:
    judge = settled(service)[0]
    below = [pid for pid in procfs.tree(judge) if pid != judge]
    for pid in below:
        with suppress(ProcessLookupError):  # it ends with the one that was killed before it
            os.kill(pid, signal.SIGKILL)
    until(lambda: '"worker": "' in service.logged, "no line of a judge process")
    whole = service.logged.rpartition("\n")[0]
    lines = [json.loads(line) for line in whole.splitlines()]
    assert {line["worker"] for line in lines if "worker" in line} <= {"0", "1", "2"}


# ---------------------------------------------------------------- ends


def everything_of(service: ServiceProcess) -> list[int]:
    return [pid for pid in procfs.tree(service.pid) if pid != service.pid]


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_killed_service_leaves_no_process_and_starts_again() -> None:
    with ServiceProcess(**WORKERS) as service:
        batch = Background(
            lambda: _posted(service.url, exec_items("import time; time.sleep(9)", 8))
        )
        until(lambda: capacity(service)["busy"] >= 4, "nothing runs")
        before = everything_of(service)
        assert len(before) > 8
        service.kill()
        assert batch.result is None
        until(lambda: are_gone(before), "processes are left")
        service.start()
        items, worth = mixed(30)
        assert [result["reward"] for result in streamed(service.url, items)] == worth


def _posted(url: str, items: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The results; None if the connection broke."""
    body = {"submissions": items, "extract": "none", "cache": False}
    try:
        answer = httpx.post(f"{url}/reward", json=body, timeout=4 * WAIT_SECONDS, trust_env=False)
    except httpx.HTTPError:
        return None
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_a_stop_in_a_batch_gives_each_item_a_result(how: str) -> None:
    with ServiceProcess(**WORKERS) as service:
        streamed(service.url, mixed(100)[0])  # now submissions are sent ahead
        before = everything_of(service)
        items = exec_items("import time; time.sleep(0.3)", 80)
        batch = Background(lambda: _posted(service.url, items))
        until(lambda: capacity(service)["queued"] > 4, "nothing waits")
        if how == "Ctrl-C":
            os.killpg(service.pid, signal.SIGINT)  # to each process, as a terminal does
        else:
            os.kill(service.pid, signal.SIGTERM)
        service.wait()
        results = batch.result
        said = service.logged
    assert are_gone(before)
    assert len(results) == len(items)
    assert {result["error"]["reason"] for result in results if result["error"]} == {"cancelled"}
    rewards = [result["reward"] for result in results if not result["error"]]
    assert len(rewards) >= 4
    assert set(rewards) == {1.0}
    assert "Traceback" not in said
    assert "a judge process ended" not in said
    groups = Path("/sys/fs/cgroup")
    assert not [each for pid in before for each in groups.glob(f"*/proctor-{pid}-*")]


def test_ctrl_c_reaches_the_listening_process_alone(tmp_path: Path) -> None:
    """A process that imports its modules meanwhile would end with a traceback."""
    journal = f"sqlite:///{tmp_path}/journal.db"
    with ServiceProcess(**{**WORKERS, "PROCTOR_JOURNAL": journal}) as service:
        with client(service) as asking:
            until(lambda: asking.get("/jobs").status_code == 200, "there is no journal")
        numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        assert {pid for pid in numbers if _group_of(pid) == service.pid} == {service.pid}


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def test_ctrl_c_during_the_start_leaves_nothing() -> None:
    service = ServiceProcess(**WORKERS)
    try:
        service.spawn()
        until(lambda: len(judge_processes(service.pid)) == 2, "no judge process begins")
        before = everything_of(service)
        os.killpg(service.pid, signal.SIGINT)
        service.wait()
        assert are_gone(before)
        assert "Traceback" not in service.logged
    finally:
        service.close()


def test_no_secret_is_in_a_judge_process() -> None:
    secrets = {
        "PROCTOR_TOKENS": '{"me": "a-secret-token"}',
        "PROCTOR_AVIATO_API_KEY": "a-secret-key",
        "AVIATO_API_KEY": "a-secret-key",
        "CWSANDBOX_API_KEY": "a-secret-key",
        "PROCTOR_OTLP_ENDPOINT": "http://user:a-secret-word@127.0.0.1:9",
    }
    with ServiceProcess(**WORKERS, **secrets) as service:
        for pid in everything_of(service):
            for name in ("environ", "cmdline"):
                assert b"a-secret" not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_memory_that_the_surroundings_lack_is_nobodys_limit() -> None:
    with surroundings_of(700) as group, ServiceProcess(**WORKERS).within(group) as service:
        items = [
            {"completion": HOLDS.format(250, n), "grader": {"kind": "exec"},
             "limits": {"memory_mb": 512}}
            for n in range(12)
        ]  # fmt: skip
        results = streamed(service.url, items)
    assert [result["reward"] for result in results] == [1.0] * len(items)


# ---------------------------------------------------------------- sandboxes far away


def test_sandboxes_far_away_are_swept_by_a_start_with_fewer_judge_processes() -> None:
    with stand_in() as gateway:
        settings = {
            "PROCTOR_BACKEND": "aviato", "PROCTOR_POOL_SIZE": "4",
            "PROCTOR_AVIATO_INSTANCE": "spread", "AVIATO_BASE_URL": gateway.url,
            "AVIATO_API_KEY": KEY, "PROCTOR_ALLOW_DEGRADED": str(not has_other_users()),
        }  # fmt: skip
        tag = "proctor-instance-spread"
        with ServiceProcess(**settings, PROCTOR_WORKERS="2") as service:
            items, worth = mixed(12)
            assert [result["reward"] for result in streamed(service.url, items)] == worth
            for pid in judge_processes(service.pid)[:1]:
                os.kill(pid, signal.SIGKILL)
            assert [result["reward"] for result in streamed(service.url, items)] == worth
            with client(service) as http:
                name = http.post("/sandboxes", json={}).json()["id"]
                answer = http.post(f"/sandboxes/{name}/exec", json={"command": ["echo", "here"]})
                assert answer.json()["stdout"] == "here\n"
            first = set(gateway.alive(tag))
            service.kill()
            assert first
        with ServiceProcess(**settings, PROCTOR_WORKERS="0") as service:
            assert not first & set(gateway.alive())
            second = set(gateway.alive(tag))
            assert second
            service.kill()
        with ServiceProcess(**settings, PROCTOR_WORKERS="2"):
            assert not second & set(gateway.alive())
        assert gateway.alive() == []
