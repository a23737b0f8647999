"""Runs hostile programs in a service as a trainer would, several at once, and says what got through.

Beside each goes an honest one, which must come to its end with its reward under a limit that leaves it
little more than it needs. The machine is looked at before and after, and the service answers meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from time_factor import TIME_FACTOR

from hostile import outside
from hostile.services import Started, reserved_users, started_service, until

LIMITS = {"cpu_seconds": 0.6 * TIME_FACTOR, "wall_seconds": 1, "memory_mb": 256}
AT_ONCE = 6
MOST_SANDBOXES = AT_ONCE + 2
MOST_TASKS = 64 + 3  # a sandbox's processes and threads, its forkserver, what starts its commands
MORE_BY_ITSELF_MB = 224  # of addresses that one process may have, where no cgroup counts
SERVICE_GROWTH_MB = 384  # caches, pages not given back yet
SPARE_MB = 2048  # what other programs of the machine may take or give meanwhile
GRADER = {"kind": "asserts", "tests": ["assert double(2) == 4", "assert double(-3) == -6"]}
HONEST = {
    "completion": "def double(x):\n    return sum(2 for _ in range(300_000)) * x // 300_000",
    "grader": GRADER,
    "limits": {"cpu_seconds": 1 * TIME_FACTOR, "wall_seconds": 20, "memory_mb": 64},
}
HONEST_COMMAND = {"code": "import os\nos.listdir('.')\nprint(sum(2 for _ in range(300_000)))"}
# How a program of a category may end, where what must hold says so: (verdicts, endings).
_ENDS = {
    "memory_bomb": (
        {"memory_limit", "runtime_error", "timeout"},
        {"memory_limit", "exited", "cpu_limit", "wall_limit"},
    ),
    "cpu": ({"timeout", "memory_limit"}, {"cpu_limit", "wall_limit", "memory_limit"}),
    "output_flood": ({"output_limit", "timeout"}, {"output_limit", "cpu_limit", "wall_limit"}),
    "crash": ({"runtime_error", "memory_limit"}, {"signalled", "exited", "memory_limit"}),
}  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """A hostile program; what its output would begin with, on some line, if it got through."""

    id: str
    category: str
    source: str
    escaped: tuple[str, ...] = ("ESCAPED",)

    def said(self, text: str) -> list[str]:
        """What tells that it got through."""
        return [line[:200] for line in text.splitlines() if line.startswith(self.escaped)]


Findings = dict[str, str]
"""What got through, by the program's id. Empty when nothing did."""


def attack_by_reward(
    service: Started, programs: Sequence[Attack], environment: str = "default"
) -> Findings:
    """All of them in one batch, each between two honest ones."""
    hostile = [
        {"id": each.id, "completion": each.source, "grader": GRADER, "limits": LIMITS}
        for each in programs
    ]
    batch = [item for each in hostile for item in (each, HONEST)]
    found: Findings = {}
    with _unchanged(service, found, environment), service.client() as client:
        body = {"submissions": batch, "extract": "none", "cache": False, "environment": environment}
        results = _results(client, body)
        for place, result in enumerate(results):
            # A neighbour may hold what the kernel counts by user for as long as all tries take.
            if result["verdict"] is None and result["error"]["retryable"]:
                [results[place]] = _results(client, {**body, "submissions": [batch[place]]})
    for attack, result, honest in zip(programs, results[::2], results[1::2], strict=True):
        _note_result(found, attack, result)
        if honest["reward"] != 1.0:
            found[f"neighbour of {attack.id}"] = (
                f"{honest['verdict']} {honest['error']} {honest['usage']}"
            )
    return found


def _results(client: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = client.post("/reward", json=body)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def attack_in_sandboxes(
    service: Started, programs: Sequence[Attack], environment: str = "default"
) -> Findings:
    """Each as a command of a stateful sandbox, several at once, and an honest one beside them."""
    found: Findings = {}
    with _unchanged(service, found, environment), service.client() as client:
        honest = _create(client, HONEST["limits"], environment)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for attack, problem in zip(
                programs,
                pool.map(
                    lambda each: _attack_in_sandbox(client, each, honest, environment), programs
                ),
                strict=True,
            ):
                if problem:
                    found[attack.id] = problem
        client.delete(f"/sandboxes/{honest}").raise_for_status()
    return found


def _attack_in_sandbox(client: httpx.Client, attack: Attack, honest: str, environment: str) -> str:
    """What got through, or nothing."""
    url = f"/sandboxes/{_create(client, LIMITS, environment)}"
    answer = client.post(f"{url}/exec", json={"code": attack.source})
    neighbour = client.post(f"/sandboxes/{honest}/exec", json=HONEST_COMMAND)
    if neighbour.status_code != 200 or neighbour.json()["stdout"] != "600000\n":
        return f"a neighbour was harmed: {neighbour.text[:500]}"
    problem = _problem_of_answer(attack, answer)
    after = client.post(f"{url}/exec", json={"command": ["echo", "alive"], "timeout_seconds": 5})
    if not (after.status_code == 410 or after.json().get("stdout") == "alive\n"):
        problem = problem or f"afterwards: {after.status_code} {after.text[:300]}"
    stopped = client.delete(f"{url}?missing_ok=true")
    return problem or ("" if stopped.status_code == 200 else f"not stopped: {stopped.text[:300]}")


def _problem_of_answer(attack: Attack, answer: httpx.Response) -> str:
    if answer.status_code == 410:
        return ""  # it brought its own sandbox down
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.text[:300]}"
    ended = answer.json()
    if said := attack.said(ended["stdout"]):
        return f"said {said}"
    _, endings = _ENDS.get(attack.category, (set(), set()))
    if endings and ended["ending"] not in endings:
        return f"ended by {ended['ending']}"
    return ""


