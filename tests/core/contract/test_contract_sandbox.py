"""The same questions for every backend: what a program finds, what it cannot do, how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.contract.rooms_for_tests import LIMITS, Ask, Place, asked, asking, in_place
from proctor_service.codec.values import dumps, encode
from proctor_service.composition import make_backend
from proctor_service.errors import SandboxLost
from proctor_service.judge.run import message, run_calls
from proctor_service.sandbox.interface import DEFAULT, GuestMessage
from proctor_service.sandbox.linux.channel import Stream
from proctor_service.sandbox.local import LocalBackend
from proctor_service.sandbox.local.sandbox import LocalSandbox
from proctor_service.settings import Settings


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Ask the local backend; tests/features/aviato/suite/ asks its own the same questions."""
    local = make_backend(Settings(slots=2))
    assert isinstance(local, LocalBackend)
    with asking(local, lambda sandbox: os.kill(local.forkserver_of(sandbox), 9)) as ask:
        yield ask


def stdout_of(ask: Ask, source: str, stdin: str = "", **limits: float) -> str:
    found: list[str] = []

    async def question(place: Place) -> None:
        finished = await place.script(source, stdin, **limits)
        assert finished.ended.exit_code == 0, finished
        found.append(finished.ended.stdout.decode())

    ask(question)
    return found[0]


def lacks(ask: Ask, protection: str) -> bool:
    """Whether the backend says that it cannot enforce something, as every result then says."""
    found: list[bool] = []

    async def question(place: Place) -> None:
        found.append(protection in place.backend.traits.degraded)

    ask(question)
    return found[0]


@pytest.mark.parametrize(
    ("source", "ending", "code"),
    [
        ("print('hi')", "exited", 0),
        ("raise SystemExit(3)", "exited", 3),
        ("import os; os._exit(7)", "exited", 7),
        ("1 / 0", "exited", 1),
        ("import ctypes; ctypes.string_at(0)", "signalled", None),
        ("while True: pass", "cpu_limit", None),
        ("import time; time.sleep(1000)", "wall_limit", None),
        ("import threading; threading.Event().wait()", "wall_limit", None),
        # A parent in vfork(2) looks as if it waited for the kernel.
        ("import ctypes; c = ctypes.PyDLL(None)\nif not c.vfork(): c.pause()", "wall_limit", None),
        ("b = []\nwhile True: b.append(bytearray(1 << 24))", "memory_limit", None),
        ("while True: print('x' * 10000)", "output_limit", None),
    ],
)
@asked
async def test_how_a_program_ends_is_told_apart(
    place: Place, source: str, ending: str, code: int | None
) -> None:
    finished = await place.script(source, cpu_seconds=1, wall_seconds=1, memory_mb=128)
    found = (finished.ended.ending, finished.ended.exit_code)
    if ending == "memory_limit" and place.lacks("memory_cgroup"):
        # An rlimit refuses it: a MemoryError; a look at its size may be quicker.
        assert found in (("exited", 1), ("memory_limit", None))
    else:
        assert found == (ending, code)


@asked
async def test_time_of_all_processes_counts(place: Place) -> None:
    source = (
        "import os, time\nfor _ in range(4):\n"
        "    if not os.fork():\n        while True: pass\ntime.sleep(99)"
    )
    finished = await place.script(source, cpu_seconds=1, wall_seconds=60)
    assert finished.ended.ending == "cpu_limit"


@asked
async def test_memory_of_all_processes_counts_together(place: Place) -> None:
    source = (
        "import os, time\nfor _ in range(8):\n"
        "    if not os.fork():\n        b = bytearray(80 << 20); time.sleep(60)\ntime.sleep(60)"
    )
    finished = await place.script(source, wall_seconds=5)
    assert finished.ended.ending == "memory_limit"


