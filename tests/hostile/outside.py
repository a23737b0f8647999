"""What a machine holds, seen from outside of every sandbox: before and after hostile programs.

Processes, mounts, cgroups, files, descriptors, sockets, System V objects and memory. Processes and
files of other programs are left out: whatever is a sandbox's has a user id or a parent of which
nothing else is. Mounts, named sockets and System V objects are those of the whole machine: a
browser or a PostgreSQL that starts or ends meanwhile is taken for a sandbox.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from service_process import groups_of, judge_processes

from hostile.services import Started, temporary_places, until
from proctor_service.sandbox.linux import procfs

_GUARDED = (
    "/etc/passwd",
    "/etc/shadow",
    "/etc/hosts",
    "/etc/ld.so.preload",
    sys.executable,
    os.__file__,
)
_LISTED = ("/", "/etc", "/etc/cron.d", "/root", "/home", "/mnt", str(Path(os.__file__).parent))
IMAGES = range(1_900_000_000, 2**31)
"""User ids of images, on a machine that has so many."""
_MOUNTED_BESIDE = "/var/tmp/proctor-images-"
"""Beginning of the places where `make test-deploy` mounts images."""
_SETTINGS = ("kernel/hostname", "kernel/domainname", "kernel/core_pattern", "net/core/somaxconn")


@dataclass(frozen=True)
class Holdings:
    """What must be the same before and after."""

    mounts: frozenset[str]
    its_mounts: frozenset[str]
    guarded: tuple[str, ...]
    listed: tuple[str, ...]
    settings: tuple[str, ...]
    system_v: tuple[str, ...]
    sockets: frozenset[str]
    descriptors: int


def holdings(service: Started) -> Holdings:
    """What the machine and the service hold now."""
    return Holdings(
        mounts=_mounts("self"),
        its_mounts=_mounts(str(service.pid)),
        guarded=tuple(_digest(path) for path in _GUARDED),
        listed=tuple(_names(Path(path)) for path in _LISTED if Path(path).is_dir()),
        settings=tuple(Path(f"/proc/sys/{name}").read_text() for name in _SETTINGS),
        system_v=tuple(Path(f"/proc/sysvipc/{name}").read_text() for name in ("shm", "sem", "msg")),
        sockets=_sockets(service),
        descriptors=len(list(Path(f"/proc/{service.pid}/fd").iterdir())),
    )


def children_of_sandboxes(service: Started) -> list[int]:
    """What runs in sandboxes beside their first processes."""
    firsts = [pid for each in _forkservers(service) for pid in children(each)]
    return [pid for each in firsts for pid in children(each)]


def _forkservers(service: Started) -> list[int]:
    return [pid for zygote in _zygotes(service) for pid in children(zygote)]


def judges(service: Started) -> list[int]:
    """The processes that have sandboxes: the judge processes, or the service itself."""
    return judge_processes(service.pid) or [service.pid]


def _zygotes(service: Started) -> list[int]:
    return [pid for judge in judges(service) for pid in children(judge)]


def is_at_rest(service: Started) -> bool:
    """Whether nothing runs but the service, its zygotes, and a waiting sandbox in each forkserver.

    Each environment in use has a zygote.
    """
    above, zygotes = judges(service), _zygotes(service)
    forkservers = [pid for zygote in zygotes for pid in children(zygote)]
    in_each = [children(each) for each in forkservers]
    waiting = [pid for pids in in_each for pid in pids]
    known = {service.pid, *above, *zygotes, *forkservers, *waiting}
    if any(children(pid) or len(procfs.threads(pid)) != 1 for pid in waiting):
        return False
    # A program waits beside an init, and a session alone.
    if any(len(pids) not in (1, 2) for pids in in_each) or len(zygotes) < len(above):
        return False
    return set(owned(service)) <= known


def children(pid: int) -> list[int]:
    """The processes that one has started and that are still there."""
    found: list[int] = []
    for thread in procfs.threads(pid):
        try:
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
        except OSError:
            continue
        found += map(int, text.split())
    return found


def owned(service: Started) -> list[int]:
    """The processes of its sandboxes' users, wherever they are."""
    return [pid for pid, _ in _owned(service)]


