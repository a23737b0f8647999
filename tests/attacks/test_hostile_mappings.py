"""A submission of which /proc tells so much that reading it takes seconds: others do not wait for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hostile import outside
from hostile.services import Started
from proctor_service.sandbox.linux import procfs

MOST_SECONDS = 1.0  # of CPU time; reading all of it takes several times as long
MANY_MAPPINGS = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
area = libc.mmap(None, 60_000 * 4096, 3, 0x22, -1, 0)
for page in range(0, 60_000, 2): libc.mprotect(area + page * 4096, 4096, 1)
for _ in range(60):
    try:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    except OSError:
        break
"""
IN_REWARD = (
    MANY_MAPPINGS + "end = time.monotonic() + 3\nwhile time.monotonic() < end: time.sleep(0.1)"
)


def seconds_worked(service: Started) -> dict[int, float]:
    """CPU seconds of the event loops, by process: each runs in the first thread of its process."""
    return {pid: procfs.schedule(pid)[0] for pid in {service.pid, *outside.judges(service)}}


def answers_meanwhile(service: Started, path: str, body: dict[str, Any]) -> Any:
    """The answer to a request; /healthz is asked again and again until it is there.

    An event loop may work for `MOST_SECONDS` between two answers. A busy machine keeps the service
    from a core for longer, so the wall clock says nothing.
    """
    with ThreadPoolExecutor(1) as beside, service.client() as client, service.client() as prober:
        asked = beside.submit(client.post, path, json=body)
        worked = seconds_worked(service)
        while not asked.done():
            assert prober.get("/healthz").status_code == 200
            before, worked = worked, seconds_worked(service)
            for pid, seconds in worked.items():
                assert seconds - before.get(pid, seconds) < MOST_SECONDS
        answer = asked.result()
        assert answer.status_code == 200, answer.text
        return answer.json()


def test_the_mappings_of_a_submission_hold_nobody_up(service: Started) -> None:
    limits = {"cpu_seconds": 20, "wall_seconds": 20, "memory_mb": 512, "processes": 64}
    submission = {"completion": IN_REWARD, "grader": {"kind": "exec"}, "limits": limits}
    body = {"submissions": [submission], "extract": "none", "cache": False}
    [result] = answers_meanwhile(service, "/reward", body)["results"]
    assert result["error"] is None, result


def test_the_mappings_of_what_a_command_left_running_hold_nobody_up(service: Started) -> None:
    limits = {"cpu_seconds": 20, "wall_seconds": 20, "memory_mb": 4096, "processes": 64}
    with service.client() as client:
        made = client.post("/sandboxes", json={"limits": limits}).json()
        path = f"/sandboxes/{made['id']}"
        try:
            answers_meanwhile(service, f"{path}/exec", {"code": MANY_MAPPINGS})
            answers_meanwhile(service, f"{path}/exec", {"command": ["sleep", "2"]})
        finally:
            client.delete(path)
    outside.wait_for_rest(service)
