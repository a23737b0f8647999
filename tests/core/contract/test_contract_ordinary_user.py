"""The same walls without root and without cgroups: in a user namespace, where root is nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from waits import WAIT_SECONDS

BEFORE = """
    import os
    from proctor_service.sandbox.linux import kernel
    from proctor_service.sandbox.local import cgroups, launch

    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(kernel.NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    launch._can_become = lambda uid: False
    cgroups.find = lambda: (None, "none in this test")

    from core.contract.rooms_for_tests import Place, inside
"""


def as_ordinary_user(question: str) -> str:
    """Runs a question in a process of its own that has no privilege outside its namespace."""
    script = textwrap.dedent(BEFORE) + textwrap.dedent(question)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_endings_are_told_apart() -> None:
    said = as_ordinary_user("""
        async def question(place: Place) -> None:
            for source in (
                "print('hi')",
                "while True: pass",
                "import time; time.sleep(99)",
                "b = []\\nwhile True: b.append(bytearray(1 << 24))",
            ):
                done = await place.script(source, cpu_seconds=1, wall_seconds=1, memory_mb=128)
                # An allocation that the rlimit refuses is a MemoryError; the sweep may be quicker.
                print(done.ended.ending.replace("exited", str(done.ended.exit_code)))
            print(place.backend.traits.degraded)
        inside(question)
    """)
    lines = said.splitlines()
    assert lines[3] in ("1", "memory_limit")
    assert lines == [
        "0",
        "cpu_limit",
        "wall_limit",
        lines[3],
        "('memory_cgroup', 'pids_cgroup')",
    ]


def test_a_failure_while_the_machine_kills_processes_for_memory_is_no_verdict() -> None:
    said = as_ordinary_user("""
        from functools import partial
        from itertools import count, repeat
        from proctor_service.errors import SandboxLost
        from proctor_service.sandbox.linux import procfs
        async def question(place: Place) -> None:
            for kills in (count(), repeat(7)):
                procfs.out_of_memory_kills = partial(next, kills)
                for source in ("raise SystemExit(3)", "pass", "import time; time.sleep(99)"):
                    try:
                        ended = (await place.script(source, wall_seconds=0.5)).ended
                        print(ended.ending if ended.exit_code is None else ended.exit_code)
                    except SandboxLost as lost:
                        print(lost.message)
        inside(question)
    """)
    lost = "its surroundings ran out of memory before it reached its own limit"
    assert said.splitlines() == [lost, "0", lost, "3", "0", "wall_limit"]


def test_a_command_that_fails_while_the_machine_kills_for_memory_has_no_result() -> None:
    said = as_ordinary_user("""
        from functools import partial
        from itertools import count, repeat
        from proctor_service.errors import FileMissing, SandboxLost
        from core.contract.rooms_for_tests import LIMITS
        from proctor_service.sandbox.interface import Command
        from proctor_service.sandbox.linux import procfs
        async def question(place: Place) -> None:
            for kills in (count(), repeat(7)):
                procfs.out_of_memory_kills = partial(next, kills)
                for code in ("raise SystemExit(3)", "pass"):
                    async with place.backend.open(LIMITS) as sandbox:
                        try:
                            await sandbox.read_file("missing", 9)
                        except FileMissing:
                            pass
                        try:
                            print((await sandbox.exec(Command(code=code))).exit_code)
                        except SandboxLost as lost:
                            print(lost.message)
        inside(question)
    """)
    lost = "its surroundings ran out of memory before it reached its own limit"
    assert said.splitlines() == [lost, "0", "3", "0"]


def test_a_program_that_outlives_the_loss_of_a_child_may_fail_by_it() -> None:
    said = as_ordinary_user("""
        from functools import partial
        from itertools import count
        from proctor_service.errors import SandboxLost
        from proctor_service.judge.run import Run
        from proctor_service.sandbox.linux import procfs
        async def question(place: Place) -> None:
            procfs.out_of_memory_kills = partial(next, count())
            finished = Run((), (await place.script("pass")).ended, "sandbox")
            print(finished.judgement("passed").verdict)
            try:
                finished.judgement("failed")
            except SandboxLost as lost:
                print("lost")
        inside(question)
    """)
    assert said.splitlines() == ["passed", "lost"]


def test_a_program_that_cannot_be_observed_is_not_idle() -> None:
    said = as_ordinary_user("""
        import asyncio, errno, os
        from itertools import count
        from proctor_service.judge.run import message
        from proctor_service.sandbox.interface import GuestMessage
        from proctor_service.sandbox.linux import procfs
        from core.contract.rooms_for_tests import LIMITS
        from dataclasses import replace
        reads, listdir, observed = count(), os.listdir, asyncio.Event()
        def scarce(path: str) -> list[str]:
            number = next(reads)
            if 2 < number < 40:
                raise OSError(errno.EMFILE, "Too many open files")
            if number > 45:
                observed.set()
            return listdir(path)
        async def question(place: Place) -> None:
            procfs.os.listdir = scarce
            job = message("python", mode="script", source="while True: pass", files={}, stdin="")
            limits = replace(LIMITS, cpu_seconds=600, wall_seconds=0.5)
            async with place.backend.lease(limits) as sandbox:
                sandbox.begin(GuestMessage(job, limits))
                await observed.wait()
                sandbox.kill()
                print((await sandbox.ended()).ending)
        inside(question)
    """)
    assert said.splitlines() == ["killed"]


def test_memory_of_all_processes_counts_together() -> None:
    said = as_ordinary_user("""
        hog = '''
        import os, time
        for _ in range(8):
            if not os.fork():
                b = bytearray(80 << 20); time.sleep(60)
        time.sleep(60)
        '''
        import textwrap
        async def question(place: Place) -> None:
            print((await place.script(textwrap.dedent(hog), wall_seconds=20)).ended.ending)
        inside(question)
    """)
    assert said.splitlines() == ["memory_limit"]


def test_the_walls_are_the_same() -> None:
    said = as_ordinary_user("""
        source = '''
        import os, socket
        assert not os.path.exists("/etc/shadow") and not os.path.exists("/sys/fs")
        assert [n for n in os.listdir("/proc") if n.isdigit()] == ["1", "2"]
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        assert int(status["CapEff"], 16) == 0 and status["Seccomp"].strip() == "2"
        for path in ("/x", "/usr/x", "/etc/passwd"):
            try: open(path, "a").close()
            except OSError: continue
            print("WROTE", path)
        print("walls")
        '''
        import textwrap
        async def question(place: Place) -> None:
            done = await place.script(textwrap.dedent(source))
            print(done.ended.stdout, done.ended.stderr)
        inside(question)
    """)
    assert said.splitlines() == ["b'walls\\n' b''"]


def test_without_namespaces_it_does_not_start_unless_told_to() -> None:
    said = as_ordinary_user("""
        import glob
        from proctor_service.errors import StartError
        launch._can_unshare = lambda flags: False
        before = set(glob.glob("/tmp/proctor-????????"))  # others work here too
        try:
            inside(None)
        except StartError as error:
            print("namespaces" in str(error))

        async def question(place: Place) -> None:
            done = await place.script("print(open('/proc/self/status').read().count('Seccomp:\\t2'))")
            print(done.ended.stdout, place.backend.traits.degraded)
        inside(question, allow_degraded=True)
        print(set(glob.glob("/tmp/proctor-????????")) - before)
    """)
    assert said.splitlines() == [
        "True",
        "b'1\\n' ('namespaces', 'memory_cgroup', 'pids_cgroup')",
        "set()",
    ]
