"""Verdicts while somebody outside kills sandboxes and what makes them, and for lack of memory."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Service, running_service
from judging import ask, judge, one
from waits import WAIT_SECONDS

from proctor_service.sandbox.local import LocalBackend
from proctor_service.sandbox.local.sandbox import LocalSandbox
from proctor_service.settings import Settings

ASSERTS = {"kind": "asserts", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}
EXEC = {"kind": "exec"}
RIGHT = "def f(x):\n    return x * x\n# {}"
WRONG = "def f(x):\n    return x\n# {}"
LEAVES = "import os\nos._exit(0)\n# {}"
ENDLESS = "while True: pass"


def local(service: Service) -> LocalBackend:
    backend = service.parts.core.machine.backend
    assert isinstance(backend, LocalBackend)
    return backend


def first_processes(slots: list[int]) -> list[int]:
    """Of the sandboxes of these fork servers."""
    found: list[int] = []
    for slot in slots:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{slot}/task/{slot}/children").read_text().split())
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def killing(kinds: list[Callable[[], list[int]]]) -> Iterator[list[int]]:
    """Kills one process every 0.3 s, of each kind in turn; the list is of those that were killed."""
    killed: list[int] = []
    over = threading.Event()

    def work() -> None:
        for kind in itertools.cycle(kinds):
            if over.wait(0.3):
                return
            with contextlib.suppress(LookupError):
                pid = kind()[0]
                kill(pid)
                killed.append(pid)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_kills_from_outside_cost_no_reward_and_none_is_wrong(service: Service) -> None:
    backend = local(service)
    kinds = [
        lambda: first_processes(backend.busy_slots()),
        backend.busy_slots,
        lambda: first_processes(backend.waiting_slots()),
        lambda: [backend.zygote()],
    ]
    wanted = {RIGHT: "passed", WRONG: "failed", LEAVES: "early_exit"}
    sources = list(itertools.islice(itertools.cycle(wanted), 500))
    items = [
        {"completion": source.format(number), "grader": ASSERTS}
        for number, source in enumerate(sources)
    ]
    with killing(kinds) as killed:
        results = judge(service, *items, deadline_seconds=600)
    assert killed
    assert [result["verdict"] for result in results] == [wanted[source] for source in sources]


def test_waiting_sandboxes_that_are_killed_are_replaced(service: Service) -> None:
    backend = local(service)
    service.until(lambda: bool(backend.waiting_slots()))
    waiting = backend.waiting_slots()
    for pid in first_processes(waiting):
        kill(pid)
    items = [{"completion": RIGHT.format(number), "grader": ASSERTS} for number in range(20)]
    assert {result["verdict"] for result in judge(service, *items)} == {"passed"}
    left = int(WAIT_SECONDS / 0.05)
    while len(backend.waiting_slots()) < len(waiting):
        left -= 1
        assert left > 0, backend.census()
        threading.Event().wait(0.05)


def test_a_machine_that_starts_no_process_for_a_while_costs_no_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    item = {"completion": RIGHT.format(0), "grader": ASSERTS}
    with running_service(Settings(workers=0), judge=None) as service:
        backend = local(service)
        with monkeypatch.context() as short:
            short.setattr("proctor_service.sandbox.local.bundle.subprocess.Popen", refuse)
            service.until(lambda: backend.census().keys() == {"ready"})  # none is on its way
            for pid in (backend.zygote(), *backend.waiting_slots()):
                kill(pid)
            [result] = ask(service, item)
        assert result["error"]["reason"] == "sandbox_unavailable", result
        assert "temporarily unavailable" in result["error"]["message"]
        deadline = time.monotonic() + WAIT_SECONDS
        while (result := ask(service, item)[0])["verdict"] is None:
            assert time.monotonic() < deadline, result
        assert result["verdict"] == "passed"


def test_a_first_process_that_is_always_killed_is_lost_and_no_verdict(service: Service) -> None:
    backend = local(service)
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            for pid in first_processes(backend.busy_slots()):
                kill(pid)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with service.client() as client:
            item = {"completion": ENDLESS, "grader": EXEC, "limits": {"cpu_seconds": 60}}
            body = {"submissions": [item], "extract": "none", "cache": False, "job": "killed"}
            answer = client.post("/reward", json=body).json()
            metrics = client.get("/metrics").text
    finally:
        over.set()
        thread.join()
    (result,) = answer["results"]
    assert (result["reward"], result["error"]["reason"]) == (None, "sandbox_lost")
    assert 'proctor_lost_items_total{job="killed"} 1.0' in metrics


OWN_ACTS = {
    "kill": "import os\nos.kill(os.getpid(), 9)\nwhile True: pass",
    "of_a_child": "import os\nif os.fork() == 0:\n    os.kill(os.getppid(), 9)\n    os._exit(0)\nos.wait()",
    "of_all": "import os, time\nif os.fork() == 0:\n    os.kill(-1, 9)\ntime.sleep(1000)",
    "of_init": "import os\nos.kill(1, 9)\n1 / 0",
    "cpu_limit": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "parent": "import ctypes\nctypes.CDLL(None).prctl(1, 9)\nwhile True: pass",
    "descriptor": (
        "import fcntl, os\nread, write = os.pipe()\nfcntl.fcntl(read, fcntl.F_SETOWN, os.getpid())\n"
        "fcntl.fcntl(read, 10, 9)\nflags = fcntl.fcntl(read, fcntl.F_GETFL)\n"
        "fcntl.fcntl(read, fcntl.F_SETFL, flags | os.O_ASYNC)\nos.write(write, b'x')\nwhile True: pass"
    ),
    "first_thread": (
        "import ctypes, os, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)"
    ),
    "timer": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "event = (ctypes.c_int * 16)(0, 0, 9, 0)\ntimer = ctypes.c_void_p()\n"
        "libc.timer_create(1, event, ctypes.byref(timer))\n"
        "libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 1000), None)\nwhile True: pass"
    ),
}


@pytest.mark.parametrize("how", OWN_ACTS)
def test_no_program_can_have_itself_killed_and_pass_for_lost(service: Service, how: str) -> None:
    limits = {"cpu_seconds": 1.5, "wall_seconds": 5}
    result = one(service, OWN_ACTS[how], EXEC, limits=limits)
    assert result["reward"] == 0.0
    late = ("cpu_limit", "parent", "first_thread")
    assert result["verdict"] == ("timeout" if how in late else "runtime_error")


ORDINARY_SIGNALS = """
import signal
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.getsignal(signal.SIGHUP) is signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
"""


def test_what_the_service_ignores_is_not_ignored_in_a_sandbox() -> None:
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)  # as `nohup` and a shell's `&` have it
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        with running_service(Settings(slots=1), judge=None) as service:
            assert one(service, ORDINARY_SIGNALS, EXEC)["reward"] == 1.0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_program_of_compat_is_run_again_where_a_kill_around_it_may_have_failed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandboxes: list[str] = []
    kills = itertools.count()

    def kills_around(self: LocalSandbox) -> int:
        if self.id not in sandboxes:
            sandboxes.append(self.id)
        return next(kills) if self.id == sandboxes[0] else 0

    with running_service(Settings(workers=0), judge=None) as service:
        monkeypatch.setattr(LocalSandbox, "kills_around", kills_around)
        body = {"code": "print('survived')", "run_timeout": 30}
        with service.client() as client:
            answer = client.post("/compat/run_code", json=body, timeout=WAIT_SECONDS).json()
    assert answer["run_result"]["stdout"] == "survived\n", answer
    assert len(sandboxes) == 2
