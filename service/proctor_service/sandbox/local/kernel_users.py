"""Resources counted by user in the kernel, where the service is an ordinary user.

Pipes, descriptors in transit and watches of epoll(7) count for a user of the machine. With a range of
subordinate ids (subuid(5)), each slot has a user of its own, as under root. Without a range, all
sandboxes are the service's user.

Instances and watches of inotify(7), pending signals, locked memory and processes of a user namespace
count for the namespace's users and also for the service's own user. Each sandbox's part keeps all
sandboxes together below the limit of the service's user.
"""

from __future__ import annotations

import os
import pwd
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from proctor_service.sandbox.interface import MachineCheck

_PROGRAMS_PATH = "/usr/bin:/bin:/usr/local/bin"
_RESERVE = 8  # an eighth of each limit is left to the service and its user's other processes
_OTHERS_READ = 0o5  # read and enter, for everybody
_ASK = "import ctypes, os, sys; print(ctypes.CDLL(None).unshare(0x10000000), flush=True); sys.stdin.read()"
_TRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SubordinateIds:
    """Ids for the users of slots: `count`, from `uid` and from `gid`.

    `programs`: newuidmap(1) and newgidmap(1), which map them.
    """

    uid: int
    gid: int
    count: int
    programs: tuple[str, str]

    def config(self, first_uid: int) -> dict[str, object]:
        """Return the mapping for fork servers; their users begin with `first_uid` inside."""
        return {
            "first": first_uid,
            "maps": [
                [self.programs[0], os.geteuid(), self.uid],
                [self.programs[1], os.getegid(), self.gid],
            ],
        }


def part_of(ids: SubordinateIds, index: int, count: int, users: int) -> SubordinateIds:
    """Return `users` of the ids for part `index` of `count` of a service.

    The choice is random, so that two services of the same user hardly ever have the same ids.
    """
    block = ids.count // count
    users = min(users, block)
    place = index * block + random.randrange(block - users + 1)
    return SubordinateIds(ids.uid + place, ids.gid + place, users, ids.programs)


def find_subordinate_ids(needed: int) -> SubordinateIds | str:
    """Return the ids that this process may map, or the reason for their absence; blocks.

    `needed`: the least number of ids, a single id for each live sandbox.
    """
    programs = [shutil.which(name, path=_PROGRAMS_PATH) for name in ("newuidmap", "newgidmap")]
    if programs[0] is None or programs[1] is None:
        return "newuidmap is missing"
    found = [_longest(f"/etc/{name}") for name in ("subuid", "subgid")]
    count = min(count for _, count in found)
    if count < needed:
        return f"{count} subordinate ids for {needed} sandboxes"
    ids = SubordinateIds(found[0][0], found[1][0], count, (programs[0], programs[1]))
    why_not = _refusal(ids)
    return why_not if why_not else ids


def _longest(path: str) -> tuple[int, int]:
    """Return first id and number of this user's longest range: `name:100000:65536` in subuid(5)."""
    names = {str(os.geteuid())}
    try:
        names.add(pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        pass  # a user without a name
    ranges = [(0, 0)]
    try:
        for line in Path(path).read_text().splitlines():
            name, *numbers = line.strip().split(":")
            if name in names and len(numbers) == 2 and all(each.isdigit() for each in numbers):
                ranges.append((int(numbers[0]), int(numbers[1])))
    except (OSError, UnicodeDecodeError):
        pass
    return max(ranges, key=lambda each: each[1])


def _refusal(ids: SubordinateIds) -> str:
    """Map ids in a namespace as a trial; return the reason of a refusal, empty on success."""
    command = [sys.executable, "-I", "-S", "-c", _ASK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        if child.stdout.readline() != b"0\n":
            return "user namespaces are refused"
        for program, own, first in zip(
            ids.programs, (os.geteuid(), os.getegid()), (ids.uid, ids.gid), strict=True
        ):
            words = [program, child.pid, 0, own, 1, 1, first, ids.count]
            try:
                done = subprocess.run(
                    [str(word) for word in words], capture_output=True, timeout=_TRY_SECONDS
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
            if done.returncode:
                return done.stderr.decode("utf-8", "replace").strip() or f"{program} fails"
    return ""


def own_user_check(ids: SubordinateIds | str | None) -> MachineCheck:
    """Return the check of each sandbox's own user. `ids`: None under root."""
    if ids is None:
        detail = "each live sandbox is a user of its own"
    elif isinstance(ids, SubordinateIds):
        detail = f"each live sandbox is a user of its own, of {ids.count} subordinate ids"
    else:
        detail = (
            f"{ids}; so a sandbox can use up pipes, descriptors in transit and watches of all: "
            "the service then ends it, and judges the others again"
        )
    return MachineCheck(
        "user_of_its_own",
        not isinstance(ids, str),
        detail,
        "install uidmap, and give the service's user a range in /etc/subuid and /etc/subgid that has "
        "an id for each of PROCTOR_MAX_SANDBOXES; or run as root",
    )


def readable_by_others(paths: Iterable[str]) -> bool:
    """Return True if other users can read these files, and these folders with their direct contents."""
    for path in paths:
        try:
            inside = [entry.path for entry in os.scandir(path)] if os.path.isdir(path) else []
            if not all(_is_open(each) for each in (path, *inside)):
                return False
        except OSError:
            return False
    return True


def _is_open(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:  # a link to nowhere
        return True
    needed = _OTHERS_READ if os.path.isdir(path) else _OTHERS_READ & 0o4
    return mode & needed == needed


def bounds(sandboxes: int) -> dict[str, object]:
    """Return the limits of each of `sandboxes`, for a fork server in a user namespace to set.

    `sysctls`: by name below /proc/sys; `pending_signals` and `locked_bytes`: its rlimits.
    """

    def part(limit: int, least: int, most: int) -> int:
        return max(least, min(most, (limit - limit // _RESERVE) // sandboxes))

    instances = sysctl("fs/inotify/max_user_instances", 128)
    watches = sysctl("fs/inotify/max_user_watches", 8192)
    return {
        "sysctls": {
            "user/max_inotify_instances": str(part(instances, 1, 8)),
            "user/max_inotify_watches": str(part(watches, 16, 4096)),
        },
        "pending_signals": part(_hard_limit(resource.RLIMIT_SIGPENDING), 64, 4096),
        "locked_bytes": part(_hard_limit(resource.RLIMIT_MEMLOCK), 0, 1 << 16),
    }


def sysctl(name: str, otherwise: int) -> int:
    """Return the number in a file below /proc/sys, or `otherwise`."""
    try:
        return int(Path("/proc/sys", name).read_text())
    except (OSError, ValueError):
        return otherwise


def _hard_limit(name: int) -> int:
    most = resource.getrlimit(name)[1]
    return 1 << 62 if most == resource.RLIM_INFINITY else most
