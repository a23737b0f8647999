"""What is the Aviato backend's own: the warden, the pool's sandboxes, and what cannot be enforced there.

The questions for all backends are asked of it too: stateful ones here, the rest in
`test_contract_questions.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from constants import constants

from aviato_gateway.stand_in import StandIn, has_other_users, stand_in
from core.contract.rooms_for_tests import LIMITS, Ask, Place, asking
from core.contract.stateful_questions import QUESTIONS, Rooms, py, sh
from core.contract.stateful_questions import Question as StatefulQuestion
from proctor_service.composition import doctor, make_backend
from proctor_service.errors import FileRefused, SandboxEnded, SandboxLost, StartError
from proctor_service.judge.run import message
from proctor_service.sandbox.interface import Command, GuestMessage
from proctor_service.sandbox.linux import seccomp


@pytest.fixture(scope="module")
def gateway() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@contextmanager
def opened(gateway: StandIn, instance: str, **settings: Any) -> Iterator[Ask]:
    """A backend of its own; at its end none of its sandboxes lives."""
    own = gateway.settings(aviato_instance=instance, **settings)
    with asking(make_backend(own)) as ask:
        yield ask
    assert gateway.alive(f"proctor-instance-{instance}") == []


@pytest.fixture(scope="module")
def ask(gateway: StandIn) -> Iterator[Ask]:
    with opened(gateway, "shared") as ask:
        yield ask


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_stateful(ask: Ask, question: StatefulQuestion) -> None:
    ask(lambda place: question(Rooms(place.backend)))


def script(source: str) -> bytes:
    return message("python", mode="script", source=source, files={})


# ---------------------------------------------------------------- what it says of itself


def test_what_it_cannot_enforce_is_said(ask: Ask) -> None:
    async def question(place: Place) -> None:
        traits = place.backend.traits
        assert traits.name == "aviato"
        lacking = {"memory_cgroup", "pid_namespace", "pids_cgroup", "disk_quota"}
        assert set(traits.degraded) - {"own_user"} == lacking
        assert place.lacks("own_user") is not has_other_users()
        assert traits.allows_network
        assert "python" in traits.languages

    ask(question)


def test_the_doctor_asks_for_a_sandbox(gateway: StandIn) -> None:
    checks = {check.name: check for check in doctor(gateway.settings(aviato_instance="ill"))}
    assert checks["aviato"].ok
    assert checks["own_user"].ok is has_other_users()
    assert not checks["disk_quota"].ok
    assert gateway.alive("proctor-instance-ill-doctor") == []
    (check,) = doctor(gateway.settings(aviato_api_key="wrong"))
    assert (check.ok, check.required) == (False, True)
    assert "refuses the key" in check.detail


@pytest.mark.parametrize(
    ("settings", "own", "why"),
    [
        ({"aviato_api_key": "wrong-key"}, {}, "refuses the key"),
        ({"aviato_base_url": "http://127.0.0.1:9"}, {"aviato_start_seconds": 1.0}, "no sandbox"),
        ({"aviato_base_url": "no address"}, {}, "URL"),
        ({}, {"aviato_python": "python-that-is-not-there"}, "will not do"),
    ],
)
def test_what_cannot_start_says_why(
    gateway: StandIn, settings: dict[str, Any], own: dict[str, Any], why: str
) -> None:
    with constants(**own):
        backend = make_backend(gateway.settings(aviato_instance="none", **settings))
    with pytest.raises(StartError, match=why) as raised:
        asyncio.run(backend.start())
    assert "wrong-key" not in str(raised.value)
    assert gateway.alive("proctor-instance-none") == []


def test_an_image_without_root_is_refused_unless_told_to() -> None:
    user = 1000 if has_other_users() else os.getuid()

    async def question(place: Place) -> None:
        assert place.lacks("own_user")
        fork = "import os, time\nif not os.fork():\n    os.setsid(); time.sleep(99)\nprint(os.getuid())"
        assert (await place.script(fork)).ended.stdout == f"{user}\n".encode()
        assert (await place.script("while True: pass", cpu_seconds=1)).ended.ending == "cpu_limit"
        async with kept(place) as sandbox:
            await sandbox.write_file("a", b"kept")
            assert (await sh(sandbox, "cat a; echo x > $TMPDIR/b")).stdout == b"kept"
            assert b"tmp/b" in await sandbox.snapshot()

    with stand_in(user=user if has_other_users() else 0) as gateway:
        with pytest.raises(StartError, match="do not run as root"):
            asyncio.run(make_backend(gateway.settings(allow_degraded=False)).start())
        assert gateway.alive() == []
        with opened(gateway, "plain", allow_degraded=True, pool_size=1) as ask:
            ask(question)


def test_a_kernel_that_takes_no_filter_is_said(
    gateway: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def question(place: Place) -> None:
        assert place.lacks("seccomp")
        status = "print([line for line in open('/proc/self/status') if 'NoNewPrivs' in line])"
        assert b"1" in (await place.script(status)).ended.stdout

    broken = b"\xff" * 8  # no instruction that a kernel knows
    monkeypatch.setattr(seccomp, "outer", lambda machine, counted: broken)
    with opened(gateway, "unfiltered", pool_size=1) as ask:
        ask(question)


# ---------------------------------------------------------------- one sandbox, one submission


def test_no_sandbox_is_used_twice(ask: Ask) -> None:
    async def question(place: Place) -> None:
        runs = await asyncio.gather(*(place.script("print(1)") for _ in range(12)))
        assert len({finished.sandbox_id for finished in runs}) == 12

    ask(question)


LEAVE = """
import os, time
for path in ("mark", "/tmp/mark", "/var/tmp/mark", "/dev/shm/mark", "../home/mark"):
    open(path, "w").close()
