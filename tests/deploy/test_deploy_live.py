"""A real Prometheus scrapes real services in trouble: every alert fires, and ends when it is mended.

Not caused by the world but made here: a defect that answers with 500, a sandbox that is lost, a backend
without walls, and clients enough to fill a queue of 340. Their metrics are the services' own. What the
rules measure in minutes and hours takes as many seconds and minutes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.manifests import DEPLOY
from deploy.prometheus_server import PrometheusServer, prometheus
from deploy.test_deploy_rules import alerts
from deploy.troubled_services import TroubledServices, troubled_services

AFTERWARDS = {"ProctorAbsent"}
UNTIL_RESTARTED = {"ProctorIsolationIncomplete"}
STILL_THERE = (
    'proctor:lost_items:share5m{namespace="proctor"}',
    'proctor:replica_queue_seconds:p95_5m{namespace="proctor"}',
    'proctor:replica_slots_busy:share{namespace="proctor"}',
    'proctor:replica_queue_depth:share{namespace="proctor"}',
    'proctor:rewards:rate5m{namespace="proctor"}',
    'proctor:unreported_ends:share10m{namespace="proctor"}',
    'proctor:reward:spread15m{exported_job="collapsed"}',
    'proctor:nulls:share5m{reason="invalid_task"}',
    'proctor:no_code:share15m{exported_job="silent"}',
    "proctor:trajectories_without_policy:share10m",
    'rate(proctor_http_requests_total{route="/sandboxes",status="200"}[5s]) > 0',
    "proctor_store_up == 1",
    'proctor_journal_unwritten{namespace="degraded"}',
    'proctor_slots{namespace="degraded"}',
)
"""What alerts are about, so that none of them ends just because nothing comes any more."""


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TroubledServices]:
    with troubled_services(tmp_path_factory.mktemp("journals")) as found:
        yield found


@pytest.fixture(scope="module")
def seen_by(services: TroubledServices) -> Iterator[PrometheusServer]:
    with prometheus(*services.targets) as server:
        yield server


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


def test_every_panel_shows_data(seen_by: PrometheusServer) -> None:
    missing = panels()
    assert len(missing) > 30

    def all_show() -> bool:
        missing[:] = [(title, query) for title, query in missing if not shows(seen_by.query(query))]
        return not missing

    seen_by.until(all_show, lambda: missing)


def test_every_variable_of_the_dashboard_has_values(seen_by: PrometheusServer) -> None:
    for selector, label in (
        ("proctor_slots", "namespace"),
        ("proctor_rewards_total", "exported_job"),
    ):
        assert all(series[label] for series in seen_by.series(selector))


def test_the_autoscaler_gets_its_metrics(seen_by: PrometheusServer) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "adapter.yaml").read_text())["rules"]
    for rule in rules:
        assert seen_by.series(rule["seriesQuery"])
        query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod")
        query = query.replace("<<.LabelMatchers>>", 'namespace="proctor",pod=~"proctor-0"')
        query = query.replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])
        [sample] = seen_by.query(query)
        assert sample["metric"] == {"pod": "proctor-0"}
        assert float(sample["value"][1]) > 0


def test_the_alerts_fire(seen_by: PrometheusServer, services: TroubledServices) -> None:
    missing = set(alerts()) - AFTERWARDS
    seen_by.until(lambda: "ProctorInfrastructureErrors" in seen_by.fired(), lambda: "lost items")
    services.load.hacked.set()
    services.stop_redis()

    def all_fired() -> bool:
        missing.difference_update(seen_by.fired())
        return not missing

    seen_by.until(all_fired, lambda: missing)
    collapsed = seen_by.query('ALERTS{alertname="ProctorRewardCollapsed", alertstate="firing"}')
    jobs = {sample["metric"]["exported_job"] for sample in collapsed}
    assert jobs >= {"collapsed"}
    assert not jobs & {"floods", "elsewhere"}


def test_the_alerts_end(seen_by: PrometheusServer, services: TroubledServices) -> None:
    services.mend()
    seen_by.until(lambda: seen_by.firing() == UNTIL_RESTARTED, seen_by.firing)
    services.restart_with_walls()

    def missing() -> list[str]:
        return [query for query in STILL_THERE if not shows(seen_by.query(query))]

    seen_by.until(
        lambda: not (missing() or seen_by.firing()), lambda: (seen_by.firing(), missing())
    )
    assert seen_by.fired() >= set(alerts()) - AFTERWARDS


def test_the_alert_without_services(seen_by: PrometheusServer, services: TroubledServices) -> None:
    services.close()
    seen_by.until(lambda: seen_by.firing() == AFTERWARDS, seen_by.firing)
    services.start_one()
    seen_by.until(lambda: not seen_by.firing(), seen_by.firing)
    assert seen_by.fired() == set(alerts())
