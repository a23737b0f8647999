"""A real Prometheus scrapes a real service under load: alerts fire, and every panel shows data.

What cannot be caused at will, a defect that answers with 500, fires in promtool's test only, and so
does a Redis that is gone, as none is wanted here.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
import yaml
from harness import NoBackend, Service, exec_request, running_service
from policy_server import policy_server, says
from pydantic import SecretStr

from deploy.manifests import DEPLOY
from deploy.prometheus_server import PrometheusServer, Target, prometheus
from deploy.test_deploy_rules import alerts
from proctor_service.errors import SandboxLost
from proctor_service.journal import recorder
from proctor_service.judge.judge import Judge
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.backends import make_backend
from proctor_service.sandbox.interface import Sandboxes, Traits
from proctor_service.settings import Settings
from proctor_service.settings.languages import LANGUAGES

TOKEN = "a-token-for-prometheus"
LOSES = "# its sandbox goes away"
BROKEN = {"kind": "asserts", "tests": ["assert f( =="]}
SILENT = ["I would multiply it by two."] * 4
PASSES, FAILS, LEAVES = "print(1)", "assert False", "import os; os._exit(0)"
BUSY = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\n"
FLOOD = [BUSY + source for source in (*(FAILS, PASSES) * 7, LEAVES)]
HACKS = [BUSY + source for source in (LEAVES, LEAVES, LEAVES, FAILS, PASSES) * 3]
CODE = "```python\ndef f(): return 1\n```"
FLOODING = 20  # clients of 15 submissions: the queue stays above four fifths, with room for others
MAX_QUEUED = 340
MOST_UNWRITTEN_BYTES = 1 << 20
NOT_CAUSED = {"ProctorInternalErrors", "ProctorStoreDown"}
AFTERWARDS = {"ProctorAbsent"}
DEAD_POLICY = "http://127.0.0.1:9/v1"


class SometimesLost:
    """The real judge, but for submissions that say that they are lost."""

    def __init__(self) -> None:
        self._judge = Judge(LANGUAGES)

    async def __call__(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Judges, or fails as when a forkserver dies."""
        if submission.source == LOSES:
            raise SandboxLost("it went away")
        return await self._judge(submission, backend)


def settings(journal: str = "off", **more: Any) -> Settings:
    """Small enough to be filled quickly."""
    tokens = SecretStr(json.dumps({"prometheus": TOKEN}))
    more["journal"] = SecretStr(journal)
    return Settings(tokens=tokens, max_queued=MAX_QUEUED, policy_attempts=1, **more)


def reward(client: httpx.Client, job: str, *sources: str, **fields: Any) -> None:
    """One batch; a full queue is no trouble."""
    answer = client.post("/reward", json=exec_request(*sources, job=job, **fields))
    assert answer.status_code in (200, 429, 503), answer.text


def roll_out(client: httpx.Client, url: str) -> None:
    """One trajectory."""
    task = {
        "id": "t",
        "prompt": "write f",
        "grader": {"kind": "asserts", "tests": ["assert f() == 1"]},
    }
    body = {"tasks": [task], "policy": {"base_url": url, "model": "m"}, "agent": {"kind": "refine"}}
    answer = client.post("/rollout", json=body)
    assert answer.status_code in (200, 429, 503), answer.text


def use_a_sandbox(client: httpx.Client) -> None:
    """A stateful sandbox, and a command in it."""
    made = client.post("/sandboxes", json={})
    if made.status_code == 201:
        place = f"/sandboxes/{made.json()['id']}"
        client.post(f"{place}/exec", json={"command": ["true"]})
        client.delete(place)


