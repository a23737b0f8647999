"""Two services with a load, and with all the trouble that the alerts are about, until it is mended.

One judges, with real sandboxes, a journal and a Redis. The other has a backend without walls, and a
journal whose folder is a file.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from harness import NoBackend, Service, exec_request, free_ports, running_service
from policy_server import Act as PolicyAct
from policy_server import Asked, policy_server, says
from pydantic import SecretStr

from deploy.prometheus_server import Target
from fault_rig.programs import RedisServer, redis_server
from proctor_service.composition import all_graders, make_backend
from proctor_service.errors import SandboxLost
from proctor_service.features.journal import recorder
from proctor_service.judge.judge import Judge
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes, Traits
from proctor_service.sandboxes.registry import Registry
from proctor_service.settings import Settings
from proctor_service.settings.languages import LANGUAGES

TOKEN = "a-token-for-prometheus"
LOSES = "# its sandbox goes away"
BROKEN = {"kind": "asserts", "tests": ["assert f( =="]}
EXEC = {"kind": "exec"}
COMPARES = {"kind": "asserts", "tests": ["assert f() == 1"], "integrity": "in_process"}
ANSWERS, ERRS = "def f(): return 1", "def f(): return 2"
EQUALS_ALL = "class Any:\n    def __eq__(self, other): return True\n\nf = Any"
NO_CODE = "I would multiply it by two."
PASSES, FAILS, LEAVES = "print(1)", "assert False", "import os; os._exit(0)"
DIFFERENT = [PASSES, FAILS] * 2
BUSY = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\n"
FLOOD = [BUSY + source for source in (*(FAILS, PASSES) * 7, LEAVES)]
HACKS = [BUSY + source for source in (LEAVES, LEAVES, LEAVES, FAILS, PASSES) * 3]
CODE = "```python\ndef f(): return 1\n```"
WRONG_CODE = "```python\nassert False\n```"
SOLVED, UNSOLVED = "write f", "write f, in vain"
FLOODING = 20  # clients of 15 submissions: the queue stays above four fifths, with room for others
MAX_QUEUED = 340
MOST_UNWRITTEN_BYTES = 1 << 20
PAUSE_SECONDS, QUICK_SECONDS = 0.1, 0.4
CALM_SECONDS = 1.0
DEAD_POLICY = "http://127.0.0.1:9/v1"
DEFECTIVE = "the defect"
"""A list of sandboxes with this tag fails, as long as there is trouble: a defect that is made here."""

Act: TypeAlias = Callable[[httpx.Client], None]


class SometimesLost:
    """The real judge, but for submissions that say that they are lost."""

    def __init__(self) -> None:
        self._judge = Judge(all_graders(LANGUAGES))

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Judges, or fails as when a forkserver dies."""
        if submission.source == LOSES:
            raise SandboxLost("it went away")
        return await self._judge(submission, backend)


async def by_source(submission: Submission, backend: Sandboxes) -> Judgement:
    """A judge without sandboxes, for which not every submission is alike."""
    right = submission.source == PASSES
    return Judgement("passed" if right else "failed", passed=int(right), total=1)


def settings(journal: str = "off", **more: Any) -> Settings:
    """Small enough to be filled quickly."""
    tokens = SecretStr(json.dumps({"prometheus": TOKEN}))
    more["journal"] = SecretStr(journal)
    return Settings(tokens=tokens, max_queued=MAX_QUEUED, **more)


class Load:
    """Clients in threads, from `start` until `stop`.

    Once `hacked` is set, far more programs cheat than before: the alert goes by the change. Items are
    lost until then. Once `over` is set, all that comes is good, and there is less of it.
    """

    def __init__(self, url: str, other_url: str, policy_url: str) -> None:
        self.hacked = threading.Event()
        self.over = threading.Event()
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._policy_url = policy_url
        waiting = [*[self._flood] * FLOODING, self._break, self._lose, self._roll_out]
        # These get their answers at once; too many of them would hide what the others get.
        quick = [self._collapse, self._be_silent, self._deceive]
        quick += [self._use_a_sandbox, self._meet_the_defect]
        clients = [
            *((act, url, PAUSE_SECONDS) for act in waiting),
            *((act, url, QUICK_SECONDS) for act in quick),
            (self._elsewhere, other_url, PAUSE_SECONDS),
        ]
        self._threads = [
            threading.Thread(target=self._repeat, args=each, daemon=True) for each in clients
        ]

    def start(self) -> None:
        """Starts all clients."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Waits for the last answers. Fails if a client did."""
        self._stop.set()
        for thread in self._threads:
            thread.join(300)
        assert self._failures == []

    def _repeat(self, act: Act, url: str, pause_seconds: float) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as client:
            try:
                while not self._stop.wait(CALM_SECONDS if self.over.is_set() else pause_seconds):
                    act(client)
            except BaseException as error:
                self._failures.append(error)

    def _flood(self, client: httpx.Client) -> None:
        if not self.over.is_set():
            sources = HACKS if self.hacked.is_set() else FLOOD
            _reward(client, "floods", *sources, cache=False)

    def _lose(self, client: httpx.Client) -> None:
        # Not for ever: a last attempt has the service for itself, which is then not busy.
        if not (self.hacked.is_set() or self.over.is_set()):
            _reward(client, "lost", *[LOSES] * 5, cache=False)

    def _collapse(self, client: httpx.Client) -> None:
        _reward(client, "collapsed", *(DIFFERENT if self.over.is_set() else [PASSES] * 5))

    def _be_silent(self, client: httpx.Client) -> None:
        # Without code nothing waits for a slot: these come, however full the queue is.
        said = [CODE, WRONG_CODE] if self.over.is_set() else [NO_CODE] * 4
        _reward(client, "silent", *said, extract="auto", cache=False)

    def _break(self, client: httpx.Client) -> None:
        grader = EXEC if self.over.is_set() else BROKEN
        _reward(client, "broken", *DIFFERENT, grader=grader, cache=False)

    def _deceive(self, client: httpx.Client) -> None:
        source = ANSWERS if self.over.is_set() else EQUALS_ALL
        _reward(client, "deceived", source, ERRS, grader=COMPARES, cache=False)

    def _roll_out(self, client: httpx.Client) -> None:
        _roll_out(client, self._policy_url, SOLVED)
        _roll_out(client, self._policy_url if self.over.is_set() else DEAD_POLICY, UNSOLVED)

    def _use_a_sandbox(self, client: httpx.Client) -> None:
        made = client.post("/sandboxes", json={})
        if made.status_code == 201:
            place = f"/sandboxes/{made.json()['id']}"
            client.post(f"{place}/exec", json={"command": ["true"]})
            client.delete(place)

    def _meet_the_defect(self, client: httpx.Client) -> None:
        mended = self.over.is_set()
        answer = client.get("/sandboxes", params={"tag": DEFECTIVE})
        assert answer.status_code in ((200,) if mended else (200, 500)), answer.text

    def _elsewhere(self, client: httpx.Client) -> None:
        try:
            _reward(client, "elsewhere", *DIFFERENT * 5, cache=False)
        except httpx.TransportError:  # it starts again
            assert self.over.is_set()