def _note_result(found: Findings, attack: Attack, result: dict[str, Any]) -> None:
    verdicts, _ = _ENDS.get(attack.category, (set(), set()))
    if result["verdict"] is None:
        found[attack.id] = f"no verdict: {result['error']}"
    elif said := attack.said(result["stdout"]):
        found[attack.id] = f"said {said}"
    elif result["usage"]["peak_memory_mb"] > LIMITS["memory_mb"] + MORE_BY_ITSELF_MB:
        found[attack.id] = f"held {result['usage']['peak_memory_mb']} MB"
    elif verdicts and result["verdict"] not in verdicts:
        found[attack.id] = f"verdict {result['verdict']}: {result['message'][:200]}"


def _create(client: httpx.Client, limits: Any, environment: str) -> str:
    answer = client.post("/sandboxes", json={"limits": limits, "environment": environment})
    assert answer.status_code == 201, answer.text
    name: str = answer.json()["id"]
    return name


@contextmanager
def _unchanged(service: Started, found: Findings, environment: str) -> Iterator[None]:
    """Looks at the machine before, during and after the block."""
    for each in {"default", environment}:
        _warm_up(service, each)
    outside.wait_for_least_sandboxes(service)
    before, memory_mb = outside.holdings(service), outside.available_mb()
    resident_mb = outside.resident_mb(service)
    with _watching(service) as seen:
        yield
    outside.wait_for_least_sandboxes(service)
    until(lambda: outside.holdings(service).descriptors <= before.descriptors, "descriptors leaked")
    after = outside.holdings(service)
    for name in ("mounts", "its_mounts", "guarded", "listed", "settings", "system_v", "sockets"):
        if getattr(before, name) != getattr(after, name):
            found[f"the machine's {name}"] = f"{getattr(before, name)} {getattr(after, name)}"
    if left := outside.files_of(service.uids):
        found["files left"] = str(left[:10])
    if outside.resident_mb(service) - resident_mb > SERVICE_GROWTH_MB:
        found["the service's memory"] = f"{resident_mb} {outside.resident_mb(service)}"
    if memory_mb - seen.least_memory_mb > MOST_SANDBOXES * LIMITS["memory_mb"] + SPARE_MB:
        found["the machine's memory"] = f"{memory_mb} {seen.least_memory_mb}"
    if seen.most_tasks > MOST_SANDBOXES * MOST_TASKS:
        found["processes at once"] = str(seen.most_tasks)
    if not seen.answers <= {200}:
        found["healthz"] = str(seen.answers)
    until(
        lambda: memory_mb - outside.available_mb() < SPARE_MB,
        "the machine's memory is not given back",
    )


def _warm_up(service: Started, environment: str) -> None:
    """Has the service make all that it keeps anyway: more sandboxes than there will be at once."""
    with service.client() as client:
        kept = [_create(client, LIMITS, environment) for _ in range(MOST_SANDBOXES)]
        items = [HONEST] * 2 * AT_ONCE
        body = {"submissions": items, "extract": "none", "cache": False, "environment": environment}
        summary = client.post("/reward", json=body).json()["summary"]
        assert summary["passed"] == 2 * AT_ONCE, summary
        for name in kept:
            client.delete(f"/sandboxes/{name}").raise_for_status()


@dataclass
class _Meanwhile:
    """What was seen while hostile programs ran."""

    answers: set[int] = field(default_factory=set)
    most_tasks: int = 0
    least_memory_mb: int = 1 << 30


@contextmanager
def _watching(service: Started) -> Iterator[_Meanwhile]:
    """Asks /healthz and looks at the machine, again and again."""
    seen = _Meanwhile()
    over = threading.Event()

    def watch() -> None:
        with service.client() as client:
            while not over.wait(0.1):
                try:
                    seen.answers.add(client.get("/healthz").status_code)
                except httpx.HTTPError:
                    seen.answers.add(0)
                seen.most_tasks = max(seen.most_tasks, outside.tasks(service))
                seen.least_memory_mb = min(seen.least_memory_mb, outside.available_mb())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@contextmanager
def attacked_service(*, ordinary: bool, environments: Path | None = None) -> Iterator[Started]:
    """A service for hostile programs. When it has ended, nothing of its is left on the machine."""
    with reserved_users() as users:
        with started_service(ordinary=ordinary, users=users, environments=environments) as service:
            yield service
            pids = outside.judges(service)
        until(lambda: not outside.owned(service), "processes are left")
        assert outside.cgroups_of(pids) == []
        assert outside.files_of(service.uids) == []
