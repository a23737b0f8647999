"""A real Prometheus on loopback that scrapes services every second, with our rules, sixty times as fast."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml
from waits import WAIT_SECONDS

from deploy.manifests import DEPLOY, Json

LONGEST_SECONDS = 300.0
BY_TIME = {
    "ProctorQueueWait": ("> 60", "> 1"),
    "ProctorRewardCollapsed": ("> 200", "> 3"),
    "ProctorNoCode": ("> 200", "> 3"),
}
"""Thresholds that are times, or counts over a time."""


@dataclass(frozen=True)
class Target:
    """A service to scrape, with the labels that the operator puts on a pod."""

    url: str
    token: str
    namespace: str
    pod: str


class PrometheusServer:
    """Asks a running Prometheus."""

    def __init__(self, url: str, log: Path) -> None:
        self._client = httpx.Client(base_url=url, timeout=WAIT_SECONDS, trust_env=False)
        self._log = log

    def query(self, expression: str) -> list[Json]:
        """The samples of an instant query."""
        found: list[Json] = self._ask("/api/v1/query", {"query": expression})["result"]
        return found

    def series(self, selector: str) -> list[Json]:
        """The series that a selector finds."""
        found: list[Json] = self._ask("/api/v1/series", {"match[]": selector})
        return found

    def fired(self) -> set[str]:
        """The names of the alerts that fire, or have fired."""
        found = self.query('max_over_time(ALERTS{alertstate="firing"}[30m])')
        return {sample["metric"]["alertname"] for sample in found}

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        found = self.query('ALERTS{alertstate="firing"}')
        return {sample["metric"]["alertname"] for sample in found}

    def until(self, condition: Callable[[], bool], what: Callable[[], object]) -> None:
        """Waits until the condition holds; what is scraped has no event for us."""
        turns = int(LONGEST_SECONDS / 0.2)
        while not condition():
            turns -= 1
            assert turns > 0, f"still missing: {what()}\n{self._log.read_text()[-2000:]}"
            threading.Event().wait(0.2)

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """Hangs up."""
        self._client.close()

    def _ask(self, path: str, parameters: Mapping[str, str]) -> Any:
        answer = self._client.get(path, params=dict(parameters))
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


@contextmanager
def prometheus(*targets: Target) -> Iterator[PrometheusServer]:
    """Runs it until the block ends; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="proctor-prometheus-") as name:
        folder = Path(name)
        (folder / "rules.yaml").write_text(
            sixty_times_as_fast((DEPLOY / "prometheus/rules.yaml").read_text())
        )
        (folder / "config.yaml").write_text(yaml.safe_dump(_config(folder, targets)))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = ["prometheus", f"--config.file={folder / 'config.yaml'}",
                   f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]  # fmt: skip
        log = folder / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=stream)
        server = PrometheusServer(f"http://{address}", log)
        try:
            server.until(server.is_ready, lambda: "an answer")
            yield server
        finally:
            server.close()
            process.terminate()
            process.wait(30)


def sixty_times_as_fast(text: str) -> str:
    """The rules with a second for each minute, and a minute for each hour."""
    faster = {"h": "m", "m": "s"}
    text = re.sub(r"\b(\d+)([hm])\b", lambda found: found[1] + faster[found[2]], text)
    text = re.sub(r":p95_5s\b|_5s\b", lambda found: found[0].replace("5s", "5m"), text)
    groups = yaml.safe_load(text)["groups"]
    for group in groups:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if rule.get("alert") in BY_TIME:
                was, becomes = BY_TIME[rule["alert"]]
                assert was in rule["expr"], rule
                rule["expr"] = rule["expr"].replace(was, becomes)
    return json.dumps({"groups": groups})


def _config(folder: Path, targets: tuple[Target, ...]) -> Json:
    jobs = []
    for number, target in enumerate(targets):
        token = folder / f"token-{number}"
        token.write_text(target.token)
        jobs.append(
            {
                "job_name": f"proctor-{number}",
                "authorization": {"type": "Bearer", "credentials_file": str(token)},
                "static_configs": [
                    {
                        "targets": [urlsplit(target.url).netloc],
                        "labels": {"namespace": target.namespace, "pod": target.pod},
                    }
                ],
            }
        )
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": jobs,
    }
