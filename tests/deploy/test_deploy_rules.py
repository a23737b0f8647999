"""The rules are sound, each alert fires where it should, and all speak of metrics that are there.

`python tests/deploy/test_deploy_rules.py` makes the operator's object from the rules.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = PROMETHEUS / "rules.yaml"
OBJECT = PROMETHEUS / "prometheusrule.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "proctor.json"
METRICS = ROOT / "service" / "proctor_service" / "observe"
HEAD = (
    "# Made of rules.yaml by tests/deploy/test_deploy_rules.py.\n"
    "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: proctor\nspec:\n"
)
SUFFIX = re.compile(r"_(total|bucket|sum|count)$")


def rules() -> list[dict[str, Any]]:
    """All rules of all groups."""
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def alerts() -> list[str]:
    """The names of all alerts."""
    return [rule["alert"] for rule in rules() if "alert" in rule]


def the_object() -> str:
    """The rules as the operator takes them: the same text, further in."""
    text = RULES.read_text()
    return HEAD + re.sub(r"^(?=.)", "  ", text[text.index("groups:") :], flags=re.MULTILINE)


def queries() -> list[str]:
    """Every expression of the rules and of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    adapter = yaml.safe_load((PROMETHEUS / "adapter.yaml").read_text())["rules"]
    texts = [rule[key] for rule in adapter for key in ("seriesQuery", "metricsQuery")]
    return [*found, *texts, *(rule["expr"] for rule in rules())]


def promtool(*arguments: str) -> str:
    """What promtool says; it must be content."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(RULES))


def test_each_alert_fires_in_its_test_and_is_quiet_on_a_good_day() -> None:
    file = PROMETHEUS / "rules_test.yaml"
    promtool("test", "rules", str(file))
    quiet, *bad = yaml.safe_load(file.read_text())["tests"]
    assert {case["alertname"] for case in quiet["alert_rule_test"]} == set(alerts())
    assert not any(case.get("exp_alerts") for case in quiet["alert_rule_test"])
    fired = {
        case["alertname"]
        for test in bad
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert fired == set(alerts())


def test_the_operators_object_has_the_same_rules() -> None:
    assert OBJECT.read_text() == the_object(), f"run python {Path(__file__).name}"
    assert yaml.safe_load(the_object())["spec"] == yaml.safe_load(RULES.read_text())


def test_every_metric_is_one_of_the_services() -> None:
    sources = "".join(path.read_text() for path in METRICS.glob("*.py"))
    known = set(re.findall(r'"(proctor_[a-z_]+)"', sources))
    for query in queries():
        for name in re.findall(r"\bproctor_[a-z_]+\b", query):
            assert name in known or SUFFIX.sub("", name) in known, name


def test_every_recorded_series_exists_and_is_used() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = set(re.findall(r"proctor:[a-z0-9_:]+", " ".join(queries())))
    assert used == recorded


if __name__ == "__main__":
    sys.exit(OBJECT.write_text(the_object()) == 0)