os.makedirs("/tmp/a/" + "b/" * 200)
if not os.fork():
    os.setsid()
    time.sleep(1000)
print(os.getuid())
"""
FIND = """
import os
for top in ("/box", "/tmp", "/var/tmp", "/dev/shm"):
    for path, _, files in os.walk(top):
        found = [name for name in files if name != "solution.py"]
        if found: print("FOUND", path, found)
for pid in filter(str.isdigit, os.listdir("/proc")):
    uid = os.stat("/proc/" + pid).st_uid
    if uid not in (0, os.getuid()): print("RUNS", pid, uid)
print(os.getuid())
"""


def test_reuse_is_said_and_leaves_nothing(gateway: StandIn) -> None:
    async def question(place: Place) -> None:
        assert place.lacks("fresh_sandbox")
        runs = []
        for source in (LEAVE, LEAVE, FIND, FIND) * 2:
            runs.append(await place.script(source))
            while (await asyncio.to_thread(place.backend.census))["leased"]:
                pass  # it is given back after its result
        assert len({finished.sandbox_id for finished in runs}) <= 2  # as many as the pool made
        users = {finished.ended.stdout.strip() for finished in runs}
        assert len(users) == len(runs)
        assert all(user.isdigit() for user in users), users

    with opened(gateway, "reuse", aviato_reuse="process", pool_size=1) as ask:
        ask(question)


def test_one_that_was_lost_or_killed_is_not_used_again(gateway: StandIn) -> None:
    async def question(place: Place) -> None:
        async with place.backend.lease(LIMITS) as sandbox:
            lost = sandbox.id
            sandbox.begin(
                GuestMessage(script("print('begun', flush=True)\nwhile True: pass"), LIMITS)
            )
            await asyncio.to_thread(gateway.order, "cut", 1)
            with pytest.raises(SandboxLost):
                await sandbox.ended()
        runs = [await place.script("print(1)") for _ in range(4)]
        assert lost not in {finished.sandbox_id for finished in runs}

    with opened(gateway, "reuse", aviato_reuse="process", pool_size=1) as ask:
        ask(question)


# ---------------------------------------------------------------- the warden


OUT_OF_REACH = """
import ctypes, os, signal
print(sorted(os.listdir("/proc/self/fd"), key=int))  # 3 is of the listing itself
others = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
assert len(others) >= 2, others
for pid in others:
    for number in range(1, 65):
        try: os.kill(pid, number); print("SIGNALLED", pid)
        except OSError: pass
    for name in ("mem", "environ", "maps", "exe", "cwd", "root", "fd/0", "fd/1", "fd/2", "fdinfo/1"):
        for mode in ("rb", "wb"):
            try: open(f"/proc/{pid}/{name}", mode); print("OPENED", pid, name)
            except OSError: pass
    for name in ("oom_score_adj", "comm", "timerslack_ns"):
        try: os.write(os.open(f"/proc/{pid}/{name}", os.O_WRONLY), b"1"); print("WROTE", pid, name)
        except OSError: pass
    try: os.pidfd_open(pid); pidfd = os.pidfd_open(pid); signal.pidfd_send_signal(pidfd, 9); print("ENDED")
    except OSError: pass
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(16, pid, 0, 0) == -1
for path in ("/opt/proctor-warden", "/opt/x", "/usr/x", "/box/x", "/etc/x", "/x"):
    try: open(path, "ab"); print("OPENED", path)
    except OSError: pass
