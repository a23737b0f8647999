"""Control groups, v1 and v2: count memory, processes and CPU time of a whole sandbox.

Each fork server has its own group, created once; its sandboxes start in this group. New limits are
written before a job begins, if they differ from the previous limits. Where groups are unavailable,
`find` returns the reason, and rlimits enforce as much as possible.

Cores are shared by job, and within a job by sandbox (`core_shares.py`), regardless of the number of
processes or sessions in a sandbox. An idle stateful sandbox gets only the time left by all other
sandboxes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor_service.sandbox.linux.delegation import delegated, own_group, shares_cores

_ROOT = Path("/sys/fs/cgroup")
_NAME = re.compile(r"proctor-\d+-[0-9a-f]{8}")
_YOUNG_SECONDS = 10.0  # the service of a younger group may not hold its lock yet
_LEFT_TRIES, _LEFT_PAUSE_SECONDS = 50, 0.02
_CONTROLLERS = ("memory", "pids", "cpuacct")
_WEIGHT_FILES = {1: "cpu.shares", 2: "cpu.weight"}
_ORDINARY_WEIGHTS = {1: 1024, 2: 100}  # default of a group, and (v1) of a process with nice 0
_MOST_WEIGHTS = {1: 1 << 18, 2: 10_000}
_LEAST_WEIGHTS = {1: 2, 2: 1}
AWAKE = 10.0  # the largest weight of a sandbox (`core_shares.py`)
RESTING = 0.0  # weight of an idle stateful sandbox
# v1: the first existing file; the peak with swap is at least the peak without swap.
_PEAK_FILES = ("memory.memsw.max_usage_in_bytes", "memory.max_usage_in_bytes")
_TCP_USAGE = "memory.kmem.tcp.usage_in_bytes"  # v1: buffers of TCP and UDP, a separate counter
_HELD = ("rss", "shmem")  # v1: parts of `memory.stat` that the kernel cannot give back
_GIVEN_BACK = ("active_file", "inactive_file", "slab_reclaimable")  # v2: parts that it can
_LIMIT_SLACK_BYTES = 1 << 20  # an out-of-memory peak is closer to the limit than this
_OWN_PROCESSES = 2  # the fork server, and process 1, are in the group too
_FORKSERVER_MB = 16  # fork server's pages not shared with the zygote are charged to the group


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Directories for new groups: for v1 a directory per controller, for v2 the same for all."""

    version: int
    directories: dict[str, Path]

    def counts(self, controller: str) -> bool:
        """Return True if `memory`, `pids`, `cpuacct` or `cpu` is enforced."""
        return controller in self.directories

    def set_weight(self, directory: Path, weight: float) -> None:
        """Set a group's share of the cores; 1.0 is the default share of a group."""
        version = self.version
        number = round(weight * _ORDINARY_WEIGHTS[version])
        number = min(max(number, _LEAST_WEIGHTS[version]), _MOST_WEIGHTS[version])
        with contextlib.suppress(OSError):
            (directory / _WEIGHT_FILES[version]).write_text(str(number))


