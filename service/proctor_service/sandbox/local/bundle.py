"""Start of the zygote: its parameters, code sent over its stdin, a short loader, and its process.

A single interpreter is started and warmed for the whole pool. A fork server costs a fork and its
isolation, and shares its memory with all other fork servers. A dead zygote is replaced when the next fork
server is needed; its fork servers live on.

No part of the service is on a path visible to a sandbox, and the modules leave `sys.modules` before the
first submission runs, so a submission cannot import them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proctor_service.errors import StartError
from proctor_service.sandbox import code_bundle
from proctor_service.sandbox.code_bundle import HASH_SEED
from proctor_service.sandbox.local import read_only
from proctor_service.sandbox.local.fork_server import BIND_NOW
from proctor_service.sandbox.local.kernel_users import SubordinateIds

START_SECONDS = 60.0
_END_SECONDS = 5.0
_ANSWER_SECONDS = 30.0

_MODULES = (
    *code_bundle.GUEST,
    *(f"sandbox/linux/{name}.py" for name in ("kernel", "syscalls")),
    *(
        f"sandbox/local/{name}.py"
        for name in (
            *("gaps", "init", "isolation", "image_root", "network", "fork_server", "read_only"),
            "zygote",
        )
    ),
)

# Runs once in the sandboxes' interpreter, with -OO; each zygote of the same interpreter loads the
# result. Compiling enlarges a process by some megabytes, and a fork pays for each page of its parent.
# As for any import, Python keeps the result beside the source, where it may write. A sandbox sees no
# path of the service.
_MARSHAL_VERSION = 2  # which every Python 3 reads; json would take a third of the process's time
_COMPILE = """
import marshal, sys
from importlib.machinery import SourceFileLoader
def nameless(code):
    inner = (nameless(each) if isinstance(each, type(code)) else each for each in code.co_consts)
    return code.replace(co_filename="<sandbox>", co_consts=tuple(inner))
codes = {
    name: nameless(SourceFileLoader(name, path).get_code(name) if path else compile("", "", "exec"))
    for name, path in marshal.loads(sys.stdin.buffer.read()).items()
}
sys.stdout.buffer.write(marshal.dumps(codes))
"""

# Runs in the new interpreter as `-c`: reads configuration and code from stdin, makes the modules,
# and starts the zygote. The argument is the descriptor of the socket for orders. The finder derives
# from no class of `importlib.abc`: that module imports tempfile, and thereby 20 more with 30 mappings.
BOOT = """
import builtins, importlib, importlib.machinery, json, marshal, os, site, socket, sys
orders = socket.socket(fileno=int(sys.argv.pop()))
def read(size):
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data
start = json.loads(read(int(read(8))))
codes = marshal.loads(read(int(read(8))))
packages = {name.rpartition(".")[0] for name in codes}
null = os.open("/dev/null", os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
own_builtins = dict(vars(builtins))  # what a submission patches, it patches for itself
class Codes:
    def find_spec(self, name, path, target=None):
        if name in codes:
            return importlib.machinery.ModuleSpec(name, self, is_package=name in packages)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.__dict__["__builtins__"] = own_builtins
        exec(codes[module.__name__], module.__dict__)
# What `site` would do, without the code that packages hook into every start by .pth files: it would
# be in the memory of each sandbox.
sys.path[:] = start["config"]["python_path"]
sys.prefix = sys.exec_prefix = start["config"]["python_prefix"]
site.setquit(), site.setcopyright(), site.sethelper()
finder = Codes()
sys.meta_path.insert(0, finder)
zygote = importlib.import_module("proctor.sandbox.local.zygote")
try:
    for name in start["preload"]:
        importlib.import_module(name)
        if len(os.listdir("/proc/self/task")) > 1:  # a fork has no threads, but their locks
            raise RuntimeError(f"preload: {name} starts threads, so it cannot be preloaded")
    program = importlib.import_module("proctor.guest.main")
    inside_main, warm_up = program.main, program.warm_up
    sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name in codes]:
        del sys.modules[name]
    config = start["config"]
    start.clear()
    codes.clear()
    zygote.main(orders, config, inside_main, warm_up)
