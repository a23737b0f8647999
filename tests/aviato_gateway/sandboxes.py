"""The stand-in's sandboxes: a container each, what runs in them, and what was ordered to go wrong."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cwsandbox._proto import sandbox_pb2 as pb

ENDED = (pb.STATE_COMPLETED, pb.STATE_FAILED, pb.STATE_TERMINATED)
_CHUNK = 1 << 16


@dataclass
class Faults:
    """What is to go wrong from now on."""

    start_seconds: float = 0.0
    refuse: int = 0  # so many creations
    key: str = "right-key"
    broken_image: str = ""  # sandboxes of this image fail
    secrets: dict[str, str] = field(default_factory=dict)  # value by "store/name"
    prices: dict[str, float] = field(default_factory=dict)  # dollars per hour by image


class Lost(Exception):
    """The sandbox went away under a command."""


class Containers:
    """Has containers made by a process that may fork."""

    def __init__(self, user: int) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "aviato_gateway.containers", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        order = {
            "shown": [] if executable.is_relative_to("/usr") else [str(executable.parents[1])],
            # An image has no packages but its own.
            "hidden": [
                path for path in map(str, _site_packages(executable)) if Path(path).is_dir()
            ],
            "path": str(executable.parent),
            "user": user,
        }
        self._order = order

    def make(self, variables: dict[str, str]) -> socket.socket:
        """A new one: the socket of its first process. It is gone when the socket is closed."""
        self._orders.send(json.dumps({**self._order, "variables": variables}).encode())
        _, (descriptor,), _, _ = socket.recv_fds(self._orders, _CHUNK, 1)
        return socket.socket(fileno=descriptor)

    def close(self) -> None:
        """Ends them all."""
        self._orders.close()
        self._process.wait()


def _site_packages(executable: Path) -> list[Path]:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    lib = executable.parents[1] / "lib"
    return [lib / version / "site-packages", lib / "python3" / "dist-packages"]


@dataclass(eq=False)
class Command:
    """One command, until it has ended. `fault`: what its stream is to do instead."""

    number: int
    ended: asyncio.Future[int]
    fault: asyncio.Future[str]


@dataclass(eq=False)
class Box:
    """One sandbox."""

    id: str
    spec: pb.SandboxSpec
    control: socket.socket
    state: pb.State = pb.STATE_CREATING
    commands: dict[int, Command] = field(default_factory=dict)
    executed: int = 0
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    failed: str = ""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self) -> None:
        """Begins to listen to its first process."""
        self.control.setblocking(False)
        asyncio.get_running_loop().add_reader(self.control, self._on_control)

    async def start(self, seconds: float) -> None:
        """Runs after so long."""
        begun = time.monotonic()
        await self._ready.wait()
        await asyncio.sleep(seconds - (time.monotonic() - begun))
        if self.state == pb.STATE_CREATING:
            self.state = pb.STATE_RUNNING

    @property
    def image(self) -> str:
        """Its image."""
        return str(self.spec.containers[0].image)

    @property
    def seconds(self) -> float:
        """How long it has lived: what its owner pays for."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    def end(self, state: pb.State) -> None:
        """Ends all that runs in it."""
        if self.state in ENDED:
            return
        self.state = state
        self.ended = time.monotonic()
        self._ready.set()
        asyncio.get_running_loop().remove_reader(self.control)
        self.control.close()
        for command in self.commands.values():
            if not command.ended.done():
                command.ended.set_result(137)

    def run(self, kind: str, what: object, descriptors: list[int]) -> Command:
        """Starts a command with these descriptors, which are closed here."""
        loop = asyncio.get_running_loop()
        command = Command(next(self._numbers), loop.create_future(), loop.create_future())
        try:
            if self.state in ENDED:
                raise Lost
            order = json.dumps([kind, command.number, what]).encode()
            self.control.setblocking(True)
            socket.send_fds(self.control, [order], descriptors)
            self.control.setblocking(False)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.commands[command.number] = command
        command.ended.add_done_callback(lambda _: self.commands.pop(command.number, None))
        return command

    def kill(self, command: Command) -> None:
        """Kills a command."""
        if not command.ended.done():
            self.control.send(json.dumps(["kill", command.number]).encode())

    def _on_control(self) -> None:
        try:
            data = self.control.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end(pb.STATE_FAILED)
            return
        kind, number, *rest = json.loads(data)
        if kind == "ready":
            self._ready.set()
        elif kind == "failed":
            self.failed = str(number)
            self.end(pb.STATE_FAILED)
        elif kind == "exit" and number in self.commands:
            command = self.commands[number]
            if not command.ended.done():
                command.ended.set_result(rest[0])


class Boxes:
    """All sandboxes, also those that ended."""

    def __init__(self, user: int) -> None:
        self.faults = Faults()
        self.all: dict[str, Box] = {}
        self.most_alive = 0
        self._containers = Containers(user)
        self._by_request: dict[str, Box] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._begun: list[tuple[int, asyncio.Future[None]]] = []

    def create(self, request_id: str, spec: pb.SandboxSpec) -> Box:
        """A new one, or the one that this request made before."""
        if request_id in self._by_request:
            return self._by_request[request_id]
        secrets = {
            secret.env_var: self.faults.secrets[f"{store.store_name}/{secret.path}"]
            for store in spec.containers[0].secret_stores
            for secret in store.secrets
            if f"{store.store_name}/{secret.path}" in self.faults.secrets
        }
        box = Box(f"box-{len(self.all) + 1}", spec, self._containers.make(secrets))
        box.open()
        self.all[box.id] = self._by_request[request_id] = box
        alive = sum(each.state not in ENDED for each in self.all.values())
        self.most_alive = max(self.most_alive, alive)
        if box.image == self.faults.broken_image:
            box.failed = "ErrImagePull"
            box.end(pb.STATE_FAILED)
        starting = asyncio.create_task(box.start(self.faults.start_seconds))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return box

    def dollars(self, boxes: Iterable[Box]) -> float:
        """What they have cost until now."""
        return sum(box.seconds * self.faults.prices.get(box.image, 0.0) / 3600 for box in boxes)

    def running(self) -> list[tuple[Box, Command]]:
        """All commands that run, with their sandboxes."""
        return [
            (b, c) for b in self.all.values() for c in b.commands.values() if not c.fault.done()
        ]

    def on_begun(self) -> None:
        """Told when a command begins."""
        count = len(self.running())
        for wanted, future in list(self._begun):
            if count >= wanted and not future.done():
                future.set_result(None)

    async def until_running(self, count: int) -> None:
        """Waits until so many commands run at once."""
        if len(self.running()) >= count:
            return
        entry = (count, asyncio.get_running_loop().create_future())
        self._begun.append(entry)
        await entry[1]
        self._begun.remove(entry)

    def strike(self, count: int, how: str) -> int:
        """Has so many running commands meet a fault; how many there were."""
        hit = self.running()[:count]
        for box, command in hit:
            command.fault.set_result(how)
            if how in ("lost", "gone"):
                box.end(pb.STATE_FAILED)
        return len(hit)

    def close(self) -> None:
        """Ends all of them."""
        for box in self.all.values():
            box.end(pb.STATE_TERMINATED)
        self._containers.close()
