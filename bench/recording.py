"""Cost of the journal for rewards, and of browsers which watch a job meanwhile.

    python bench/recording.py [--quick] [--rounds N] [--allow-degraded]

Starts services of its own: the first records into a file of SQLite in a temporary folder, the
second has the journal off. They are measured in turn, and a turn begins when all earlier records
are written. The browsers are connections with the questions of the pages' script, to a service with
10,000 earlier records. Prints tables for bench/README.md. Run on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as PipeConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from figures import machine
from measuring import Connection, check, request_body, results_of, sound

from proctor_service.cli.temporary import Running, temporary_service
from proctor_service.features.replicas.judge_processes.worker import cpu_seconds

JOB = "recorded"
BROWSERS = 10
IN_TURN = 20
MOST_AT_ONCE = 2500
PAUSE_SECONDS = 3.0
HEALTH_PAUSE_SECONDS = 0.02
PAGES = (
    "/console",
    f"/console/jobs/{JOB}",
    "/console/evaluations",
    "/console/evaluations?verdict=passed",
)
_UNWRITTEN = re.compile(r"^proctor_journal_unwritten (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: sizes of batches, rounds, and single rewards in each round."""

    batch: int
    rounds: int
    singles: int
    listened: int
    watched: int
    earlier: int


FULL = Extent(batch=1000, rounds=5, singles=200, listened=4000, watched=5000, earlier=10_000)
QUICK = Extent(batch=50, rounds=1, singles=5, listened=100, watched=100, earlier=100)


