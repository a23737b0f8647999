"""Service side of the zygote: starts the zygote, which forks a fork server for each slot.

A single interpreter is started and warmed for the whole pool. A fork server costs a fork and its
isolation, and shares its memory with all others. A dead zygote is replaced when the next fork
server is needed; its fork servers live on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass

from proctor_service.errors import StartError
from proctor_service.sandbox.local.bundle import BOOT, start_message
from proctor_service.sandbox.local.fork_server import BIND_NOW

START_SECONDS = 60.0
_END_SECONDS = 5.0
USERS = 4000
"""Number of user ids for all sandboxes of a service."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start parameters of fork servers: interpreter, environment, configuration, and limits."""

    python: str
    environment: dict[str, str]
    config: dict[str, object]
    preload: tuple[str, ...]
    code: bytes
    first_uid: int
    users: int
    disk_mb: int
    flood_bytes: int
    memory_is_counted: bool
    kills_path: str
    """File of `kills_path`, for sandboxes without a memory cgroup of their own."""
    contained: bool
    rlimits: tuple[tuple[int, int], ...]
    """Limits that sandboxes inherit, soft and hard, in the order of `fork_server.RLIMITS`."""
    image_python: str | None = None
    """Version (`3.12`) of an image's interpreter that has yet to compile the code for its sandboxes."""


class Spawner:
    """Starts the zygote and orders fork servers; a single zygote at a time."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._starting = asyncio.Lock()

    @property
    def ready(self) -> bool:
        """True if a zygote is believed to wait for orders."""
        return self._orders is not None

    @property
    def pid(self) -> int:
        """PID of the zygote. Raises LookupError without a zygote."""
        if self._process is None:
            raise LookupError("no zygote")
        return self._process.pid

    async def open(self) -> None:
        """Start a zygote if none runs. Raises StartError on failure."""
        async with self._starting:
            if self.ready:
                return
            try:
                await asyncio.to_thread(self._start)
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                raise StartError(f"the zygote does not start: {error}") from error

    async def close(self) -> None:
        """Kill the zygote; each slot ends its own fork server."""
        async with self._starting:
            await asyncio.to_thread(self._end)

    def spawn(self, number: int, control: socket.socket, entrances: list[int]) -> None:
        """Order the fork server of slot `number`, which communicates over `control`.

        The fork server first enters the cgroups of the files `entrances`. Each fork server has its
        own user id, because process rlimits count per user. Raises OSError without a zygote, and
        BlockingIOError when the zygote's queue of orders is full.
        """
        if self._orders is None:
            raise ConnectionError("no zygote")
        order = b"fork %d" % (self._launch.first_uid + number % self._launch.users)
        try:
            socket.send_fds(self._orders, [order], [control.fileno(), *entrances])
        except BlockingIOError:
            raise
        except OSError:
            self._orders.close()
            self._orders = None
            raise

    def _start(self) -> None:
        """Start the zygote and block until it reports readiness."""
        self._end()
        launch = self._launch
        orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as on_failure, theirs:
            on_failure.callback(orders.close)
            self._process = subprocess.Popen(
                [launch.python, "-P", "-s", "-S", "-c", BOOT, str(theirs.fileno())],
                env={**launch.environment, BIND_NOW: "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                # Pipes, as in a sandbox: Python checks only once if its streams can seek.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,
            )
            on_failure.pop_all()
        assert self._process.stdin is not None
        orders.settimeout(START_SECONDS)
        said = b""
        with contextlib.suppress(OSError):
            with self._process.stdin as pipe:
                pipe.write(start_message(launch.config, launch.preload, launch.code))
            said = orders.recv(4096)
        if said != b"up\n":
            orders.close()
            words = self._end()
            raise StartError(said.decode("utf-8", "replace").strip() or words or "it took too long")
        orders.setblocking(False)
        self._orders = orders

    def _end(self) -> str:
        """Kill the zygote, wait for its exit, and return its stderr output."""
        orders, self._orders = self._orders, None
        if orders is not None:
            orders.close()
        process, self._process = self._process, None
        if process is None:
            return ""
        process.kill()
        process.wait(_END_SECONDS)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        os.set_blocking(process.stderr.fileno(), False)  # fork servers may still hold the other end
        with process.stderr as stream:
            return (stream.read() or b"").decode("utf-8", "replace").strip()[-500:]
