"""Measurements of `bench/figures.py`: of a service, and of its alternatives.

Everything is seen from outside, over HTTP. Programs are all different, so the cache is unused. A
wrong reward ends the run: a figure for wrong answers is worthless.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor_client import Client
from proctor_service.cli.temporary import Running

FLOOR = Path(__file__).with_name("floor.py")
PROGRAM = """\
def is_prime(n):
    if n < 2: return False
    i = 2
    while i * i <= n:
        if n % i == 0: return False
        i += 1
    return True
"""
TESTS = ["is_prime(7) == True", "is_prime(12) == False", "is_prime(101) == True"]
ASSERTS = [f"assert {test}" for test in TESTS]
ALONE = PROGRAM + "\n".join(ASSERTS)
BUSY = """\
def f(n):
    import time
    end = time.process_time() + {seconds}
    while time.process_time() < end: pass
    return n
"""
LIMIT_OF_BUSY = 4
"""A program may use so many times the CPU time that it needs."""
PHASES = ("queue", "sandbox", "judge")
_RATE = re.compile(r"floor: (\d+) evaluations/s on \d+ cores, ([\d.]+) ms")
_PHASE = re.compile(r'^proctor_phase_seconds_sum\{phase="(\w+)"\} (\S+)$', re.MULTILINE)
_REQUESTS = re.compile(r'^proctor_http_request_seconds_sum\{route="/reward"\} (\S+)$', re.MULTILINE)

_numbers = itertools.count()


class WrongReward(Exception):
    """A sound program failed: all measurements are void."""


@dataclass(frozen=True, slots=True)
class Load:
    """Batches of the same size, so many at once. Each latency is a batch's, in seconds."""

    size: int
    at_once: int
    seconds: float
    latencies: Sequence[float]

    @property
    def rewards_per_second(self) -> float:
        """All rewards over all time."""
        return self.size * len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """The latency of this share of the batches at most."""
        ranked = sorted(self.latencies)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


class Connection:
    """A connection to a service, with little work of its own: it shares the service's cores."""

    def __init__(self, running: Running) -> None:
        self._http = http.client.HTTPConnection(urllib.parse.urlparse(running.url).netloc)
        self._headers = {"Authorization": f"Bearer {running.token}"}

    def judge(
        self, completions: Sequence[str], **fields: Any
    ) -> tuple[float, list[dict[str, Any]]]:
        """How many seconds a batch took, and its results."""
        body = request_body(completions, **fields)
        begun = time.perf_counter()
        results = results_of(self.answer(body))
        return time.perf_counter() - begun, results

    def answer(self, body: bytes) -> bytes:
        """The answer to such a request, unread."""
        self._http.request("POST", "/reward", body, self._headers)
        return self._http.getresponse().read()

    def metrics(self) -> str:
        """The service's own figures."""
        self._http.request("GET", "/metrics", headers=self._headers)
        return self._http.getresponse().read().decode()

    def close(self) -> None:
        """End the service."""
        self._http.close()


def request_body(completions: Sequence[str], **fields: Any) -> bytes:
    """A request for a batch."""
    return json.dumps(
        {
            "submissions": [{"completion": each} for each in completions],
            "grader": {"kind": "asserts", "tests": ASSERTS},
            "extract": "none",
            "cache": False,
            "job": "bench",
            **fields,
        }
    ).encode()


def results_of(answer: bytes) -> list[dict[str, Any]]:
    """The results in an answer. Raises WrongReward without rewards."""
    found = json.loads(answer)
    if "results" not in found:
        raise WrongReward(str(found)[:300])
    results: list[dict[str, Any]] = found["results"]
    return results


def sound(count: int) -> list[str]:
    """So many passing programs, all different."""
    return [f"{PROGRAM}# {next(_numbers)}\n" for _ in range(count)]