class Group:
    """Cgroup of a fork server and its sandboxes; without a hierarchy, a group without effect.

    `fork_seconds`: CPU seconds between the last reading of the sandbox before and `begin`: the end of
    that sandbox and the fork of the present sandbox.
    """

    def __init__(
        self, hierarchy: Hierarchy | None = None, directories: Mapping[str, Path] | None = None
    ) -> None:
        self._v1 = hierarchy is not None and hierarchy.version == 1
        self._hierarchy = hierarchy
        self._directories = directories = directories or {}
        self._set: tuple[int, int] | None = None
        self._limit_bytes = 0
        self._cpu_before = 0.0
        self._cpu_seen = 0.0
        self.fork_seconds = 0.0
        self._events_before = (0, 0)
        self._weight: float | None = None
        self._lock = threading.Lock()  # threads read the group, too
        self.set_weight(AWAKE)
        names = {"cpuacct": "cpuacct.usage"} if self._v1 else {"cpuacct": "cpu.stat"}
        names["memory"] = "memory.oom_control" if self._v1 else "memory.events"
        self._open: dict[str, int] = {}
        self._peak = -1
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            for controller, name in names.items():
                if controller in directories:
                    path = directories[controller] / name
                    self._open[controller] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            for name in _PEAK_FILES if self._v1 and "memory" in directories else ():
                if self._peak < 0 and (directories["memory"] / name).exists():
                    self._peak = os.open(directories["memory"] / name, os.O_RDWR | os.O_CLOEXEC)
            on_failure.pop_all()

    def entrances(self) -> list[int]:
        """Open the files for entering the group; the caller closes them.

        A process enters by writing `0` into each file. Entering blocks for about 10 ms, too long
        for an event loop.
        """
        entrances: list[int] = []
        try:
            for directory in set(self._directories.values()):
                entrances.append(os.open(directory / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            for entrance in entrances:
                os.close(entrance)
            raise
        return entrances

    def set_limits(self, memory_mb: int, processes: int) -> None:
        """Write the limits of the next sandbox. Raises OSError when the kernel refuses them."""
        if self._set == (memory_mb, processes):
            return
        if "memory" in self._directories:
            self._limit_bytes = (memory_mb + _FORKSERVER_MB) << 20
            self._set_memory(self._limit_bytes)
        if "pids" in self._directories:
            path = self._directories["pids"] / "pids.max"
            path.write_text(str(processes + _OWN_PROCESSES))
        self._set = (memory_mb, processes)

    def set_weight(self, weight: float) -> None:
        """Set the group's part of the cores, AWAKE at most. Affects speed alone."""
        if self._weight != weight and self._hierarchy and "cpu" in self._directories:
            self._hierarchy.set_weight(self._directories["cpu"], weight)
        self._weight = weight

    def wake(self) -> None:
        """End the rest of an idle stateful sandbox: forking and dying take CPU time, too."""
        if self._weight == RESTING:
            self.set_weight(AWAKE)

    def _set_memory(self, limit_bytes: int) -> None:
        directory = self._directories["memory"]
        if not self._v1:
            (directory / "memory.max").write_text(str(limit_bytes))
            with contextlib.suppress(OSError):
                (directory / "memory.swap.max").write_text("0")
            return
        # memory+swap must never be below memory: the order of writes depends on the direction.
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        for name in (*names, names[0]):
            with contextlib.suppress(OSError):
                (directory / name).write_text(str(limit_bytes))
        with contextlib.suppress(OSError):  # buffers of TCP and UDP have a separate counter
            (directory / "memory.kmem.tcp.limit_in_bytes").write_text(str(limit_bytes))
        if int((directory / names[0]).read_text()) > limit_bytes + (1 << 20):
            raise OSError(f"{directory / names[0]} cannot be set to {limit_bytes}")

    @property
    def limit_bytes(self) -> int:
        """Memory limit of the group, as last set; 0 without a memory group."""
        return self._limit_bytes

    def held_bytes(self) -> int:
        """Return the group's unreclaimable memory; 0 while unreadable.

        Pages of files are left out, and (v1) all memory of the kernel but for buffers of TCP and UDP.
        """
        directory = self._directories.get("memory")
        if directory is None:
            return 0
        try:
            words = (directory / "memory.stat").read_text().split()
            name = _TCP_USAGE if self._v1 else "memory.current"
            total = int((directory / name).read_text())
        except OSError:
            return 0
        counts = dict(zip(words[::2], words[1::2], strict=True))
        if self._v1:
            return total + sum(int(counts.get(part, 0)) for part in _HELD)
        return total - sum(int(counts.get(part, 0)) for part in _GIVEN_BACK)

    @property
    def counts_cpu(self) -> bool:
        """True if the group counts CPU time."""
        return "cpuacct" in self._open

    def begin(self) -> None:
        """Count CPU time and kills for memory from now on."""
        seen, self._cpu_before = self._cpu_seen, 0.0
        self._cpu_before = self.cpu_seconds() or 0.0
        self.fork_seconds = self._cpu_before - seen
        self.forget_kills()

    def cpu_seconds(self) -> float | None:
        """Return CPU seconds of the group since `begin`; None if not counted."""
        with self._lock:  # after `close` the descriptor number may belong to another file
            descriptor = self._open.get("cpuacct")
            if descriptor is None:
                return None
            text = os.pread(descriptor, 512, 0)
        # v2: the first line is `usage_usec N`.
        seconds = int(text) / 1e9 if self._v1 else int(text.split(None, 2)[1]) / 1e6
        self._cpu_seen = seconds
        return seconds - self._cpu_before

    def out_of_memory_kills(self) -> int:
        """Return the number of the group's processes killed for memory since `forget_kills`."""
        return self._memory_events()[0] - self._events_before[0]

    def at_memory_limit(self) -> bool:
        """Return True if the group reached its own memory limit, not just a limit above.

        Counts since `forget_kills`. A limit reached and met by dropping cached file pages counts,
        too.
        """
        if not self._v1:
            return self._memory_events()[1] > self._events_before[1]
        # Read the peak: the dedicated counter memory.failcnt stays 0 on some kernels.
        most = self._limit_bytes - _LIMIT_SLACK_BYTES
        with self._lock:
            return self._peak >= 0 and int(os.pread(self._peak, 64, 0)) >= most

    def forget_kills(self) -> None:
        """Forget past kills for memory: they must not influence the next ending."""
        self._events_before = self._memory_events()
        if self._v1 and self.at_memory_limit():
            with self._lock, contextlib.suppress(OSError):
                os.pwrite(self._peak, b"0", 0)

    def _memory_events(self) -> tuple[int, int]:
        """Return the number of kills for memory, and (v2) of times at the limit."""
        with self._lock:
            descriptor = self._open.get("memory")
            words = [] if descriptor is None else os.pread(descriptor, 1024, 0).split()
        counts = dict(zip(words[::2], words[1::2], strict=False))
        return int(counts.get(b"oom_kill", 0)), int(counts.get(b"oom", 0))

    def close(self) -> None:
        """Remove the group; its processes must be gone."""
        with self._lock:
            for descriptor in (*self._open.values(), *([] if self._peak < 0 else [self._peak])):
                os.close(descriptor)
            self._open, self._peak = {}, -1
        for directory in set(self._directories.values()):
            with contextlib.suppress(OSError):
                directory.rmdir()


class Groups:
    """All groups of this service, below a directory locked for the service's lifetime.

    The lock shows other services, also in other PID namespaces, if the directory's service is
    alive.
    """

    def __init__(self, hierarchy: Hierarchy, cpu_weight: float) -> None:
        """Create the directory. `cpu_weight`: share of all sandboxes against other processes."""
        self.hierarchy = hierarchy
        name = f"proctor-{os.getpid()}-{secrets.token_hex(4)}"
        self._parents = {c: d / name for c, d in hierarchy.directories.items()}
        self._locks: list[int] = []
        for parent in set(self._parents.values()):
            parent.mkdir()
            self._locks.append(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            fcntl.flock(self._locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            if hierarchy.version == 2:
                wanted = "+memory +pids +cpu" if hierarchy.counts("cpu") else "+memory +pids"
                (parent / "cgroup.subtree_control").write_text(wanted)
        if hierarchy.counts("cpu"):
            hierarchy.set_weight(self._parents["cpu"], cpu_weight)

    def make(self, name: str) -> Group:
        """Create a group. Raises OSError on failure."""
        directories = {c: parent / name for c, parent in self._parents.items()}
        for directory in set(directories.values()):
            directory.mkdir()
        return Group(self.hierarchy, directories)

    def close(self) -> None:
        """Remove the directory of this service."""
        for parent in set(self._parents.values()):
            remove_tree(parent)
        for lock in self._locks:
            os.close(lock)
        self._locks = []


def find() -> tuple[Hierarchy | None, str]:
    """Return the hierarchy in which this process may create groups, or None and the reason.

    v2 needs a group writable by this process: delegated by systemd's `Delegate=yes`, in a writable
    /sys/fs/cgroup of a container, or as root. This process may move into another group there
    (`delegation.py`).
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        second = own_group()
    except OSError as error:
        return None, str(error)
    own = {c: path for _, names, path in (x.split(":", 2) for x in lines) for c in names.split(",")}
    directories = {
        c: (_ROOT / c).resolve() / own[c].lstrip("/")  # two controllers may share a mount
        for c in (*_CONTROLLERS, "cpu")
        if c in own and (_ROOT / c).is_dir()
    }
    if "memory" in directories:
        cpu = directories.pop("cpu", None)
        if cpu is not None and _probe(cpu) is None:
            return _usable(Hierarchy(1, {**directories, "cpu": cpu}))
        return _usable(Hierarchy(1, directories))
    if second is not None:
        directory = delegated(second)
        if isinstance(directory, str):
            return None, directory
        controllers = (*_CONTROLLERS, "cpu") if shares_cores(directory) else _CONTROLLERS
        return _usable(Hierarchy(2, dict.fromkeys(controllers, directory)))
    return None, "no memory controller is mounted below /sys/fs/cgroup"


def remove_stale(hierarchy: Hierarchy) -> None:
    """Kill leftover processes of dead services and remove their groups.

    A dead service may have started in a group above.
    """
    directories = set(hierarchy.directories.values())
    if hierarchy.version == 2:
        directories |= {d for d in next(iter(directories)).parents if d.is_relative_to(_ROOT)}
    for directory in directories:
        for child in directory.glob("proctor-*"):
            if _NAME.fullmatch(child.name) and _is_stale(child):
                remove_tree(child)


def remove_left_by(pid: int) -> None:
    """Remove the groups of a killed process; their last processes may need a moment to end."""
    hierarchy, _ = find()
    if hierarchy is None:
        return
    for _ in range(_LEFT_TRIES):
        left = [
            child
            for directory in set(hierarchy.directories.values())
            for child in directory.glob(f"proctor-{pid}-*")
        ]
        for child in left:
            if _is_stale(child, 0.0):
                remove_tree(child)
        if not left:
            break
        time.sleep(_LEFT_PAUSE_SECONDS)


def _is_stale(directory: Path, young_seconds: float = _YOUNG_SECONDS) -> bool:
    with contextlib.suppress(OSError):
        if time.time() - directory.stat().st_mtime < young_seconds:
            return False
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(lock)
    return False


def remove_tree(directory: Path) -> None:
    """Remove a group and its descendants, killing all remaining processes."""
    kill = directory / "cgroup.kill"  # v2, since Linux 5.14: all descendants at once
    if kill.exists():
        with contextlib.suppress(OSError):
            kill.write_text("1")
    for child in [*directory.glob("*/"), directory]:
        with contextlib.suppress(OSError):
            for pid in (child / "cgroup.procs").read_text().split():
                if pid != "0":  # of another PID namespace; 0 would kill this process's own group
                    os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            child.rmdir()


def _usable(hierarchy: Hierarchy) -> tuple[Hierarchy | None, str]:
    for directory in set(hierarchy.directories.values()):
        error = _probe(directory)
        if error is not None:
            return None, f"{directory} is not writable: {error.strerror}"
    return hierarchy, ""


def _probe(directory: Path) -> OSError | None:
    """Return the error from creating a group in `directory`, or None on success."""
    probe = directory / f"proctor-{os.getpid()}-probe"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return error
    return None
