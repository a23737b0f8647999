"""The service in groups of cgroup v2: as root and as an ordinary user, alone and in judge processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_process import ServiceProcess

from cgroup2.groups import ROOT, delegated_group, events
from hostile import ordinary_user
from proctor_service.sandbox.linux.delegation import delegated

USER = 15_000
EXEC = {"kind": "exec"}
LIMITS = {"cpu_seconds": 100, "wall_seconds": 20}
MANY = "import os, time\nfor _ in range(100):\n    if os.fork() == 0: time.sleep(60)\n"
HOLDS = "b = bytearray({} << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\n# {}"
KEEPS = HOLDS + "\nimport time; time.sleep(20)"
BUSY = "import time\nwhile time.process_time() < 0.5: pass\n# {}"
WHO = pytest.mark.parametrize("user", [0, USER], ids=["root", "ordinary user"])
PROCESSES = pytest.mark.parametrize("workers", ["0", "2"], ids=["one process", "judge processes"])


@contextmanager
def service_in(group: Path, user: int, **settings: str) -> Iterator[ServiceProcess]:
    """A service that starts in a group, as a user."""
    change = [sys.executable, ordinary_user.__file__, str(user)] if user else []
    with ServiceProcess(**settings).within(group, *change) as service:
        yield service


def judged(service: ServiceProcess, *programs: str, **limits: Any) -> list[dict[str, Any]]:
    items = [
        {"completion": program, "grader": EXEC, "limits": {**LIMITS, **limits}}
        for program in programs
    ]
    body = {"submissions": items, "extract": "none", "cache": False, "deadline_seconds": 1800}
    answer = httpx.post(f"{service.url}/reward", json=body, timeout=2000, trust_env=False)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def verdicts(results: list[dict[str, Any]]) -> list[str]:
    return [result["verdict"] or result["error"] for result in results]


@WHO
@PROCESSES
def test_a_service_limits_its_sandboxes_by_groups(user: int, workers: str) -> None:
    with delegated_group(user) as group:
        for start in (group, group / "proctor-service"):  # as a restart by a parent that moved, too
            with service_in(start, user, PROCTOR_WORKERS=workers, PROCTOR_SLOTS="2") as service:
                results = judged(
                    service, HOLDS.format(300, 0), HOLDS.format(100, 0), MANY, memory_mb=200
                )
                groups = list(group.glob("proctor-*/slot-*"))
            assert verdicts(results) == ["memory_limit", "passed", "runtime_error"]
            assert "BlockingIOError" in results[2]["stderr"]
            assert [result["degraded"] for result in results] == [[]] * 3
            assert len(groups) >= 2
            assert [path.name for path in group.iterdir() if path.is_dir()] == ["proctor-service"]


@WHO
def test_memory_that_the_surroundings_lack_is_nobodys_limit(user: int) -> None:
    limits = {"memory_max": str(700 << 20), "memory_swap_max": "0"}
    with (
        delegated_group(user, **limits) as group,
        service_in(group, user, PROCTOR_SLOTS="4", PROCTOR_WORKERS="0") as service,
    ):
        assert "there are 700 MB by " in service.logged
        assert f"{group}/memory.max" in service.logged
        right = [KEEPS.format(250, number) for number in range(6)]
        results = judged(service, *right, memory_mb=512, wall_seconds=100)
        assert [result["reward"] for result in results] == [1.0] * len(right), results
        lacked = events(group)
        greedy = [HOLDS.format(400, number) for number in range(3)]
        results = judged(service, *greedy, memory_mb=200)
        assert verdicts(results) == ["memory_limit"] * len(greedy)
    assert lacked["oom"] > 0, "the surroundings had memory for all"


@WHO
@PROCESSES
def test_right_programs_under_a_quota_are_no_timeout(user: int, workers: str) -> None:
    with delegated_group(user, cpu_max="50000 100000") as group:
        with service_in(group, user, PROCTOR_SLOTS="4", PROCTOR_WORKERS=workers) as service:
            right = [BUSY.format(number) for number in range(16)]
            results = judged(service, *right, wall_seconds=1)
        stat = (group / "cpu.stat").read_text().split()
    assert verdicts(results) == ["passed"] * len(right)
    assert int(stat[stat.index("throttled_usec") + 1]) > 1_000_000


CONTAINER = """
set -e
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cat /proc/self/cgroup
sleep 1000 >/dev/null 2>&1 &
sleep 1000 >/dev/null 2>&1 &
exec "$@"
"""
FINDS = """
import json, os
from pathlib import Path
from proctor_service.sandbox.local import cgroups
found = [cgroups.find() for _ in range(2)]
assert os.fork() or os._exit(cgroups.find()[0] is None)
print(json.dumps([[h and [h.version, *sorted(map(str, set(h.directories.values())))], w] for h, w in found]))
print(os.waitstatus_to_exitcode(os.wait()[1]), Path("/proc/self/cgroup").read_text().strip())
"""


def found_in(group: Path, *command: str) -> list[str]:
    enter = ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', f"{group}/cgroup.procs"]
    done = subprocess.run(
        [*enter, *command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_container_is_a_group_of_its_own_whose_processes_all_move() -> None:
    with delegated_group() as group:
        shell = ["unshare", "--cgroup", "--mount", "/bin/sh", "-c", CONTAINER, "sh"]
        said = found_in(group, *shell, sys.executable, "-c", FINDS)
        assert said[0] == "0::/"
        assert json.loads(said[1]) == [[[2, str(ROOT)], ""]] * 2
        assert said[2:] == ["0 0::/proctor-service"]
        moved = (group / "proctor-service" / "cgroup.procs").read_text().split()
    assert len(moved) == 2


@contextmanager
def beside_another_process(group: Path) -> Iterator[int]:
    """A process of somebody else in a group, without which the group may have no children."""
    other = subprocess.Popen(
        ["/bin/sh", "-c", 'echo 0 > "$0" && exec sleep 1000', f"{group}/cgroup.procs"]
    )
    try:
        while str(other.pid) not in (group / "cgroup.procs").read_text().split():
            os.sched_yield()
        yield other.pid
    finally:
        other.kill()
        other.wait()


@PROCESSES
def test_beside_other_processes_sandboxes_of_root_have_groups_above(workers: str) -> None:
    with delegated_group() as group, beside_another_process(group) as other:
        with service_in(group, 0, PROCTOR_WORKERS=workers, PROCTOR_SLOTS="2") as service:
            pid = service.pid
            results = judged(
                service, HOLDS.format(300, 0), HOLDS.format(100, 0), MANY, memory_mb=200
            )
            groups = list(ROOT.glob("proctor-*/slot-*"))
            beside = (group / "cgroup.procs").read_text().split()
        assert str(other) in (group / "cgroup.procs").read_text().split()
        assert not [path for path in group.iterdir() if path.is_dir()]
    assert verdicts(results) == ["memory_limit", "passed", "runtime_error"]
    assert "BlockingIOError" in results[2]["stderr"]
    assert [result["degraded"] for result in results] == [[]] * 3
    assert len(groups) >= 2
    assert str(pid) in beside
    assert not list(ROOT.glob("proctor-*"))


def test_a_limit_of_the_service_holds_for_its_sandboxes() -> None:
    with delegated_group() as group:
        (group / "cgroup.subtree_control").write_text("+memory +pids")
        inner = group / "session"
        inner.mkdir()
        with beside_another_process(inner):
            for limited, found in ((None, group), (group, group), (inner, None)):
                if limited is not None:
                    (limited / "pids.max").write_text("500")
                said = json.loads(found_in(inner, sys.executable, "-c", FINDS)[0])
                assert [hierarchy and hierarchy[1:] for hierarchy, _ in said] == [
                    found and [str(found)]
                ] * 2, limited
            assert "has other processes" in said[0][1]
            assert not (inner / "proctor-service").exists()


LEAVES = """
import os, time
from proctor_service.sandbox.local.cgroups import Groups, find