"""


def test_what_supervises_a_program_is_out_of_its_reach(ask: Ask) -> None:
    async def question(place: Place) -> None:
        finished = await place.script(OUT_OF_REACH)
        assert finished.ended.stdout == b"['0', '1', '2', '3', '300']\n", finished

    ask(question)


FORGED = """
import base64, json, os, resource
report = {"word": "", "status": 0, "stopped_for": None, "out_of_memory_kills": 0, "cpu_seconds": 0.0,
          "wall_seconds": 0.0, "idle_seconds": 0.0, "peak_memory_mb": 1.0, "stdout_bytes": 0,
          "stderr_bytes": 0}
frame = b"." + base64.b64encode(json.dumps(report).encode()) + b"\\n"
for descriptor in (1, 2, 300):
    os.write(descriptor, b"\\n" + frame)
os._exit(9)
"""


def test_how_it_ended_cannot_be_forged(ask: Ask) -> None:
    async def question(place: Place) -> None:
        finished = await place.script(FORGED)
        assert (finished.ended.ending, finished.ended.exit_code) == ("exited", 9)
        assert finished.ended.stdout.startswith(b"\n.")
        assert any(line.startswith(b".") for line in finished.lines)

    ask(question)


def test_its_word_is_nowhere_in_the_programs_memory(ask: Ask) -> None:
    """The job is, so this looks in the right place."""
    source = """
import re
JOB = "looked for"
found = set()
for line in open("/proc/self/maps"):
    span, mode = line.split()[:2]
    start, end = (int(part, 16) for part in span.split("-"))
    if mode.startswith("rw"):
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(start)
            try: data = memory.read(end - start)
            except OSError: continue
        found |= set(re.findall(rb'"(keep_stdout|flood)_bytes": ?[0-9]+', data))
        job = job or b"looked for" in data if "job" in dir() else b"looked for" in data
print(job, found)
"""

    async def question(place: Place) -> None:
        finished = await place.script(source)
        assert finished.ended.stdout == b"True set()\n", finished

    ask(question)


def test_what_processes_share_counts_once(ask: Ask) -> None:
    source = """
import os, time
shared = bytearray(b"x") * (48 << 20)
for _ in range(5):
    if not os.fork(): time.sleep(60)