def load(running: Running, size: int, at_once: int, seconds: float) -> Load:
    """Sends batches for so long, three at least. Raises WrongReward."""
    begun = time.perf_counter()
    least = -(-3 // at_once)

    def one(_: int) -> list[float]:
        connection = Connection(running)
        found: list[float] = []
        try:
            while len(found) < least or time.perf_counter() < begun + seconds:
                taken, results = connection.judge(sound(size))
                check(results)
                found.append(taken)
        finally:
            connection.close()
        return found

    with ThreadPoolExecutor(at_once) as pool:
        latencies = [each for found in pool.map(one, range(at_once)) for each in found]
    return Load(size, at_once, time.perf_counter() - begun, latencies)


def check(results: list[dict[str, Any]]) -> None:
    """Raises WrongReward unless all passed."""
    for result in results:
        if result["reward"] != 1.0:
            raise WrongReward(f"{result['verdict']} {result['message']} {result['error']}")


def phases(running: Running, size: int, rounds: int) -> dict[str, float]:
    """Milliseconds for each reward, by phase. `wire`: outside of the service's own request."""
    connection = Connection(running)
    before = _spent(connection.metrics())
    taken = 0.0
    for _ in range(rounds):
        seconds, results = connection.judge(sound(size))
        check(results)
        taken += seconds
    after = _spent(connection.metrics())
    connection.close()
    spent = {name: after[name] - before[name] for name in after}
    spent["wire"] = taken - spent["request"]
    if size == 1:  # in a batch the phases of many rewards overlap, and are no parts of the request
        spent["service"] = spent["request"] - sum(spent[name] for name in PHASES)
    return {name: 1000 * each / (size * rounds) for name, each in spent.items()}


def _spent(metrics: str) -> dict[str, float]:
    found = {name: float(value) for name, value in _PHASE.findall(metrics) if name in PHASES}
    request = _REQUESTS.search(metrics)
    return {**dict.fromkeys(PHASES, 0.0), **found, "request": float(request[1]) if request else 0.0}


def false_timeouts(running: Running, at_once: int, cpu_seconds: float) -> int:
    """How many of so many sound programs at once are called too slow."""
    source = BUSY.format(seconds=cpu_seconds)
    limit = LIMIT_OF_BUSY * cpu_seconds
    connection = Connection(running)
    _, results = connection.judge(
        [f"{source}# {next(_numbers)}\n" for _ in range(at_once)],
        grader={"kind": "asserts", "tests": ["assert f(1) == 1"]},
        limits={"cpu_seconds": limit, "wall_seconds": 2 * limit},
    )
    connection.close()
    return sum(result["reward"] != 1.0 for result in results)


def false_timeouts_without(at_once: int, cpu_seconds: float) -> int:
    """The same where each is a subprocess with a timeout."""
    program = BUSY.format(seconds=cpu_seconds) + "assert f(1) == 1"

    def one(_: int) -> bool:
        try:
            subprocess.run(
                [sys.executable, "-c", program], check=True, timeout=LIMIT_OF_BUSY * cpu_seconds
            )
        except subprocess.TimeoutExpired:
            return True
        return False

    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(one, range(at_once)))


def floor(seconds: float, cores: int) -> tuple[float, float]:
    """Evaluations a second by the kernel alone, and CPU milliseconds for each."""
    command = [sys.executable, "-I", "-S", str(FLOOR), str(seconds), str(cores)]
    said = ""
    for prefix in ([], ["unshare", "-Ur"]):
        run = subprocess.run([*prefix, *command], capture_output=True, text=True, check=False)
        found = _RATE.search(run.stdout)
        if run.returncode == 0 and found:
            return float(found[1]), float(found[2])
        said = run.stderr[-300:]
    raise SystemExit(f"{FLOOR}: {said}")


def plain_subprocess(seconds: float, at_once: int) -> float:
    """Programs a second as `python -c`, so many at once, without any isolation."""
    begun = time.perf_counter()

    def one(_: int) -> int:
        done = 0
        while time.perf_counter() < begun + seconds:
            subprocess.run([sys.executable, "-c", ALONE], check=True)
            done += 1
        return done

    with ThreadPoolExecutor(at_once) as pool:
        done = sum(pool.map(one, range(at_once)))
    return done / (time.perf_counter() - begun)


def memory_each_mb(running: Running, live: int) -> tuple[float, float]:
    """Memory of the service with all its processes, and of a further live sandbox.

    Shared pages are counted once, by parts. The machine's memory for namespaces and page tables is
    left out.
    """
    with Client(running.url, token=running.token) as proctor:
        before = _memory_mb(running.pid)
        made = [proctor.sandbox(tags=["bench"]) for _ in range(live)]
        try:
            for sandbox in made:
                sandbox.start()
                sandbox.exec(code="x = 1")
            after = _memory_mb(running.pid)
        finally:
            for sandbox in made:
                sandbox.close()
    return before, (after - before) / live


def _memory_mb(pid: int) -> float:
    total = 0
    for each in _family(pid):
        try:
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:
            continue  # it has just ended
        total += sum(
            int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")
        )
    return total / 1024


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))
