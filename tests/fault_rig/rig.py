"""Three replicas behind nginx, each at the end of a cable, with a Redis that they share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from fault_rig.cables import Cable, CableRoom
from fault_rig.processes import ROOT, Process
from fault_rig.programs import RedisServer, free_port, nginx, redis_server

TOKENS = {"trainer": "token-of-the-trainer", "other": "token-of-the-other"}
REPLICAS = 3


@dataclass(frozen=True)
class Rig:
    """All of it. `url` is nginx's."""

    url: str
    processes: list[Process]
    cables: list[Cable]
    redis: RedisServer


@contextmanager
def rig(settings: Mapping[str, str], cables_between: bool = True) -> Iterator[Rig]:
    """Starts it; it is gone when the block ends. `settings` are for each replica.

    A cable takes connections though its replica is gone, which no machine does: without cables
    nginx learns at once that nobody listens.
    """
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        room = stack.enter_context(CableRoom())
        processes, cables = [], []
        for _ in range(REPLICAS):
            process = Process()
            stack.callback(process.close)
            processes.append(process)
            cables.append(room.cable(process.port))
        ends: Sequence[Cable | Process] = cables if cables_between else processes
        for process, end in zip(processes, ends, strict=True):
            process.start(
                {
                    "PROCTOR_PEERS": json.dumps([each.url for each in ends]),
                    "PROCTOR_ADVERTISE_URL": end.url,
                    "PROCTOR_REDIS_URL": redis.url,
                    "PROCTOR_TOKENS": json.dumps(TOKENS),
                    "PROCTOR_LOG_FORMAT": "json",
                    "PROCTOR_SLOTS": "2",
                    **settings,
                }
            )
        port = free_port()
        stack.enter_context(nginx(site(port, [each.port for each in ends])))
        yield Rig(f"http://127.0.0.1:{port}", processes, cables, redis)


def site(port: int, replicas: list[int]) -> str:
    """deploy/nginx.conf as it stands, but for its addresses."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    shown = re.findall(r"10\.0\.0\.\d+:8080", text)
    assert len(set(shown)) == len(replicas), "as many replicas as it shows"
    for address, replica in zip(sorted(set(shown)), replicas, strict=True):
        text = text.replace(address, f"127.0.0.1:{replica}")
    assert text.count("listen 80;") == 1, "one server"
    return text.replace("listen 80;", f"listen 127.0.0.1:{port};")
