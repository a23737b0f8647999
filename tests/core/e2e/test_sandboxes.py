"""/sandboxes over HTTP in real sandboxes: what stays, what is seen by whom, and what is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from harness import Service
from requests_under_way import hanging_up
from waits import WAIT_SECONDS

from proctor_client import wire
from proctor_service.sandbox.linux import procfs

NDJSON = {"Accept": "application/x-ndjson"}
MEBIBYTE = 1 << 20


class Room:
    """One sandbox, and a client for it."""

    def __init__(self, client: httpx.Client, **fields: Any) -> None:
        self.client = client
        answer = client.post("/sandboxes", json=fields)
        assert answer.status_code == 201, answer.text
        self.id: str = answer.json()["id"]
        self.url = f"/sandboxes/{self.id}"

    def run(self, *command: str, **fields: Any) -> wire.ExecResult:
        return self._exec({"command": command, **fields})

    def python(self, code: str, **fields: Any) -> wire.ExecResult:
        return self._exec({"code": code, **fields})

    def shell(self, line: str, **fields: Any) -> wire.ExecResult:
        return self.run("/bin/sh", "-c", line, **fields)

    def _exec(self, body: dict[str, Any]) -> wire.ExecResult:
        answer = self.client.post(f"{self.url}/exec", json=body)
        assert answer.status_code == 200, answer.text
        return wire.ExecResult.model_validate(answer.json())

    def grade(self, grader: dict[str, Any], **fields: Any) -> wire.Result:
        answer = self.client.post(f"{self.url}/grade", json={"grader": grader, **fields})
        assert answer.status_code == 200, answer.text
        result = wire.Result.model_validate(answer.json())
        assert result.error is None, result.error
        return result

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.delete(f"{self.url}?missing_ok=true")


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened


@pytest.fixture
def room(client: httpx.Client) -> Iterator[Room]:
    with Room(client) as opened:
        yield opened


@pytest.mark.smoke
def test_files_environment_and_processes_stay_between_calls(room: Room) -> None:
    room.python("open('n', 'w').write('7')\nimport os\nos.environ['WHO'] = 'me'")
    assert room.python("import os; print(open('n').read(), os.environ['WHO'])").stdout == "7 me\n"
    assert room.shell("cat n; echo $WHO").stdout == "7me\n"
    room.shell("sleep 1000 & echo $! > pid")
    assert room.shell("kill -0 $(cat pid) && echo alive").stdout == "alive\n"


def test_nothing_of_one_is_seen_in_another(client: httpx.Client, room: Room) -> None:
    room.shell("echo mine > /tmp/secret; echo mine > secret; sleep 1000 &")
    with Room(client) as other:
        found = other.shell("cat secret /tmp/secret; ls -A . /tmp; ps aux 2>/dev/null || ls /proc")
        assert "mine" not in found.stdout
        assert "secret" not in found.stdout
        assert "sleep" not in found.stdout


def test_what_a_command_says_and_how_it_ends(room: Room) -> None:
    assert room.run("true").exit_code == 0
    assert room.run("false").exit_code == 1
    assert room.run("no-such-program").exit_code == 127
    ended = room.shell("cat; echo err >&2; exit 3", stdin="ü\n")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (3, "ü\n", "err\n")
    assert "ZeroDivisionError" in room.python("1 / 0").stderr
    limited = room.run("sleep", "1000", timeout_seconds=0.2)
    assert (limited.ending, limited.exit_code) == ("wall_limit", None)
    killed = room.shell("kill -9 $$")
    assert (killed.ending, killed.exit_code) == ("signalled", None)
    stats = room.client.get(room.url).json()["exec_stats"]
    assert stats["errors"] == 1
    assert stats["total"] == sum(stats.values()) - stats["total"]


def test_output_beyond_its_limit_is_cut_and_the_command_goes_on(client: httpx.Client) -> None:
    with Room(client, limits={"output_kb": 1}) as small:
        ended = small.python("print('x' * 100_000)")
        assert (ended.exit_code, ended.truncated, len(ended.stdout)) == (0, True, 1024)
        body = {"code": "print('x' * 100_000)"}
        answer = client.post(f"{small.url}/exec", json=body, headers=NDJSON)
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert sum(len(line.get("stdout", "")) for line in lines) == 1024
        assert lines[-1]["result"]["truncated"] is True


def test_output_is_streamed_while_it_is_written(room: Room) -> None:
    code = "import sys\nprint('one', flush=True)\nopen('go').read()\nprint('two', file=sys.stderr)"
    room.run("mkfifo", "go")
    body = {"code": code}
    with room.client.stream("POST", f"{room.url}/exec", json=body, headers=NDJSON) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"stdout": "one\n"}
        room.shell("echo > go")
        rest = [json.loads(line) for line in lines]
    assert rest[0] == {"stderr": "two\n"}
    assert rest[-1]["result"]["exit_code"] == 0


@pytest.mark.parametrize("path", ["x", "a/b c/ü\U0001f600", "50%.bin", "/tmp/deep/er"])
def test_bytes_go_in_and_out(room: Room, path: str) -> None:
    data = bytes(range(256)) * 100
    url = f"{room.url}/files/{quote(path, safe='')}"
    assert room.client.put(url, content=data).status_code == 204
    assert room.client.get(url).content == data
    code = f"print(sum(open({path!r}, 'rb').read()))"
    assert room.python(code).stdout == f"{sum(data)}\n"


def test_a_file_of_32_mb(room: Room) -> None:
    data = os.urandom(MEBIBYTE) * 32
    url = f"{room.url}/files/big"
    assert room.client.put(url, content=data).status_code == 204
    assert room.client.get(url).content == data
    assert room.client.put(url, content=data + b"x").status_code == 413
    room.shell("echo >> big")
    assert room.client.get(url).status_code == 422


def test_what_is_no_file_or_does_not_fit(client: httpx.Client) -> None:
    with Room(client, limits={"disk_mb": 2}) as small:
        files = f"{small.url}/files"
        assert client.get(f"{files}/none").json()["error"]["reason"] == "file_not_found"
        small.shell("mkdir d; mkfifo p; ln -s /proc/self/mem m; echo x > f")
        for path in ("d", "p", "m"):
            assert client.get(f"{files}/{path}").status_code in (404, 422), path
        assert client.put(f"{files}/d", content=b"x").status_code == 422
        assert client.put(f"{files}/f/x", content=b"x").status_code == 422
        assert client.put(f"{files}/big", content=bytes(3 * MEBIBYTE)).status_code == 422
        assert small.run("true").exit_code == 0


def test_files_come_with_the_sandbox(client: httpx.Client) -> None:
    with Room(client, files={"a/b.txt": "ü\n", "c": ""}) as opened:
        assert opened.shell("cat a/b.txt; ls").stdout == "ü\na\nc\n"


def test_memory_is_limited_over_all_commands(client: httpx.Client) -> None:
    with Room(client, limits={"memory_mb": 64}) as small:
        answer = client.post(f"{small.url}/exec", json={"code": "x = bytearray(500 << 20)"})
        if answer.status_code == 200:
            ended = answer.json()
            assert ended["ending"] == "memory_limit" or "MemoryError" in ended["stderr"]
        else:
            assert answer.json()["error"]["reason"] == "sandbox_stopped"


def test_many_at_once_none_in_anothers_way(service: Service) -> None:
    def live(number: int) -> None:
        with service.client() as client:
            opened = Room(client, tags=["crowd"], files={"n": str(number)})
            for call in range(3):
                ended = opened.shell("echo x >> seen; echo $(cat n) $(ls) $(wc -l < seen)")
                assert ended.stdout == f"{number} n seen {call + 1}\n"

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(live, range(60)))
    with service.client() as client:
        assert client.delete("/sandboxes?tag=crowd").json()["stopped"] == 60
        assert client.get("/sandboxes?tag=crowd&status=running").json()["sandboxes"] == []


def test_rewards_are_judged_while_sandboxes_are_kept(client: httpx.Client) -> None:
    with ExitStack() as rooms:
        for _ in range(10):
            rooms.enter_context(Room(client))
        body = {
            "submissions": [{"completion": f"x = {number}"} for number in range(50)],
            "grader": {"kind": "exec"},
        }
        assert client.post("/reward", json=body).json()["summary"]["passed"] == 50


def test_commands_that_sleep_keep_no_reward_waiting(service: Service, room: Room) -> None:
    many = 3 * service.parts.core.queue.slots
    with ThreadPoolExecutor(many) as pool, service.client() as other:
        body = {"command": ["sleep", "1000"], "timeout_seconds": 1000}
        asked = [pool.submit(room.client.post, f"{room.url}/exec", json=body) for _ in range(many)]
        service.until(lambda: sum("sleep 1000" in line for line in command_lines()) == many)
        reward = {"submissions": [{"completion": "x = 1"}], "grader": {"kind": "exec"}}
        assert other.post("/reward", json=reward).json()["summary"]["passed"] == 1
        other.delete(room.url)
        assert {each.result().status_code for each in asked} == {410}


def test_a_stream_that_nobody_reads_keeps_nobody_waiting(
    service: Service, client: httpx.Client
) -> None:
    with Room(client, limits={"output_kb": 16_384}) as opened:
        address = httpx.URL(service.url)
        body = json.dumps({"code": "print('x' * (15 << 20))"}).encode()
        head = (
            f"POST {opened.url}/exec HTTP/1.1\r\nHost: proctor\r\nAccept: application/x-ndjson\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((address.host, address.port), WAIT_SECONDS) as connection:
            connection.sendall(head.encode() + body)
            registry = service.parts.core.registry
            service.until(lambda: registry.find("local", opened.id).execs.total() == 1)
            assert service.parts.core.queue.busy == 0
            read = b""
            while not read.endswith(b"\r\n0\r\n\r\n"):
                read += connection.recv(1 << 20)
        assert b'"exit_code":0' in read
        assert read.count(b"x" * 1000) > 2 * 15 * 1000


# ---------------------------------------------------------------- grade

ASSERTS = {"kind": "asserts", "tests": ["assert double(2) == 4", "assert double(5) == 10"]}
PYTEST = {
    "kind": "pytest",
    "files": {"test_it.py": "from lib.maths import double\ndef test(): assert double(2) == 4"},
}


@pytest.mark.smoke
def test_an_agent_mends_its_solution_and_is_judged_by_the_last_state(room: Room) -> None:
    assert room.grade(ASSERTS).verdict == "no_code"
    room.shell("mkdir lib; echo 'FACTOR = 3' > lib/factor.py")
    room.shell(
        "cat > solution.py",
        stdin="from lib.factor import FACTOR\ndef double(n):\n    return n * FACTOR\n",
    )
    wrong = room.grade(ASSERTS)
    assert (wrong.verdict, wrong.reward, wrong.tests.passed) == ("failed", 0.0, 0)
    room.shell("echo 'FACTOR = 2' > lib/factor.py")
    right = room.grade(ASSERTS)
    assert (right.verdict, right.reward, right.tests.passed) == ("passed", 1.0, 2)


def test_pytest_and_commands_judge_what_stands_there(room: Room) -> None:
    assert room.grade(PYTEST).reward == 0.0
    room.shell("mkdir lib; printf 'def double(n):\n    return 2 * n\n' > lib/maths.py")
    assert room.grade(PYTEST).verdict == "passed"
    has_file = {"kind": "command", "argv": ["/bin/sh", "-c", "test -f lib/maths.py"]}
    assert room.grade(has_file).reward == 1.0
    room.shell("rm -r lib")
    assert room.grade(has_file).reward == 0.0
    assert room.grade({"kind": "command", "argv": ["test", "-f", "solution.py"]}).reward == 0.0


def test_grading_changes_nothing_in_the_sandbox(room: Room) -> None:
    room.shell('printf \'open("mark", "w")\n\' > solution.py')
    before = room.shell("ls -la --time-style=full-iso . /tmp $HOME").stdout
    assert room.grade({"kind": "exec"}).verdict == "passed"
    assert room.shell("ls -la --time-style=full-iso . /tmp $HOME").stdout == before


COUNTS = """
def moves(turns):
    first = open('count').read()
    for _ in range(turns): pass
    return int(open('count').read()) - int(first)