@contextmanager
def services(allow_degraded: bool, **more: str) -> Iterator[dict[str, Running]]:
    """Two services: `off` and `on` by their journal."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        found = {}
        for name, url in (("off", "off"), ("on", f"sqlite:///{Path(folder, 'journal.db')}")):
            settings = {"PROCTOR_JOURNAL": url, **more}
            service = temporary_service(allow_degraded=allow_degraded, settings=settings)
            found[name] = stack.enter_context(service)
        yield found


def written(connection: Connection) -> None:
    """Wait until the journal has everything; a service without a journal has at once."""
    while (found := _UNWRITTEN.search(connection.metrics())) and float(found[1]):
        time.sleep(0.1)


def batch(connection: Connection, size: int) -> float:
    """Return the rewards per second of different programs, in as few requests as can be."""
    bodies = [
        request_body(sound(min(MOST_AT_ONCE, size - begin)), job=JOB)
        for begin in range(0, size, MOST_AT_ONCE)
    ]
    begun = time.perf_counter()
    answers = [connection.answer(body) for body in bodies]
    seconds = time.perf_counter() - begun
    for answer in answers:
        check(results_of(answer))
    return size / seconds


def singles(connections: Mapping[str, Connection], count: int) -> dict[str, list[float]]:
    """Return the times of single rewards by each connection, in ms.

    They take turns after a few rewards: the speed of a machine changes within seconds.
    """
    found: dict[str, list[float]] = {name: [] for name in connections}
    for number in range(-(-count // IN_TURN)):
        for name in list(connections)[:: 1 if number % 2 == 0 else -1]:
            for each in sound(min(IN_TURN, count)):
                seconds, results = connections[name].judge([each])
                check(results)
                found[name].append(1000 * seconds)
    return found


def costs(extent: Extent, allow_degraded: bool) -> None:
    """Print throughput and latency with and without the journal, in turn."""
    rates: dict[str, list[float]] = {"off": [], "on": []}
    times: dict[str, list[float]] = {"off": [], "on": []}
    with services(allow_degraded) as running:
        connections = {name: Connection(each) for name, each in running.items()}
        for connection in connections.values():
            batch(connection, max(20, extent.batch // 10))  # warms what is cold
        for number in range(extent.rounds):
            order = ("off", "on") if number % 2 == 0 else ("on", "off")
            for name in order:
                written(connections["on"])
                rates[name].append(batch(connections[name], extent.batch))
            for name, found in singles(connections, extent.singles).items():
                times[name] += found
        for connection in connections.values():
            connection.close()
    print(
        f"\n| journal | batch of {extent.batch:,}, rewards/s | median | p50 of {len(times['on']):,}, ms |"
    )
    print("|---|---|---|---|")
    p50 = {name: statistics.median(each) for name, each in times.items()}
    for name, each in rates.items():
        print(
            f"| {name} | {_listed(each, '.0f')} | {statistics.median(each):.0f} | {p50[name]:.2f} |"
        )
    less = 1 - statistics.median(rates["on"]) / statistics.median(rates["off"])
    more = p50["on"] - p50["off"]
    print(f"\nWith the journal: {less:.1%} less throughput, {more:+.2f} ms for one reward.")


def listening(extent: Extent, allow_degraded: bool) -> None:
    """Print the CPU of the listening process for each reward, before a judge process."""
    found: dict[str, list[float]] = {"off": [], "on": []}
    for number in range(extent.rounds):
        with services(allow_degraded, PROCTOR_WORKERS="1") as running:
            for name in ("off", "on") if number % 2 == 0 else ("on", "off"):
                connection = Connection(running[name])
                batch(connection, max(20, extent.listened // 20))
                before = cpu_seconds(running[name].pid)
                batch(connection, extent.listened)
                spent = cpu_seconds(running[name].pid) - before
                found[name].append(1000 * spent / extent.listened)
                written(connection)
                connection.close()
    print(
        "\n| journal | CPU of the listening process for each reward, ms | median |\n|---|---|---|"
    )
    for name, each in found.items():
        print(f"| {name} | {_listed(each, '.3f')} | {statistics.median(each):.3f} |")


class Browser:
    """A connection with requests for a page as by the script of the pages, until closed."""

    def __init__(self, running: Running, path: str, cookie: str) -> None:
        self._http = http.client.HTTPConnection(urlparse(running.url).netloc)
        self._path, self._cookie = path, cookie
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.answers = 0
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._closed.set()
        self._thread.join()
        self._http.close()

    def _watch(self) -> None:
        tag = ""
        while not self._closed.wait(PAUSE_SECONDS):
            headers = {"Cookie": self._cookie, "Proctor-Part": "body", "If-None-Match": tag}
            self._http.request("GET", self._path, headers=headers)
            answer = self._http.getresponse()
            answer.read()
            if answer.status not in (200, 304):
                raise RuntimeError(f"{self._path}: {answer.status}")
            tag = answer.headers.get("ETag", "")
            self.answers += 1


def log_in(running: Running) -> str:
    """Return the cookie of a log-in."""
    connection = http.client.HTTPConnection(urlparse(running.url).netloc)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/console/login", f"token={running.token}", form)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


class Health:
    """Requests for /healthz in a row, until closed.

    They come from a process of their own: the benchmark's other threads would make them late.
    """

    def __init__(self, running: Running) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_ask_for_health, args=(running.url, theirs))
        self._process.start()
        theirs.close()
        self._ours.recv()  # it has begun
        self.worst_ms = 0.0

    def close(self) -> None:
        """End it."""
        self._ours.send(None)
        self.worst_ms = self._ours.recv()
        self._process.join()
        self._ours.close()


def _ask_for_health(url: str, end: PipeConnection[Any, Any]) -> None:
    http_connection = http.client.HTTPConnection(urlparse(url).netloc)
    worst_ms = 0.0
    end.send(None)
    while not end.poll(HEALTH_PAUSE_SECONDS):
        begun = time.perf_counter()
        http_connection.request("GET", "/healthz")
        http_connection.getresponse().read()
        worst_ms = max(worst_ms, 1000 * (time.perf_counter() - begun))
    http_connection.close()
    end.send(worst_ms)


def watching(extent: Extent, allow_degraded: bool) -> None:
    """Print throughput and the worst time of /healthz, with and without browsers, in turn."""
    rates: dict[int, list[float]] = {0: [], BROWSERS: []}
    worst: dict[int, list[float]] = {0: [], BROWSERS: []}
    with services(allow_degraded) as both:
        running = both["on"]
        connection, cookie = Connection(running), log_in(running)
        batch(connection, extent.earlier)
        for number in range(extent.rounds):
            for count in (0, BROWSERS) if number % 2 == 0 else (BROWSERS, 0):
                written(connection)
                browsers = [
                    Browser(running, PAGES[each % len(PAGES)], cookie) for each in range(count)
                ]
                health = Health(running)
                rates[count].append(batch(connection, extent.watched))
                health.close()
                for browser in browsers:
                    browser.close()
                worst[count].append(health.worst_ms)
        connection.close()
    print(
        f"\n| browsers | batch of {extent.watched:,}, rewards/s | median | /healthz, worst of each, ms |"
    )
    print("|---|---|---|---|")
    for count in rates:
        print(
            f"| {count} | {_listed(rates[count], '.0f')} | {statistics.median(rates[count]):.0f} "
            f"| {_listed(worst[count], '.0f')} |"
        )


def _listed(values: Sequence[float], form: str) -> str:
    return ", ".join(format(each, form) for each in values)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    parser.add_argument("--allow-degraded", action="store_true")
    parser.add_argument("--rounds", type=int, help="default: 5")
    parser.add_argument("--only", choices=("costs", "listening", "watching"))
    given = parser.parse_args()
    extent = QUICK if given.quick else FULL
    if given.rounds is not None:
        extent = replace(extent, rounds=given.rounds)
    print(machine(), flush=True)
    for part in (costs, listening, watching):
        if given.only in (None, part.__name__):
            part(extent, given.allow_degraded)


if __name__ == "__main__":
    main()