@contextmanager
def load(
    service: Service, without_journal: Service, policy_url: str, hacked: threading.Event
) -> Iterator[None]:
    """Keeps the service busy, until the block ends, with all that alerts and panels look at.

    Once `hacked` is set, far more programs cheat than before: the alert goes by the change. Items are
    lost until then. Rewards of `without_journal` have nowhere to be recorded.
    """
    stop = threading.Event()
    failures: list[BaseException] = []

    def repeat(act: Callable[[httpx.Client], None], url: str = service.url) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as client:
            try:
                while not stop.wait(0.1):
                    act(client)
            except BaseException as error:
                failures.append(error)

    def flood(client: httpx.Client) -> None:
        reward(client, "floods", *(HACKS if hacked.is_set() else FLOOD), cache=False)

    def lose(client: httpx.Client) -> None:
        # Not for ever: a last attempt has the service for itself, which is then not busy.
        if not hacked.is_set():
            reward(client, "lost", *[LOSES] * 5, cache=False)

    acts: list[Callable[[httpx.Client], None]] = [
        *[flood] * FLOODING,
        lambda client: reward(client, "collapsed", *[PASSES] * 5),
        lambda client: reward(client, "silent", *SILENT, CODE, extract="auto", cache=False),
        lambda client: reward(client, "broken", *[PASSES] * 5, grader=BROKEN, cache=False),
        lose,
        lambda client: roll_out(client, policy_url),
        lambda client: roll_out(client, DEAD_POLICY),
        use_a_sandbox,
    ]
    threads = [threading.Thread(target=repeat, args=(act,), daemon=True) for act in acts]
    unrecorded = (lambda client: reward(client, "collapsed", *[PASSES] * 5), without_journal.url)
    threads.append(threading.Thread(target=repeat, args=unrecorded, daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(300)
    assert failures == []


class Scene:
    """A service under load, another that is degraded, and a Prometheus that sees both."""

    def __init__(
        self, seen_by: PrometheusServer, services: ExitStack, hacked: threading.Event
    ) -> None:
        self.prometheus = seen_by
        self._services = services
        self._hacked = hacked

    def begin_to_hack(self) -> None:
        """From now on most programs cheat."""
        self._hacked.set()

    def close_services(self) -> None:
        """Ends both, and the load."""
        self._services.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(recorder, "MOST_UNWRITTEN_BYTES", MOST_UNWRITTEN_BYTES)
        folder = tmp_path_factory.mktemp("journals")
        (folder / "file").touch()
        services = stack.enter_context(ExitStack())
        local = make_backend(settings())
        own = settings(f"sqlite:///{folder / 'journal.db'}")
        judged = services.enter_context(running_service(own, judge=SometimesLost(), backend=local))
        wall_less = NoBackend(Traits("none", degraded=("namespaces",)))
        nowhere = settings(f"sqlite:///{folder / 'file' / 'journal.db'}")
        degraded = services.enter_context(running_service(nowhere, backend=wall_less))
        policy = services.enter_context(policy_server(lambda asked: says(CODE)))
        seen_by = stack.enter_context(
            prometheus(
                Target(judged.url, TOKEN, "proctor", "proctor-0"),
                Target(degraded.url, TOKEN, "degraded", "proctor-1"),
            )
        )
        hacked = threading.Event()
        services.enter_context(load(judged, degraded, policy.url, hacked))
        yield Scene(seen_by, services, hacked)


def shows(samples: list[dict[str, Any]]) -> bool:
    """Whether an instant query found a number."""
    return any(not math.isnan(float(sample["value"][1])) for sample in samples)


def panels() -> list[tuple[str, str]]:
    """Each panel's title and query, with the variables as Grafana fills them in."""
    dashboard = json.loads((DEPLOY / "grafana" / "proctor.json").read_text())
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "10s")
            for variable in dashboard["templating"]["list"]:
                query = query.replace(f"${variable['name']}", ".*")
            assert "$" not in query, query
            found.append((panel["title"], query))
    return found


def test_every_panel_shows_data(scene: Scene) -> None:
    missing = dict(panels())
    assert len(missing) > 30

    def all_show() -> bool:
        for title, query in panels():
            if title in missing and shows(scene.prometheus.query(query)):
                del missing[title]
        return not missing

    scene.prometheus.until(all_show, lambda: missing)


def test_every_variable_of_the_dashboard_has_values(scene: Scene) -> None:
    for selector, label in (
        ("proctor_slots", "namespace"),
        ("proctor_rewards_total", "exported_job"),
    ):
        assert all(series[label] for series in scene.prometheus.series(selector))


def test_the_autoscaler_gets_its_metrics(scene: Scene) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "adapter.yaml").read_text())["rules"]
    for rule in rules:
        assert scene.prometheus.series(rule["seriesQuery"])
        query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod")
        query = query.replace("<<.LabelMatchers>>", 'namespace="proctor",pod=~"proctor-0"')
        query = query.replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])
        [sample] = scene.prometheus.query(query)
        assert sample["metric"] == {"pod": "proctor-0"}
        assert float(sample["value"][1]) > 0


def test_the_alerts_fire(scene: Scene) -> None:
    missing = set(alerts()) - NOT_CAUSED - AFTERWARDS
    scene.prometheus.until(
        lambda: "ProctorInfrastructureErrors" in scene.prometheus.fired(), lambda: "lost items"
    )
    scene.begin_to_hack()

    def all_fired() -> bool:
        missing.difference_update(scene.prometheus.fired())
        return not missing

    scene.prometheus.until(all_fired, lambda: missing)
    assert not scene.prometheus.fired() & NOT_CAUSED
    collapsed = scene.prometheus.query(
        'ALERTS{alertname="ProctorRewardCollapsed", alertstate="firing"}'
    )
    assert {sample["metric"]["exported_job"] for sample in collapsed} == {"collapsed"}
    # Last, as nothing can be asked of them afterwards.
    scene.close_services()
    scene.prometheus.until(lambda: scene.prometheus.firing() >= AFTERWARDS, lambda: AFTERWARDS)