def tasks(service: Started) -> int:
    """How many processes and threads these are."""
    return sum(threads for _, threads in _owned(service))


def _owned(service: Started) -> Iterator[tuple[int, int]]:
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines)
        if pid in service.others or pid == os.getpid():
            continue
        ids = set(map(int, fields["Uid"].split()))
        if not ids.isdisjoint(service.uids) or (
            any(uid in IMAGES for uid in ids) and not _is_of_another_service(pid, service)
        ):
            yield pid, int(fields["Threads"])


def _is_of_another_service(pid: int, service: Started) -> bool:
    """Whether a process in an image's sandbox has a parent, or its parent has one, that is no process
    of an image and not below this service. Services share the user ids of images.
    """
    above = pid
    while above > 1 and _uid(above) in IMAGES:
        above = _parent(above)
    if above <= 1:
        return False  # nobody's, so perhaps left behind by this service
    while above > 1 and above != service.pid:
        above = _parent(above)
    return above != service.pid


def _uid(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


def _parent(pid: int) -> int:
    """0 for a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def files_of(uids: range) -> list[str]:
    """What these users own where everybody may write."""
    return [path for place in temporary_places() for path in _owned_below(str(place), uids)]


def cgroups_of(pids: Iterable[int]) -> list[str]:
    """The groups that these processes have made."""
    return [str(group) for group in groups_of(pids)]


def available_mb() -> int:
    """Memory that the machine could give to programs."""
    text = Path("/proc/meminfo").read_text()
    line = next(line for line in text.splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) // 1024


def resident_mb(service: Started) -> int:
    """Memory of the service itself, with its judge processes."""
    pids = {service.pid, *judges(service)}
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") >> 20


def wait_for_rest(service: Started) -> None:
    """Waits until all sandboxes are fresh ones. Fails when something hostile still runs."""
    until(lambda: is_at_rest(service), "something still runs")


def wait_for_least_sandboxes(service: Started) -> None:
    """Waits as `wait_for_rest`, and until the service has not closed a sandbox for 5 s.

    After much work it has more of them for some seconds.
    """
    least, since = 1 << 30, time.monotonic()

    def is_settled() -> bool:
        nonlocal least, since
        now = len(_forkservers(service))
        if now < least or not is_at_rest(service):
            least, since = now, time.monotonic()
        return time.monotonic() - since > 5

    until(is_settled, "something still runs, or sandboxes end")


def _mounts(pid: str) -> frozenset[str]:
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    # "36 35 98:0 / /place rw …": the place is the fifth word
    return frozenset(each for each in lines if not each.split()[4].startswith(_MOUNTED_BESIDE))


def _names(directory: Path) -> str:
    return " ".join(sorted(each.name for each in directory.iterdir()))


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except FileNotFoundError:
        return "missing"


def _sockets(service: Started) -> frozenset[str]:
    """Sockets with a name, or of a sandbox's user, in the machine's own network namespace."""
    names = {
        " ".join(words[7:])
        for words in map(str.split, Path("/proc/net/unix").read_text().splitlines()[1:])
        if len(words) > 7 and words[7].startswith("@")
    }
    for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        path = Path(f"/proc/net/{kind}")
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        for words in map(str.split, lines):
            listens = words[3] in ("0A", "07")
            if listens and int(words[7]) in service.uids:
                names.add(f"{kind} {words[1]}")
    return frozenset(names)


def _owned_below(place: str, uids: range) -> Iterator[str]:
    """Of one file system only: what is mounted below is not for everybody to write."""
    device = os.lstat(place).st_dev
    for directory, names, files in os.walk(place):
        for name in (*names, *files):
            path = f"{directory}/{name}"
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if status.st_dev != device:
                if name in names:
                    names.remove(name)
            elif status.st_uid in uids:
                yield path
