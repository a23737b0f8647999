"""What /proc tells a sandbox of its service, and files whose names are odd."""

from __future__ import annotations

import pytest
from harness import exec_request

from hostile.rooms import Room
from hostile.services import Started

LOOK = """
print(open("/proc/self/cgroup").read())
"""
BUSY_CHILDREN = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        while True: pass
while True: time.sleep(1)
"""


def test_a_sandbox_sees_no_path_of_its_cgroup(service: Started) -> None:
    with service.client() as client:
        answer = client.post("/reward", json=exec_request(LOOK, cache=False)).json()
    [result] = answer["results"]
    paths = {line.split(":", 2)[2] for line in result["stdout"].split()}
    assert paths == {"/"}


@pytest.mark.parametrize("name", ["a\nb", "a\n", "\n", "a\r\nb", "d\n/e\n"])
def test_a_file_may_have_line_breaks_in_its_name(room: Room, name: str) -> None:
    assert room.put(name, name.encode()) == 204
    assert room.get(name).content == name.encode()
    assert room.get(name.strip() + "x").status_code == 404


def test_the_time_of_children_is_told_when_a_limit_ends_them(service: Started) -> None:
    limits = {"cpu_seconds": 0.5, "wall_seconds": 20}
    with service.client() as client:
        made = client.post("/sandboxes", json={"limits": limits}).json()
        ended = client.post(f"/sandboxes/{made['id']}/exec", json={"code": BUSY_CHILDREN}).json()
        client.delete(f"/sandboxes/{made['id']}")
        body = exec_request(BUSY_CHILDREN, limits=limits, cache=False)
        [result] = client.post("/reward", json=body).json()["results"]
    assert ended["ending"] == "cpu_limit"
    assert ended["usage"]["cpu_seconds"] >= 0.5
    assert result["verdict"] == "timeout"
    assert result["usage"]["cpu_seconds"] >= 0.5
