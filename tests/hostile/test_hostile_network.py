"""Memory of sockets counts against a sandbox's limit, and no use of its network shows in the next."""

from __future__ import annotations

from typing import Any

import pytest

from hostile.services import Started

MEMORY_MB = 128
SANDBOXES_AT_ONCE = 8
LISTENING = """
import os, socket, time
def listening(family, host, backlog=4096):
    server = socket.socket(family); server.setsockopt(1, 8, 8 << 20)
    server.bind((host, 0)); server.listen(backlog)
    return server
def sent(client, address, data):
    client.setsockopt(1, 7, 8 << 20); client.setblocking(False)
    client.connect_ex(address)
    try:
        while True: client.send(data)
    except OSError: pass
"""
NOBODY_ACCEPTS = """
servers = []
while True:
    servers.append(listening({family}, "{host}"))
    for _ in range(4000):
        with socket.socket({family}) as client: sent(client, servers[-1].getsockname(), bytes(1 << 20))
"""
TAKES_TOO_MUCH = {
    "connections that nobody accepts": NOBODY_ACCEPTS.format(family="socket.AF_INET", host="127.0.0.1"),
    "the same, of the newer kind": NOBODY_ACCEPTS.format(family="socket.AF_INET6", host="::1"),
    "by many processes": "for _ in range(4): os.fork()\n"
    + NOBODY_ACCEPTS.format(family="socket.AF_INET", host="127.0.0.1"),
    "half in connections, half in pages": "pages = bytearray(b'x') * (60 << 20)\n"
    + NOBODY_ACCEPTS.format(family="socket.AF_INET", host="127.0.0.1"),
    "bytes that hold pages": """
def connected():
    server = listening(socket.AF_INET, "127.0.0.1"); client = socket.create_connection(server.getsockname())
    client.setsockopt(6, 1, 1)
    return client, server.accept()[0]
held = [connected() for _ in range(40)]
for client, _ in held: client.setblocking(False)
source, sink = connected()
while True:
    for client, _ in held:
        try: client.send(b"x")
        except BlockingIOError: pass
        source.sendall(bytes(32_700))
        sink.recv(32_700, socket.MSG_WAITALL)
""",
    "connections that nobody reads": """
for _ in range(16):
    if os.fork() == 0: break
server, kept = listening(socket.AF_INET, "127.0.0.1"), []
try:
    while True:
        client = socket.socket(); client.connect(server.getsockname()); other, _ = server.accept()
        kept += [client, other]
        for end in (client, other):
            end.setsockopt(1, 7, 8 << 20); end.setblocking(False)
            try:
                while True: end.send(bytes(1 << 20))
            except BlockingIOError: pass
except OSError: time.sleep(60)
""",
}  # fmt: skip
HONEST = """
import asyncio
async def answer(reader, writer):
    writer.write(await reader.readexactly(20_000)); await writer.drain(); writer.close()
async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes(20_000))
    assert await reader.readexactly(20_000) == bytes(20_000)
    writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=500)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*(ask(port) for _ in range(80)))
asyncio.run(main())
"""
USES_THE_NETWORK = {
    "a connection": """
import socket
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((host, 0), family=family)
    with socket.create_connection(server.getsockname()[:2]) as client: client.send(b"x")
""",
    "a datagram": """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
""",
    "no route": """
import socket
assert socket.socket().connect_ex(("192.0.2.1", 9)) == 101
""",
    "no route for the newer kind": """
import socket
assert socket.socket(socket.AF_INET6).connect_ex(("2001:db8::1", 9)) == 101
""",
}
COUNTERS = """
for name in ("dev", "snmp", "snmp6", "netstat", "tcp", "udp", "ip6_flowlabel"):
    print(name, open(f"/proc/self/net/{name}").read())
"""


def judged(service: Started, programs: list[str]) -> list[dict[str, Any]]:
    body = {
        "submissions": [{"completion": program} for program in programs],
        "grader": {"kind": "exec"},
        "limits": {"memory_mb": MEMORY_MB, "cpu_seconds": 20, "wall_seconds": 20, "output_kb": 64},
        "extract": "none",
        "cache": False,
    }
    with service.client() as client:
        results: list[dict[str, Any]] = client.post("/reward", json=body).json()["results"]
    return results


def test_sockets_count_against_the_memory_limit(service: Started) -> None:
    programs = [each for what in TAKES_TOO_MUCH.values() for each in (LISTENING + what, HONEST)]
    verdicts = [result["verdict"] for result in judged(service, programs)]
    assert dict(zip(TAKES_TOO_MUCH, verdicts[::2], strict=True)) == dict.fromkeys(
        TAKES_TOO_MUCH, "memory_limit"
    )
    assert verdicts[1::2] == ["passed"] * len(TAKES_TOO_MUCH)


@pytest.mark.parametrize("what", USES_THE_NETWORK)
def test_use_of_the_network_shows_in_no_later_sandbox(service: Started, what: str) -> None:
    [unused] = judged(service, [COUNTERS])
    users = judged(service, [USES_THE_NETWORK[what]] * 2 * SANDBOXES_AT_ONCE)
    assert {result["verdict"] for result in users} == {"passed"}
    later = judged(service, [COUNTERS] * 2 * SANDBOXES_AT_ONCE)
    assert {result["stdout"] for result in later} == {unused["stdout"]}
