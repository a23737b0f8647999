"""What the kernel counts by user: a sandbox that takes all of a kind holds up no other one.

Where the service is an ordinary user, with subordinate ids and without.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from hostile.services import Started, reserved_users, started_service

ATTACKERS = 2
NEIGHBOURS = 3  # of each kind
TAKING = (
    "import array, ctypes, fcntl, os, select, socket, time\nlibc, held = ctypes.CDLL(None), []\n"
)
ATTACKS = {
    "pipes": """
for _ in range(11): os.fork() or time.sleep(0)
try:
    while True: held.append(os.pipe())
except OSError: time.sleep(8)
""",
    "large pipes": """
for _ in range(3): os.fork()
try:
    while True:
        held.append(os.pipe())
        fcntl.fcntl(held[-1][1], fcntl.F_SETPIPE_SZ, 1 << 19)
except OSError: time.sleep(8)
""",
    "pipes in transit": """
for _ in range(4): os.fork()
try:
    while True:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held.append((near, far))
        for _ in range(8):
            reading, writing = os.pipe()
            rights = array.array("i", [reading, writing])
            near.sendmsg([b"p"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            os.close(reading); os.close(writing)
except OSError: time.sleep(8)
""",
    "descriptors in transit": """
near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
rights = array.array("i", [near.fileno()] * 250)
try:
    while True: near.sendmsg([b"d"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
except OSError: time.sleep(8)
""",
    "descriptors in tables of threads": """
import threading
def take():
    libc.unshare(0x400)  # CLONE_FILES, which is refused
    try:
        while True: held.append(os.pipe())
    except OSError: time.sleep(8)
for _ in range(5): os.fork()
threads = [threading.Thread(target=take) for _ in range(2)]
for each in threads: each.start()
""",
    "inotify": """
while libc.inotify_init1(0) >= 0: held.append(1)
time.sleep(3)
""",
    "watches of inotify": """
one = libc.inotify_init1(0)
for n in range(20_000):
    os.mkdir(f"{n}")
    if libc.inotify_add_watch(one, str(n).encode(), 2) < 0: break
time.sleep(3)
""",
    "timers and signals": """
timer = ctypes.c_void_p()
while libc.timer_create(0, None, ctypes.byref(timer)) == 0: held.append(1)
libc.sigqueue(os.getpid(), 40, None)
time.sleep(3)
""",
    "processes": """
try:
    while os.fork(): pass
    while os.fork(): pass
except OSError: pass
time.sleep(3)
""",
    "locks": """
file = os.open("locked", os.O_RDWR | os.O_CREAT)
libc.mlockall(3); libc.mlock(ctypes.create_string_buffer(1 << 17), 1 << 17)
try:
    for n in range(50_000): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * n)
except OSError: pass
time.sleep(3)
""",
}
HONEST = {
    "a full pipe": """
import os
for _ in range(8):
    reading, writing = os.pipe()
    assert os.write(writing, b"h" * 65_000) == 65_000 == len(os.read(reading, 65_000))
""",
    "a descriptor that is sent": """
import multiprocessing
def answer(end): end.send(end.recv() * 2)
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    near, far = context.Pipe()
    child = context.Process(target=answer, args=(far,))
    child.start(); near.send(21); assert near.recv() == 42; child.join()
""",
    "watches": """
import ctypes, os, select
libc = ctypes.CDLL(None)
one = libc.inotify_init1(0)
assert one >= 0 <= libc.inotify_add_watch(one, b".", 0x100)
open("new", "w").close()
poll = select.epoll(); poll.register(one, select.EPOLLIN)
assert poll.poll(5) and os.read(one, 100)
""",
    "timers, threads and locks": """
import ctypes, fcntl, os, threading
timer = ctypes.c_void_p()
assert ctypes.CDLL(None).timer_create(0, None, ctypes.byref(timer)) == 0
for _ in range(4): thread = threading.Thread(target=int); thread.start(); thread.join()
fcntl.lockf(os.open("file", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
if os.fork() == 0: os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
""",
}
WATCHES = """
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 9; i++) if (fork() == 0) break;
    int files[90], polls[90];
    for (int i = 0; i < 90; i++) { files[i] = eventfd(0, 0); polls[i] = epoll_create1(0); }
    struct epoll_event event = {0};
    for (int i = 0; i < 90; i++) for (int at = 190; at < 250; at++) {
        dup2(files[i], at);
        for (int k = 0; k < 90; k++)
            if (epoll_ctl(polls[k], EPOLL_CTL_ADD, at, &event) < 0) { sleep(5); return 0; }
    }
    sleep(5);
}
"""


@pytest.fixture(scope="module", params=[False, True], ids=["one user", "subordinate ids"])
def service(request: pytest.FixtureRequest) -> Iterator[Started]:
    if request.param and (os.geteuid() != 0 or shutil.which("newuidmap") is None):
        pytest.skip("needs newuidmap, and root to give a user ids")
    with (
        reserved_users() as users,
        started_service(ordinary=True, users=users, subordinate=request.param) as started,
    ):
        yield started


def verdict(client: httpx.Client, source: str, language: str = "python") -> str:
    """Return the verdict, or what came instead."""
    body: dict[str, Any] = {
        "submissions": [{"completion": source, "language": language}],
        "grader": {"kind": "exec"},
        "limits": {"cpu_seconds": 10, "wall_seconds": 15},
        "extract": "none",
    }
    answer = client.post("/reward", json=body)
    [result] = answer.json().get("results", [None])
    return str(result["verdict"] or result) if result else answer.text


def right_beside(service: Started, attack: str, language: str = "python") -> set[str]:
    """Return the verdicts of honest programs that run beside the attack; it has one, too."""
    with service.client() as client, ThreadPoolExecutor(16) as pool:
        attacks = [pool.submit(verdict, client, attack, language) for _ in range(ATTACKERS)]
        honest = [
            pool.submit(verdict, client, each)
            for _ in range(NEIGHBOURS)
            for each in HONEST.values()
        ]
        found = {each.result() for each in honest}
        of_attacks = {each.result() for each in attacks}
    assert of_attacks <= {"passed", "timeout", "memory_limit", "runtime_error"}, of_attacks
    return found


@pytest.mark.parametrize("kind", ATTACKS)
def test_neighbours_are_right_while_one_kind_is_taken(service: Started, kind: str) -> None:
    assert right_beside(service, TAKING + ATTACKS[kind]) == {"passed"}


@pytest.mark.skipif(shutil.which("gcc", path="/usr/bin") is None, reason="needs a compiler of C")
def test_the_service_outlives_the_last_watch_of_epoll(service: Started) -> None:
    assert right_beside(service, WATCHES, "c") == {"passed"}


def test_with_subordinate_ids_each_live_sandbox_is_another_user(
    service: Started, request: pytest.FixtureRequest
) -> None:
    with service.client() as client:
        opened = [client.post("/sandboxes", json={}).json()["id"] for _ in range(3)]
        maps = [
            client.post(
                f"/sandboxes/{each}/exec", json={"code": "print(open('/proc/self/uid_map').read())"}
            ).json()["stdout"]
            for each in opened
        ]
        for each in opened:
            client.delete(f"/sandboxes/{each}")
    outside = [{int(line.split()[1]) for line in each.splitlines() if line} for each in maps]
    if "subordinate" in request.node.callspec.id:
        own = [ids & set(service.uids) for ids in outside]
        assert [len(ids) for ids in own] == [1, 1, 1]
        assert len(set.union(*own)) == 3
    else:
        assert all(len(ids) == 1 for ids in outside)