@asked
async def test_output_is_kept_up_to_the_limit_and_drained_beyond(place: Place) -> None:
    finished = await place.script("print('x' * 300_000); print('end')", output_kb=1)
    assert finished.ended.ending == "exited"
    assert finished.ended.truncated
    assert finished.ended.stdout == b"x" * 1024


@asked
async def test_output_that_is_cut_just_at_the_limit_says_so(place: Place) -> None:
    source = "import os\nfor _ in range(3): os.write(1, b'x' * 1024)"
    assert (await place.script(source, output_kb=1)).ended.truncated
    assert not (await place.script(source, output_kb=3)).ended.truncated


def test_stdin_reaches_the_program(ask: Ask) -> None:
    text = "line\n" * 50_000
    source = "import sys; print(len(sys.stdin.read()))"
    assert stdout_of(ask, source, text).strip() == str(len(text))


def test_a_program_finds_what_a_plain_python_has(ask: Ask) -> None:
    source = """
import multiprocessing, os, socket, sqlite3, subprocess, sys, tempfile, threading
from concurrent.futures import ThreadPoolExecutor
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(abs, [-1, 2]) == [1, 2]
with ThreadPoolExecutor(2) as pool: assert list(pool.map(abs, [-3])) == [3]
assert subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True).stdout == b"42\\n"
with tempfile.NamedTemporaryFile("w") as file: file.write("x")
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
assert os.cpu_count() and os.getcwd() == os.path.dirname(__file__)
assert threading.Lock() and sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
multiprocessing.Lock()
print("all there")
"""
    assert stdout_of(ask, source) == "all there\n"


def test_nothing_of_the_host_can_be_seen(ask: Ask) -> None:
    os.environ["PROCTOR_TEST_SECRET"] = "do-not-tell"
    here = str(Path(__file__).resolve().parents[3])
    source = f"""
import glob, os, resource
assert not os.path.exists({here!r})
assert not os.access("/etc/shadow", os.R_OK)
assert [n for n in os.listdir("/home")] == []
assert not os.path.exists("/root/.bashrc") and not os.path.exists("/sys/fs")
assert {lacks(ask, "pid_namespace")} or [n for n in os.listdir("/proc") if n.isdigit()] == ["1", "2"]
assert "SECRET" not in str(os.environ) and b"SECRET" not in open("/proc/self/environ", "rb").read()
assert os.getuid() != 0
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
# A handler of the machine for core dumps runs with 0, too: see core(5).
assert resource.getrlimit(resource.RLIMIT_CORE) == (1, 1)
assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
print("nothing")
"""
    try:
        assert stdout_of(ask, source) == "nothing\n"
    finally:
        del os.environ["PROCTOR_TEST_SECRET"]


def test_only_its_own_place_can_be_written(ask: Ask) -> None:
    # Without a cgroup a program may say how soon it goes, but not sooner than others can say.
    more = [] if lacks(ask, "memory_cgroup") else ["/proc/self/oom_score_adj"]
    source = f"""
import os, sys
for path in ("/x", "/usr/x", "/etc/passwd", sys.executable, os.__file__, "/dev/x", *{more}):
    try: open(path, "a").close()
    except OSError: continue
    print("WROTE", path)
for path in ("x", "/tmp/x", "/dev/shm/x"): open(path, "w").close()
try: open("big", "wb").write(bytes(20 << 20))
except OSError as error: print(error.errno)
"""
    # No room; or, without a quota, a file that is too large by itself.
    assert stdout_of(ask, source) == ("27\n" if lacks(ask, "disk_quota") else "28\n")


def test_network_ends_at_the_sandbox(ask: Ask) -> None:
    source = """
import socket
for address in (("127.0.0.1", 22), ("1.1.1.1", 53), ("10.0.0.1", 80)):
    try: socket.create_connection(address, 0.2); print("CONNECTED", address)
    except OSError: pass
for family in (16, 17, 38, 40):
    try: socket.socket(family, socket.SOCK_RAW); print("CONNECTED", family)
    except OSError: pass
"""
    assert "CONNECTED" not in stdout_of(ask, source)