except BaseException as error:
    orders.send(f"{type(error).__name__}: {error}".encode()[:4000])
    os._exit(1)
"""


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
    """Limits inherited by sandboxes, soft and hard, in the order of `fork_server.RLIMITS`."""
    ids: SubordinateIds | None = None
    """Users of slots where the service is an ordinary user; None without them, and under root."""
    image_python: str | None = None
    """Version (`3.12`) of an image's interpreter that has yet to compile the code for its sandboxes."""


def with_hash_seed(launch: Launch, hash_seed: int) -> Launch:
    """Return the launch with a seed of str hashes, for interpreters started by programs, too."""
    environment = {**launch.environment, HASH_SEED: str(hash_seed)}
    config = {**launch.config, "hash_seed": str(hash_seed)}
    return replace(launch, environment=environment, config=config)


def compiled(python: str) -> bytes:
    """Return all code of fork servers and sandboxes, compiled and marshalled by `python`.

    Raises OSError and subprocess.CalledProcessError when the interpreter fails.
    """
    options = ["-I", "-S", "-OO"]
    if sys.dont_write_bytecode:
        options.append("-B")
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    files = {
        name: "" if path is None else str(path)
        for name, path in code_bundle.files(_MODULES).items()
    }
    command = [python, *options, "-c", _COMPILE]
    text = marshal.dumps(files, _MARSHAL_VERSION)
    return subprocess.run(command, input=text, capture_output=True, check=True, env={}).stdout


def start_message(config: dict[str, object], preload: Sequence[str], code: bytes) -> bytes:
    """Return configuration and code for a new zygote, each after its length in eight digits."""
    text = json.dumps({"config": config, "preload": list(preload)}).encode()
    return f"{len(text):08d}".encode() + text + f"{len(code):08d}".encode() + code


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
        """Start a zygote unless already running. Raises StartError on failure."""
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
        own user id, because the kernel counts much per user: `number` is below `users`. Raises
        OSError without a zygote, and BlockingIOError when the zygote's queue of orders is full.
        """
        order = b"fork %d" % (self._launch.first_uid + number)
        self._order(order, [control.fileno(), *entrances])

    async def make_read_only(self, namespace: int, directory: bytes, paths: list[bytes]) -> int:
        """Make files in a mount namespace of a sandbox read-only; return their number.

        Raises OSError if it fails, and StartError without a zygote.
        """
        listing = os.memfd_create("read_only", os.MFD_CLOEXEC)
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, listing)
            opened.enter_context(ours)
            opened.enter_context(theirs)
            ours.setblocking(False)
            os.pwrite(listing, read_only.request(directory, paths), 0)
            descriptors = [theirs.fileno(), namespace, listing]
            try:
                self._order(read_only.ORDER, descriptors)
            except OSError:
                await self.open()
                self._order(read_only.ORDER, descriptors)
            theirs.close()
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await asyncio.get_running_loop().sock_recv(ours, 4096)
        if not answer.startswith(read_only.DONE):
            raise OSError(answer.decode("utf-8", "replace") or "the zygote's child ended")
        return int(answer.removeprefix(read_only.DONE))

    def _order(self, order: bytes, descriptors: Sequence[int]) -> None:
        if self._orders is None:
            raise ConnectionError("no zygote")
        try:
            socket.send_fds(self._orders, [order], descriptors)
        except BlockingIOError:
            raise
        except OSError:
            self._orders.close()
            self._orders = None
            raise

    def _start(self) -> None:
        """Start the zygote and block until its report of readiness."""
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
        answer = b""
        with contextlib.suppress(OSError):
            with self._process.stdin as pipe:
                pipe.write(start_message(launch.config, launch.preload, launch.code))
            answer = orders.recv(4096)
        if answer != b"up\n":
            orders.close()
            words = self._end()
            raise StartError(
                answer.decode("utf-8", "replace").strip() or words or "it took too long"
            )
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