time.sleep(0.5)
print("shared", flush=True)
alone = bytearray(b"y") * (90 << 20)
time.sleep(60)
"""

    async def question(place: Place) -> None:
        finished = await place.script(source, memory_mb=128, wall_seconds=20)
        assert (finished.ended.ending, finished.ended.stdout) == ("memory_limit", b"shared\n")

    ask(question)


def test_large_jobs_lines_and_floods_cross(ask: Ask) -> None:
    async def question(place: Place) -> None:
        text = "line\n" * 2_000_000
        finished = await place.script("import sys; print(len(sys.stdin.read()))", text)
        assert int(finished.ended.stdout) == len(text)
        assert await place.call("def f(x): return x", "f", "y" * 3_000_000) == "y" * 3_000_000
        for piece in ("b'z' * 60000", "b'zz\\n' * 20000"):
            flood = f"import os\nwhile True: os.write(300, {piece})"
            # Its stand-in carries each byte: on a slow machine it is idle for longer than a program may be.
            ended = (await place.script(flood, wall_seconds=60)).ended
            assert ended.ending == "output_limit"

    ask(question)


def test_a_lease_that_is_given_up_leaves_no_sandbox(gateway: StandIn) -> None:
    async def question(place: Place) -> None:
        async def hold() -> None:
            async with place.backend.lease(LIMITS) as sandbox:
                sandbox.begin(GuestMessage(script("while True: pass"), LIMITS))
                await sandbox.ended()

        holding = [asyncio.create_task(hold()) for _ in range(4)]
        await asyncio.to_thread(gateway.order, "until_running", 4)
        for task in holding[:2]:
            task.cancel()
        await asyncio.gather(*holding[:2], return_exceptions=True)
        for task in holding[2:]:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)

    with opened(gateway, "given-up", pool_size=2) as ask:
        ask(question)


# ---------------------------------------------------------------- what is asked of Aviato


def test_tags_network_and_memory_as_they_were_asked_for(gateway: StandIn) -> None:
    async def question(place: Place) -> None:
        wide = replace(LIMITS, network=True, memory_mb=2048)
        async with place.backend.open(wide, tags=["mine", "proctor-instance-other"]):
            alive = gateway.order("census")["alive"]
        (mine,) = (box for box in alive if "mine" in box["tags"])
        others = [box for box in alive if "proctor-instance-wide" in box["tags"] and box != mine]
        assert (mine["deny_egress"], mine["open_egress"]) == (False, True)
        assert mine["tags"][:2] == ["proctor", "proctor-instance-wide"]
        assert [tag for tag in mine["tags"] if not tag.startswith("proctor")] == ["mine"]
        assert "proctor-instance-other" not in mine["tags"]
        assert mine["memory"] == "2304Mi"
        assert others
        assert {(box["deny_egress"], box["open_egress"]) for box in others} == {(True, False)}
        assert {box["memory"] for box in others} == {"768Mi"}

    with opened(gateway, "wide", pool_size=2) as ask:
        ask(question)


def test_what_an_earlier_start_left_is_stopped(gateway: StandIn) -> None:
    async def question(place: Place) -> None:
        before = set(gateway.alive("proctor-instance-again"))
        other = make_backend(gateway.settings(aviato_instance="again", pool_size=1))
        await other.start()
        try:
            assert before
            assert before.isdisjoint(gateway.alive())
        finally:
            await other.close()

    with opened(gateway, "again", pool_size=2) as ask:
        ask(question)


# ---------------------------------------------------------------- stateful, beyond the questions


def kept(place: Place, **limits: Any) -> Any:
    return place.backend.open(replace(LIMITS, **limits))


def test_a_gateway_that_restarts_between_two_commands_costs_nothing(gateway: StandIn) -> None:
    async def question(place: Place) -> None:
        async with kept(place) as sandbox:
            await sh(sandbox, "echo kept > file; sleep 1000 &")
            await asyncio.to_thread(gateway.order, "restart", 0.1)
            assert (await sh(sandbox, "cat file; pgrep -c sleep")).stdout == b"kept\n1\n"

    with opened(gateway, "kept", pool_size=1) as ask:
        ask(question)


@pytest.mark.parametrize("fault", ["cut", "lost", "gone"])
def test_a_command_of_which_nothing_is_known_any_more_loses_the_sandbox(
    gateway: StandIn, fault: str
) -> None:
    async def question(place: Place) -> None:
        async with kept(place) as sandbox:
            begun = asyncio.Event()
            command = Command(argv=("sh", "-c", "echo begun; sleep 1000"))
            running = asyncio.create_task(sandbox.exec(command, lambda name, data: begun.set()))
            await begun.wait()
            await asyncio.to_thread(gateway.order, fault, 1)
            with pytest.raises(SandboxLost):
                await running
            with pytest.raises(SandboxLost):
                await sandbox.ended()
            with pytest.raises(SandboxLost):
                await sh(sandbox, "true")

    with opened(gateway, "kept", pool_size=1) as ask:
        ask(question)


def test_memory_and_disk_end_a_command(ask: Ask) -> None:
    async def question(place: Place) -> None:
        async with kept(place, memory_mb=64, disk_mb=4) as sandbox:
            hog = "x = [bytearray(30 << 20) for _ in range(1)]\nimport time; time.sleep(1)"
            hogs = await asyncio.gather(*(py(sandbox, hog) for _ in range(4)))
            assert any(
                ended.ending == "memory_limit" or b"MemoryError" in ended.stderr for ended in hogs
            )
            fill = await sh(sandbox, "yes > big")
            assert fill.exit_code != 0  # ended for it, or there is no room at all
            await sh(sandbox, "rm big")
            with pytest.raises(FileRefused):
                await sandbox.write_file("big", bytes(5 << 20))
            assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"

    ask(question)


def test_a_kept_sandbox_that_is_killed_is_gone_at_the_gateway(gateway: StandIn) -> None:
    async def question(place: Place) -> None:
        async with kept(place) as sandbox:
            assert sandbox.id.removeprefix("sb_") in gateway.alive()
            sandbox.kill()
            with pytest.raises(SandboxEnded):
                await sandbox.snapshot()

    with opened(gateway, "kept", pool_size=1) as ask:
        ask(question)