@pytest.mark.parametrize(
    "call",
    ["mount", "umount2", "unshare", "setns", "ptrace", "bpf", "keyctl", "userfaultfd", "chroot",
     "perf_event_open", "io_uring_setup", "clone3", "process_vm_readv", "seccomp", "pivot_root"],
)  # fmt: skip
def test_system_calls_that_no_honest_program_needs_are_refused(ask: Ask, call: str) -> None:
    from proctor_service.sandbox.linux import syscalls

    numbers = {**syscalls.numbers("x86_64"), "io_uring_setup": 425, "clone3": 435}
    source = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall({numbers[call]}, 0, 0, 0, 0, 0) == -1
print(ctypes.get_errno() in (1, 38))
"""
    assert stdout_of(ask, source) == "True\n"


def test_a_new_namespace_cannot_be_had_by_clone(ask: Ask) -> None:
    source = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000):
    if libc.syscall(56, flag | 17, 0, 0, 0, 0) == 0: os._exit(0)
    print(ctypes.get_errno())
"""
    assert stdout_of(ask, source) == "1\n" * 4


@asked
async def test_nothing_is_left_for_the_next(place: Place) -> None:
    for _ in range(6):
        finished = await place.script(
            "import os, time\nopen('/tmp/mark', 'x').close(); open('mark', 'x').close()\n"
            "if not os.fork():\n    os.setsid(); time.sleep(1000)\nprint('fresh')"
        )
        assert finished.ended.stdout == b"fresh\n", finished


@asked
async def test_values_cross_by_exact_type(place: Place) -> None:
    value = [1, 1.5, True, None, (1, 2), {3}, b"\xff", {"a": 10**5000, 2: "\ud800"}, 1j]
    back = await place.call("def f(x): return x", "f", value)
    assert back == value
    assert [type(item) for item in back] == [type(item) for item in value]


@asked
async def test_a_disk_limit_of_ones_own(place: Place) -> None:
    source = "open('big', 'wb').write(bytes(20 << 20)); print('fits')"
    finished = await place.script(source, disk_mb=32)
    assert finished.ended.stdout == b"fits\n"


@asked
async def test_disk_limits_of_many_sizes_at_once(place: Place) -> None:
    if place.lacks("disk_quota"):
        fill = "for n in range(99): open(str(n), 'wb').write(bytes(1 << 20))\nwhile True: pass"
        finished = await place.script(fill, disk_mb=4)
        assert finished.ended.ending == "output_limit"
        return

    async def one(number: int) -> None:
        disk_mb = 4 + 4 * (number % 4)
        source = "import os; s = os.statvfs('.'); print(s.f_blocks * s.f_frsize >> 20)"
        finished = await place.script(source, disk_mb=disk_mb)
        assert finished.ended.stdout == f"{disk_mb}\n".encode()

    await asyncio.gather(*(one(number) for number in range(32)))


@asked
async def test_who_takes_turns_idles_in_its_own_alone(place: Place) -> None:
    limits = replace(LIMITS, wall_seconds=0.6)
    job = message("python", mode="serve", source="def f(): return 7", files={})
    async with place.backend.lease(limits) as sandbox:
        sandbox.begin(GuestMessage(job, limits, takes_turns=True))
        assert (await sandbox.receive() or b"").startswith(b"!began ")
        assert await sandbox.receive() == b'["loaded"]'
        await place.script("import time\ntime.sleep(1.2)")
        sandbox.hang_up()
        ended = await sandbox.ended()
        assert (ended.ending, ended.exit_code) == ("exited", 0)
        assert ended.usage.idle_seconds < 0.6
    async with place.backend.lease(limits) as sandbox:
        sandbox.begin(GuestMessage(job, limits))
        assert (await sandbox.receive() or b"").startswith(b"!began ")
        assert await sandbox.receive() == b'["loaded"]'
        assert await sandbox.receive() is None
        assert (await sandbox.ended()).ending == "wall_limit"
    sleeping = message("python", mode="serve", source="import time\ntime.sleep(60)", files={})
    async with place.backend.lease(limits) as sandbox:
        sandbox.begin(GuestMessage(sleeping, limits, takes_turns=True))
        assert (await sandbox.ended()).ending == "wall_limit"


