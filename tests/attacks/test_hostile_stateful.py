"""A hostile agent in a stateful sandbox: against its first process, its limits and its neighbours."""

from __future__ import annotations

from hostile import outside
from hostile.rooms import SOLUTION, WRONG, Room
from hostile.services import Started, until

# ---------------------------------------------------------------- its first process


def test_no_signal_by_any_way_reaches_its_first_process(room: Room) -> None:
    room.python("""
import ctypes, fcntl, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
for number in range(1, 65):
    for send in (
        lambda: os.kill(1, number), lambda: libc.syscall(234, 1, 1, number),
        lambda: libc.syscall(200, 1, number), lambda: libc.sigqueue(1, number, 0),
        lambda: signal.pidfd_send_signal(os.pidfd_open(1), number),
    ):
        try: send()
        except OSError: pass
    # A descriptor that signals its owner, which may be another process, with a number of one's choice.
    a, b = socket.socketpair()
    try:
        fcntl.fcntl(a, fcntl.F_SETOWN, 1); fcntl.fcntl(a, 10, number)
        fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        b.send(b"x")
    except OSError: pass
    # A child of the first process's, whose end is told to it by another signal.
    if libc.syscall(56, 0x8000 | number, 0, 0, 0, 0) == 0: os._exit(0)
""")
    assert room.shell("echo alive")["stdout"] == "alive\n"


def test_nothing_of_its_first_process_can_be_read_or_written(room: Room) -> None:
    said = room.python("""
import os, glob
for path in glob.glob("/proc/1/*") + glob.glob("/proc/1/task/1/*"):
    if os.path.basename(path) in (
        "environ", "mem", "maps", "smaps", "auxv", "stack", "pagemap", "syscall", "io", "fd", "cwd",
        "root", "map_files", "fdinfo", "ns", "clear_refs", "personality", "wchan",
    ):
        try:
            data = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
            if data and data != b"0": print("READ", path, data)
        except OSError: pass
    try: open(path, "wb").write(b"1"); print("WROTE", path)
    except OSError: pass
for number in range(400):
    for mode in (os.O_RDONLY, os.O_WRONLY):
        try: os.open(f"/proc/1/fd/{number}", mode); print("OPENED", number)
        except OSError: pass
""")
    assert said["stdout"] == ""


def test_what_runs_beside_them_cannot_change_how_commands_are_said_to_end(room: Room) -> None:
    room.background("""
import json, os
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            for number in (3, 4, 5, 300, *range(6, 40)):
                try: fd = os.open(f"/proc/{name}/fd/{number}", os.O_WRONLY | os.O_NONBLOCK)
                except OSError: continue
                try:
                    for n in range(1, 60):
                        os.write(fd, json.dumps(["exited", n, 0, 0.0, 0]).encode() + b"\\n")
                except OSError: pass
                os.close(fd)
""")
    for number in range(20):
        assert room.shell(f"exit {number + 1}")["exit_code"] == number + 1
        assert room.python(f"raise SystemExit({number + 1})")["exit_code"] == number + 1


# ---------------------------------------------------------------- its limits


def test_what_commands_left_behind_is_limited_with_nobody_looking(
    service: Started, room: Room
) -> None:
    room.background("import time\nb = []\nwhile True: b.append(bytearray(b'x') * (8 << 20))")
    until(lambda: len(outside.children_of_sandboxes(service)) == 0, "it holds its memory")
    again = room.exec(command=["echo", "alive"])
    assert again.status_code == 410 or again.json()["stdout"] == "alive\n"


def test_a_crowd_in_the_background_leaves_the_trainer_its_files(room: Room) -> None:
    assert room.put("solution.py", SOLUTION.encode()) == 204
    room.background("""
import os
while True:
    try: os.fork()
    except OSError: pass
""")
    assert room.get("solution.py").content == SOLUTION.encode()
    assert room.grade()["reward"] == 1.0


def test_a_loop_that_stops_and_kills_commands_is_a_verdict_at_most(room: Room) -> None:
    assert room.put("solution.py", WRONG.encode()) == 204
    room.background("""
import os, signal
while True:
    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL):
        try: os.kill(-1, number)
        except OSError: pass
""")
    for _ in range(5):
        result = room.grade()
        assert result["reward"] == 0.0, result
    assert room.exec(command=["true"]).status_code in (200, 410)


def test_none_of_many_daemons_survives_the_stop(service: Started) -> None:
    moving = """
import os, signal
for number in range(1, 64):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True:
    try:
        if os.fork(): os._exit(0)
        os.setsid()
    except OSError: pass
"""
    with service.client() as client:
        opened = Room(client)
        for _ in range(3):
            opened.background(moving)
        opened.stop()
        assert outside.children_of_sandboxes(service) == []
        assert opened.exec(command=["true"]).status_code == 410


def test_two_of_them_share_nothing(room: Room) -> None:
    other = Room(room.client)
    try:
        room.background("""
import fcntl, os, socket, time
s = socket.socket(socket.AF_UNIX); s.bind("\\0meeting"); s.listen()
t = socket.create_server(("127.0.0.1", 4711))
u = socket.create_server(("::1", 4711), family=socket.AF_INET6)
for place in ("/tmp", "/dev/shm", "/box", "/box/home"): open(f"{place}/meeting", "w").close()
time.sleep(60)
""")
        found = other.python("""
import ctypes, os, socket
for family, address in ((1, "\\0meeting"), (2, ("127.0.0.1", 4711)), (10, ("::1", 4711))):
    try: socket.socket(family).connect(address); print("MET", family)
    except OSError: pass
print([p for p in ("/tmp", "/dev/shm", "/box", "/box/home") if os.path.exists(f"{p}/meeting")])
print(len([n for n in os.listdir("/proc") if n.isdigit()]))
""")
        assert found["stdout"] == "[]\n2\n"
    finally:
        other.stop()


def test_heirs_in_the_background_do_not_run_for_ever(service: Started) -> None:
    heirs = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    end = time.thread_time() + 0.01
    while time.thread_time() < end: pass
    try:
        if os.fork(): os._exit(0)
    except OSError: pass
"""
    with service.client() as client:
        opened = Room(client, cpu_seconds=1)
        opened.background(heirs)
        until(lambda: outside.children_of_sandboxes(service) == [], "it runs")
        assert opened.shell("echo alive")["stdout"] == "alive\n"
        ended = opened.python(heirs, timeout_seconds=1)
        assert ended["ending"] in ("exited", "wall_limit")
        opened.stop()