group = Groups(find()[0], 1.0).make("slot-0")
entrances = group.entrances()
if os.fork() == 0:
    for entrance in entrances:
        os.write(entrance, b"0")
    os.closerange(0, 100)  # the lock, and the test's pipes
    time.sleep(1000)
os._exit(0)
"""
CLEARS = """
from proctor_service.sandbox.local.cgroups import find, remove_stale
remove_stale(find()[0])
"""


def test_the_next_service_removes_groups_above_of_a_killed_service() -> None:
    with delegated_group() as group:
        with beside_another_process(group):
            found_in(group, sys.executable, "-c", LEAVES)
        left = list(ROOT.glob("proctor-*"))
        assert len(left) == 1
        found_in(group, sys.executable, "-c", CLEARS)
        assert left[0].exists(), "a young group may be of a service that starts"
        os.utime(left[0], (0, 0))
        found_in(group / "proctor-service", sys.executable, "-c", CLEARS)
        assert not left[0].exists()


def test_a_group_of_another_user_is_named() -> None:
    with delegated_group() as group:
        becomes = [sys.executable, ordinary_user.__file__, str(USER), sys.executable, "-c", FINDS]
        said = found_in(group, "env", f"PYTHONPATH={os.pathsep.join(sys.path)}", *becomes)
        bare = group / "bare"
        bare.mkdir()
        assert delegated(bare) == group, "it has controllers, and the user is root"
    assert json.loads(said[0])[0] == [
        None,
        f"{group} is not delegated to this user: Permission denied",
    ]


KILLED = """
import os, sys
from pathlib import Path
from proctor_service.sandbox.local.cgroups import Groups, find

hierarchy, why_not = find()
assert hierarchy is not None, why_not
groups = Groups(hierarchy, 1.0)
for limit_mb, held_mb in ((1000, 400), (100, 400)):
    group = groups.make(f"slot-{limit_mb}")
    group.set_limits(limit_mb, 8)
    group.begin()
    entrances = group.entrances()
    child = os.fork()
    if child == 0:
        for entrance in entrances:
            os.write(entrance, b"0")
        Path("/proc/self/oom_score_adj").write_text("1000")
        memory = bytearray(held_mb << 20)
        for place in range(0, len(memory), 4096):
            memory[place] = 1
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status, group.out_of_memory_kills(), group.at_memory_limit(), (group.cpu_seconds() or 0) > 0)
    group.forget_kills()
    print(group.out_of_memory_kills(), group.at_memory_limit())
    for entrance in entrances:
        os.close(entrance)
    group.close()
groups.close()
"""


def test_an_out_of_memory_kill_is_told_by_the_groups_own_events() -> None:
    with delegated_group(memory_max=str(300 << 20), memory_swap_max="0") as group:
        said = found_in(group, sys.executable, "-c", KILLED)
        assert [path.name for path in group.iterdir() if path.is_dir()] == ["proctor-service"]
    assert said == ["-9 1 False True", "0 False", "-9 1 True True", "0 False"]