@asked
async def test_lines_are_heard_as_they_arrive_and_answered(place: Place) -> None:
    calls = [f'["f",["l",{n}],["d"]]\n'.encode() for n in range(3)]
    source = "def f(n): return 2 * n"
    job = message("python", mode="calls", source=source, files={}, count=len(calls))
    heard: list[bytes] = []
    async with place.backend.lease(LIMITS) as sandbox:

        def on_line(line: bytes) -> None:
            heard.append(line)
            if line.startswith(b'["value",') and calls:
                sandbox.send(calls.pop(0))

        sandbox.begin(GuestMessage(job, LIMITS, takes_turns=True, on_line=on_line))
        sandbox.send(calls.pop(0))
        await sandbox.ended()
        received = []
        while (line := await sandbox.receive()) is not None:
            received.append(line)
    assert heard == received
    answers = [b'["value",0,0]', b'["value",1,2]', b'["value",2,4]']
    assert received[0].startswith(b"!began ")
    assert received[1:] == [b'["loaded"]', *answers, b'["done"]']


@asked
async def test_each_test_has_its_own_time_within_that_of_all(place: Place) -> None:
    source = """
import time
def f(n):
    end = time.process_time() + n
    while time.process_time() < end: pass
"""
    for numbers, total, ending, answers in (
        ((0.4, 0.4, 0.4), None, "exited", 3),
        ((0.4, 0.4, 0.4), 0.7, "cpu_limit", 1),
        ((0.4, 99, 0.4), None, "cpu_limit", 1),
    ):
        limits = replace(LIMITS, cpu_seconds=0.7, total_cpu_seconds=total)
        calls = [dumps(["f", encode([number]), encode({})]) for number in numbers]
        job = message("python", mode="calls", source=source, files={}, count=len(calls))
        finished = await run_calls(place.backend, job, limits, DEFAULT, calls, None)
        answered = sum(line.startswith(b'["value"') for line in finished.lines)
        assert (finished.ended.ending, answered) == (ending, answers)


CHANNEL = """
import os, stat, time
for number in range(3, 1024):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode): channel = number
    except OSError: pass
def say(): os.write(channel, b"[1]\\n")
time.sleep(0.2)
say()
time.sleep(0.2)
"""


@asked
async def test_who_is_given_no_more_or_takes_nothing_has_no_turn_to_wait_for(place: Place) -> None:
    limits = replace(LIMITS, wall_seconds=0.6)
    source = f"{CHANNEL}\nsay()\ntime.sleep(60)"
    job = GuestMessage(
        message("python", mode="serve", source=source, files={}), limits, takes_turns=True
    )
    async with place.backend.lease(limits) as sandbox:
        sandbox.begin(job)
        assert (await sandbox.receive() or b"").startswith(b"!began ")
        assert await sandbox.receive() == b"[1]"
        sandbox.hang_up()
        assert await sandbox.receive() == b"[1]"
        assert (await sandbox.ended()).ending == "wall_limit"
    async with place.backend.lease(limits) as sandbox:
        sandbox.begin(job)
        for _ in range(300):
            sandbox.send(b'"' + b"x" * 10_000 + b'"\n')
        assert (await sandbox.ended()).ending == "wall_limit"


@asked
async def test_killing_a_sandbox_is_no_ending_of_its_own(place: Place) -> None:
    async with place.backend.lease(LIMITS) as sandbox:
        job = message("python", mode="script", source="while True: pass", files={})
        sandbox.begin(GuestMessage(job, LIMITS))
        sandbox.kill()
        assert (await sandbox.ended()).ending == "killed"


