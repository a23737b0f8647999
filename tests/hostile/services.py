"""A real service in a process of its own: as whoever runs the tests, or as an ordinary user.

Its sandboxes have user ids that nothing else on the machine has, so whatever a hostile program could
leave outside of them is known by its owner.
"""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
from harness import free_ports
from waits import WAIT_SECONDS

from hostile import ordinary_user

USERS = 4000  # as many user ids a service takes into use
_FIRST_USERS = range(16_000, 60_000, USERS)
_PAUSE_SECONDS = 0.02
_LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Started:
    """A service that runs: where it is, its process, and the user ids of its sandboxes outside.

    `others`: processes of these users that there were before it.
    """

    url: str
    pid: int
    uids: range
    others: frozenset[int]

    def client(self, **options: Any) -> httpx.Client:
        """A client for it; close it."""
        return httpx.Client(base_url=self.url, timeout=2 * WAIT_SECONDS, trust_env=False, **options)


@contextmanager
def reserved_users() -> Iterator[int]:
    """Reserves `USERS` user ids that no other test of the machine has meanwhile; yields the first.

    Fails when all are taken for a minute.
    """
    found: list[tuple[int, Path, int]] = []

    def reserve() -> bool:
        for first in random.sample(_FIRST_USERS, len(_FIRST_USERS)):
            path = Path(tempfile.gettempdir(), f"proctor-test-users-{first}")
            if (lock := _locked(path)) is not None:
                found.append((first, path, lock))
                return True
        return False

    until(reserve, "all user ids are taken by other tests")
    [(first, path, lock)] = found
    try:
        yield first
    finally:
        path.unlink()
        os.close(lock)


def _locked(path: Path) -> int | None:
    """The descriptor of a lock file, or None where another process has it."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:  # another user's
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    except OSError:  # another has it, or has just removed it
        pass
    os.close(lock)
    return None


@contextmanager
def started_service(
    *,
    ordinary: bool,
    users: int,
    subordinate: bool = False,
    open_files: int | None = None,
    state: Path | None = None,
    environments: Path | None = None,
) -> Iterator[Started]:
    """Runs one until the block ends. `ordinary`: as a user without any privilege.

    `subordinate`: this user has ids for the users of its sandboxes. `users`: the first of its user
    ids, from `reserved_users`.
    `open_files`: how many it may have open, if not as many as the tests. `state`: a directory that
    it gets as its user's state folder, with its journal; without one it keeps none. `environments`: file
    of its environments; it builds them beside the file first.

    Fails, and says what the machine lacks, when it does not come up.
    """
    uids = range(users, users + USERS)
    command = [
        sys.executable,
        "-m",
        "proctor_service",
        "serve",
        "--end-with-parent",
        str(os.getpid()),
    ]
    if open_files is not None:
        command = [sys.executable, "-c", _LIMITED, str(open_files), *command]
    if ordinary and os.geteuid() == 0:
        user = str(users)
        if subordinate:
            first = users * ordinary_user.SUBORDINATE_IDS // USERS
            uids = range(first, first + ordinary_user.SUBORDINATE_IDS)
            user = f"{users}:{first}"
        command = [sys.executable, ordinary_user.__file__, user, *command]
    elif os.geteuid() != 0:
        uids = range(os.getuid(), os.getuid() + 1)
    others = frozenset(_processes_of(uids))
    [port] = free_ports(1)
    clean = {name: value for name, value in os.environ.items() if "PROCTOR_" not in name}
    environment = {
        **clean,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PROCTOR_PORT": str(port),
        "PROCTOR_SANDBOX_UID": str(users),
        "PROCTOR_CACHE_MB": "0",
        "PROCTOR_WORKERS": os.environ.get("PROCTOR_WORKERS", "auto"),
        "PROCTOR_JOURNAL": "off",
    }
    if environments is not None:
        environment["PROCTOR_ENVIRONMENTS"] = str(environments)
        environment["PROCTOR_ENVIRONMENTS_FOLDER"] = str(environments.parent / "store")
        _build(command[: command.index("serve")], environment, environments, users)
    if state is not None:
        if os.geteuid() == 0:
            os.chown(state, users if ordinary else 0, -1)
        del environment["PROCTOR_JOURNAL"]
        environment["XDG_STATE_HOME"] = str(state)
    with tempfile.TemporaryFile() as log, subprocess.Popen(
        command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True,
    ) as child:  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: child.poll() is not None or _is_ready(url), "it is not ready")
            assert child.poll() is None, f"the service did not start:\n{_said(log)}"
            yield Started(url, child.pid, uids, others)
            assert child.poll() is None, f"the service died:\n{_said(log)}"
        finally:
            child.terminate()
            child.wait(WAIT_SECONDS)


def _build(
    command: list[str], variables: Mapping[str, str], environments: Path, first: int
) -> None:
    """Builds the environments as the user of the service."""
    for path in (environments.parent, environments):
        path.chmod(0o755)
        if command[1] == ordinary_user.__file__:
            os.chown(path, first, first)
    done = subprocess.run(
        [*command, "env", "build"], env=variables, cwd="/", capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def until(condition: Any, otherwise: str) -> None:
    """Looks again and again: another process has no event for us. Raises AssertionError."""
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS / _PAUSE_SECONDS)):
        if condition():
            return
        pause.wait(_PAUSE_SECONDS)
    raise AssertionError(f"{otherwise}, for {WAIT_SECONDS:g} s")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _processes_of(uids: range) -> Iterator[int]:
    for path in Path("/proc").iterdir():
        with suppress(FileNotFoundError):  # one that has ended meanwhile
            if path.name.isdigit() and path.stat().st_uid in uids:
                yield int(path.name)


def _said(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-4000:].decode(errors="replace")


def temporary_places() -> tuple[Path, ...]:
    """Where everybody on a machine may write."""
    places = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/run")
    return tuple(Path(place) for place in places if Path(place).is_dir())
