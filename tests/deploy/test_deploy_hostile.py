"""Hostile programs in the pod as `overlays/prod` makes it, through /reward and in stateful sandboxes.

What must hold is looked at from outside of the pod: this machine, the pod's own files, mounts and
objects before and after, and /healthz and an honest neighbour meanwhile.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy import pods
from deploy.images import Image
from deploy.manifests import DEPLOY, render
from deploy.pod_ports import forwarded
from deploy.pods import IDS, Running, running
from deploy.test_deploy_pods import TOKENS, pod
from hostile import outside
from hostile.attacks import attack_by_reward, attack_in_sandboxes
from hostile.programs import own_programs, shared_programs
from hostile.services import Started, until

_PORT = 8080
# Ranges of ids that no test gives its pods otherwise, and no image its sandboxes.
_FIRST_OUTER_IDS = range(1_000 * IDS, 20_000 * IDS, IDS)
_PLACES = ("tmp", "var/tmp", "dev/shm", "dev/mqueue", "run", "home", "root", "etc", "app")


@dataclass(frozen=True)
class InPod(Started):
    """A service in a pod, as this machine sees it."""

    def client(self, **options: Any) -> httpx.Client:
        """A client of the tenant whose token the pod's Secret has; close it."""
        token = next(iter(TOKENS.values()))
        return super().client(headers={"Authorization": f"Bearer {token}"}, **options)


@dataclass(frozen=True)
class Holdings:
    """What a pod has beside its service, and what must be the same before and after."""

    image: int
    files: tuple[str, ...]
    mounts: tuple[str, ...]
    system_v: str
    settings: str
    kills: int


def holdings(found: Running, image: Image, pid: int) -> Holdings:
    """What the pod of this first process holds now."""
    return Holdings(
        image=hash(tuple(_files(image.root, everything=True))),
        files=tuple(
            line
            for place in _PLACES
            for line in _files(Path(f"/proc/{pid}/root/{place}"), everything=False)
        ),
        mounts=tuple(Path(f"/proc/{pid}/mountinfo").read_text().splitlines()),
        system_v=found.exec("cat", *(f"/proc/sysvipc/{name}" for name in ("shm", "sem", "msg"))),
        settings=found.exec("cat", "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern"),
        kills=_kills(pid),
    )


def _files(folder: Path, *, everything: bool) -> Iterator[str]:
    """Names, sizes, modes and owners of what lies in a folder; `everything`: with the times of change."""
    for directory, names, files in os.walk(folder):
        names.sort()
        for name in sorted((*names, *files)):
            status = os.lstat(f"{directory}/{name}")
            facts = [directory, name, status.st_size, status.st_mode, status.st_uid]
            yield repr([*facts, status.st_mtime_ns, status.st_ctime_ns] if everything else facts)


def _kills(pid: int) -> int:
    """How many processes of the pod the kernel has killed for its memory limit: cgroup v1 or v2."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            file = Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
        elif controllers == "" and Path(f"/sys/fs/cgroup{path}/memory.events").exists():
            file = Path(f"/sys/fs/cgroup{path}/memory.events")
        else:
            continue
        counts = dict(each.split() for each in file.read_text().splitlines())
        return int(counts["oom_kill"])
    raise AssertionError("the pod is in no cgroup that counts memory")


@contextmanager
def prod_pod(image: Image) -> Iterator[tuple[Running, InPod]]:
    """The pod of the overlay, ready; when it has ended, nothing of its is left."""
    first = random.choice(_FIRST_OUTER_IDS)
    uids = range(first, first + IDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pods, "FIRST_OUTER_ID", first)
        objects = render(DEPLOY / "overlays" / "prod")
        with running(pod(objects, PROCTOR_CACHE_MB="0"), image) as found:
            init = found.pid
            with forwarded(init, _PORT) as url:
                until(lambda: _is_ready(url) or not found.is_running, "the pod is not ready")
                assert found.is_running, found.log
                [service] = outside.children(init)
                # All but the pod's root, who owns the Secret's file and runs nothing.
                yield found, InPod(url, service, uids[1:], frozenset({init}))
            assert found.is_running, found.log
            assert found.terminate() == 0
    until(lambda: not _processes_of(uids), "processes are left")
    assert outside.files_of(uids) == []


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _processes_of(uids: range) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and path.stat().st_uid in uids:
                found.append(int(path.name))
        except FileNotFoundError:  # it has ended meanwhile
            pass
    return found


@pytest.mark.parametrize("programs", [shared_programs, own_programs])
def test_every_program_is_contained(programs: Any, image: Image) -> None:
    attacks = programs()
    with prod_pod(image) as (found, service):
        before = holdings(found, image, service.pid)
        assert attack_by_reward(service, attacks) == {}
        assert attack_in_sandboxes(service, attacks) == {}
        assert holdings(found, image, service.pid) == before
