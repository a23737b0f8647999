"""The alert rules against the service's own metrics; what promtool says of them is in tests/deploy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import generate_latest

from proctor_client.wire import ExecGrader
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.metrics import PHASE_BUCKETS, Metrics
from proctor_service.outcomes import Item, Outcome
from proctor_service.sandbox.interface import Limits

PROMETHEUS = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"


def rules() -> list[dict[str, Any]]:
    """All rules of all groups."""
    text = (PROMETHEUS / "rules.yaml").read_text()
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_each_threshold_on_a_histogram_can_be_reached_with_the_services_buckets() -> None:
    quantiles = {
        rule["record"]: found[1]
        for rule in rules()
        if (found := re.search(r"histogram_quantile\(.*?(proctor_\w+)_bucket", str(rule["expr"])))
        and "record" in rule
    }
    checked = set()
    for rule in rules():
        for series, threshold in re.findall(r"(proctor:[a-z0-9_:]+) > ([0-9.]+)", rule["expr"]):
            if series in quantiles and "alert" in rule:
                finite = largest_finite_bucket(quantiles[series])
                # A quantile beyond the last finite bucket is said to be that bucket.
                assert finite > float(threshold), rule["alert"]
                checked.add(rule["alert"])
    assert "ProctorQueueWait" in checked


def largest_finite_bucket(name: str) -> float:
    """Of the service's own histogram of waits, as it is scraped when somebody waited for an hour."""
    metrics = Metrics()
    submission = Submission("x", ExecGrader(kind="exec"), Limits(1, 1, 64, 64, 8, 8))
    outcome = Outcome(Judgement("passed"), 1.0, queue_seconds=3600.0)
    metrics.item_ended(Item("ev_1", submission, "me", "job", 0.0), outcome, 3600.0)
    text = generate_latest(metrics.view(None)).decode()
    bounds = re.findall(rf'^{name}_bucket{{le="([0-9.]+)",phase="queue"}}', text, re.MULTILINE)
    return max(map(float, bounds))


def test_the_rules_tests_use_the_services_buckets() -> None:
    own = {f"{bound:g}" for bound in PHASE_BUCKETS} | {"+Inf"}
    text = (PROMETHEUS / "rules_test.yaml").read_text()
    used = set(re.findall(r'proctor_phase_seconds_bucket\{[^}]*le="([^"]+)"', text))
    assert used
    assert used <= own


def test_the_first_loss_of_a_record_is_an_increase() -> None:
    metrics = Metrics()
    metrics.watch_journal(lambda: 0)
    text = generate_latest(metrics.view(None)).decode()
    for reason in ("full", "invalid", "stopped"):
        assert f'proctor_journal_dropped_total{{reason="{reason}"}} 0.0' in text


def test_alerts_on_queues_and_pools_look_at_each_replica() -> None:
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    for rule in rules():
        if rule.get("alert") in ("ProctorQueueWait", "ProctorPoolExhausted", "ProctorQueueFull"):
            used = re.findall(r"proctor:[a-z0-9_:]+", rule["expr"])
            assert used
            for text in (rule["expr"], *(recorded[name] for name in used)):
                assert "instance" in text or text == rule["expr"], rule["alert"]
            assert "$labels.instance" in rule["annotations"]["summary"]