"""


def test_what_the_agent_left_running_does_not_reach_its_grading(room: Room) -> None:
    room.shell("n=0; (while :; do n=$((n + 1)); echo $n > new; mv new count; done) > log 2>&1 &")
    room.shell("until [ -e count ]; do :; done")
    room.shell("cat > solution.py", stdin=COUNTS)
    assert room.grade({"kind": "asserts", "tests": ["assert moves(3_000_000) == 0"]}).reward == 1.0
    assert room.python(f"{COUNTS}\nwhile not moves(100_000): pass\nprint('on')").stdout == "on\n"


# ---------------------------------------------------------------- the end


def descendants() -> set[int]:
    """The processes of all sandboxes."""
    return set(procfs.tree(os.getpid())[1:])


def command_lines() -> list[str]:
    """What runs below this process, as it was started."""
    found = []
    for pid in descendants():
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("headers", [{}, NDJSON])
def test_a_client_that_hangs_up_ends_its_command(
    service: Service, room: Room, headers: dict[str, str]
) -> None:
    word = f"{len(headers)}98765"

    def runs() -> bool:
        return any(f"sleep {word}" in line for line in command_lines())

    with hanging_up(service, f"{room.url}/exec", {"command": ["sleep", word]}, **headers):
        service.until(runs)
    service.until(lambda: not runs())
    assert room.run("true").exit_code == 0


def test_a_stop_ends_the_command_that_runs(service: Service, room: Room) -> None:
    with ThreadPoolExecutor(1) as pool, service.client() as other:
        asked = pool.submit(other.post, f"{room.url}/exec", json={"command": ["sleep", "4321"]})
        service.until(lambda: any("sleep 4321" in line for line in command_lines()))
        assert room.client.delete(room.url).json() == {"stopped": 1}
        service.until(lambda: not any("sleep 4321" in line for line in command_lines()))
        assert asked.result().json()["error"]["reason"] == "sandbox_stopped"


def test_a_sandbox_past_its_ttl_is_gone(service: Service, client: httpx.Client) -> None:
    opened = Room(client, ttl_seconds=10)
    opened.shell("sleep 8765 &")
    service.until(lambda: any("sleep 8765" in line for line in command_lines()))
    service.until(lambda: service.parts.core.registry.find("local", opened.id).over)
    service.until(lambda: not any("sleep 8765" in line for line in command_lines()))
    answer = client.get(opened.url).json()
    assert (answer["status"], answer["message"]) == ("stopped", "its ttl of 10 s passed")


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return
        threading.Event().wait(0.01)
    pytest.fail(f"{pid} is still there")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_sandbox_outlives_the_service(how: signal.Signals) -> None:
    program = (
        "from proctor_service.settings import Settings\n"
        "from proctor_service.app import build_app, make_server\n"
        "server = make_server(build_app(Settings(port=0, grace_seconds=0.5)))\n"
        "import threading\n"
        "def tell():\n"
        "    while not server.started: threading.Event().wait(0.01)\n"
        "    print(server.servers[0].sockets[0].getsockname()[1], flush=True)\n"
        "threading.Thread(target=tell).start()\n"
        "server.run()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            with httpx.Client(base_url=url, trust_env=False, timeout=WAIT_SECONDS) as client:
                for number in range(5):
                    Room(client).shell(f"sleep 70{number} &")
            children = procfs.tree(process.pid)[1:]
            assert len(children) > 10
            process.send_signal(how)
            process.wait(WAIT_SECONDS)
        finally:
            process.kill()
    for child in children:
        wait_gone(child)