def _reward(client: httpx.Client, job: str, *sources: str, **fields: Any) -> None:
    """One batch, whose answer goes to Redis; a full queue is no trouble."""
    key = {"Idempotency-Key": secrets.token_hex(8)}
    answer = client.post("/reward", json=exec_request(*sources, job=job, **fields), headers=key)
    assert answer.status_code in (200, 429, 503), answer.text


def _roll_out(client: httpx.Client, url: str, prompt: str) -> None:
    """One trajectory."""
    grader = {"kind": "asserts", "tests": ["assert f() == 1"]}
    task = {"id": "t", "prompt": prompt, "grader": grader}
    body = {"tasks": [task], "policy": {"base_url": url, "model": "m"}, "agent": {"kind": "refine"}}
    answer = client.post("/rollout", json=body)
    assert answer.status_code in (200, 429, 503), answer.text


def _answer(asked: Asked) -> PolicyAct:
    """The policy's answer, which is right or wrong by the task."""
    return says(WRONG_CODE if UNSOLVED in asked.task else CODE)


class TroubledServices:
    """Both services, and their load."""

    def __init__(self, folder: Path, redis: RedisServer, policy_url: str) -> None:
        self._redis = redis
        self._journals = folder / "journals"
        self._journals.touch()
        own = settings(f"sqlite:///{folder / 'journal.db'}", redis_url=SecretStr(redis.url))
        backend = make_backend(settings())
        port, self._other_port = free_ports(2)
        self._judging, self._other = ExitStack(), ExitStack()
        judged = self._judging.enter_context(
            running_service(own, judge=SometimesLost(), backend=backend, port=port)
        )
        other = self._start_other("namespaces")
        self.load = Load(judged.url, other.url, policy_url)
        self.targets = (
            Target(judged.url, TOKEN, "proctor", "proctor-0"),
            Target(other.url, TOKEN, "degraded", "proctor-1"),
        )

    def stop_redis(self) -> None:
        """Kills the Redis of the service that judges."""
        self._redis.stop()

    def mend(self) -> None:
        """Ends all trouble that ends without a restart: Redis and the journal's folder are there."""
        self.load.over.set()
        self._redis.start()
        self._journals.unlink()
        self._journals.mkdir()

    def restart_with_walls(self) -> None:
        """Starts the service without walls again, with walls."""
        self._other.close()
        self._start_other()

    def close(self) -> None:
        """Ends the load and both services."""
        self.load.stop()
        self._judging.close()
        self._other.close()

    def start_one(self) -> None:
        """Starts one of them again."""
        self._start_other()

    def _start_other(self, *missing: str) -> Service:
        backend = NoBackend(Traits("none", degraded=missing))
        journal = settings(f"sqlite:///{self._journals / 'journal.db'}")
        service = running_service(journal, judge=by_source, backend=backend, port=self._other_port)
        return self._other.enter_context(service)


@contextmanager
def troubled_services(folder: Path) -> Iterator[TroubledServices]:
    """Both services under load, until the block ends."""
    with (
        pytest.MonkeyPatch.context() as patch,
        redis_server() as redis,
        policy_server(_answer) as policy,
    ):
        patch.setattr(recorder, "MOST_UNWRITTEN_BYTES", MOST_UNWRITTEN_BYTES)
        services = TroubledServices(folder, redis, policy.url)
        list_all = Registry.all

        def defective(registry: Registry, tenant: str, tags: Any = (), *more: Any) -> Any:
            if DEFECTIVE in tags and not services.load.over.is_set():
                raise RuntimeError("a defect")
            return list_all(registry, tenant, tags, *more)

        patch.setattr(Registry, "all", defective)
        services.load.start()
        try:
            yield services
        finally:
            services.close()