@asked
async def test_many_at_once_do_not_see_each_other(place: Place) -> None:
    async def one(number: int) -> None:
        finished = await place.script(
            f"import os, time\nopen('/tmp/n', 'w').write('{number}'); time.sleep(0.05)\n"
            "print(open('/tmp/n').read(), len(os.listdir('/tmp')))"
        )
        assert finished.ended.stdout == f"{number} 1\n".encode()

    await asyncio.gather(*(one(number) for number in range(24)))


@asked
async def test_a_leased_sandbox_that_is_not_used_costs_nothing(place: Place) -> None:
    for _ in range(5):
        async with place.backend.lease(LIMITS):
            pass
    assert (await place.script("print(1)")).ended.stdout == b"1\n"


@asked
async def test_losing_a_sandbox_is_a_failure_and_not_an_ending(place: Place) -> None:
    async with place.backend.lease(LIMITS) as sandbox:
        source = "print('begun', flush=True)\nwhile True: pass"
        job = message("python", mode="script", source=source, files={})
        sandbox.begin(GuestMessage(job, LIMITS))
        await asyncio.to_thread(place.lose, sandbox)
        with pytest.raises(SandboxLost):
            await sandbox.ended()
    assert (await place.script("print(1)")).ended.stdout == b"1\n"


@in_place
async def test_an_ended_sandbox_is_freed_without_the_garbage_collector(place: Place) -> None:
    def counted() -> int:
        return sum(isinstance(each, LocalSandbox | Stream) for each in gc.get_objects())

    await place.script("print(1)")
    gc.collect()
    before = counted()
    gc.disable()  # it stops the service for as long as it has objects to visit
    try:
        for _ in range(20):
            await place.script("print(1)")
        assert counted() <= before + 6  # of the two that are warm, or have just ended
    finally:
        gc.enable()


@in_place
async def test_callers_who_wait_long_get_no_more_fork_servers_than_they_are(place: Place) -> None:
    """Each wait for a change ends after a second; a machine may be slower than that."""
    callers = 4
    backend = place.backend
    assert isinstance(backend, LocalBackend)
    before = sum(backend.census().values())
    zygote = backend.zygote()
    sleeps = "import time\ntime.sleep(1000)"
    os.kill(zygote, signal.SIGSTOP)  # from now on no fork server comes up
    tasks = [
        asyncio.create_task(place.script(sleeps, wall_seconds=100)) for _ in range(before + callers)
    ]
    await asyncio.sleep(5)
    slots = backend.census()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    os.kill(zygote, signal.SIGCONT)
    assert slots["leased"] == before
    assert sum(slots.values()) <= before + callers + 1


@in_place
async def test_settings_in_etc_are_those_of_packages(place: Place) -> None:
    """What an administrator writes there may be a password, such as in `php.ini`."""
    source = (
        "import json, os\n"
        "found = {}\n"
        "for folder in ('/etc/php', '/etc/R', '/etc/mono'):\n"
        "    for place, _, names in os.walk(folder):\n"
        "        for name in names:\n"
        "            found[f'{place}/{name}'] = open(f'{place}/{name}').read()\n"
        "print(json.dumps(found))"
    )
    finished = await place.script(source, output_kb=4096)
    assert finished.ended.exit_code == 0, finished
    for path, text in json.loads(finished.ended.stdout).items():
        if path.startswith("/etc/php/"):
            assert path.endswith(".ini")
            assert "/conf.d/" in path
            lines = text.splitlines()
            assert all(re.match(r"(zend_)?extension=", line) for line in lines), path
        else:
            packaged = {
                "mono/config",
                "R/ldpaths",
                "R/Renviron",
                "R/Makeconf",
                "R/repositories",
            }
            assert path.removeprefix("/etc/") in packaged
