"""The stand-in's process: serves on a free port, and takes orders on stdin, a line of JSON each.

`--streams N` is HTTP/2's limit of streams of one connection, `--user N` the user of the image. The first
line on stdout is the port; then an answer to each order. It stands for other machines, so it steps back for
the service on this one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from typing import Any

import grpc  # type: ignore[import-untyped]
from cwsandbox._proto import sandbox_pb2 as pb
from cwsandbox._proto.sandbox_pb2_grpc import add_SandboxServiceServicer_to_server

from aviato_gateway.sandboxes import ENDED, Box, Boxes
from aviato_gateway.service import Service

_MESSAGE_BYTES = 100 << 20


class Gateway:
    """The server, which may be restarted without its sandboxes ending."""

    def __init__(self, streams: int, user: int) -> None:
        self.boxes = Boxes(user)
        self.port = 0
        self._streams = streams
        self._server: Any = None

    async def start(self) -> None:
        """Listens; on the same port as before, if it did before."""
        options = [
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MESSAGE_BYTES),
        ]
        if self._streams:
            options.append(("grpc.max_concurrent_streams", self._streams))
        self._server = grpc.aio.server(options=options)
        add_SandboxServiceServicer_to_server(Service(self.boxes), self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """Breaks off every call, and listens no more."""
        await self._server.stop(None)

    async def obey(self, order: str, value: Any) -> Any:
        """One order; its answer."""
        boxes = self.boxes
        if order in ("start_seconds", "refuse", "key", "broken_image", "secrets", "prices"):
            setattr(boxes.faults, order, value)
        elif order in ("cut", "lost", "gone"):
            return boxes.strike(value, order)
        elif order == "until_running":
            await boxes.until_running(value)
        elif order == "restart":
            await self.stop()
            await asyncio.sleep(value)
            await self.start()
        elif order == "images":
            return {box.id: box.image for box in boxes.all.values()}
        elif order == "census":
            alive = [box for box in boxes.all.values() if box.state not in ENDED]
            ended = [box for box in boxes.all.values() if box.state in ENDED]
            return {
                "created": len(boxes.all),
                "most_alive": boxes.most_alive,
                "ended_seconds": sum(box.seconds for box in ended),
                "ended_dollars": boxes.dollars(ended),
                "by_state": Counter(pb.State.Name(box.state) for box in boxes.all.values()),
                "failed": [box.failed for box in boxes.all.values() if box.failed],
                "alive": [_shown(box) for box in alive],
            }
        else:
            raise ValueError(order)
        return None


def _shown(box: Box) -> dict[str, Any]:
    spec = box.spec
    main, limits = spec.containers[0], spec.containers[0].resource_requirements.limits
    pull = main.image_pull_credentials
    return {
        "id": box.id,
        "image": box.image,
        "tags": list(spec.tags),
        "deny_egress": spec.network.deny_egress,
        "open_egress": any(rule.HasField("any") for rule in spec.network.egress),
        "egress_names": [
            rule.https_hostname for rule in spec.network.egress if rule.https_hostname
        ],
        "cpu": limits.cpu,
        "memory": limits.memory,
        "gpu": [limits.gpu.count, limits.gpu.type, limits.gpu.memory_gb],
        "runtime_class": spec.runtime_class,
        "secrets": {
            secret.env_var: [store.store_name, secret.path, secret.field]
            for store in main.secret_stores
            for secret in store.secrets
        },
        "volumes": {volume.name: volume.volume_id for volume in spec.volumes},
        "mounts": {
            mount.mount_path: [mount.volume, mount.sub_path, mount.read_only]
            for mount in main.volume_mounts
        },
        "pull": [pull.registry, pull.credentials.store_name, pull.credentials.path],
        "lifetime_seconds": spec.max_lifetime_seconds,
    }


async def _serve(streams: int, user: int) -> None:
    gateway = Gateway(streams, user)
    await gateway.start()
    print(json.dumps(gateway.port), flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    try:
        while line := await orders.readline():
            order, value = json.loads(line)
            print(json.dumps(await gateway.obey(order, value)), flush=True)
    finally:
        await gateway.stop()
        gateway.boxes.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--user", type=int, default=0)
    options = parser.parse_args()
    os.nice(10)
    asyncio.run(_serve(options.streams, options.user))
