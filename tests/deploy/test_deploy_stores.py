"""The pod of `prod` with Redis, PostgreSQL and environments: judges, keeps, restarts and drains.

The pod, its init container and the command of Redis are run as they are rendered; the redis-server and
the PostgreSQL are those of this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import exec_request
from waits import WAIT_SECONDS

from deploy.images import Image
from deploy.manifests import DEPLOY, Json, environment_of, only, pod_of, render_with, way_of
from deploy.pod_network import PodNetwork, pod_network
from deploy.pods import Pod, Running, running
from deploy.test_deploy_pods import ENDINGS, EXPECTED_DEGRADED, LIMITS, TOKENS
from fault_rig.postgres import PostgresServer, program
from fault_rig.programs import path_of, wait_until
from proctor_client import Client

LISTED = ("redis", "postgresql", "environments")
TOML = '[environments.plain]\npreload = ["json"]\n'
PASSWORDS = {"REDIS_PASSWORD": "0a1b2c", "POSTGRES_PASSWORD": "3d4e5f"}
WAITS = "import time; time.sleep(2); print('done')"

REACHES_A_STORE = """
import os, socket
assert not [name for name in os.environ if "PASSWORD" in name], os.environ
for port in (5432, 6379):
    try:
        socket.create_connection(("{address}", port), 1)
    except OSError:
        pass
    else:
        raise AssertionError(f"it reached {{port}}")
"""


@dataclass
class Cluster:
    """Where the pods of one deployment run, one after the other."""

    objects: list[Json]
    network: PodNetwork
    folder: Path
    image: Image
    started: int = 0

    def pod(self) -> Pod:
        """The next pod, with an address of its own and the volume of the pod before."""
        address = self.network.address(self.started)
        self.started += 1
        seen = environment_of(self.objects, {**PASSWORDS, "POD_IP": address})
        found = Pod(pod_of(self.objects), seen)
        folders = {
            name: self.folder / name for name in ("environments", "environments-build", "temporary")
        }
        for each in folders.values():
            each.mkdir(exist_ok=True)
            os.chown(each, *found.owner)
            each.chmod(0o2777)
        names = {"proctor-replicas": address, "localhost": "127.0.0.1"}
        for store in ("redis", "postgresql"):
            names[only(self.objects, "Service", f"proctor-{store}")["metadata"]["name"]] = (
                self.network.services
            )
        return replace(
            found,
            files={
                seen["PROCTOR_TOKENS_FILE"]: json.dumps(TOKENS),
                seen["PROCTOR_ENVIRONMENTS"]: TOML,
            },
            folders=folders,
            hosts=names,
            hooks=self.network.hooks(address),
        )

    @contextmanager
    def deployed(self) -> Iterator[tuple[Running, str]]:
        """A pod, from its init container on, until the block ends; and its URL."""
        pod = self.pod()
        with running(replace(pod.init, hooks={}), self.image) as first:
            assert first.wait() == 0, first.log
        with running(pod, self.image) as found:
            url = pod.environment["PROCTOR_ADVERTISE_URL"]
            wait_until(lambda: is_ready(url) or not found.is_running, f"not ready: {found.log}")
            assert found.is_running, found.log
            yield found, url


def is_ready(url: str) -> bool:
    """Whether the readiness probe passes."""
    try:
        return httpx.get(f"{url}/readyz", timeout=3, trust_env=False).is_success
    except httpx.TransportError:
        return False


@contextmanager
def redis_as_rendered(objects: list[Json], address: str, folder: Path) -> Iterator[None]:
    """redis-server with the arguments of the manifest, listening there."""
    [container] = only(objects, "Deployment", "proctor-redis")["spec"]["template"]["spec"][
        "containers"
    ]
    password = PASSWORDS["REDIS_PASSWORD"]
    name, *_ = container["command"]
    arguments = [text.replace("$(REDISCLI_AUTH)", password) for text in container["args"]]
    [port] = container["ports"]
    child = subprocess.Popen(
        [path_of(name), *arguments, "--bind", address, "--port", str(port["containerPort"])],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    program_name, *asks = container["readinessProbe"]["exec"]["command"]

    def answers(secret: str = password) -> bool:
        asked = subprocess.run(
            [program_name, "-h", address, *asks],
            env={**os.environ, "REDISCLI_AUTH": secret},
            capture_output=True,
            check=False,
        )
        return asked.returncode == 0

    try:
        wait_until(answers, "redis-server does not answer")
        assert not answers("another")
        yield
    finally:
        child.kill()
        child.wait()


@contextmanager
def postgresql_for(objects: list[Json], address: str) -> Iterator[None]:
    """A PostgreSQL with the user, the database and the password of the manifest, listening there."""
    template = only(objects, "StatefulSet", "proctor-postgresql")["spec"]["template"]
    [container] = template["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["POSTGRES_USER"] == "proctor"
    [port] = container["ports"]
    password = PASSWORDS["POSTGRES_PASSWORD"]
    server = PostgresServer(address, port["containerPort"], password)
    try:
        made = subprocess.run(
            [str(program("createdb")), "-h", address, "-U", "proctor", variables["POSTGRES_DB"]],
            env={"PGPASSWORD": password},
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        yield
    finally:
        server.close()


@pytest.fixture(scope="module")
def cluster(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The rendered manifests, a network, and both stores."""
    scratch = tmp_path_factory.mktemp("stores")
    shutil.copytree(DEPLOY, scratch / "deploy")
    listed = (*way_of("prod"), *LISTED)
    objects = render_with("prod", listed, scratch, {"workers": "2"})
    for folder in (scratch, *scratch.parents):  # a user namespace must find its way there
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o111)
    with ExitStack() as stack:
        network = stack.enter_context(pod_network())
        stack.enter_context(redis_as_rendered(objects, network.services, scratch))
        stack.enter_context(postgresql_for(objects, network.services))
        yield Cluster(objects, network, scratch, image)


def asked(url: str, key: str, *sources: str, **fields: Any) -> httpx.Response:
    """The answer to a batch with an Idempotency-Key."""
    headers = {"Authorization": f"Bearer {TOKENS['trainer']}", "Idempotency-Key": key}
    body = exec_request(*sources, cache=False, job=key, **fields)
    answer = httpx.post(f"{url}/reward", json=body, headers=headers, timeout=120, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer


def judged_here(url: str) -> float:
    """How many submissions this replica has judged."""
    counts = re.findall(r"^proctor_rewards_total\{.*\} (\S+)$", metrics_of(url), re.M)
    return sum(float(count) for count in counts)


def metrics_of(url: str) -> str:
    headers = {"Authorization": f"Bearer {TOKENS['trainer']}"}
    return httpx.get(f"{url}/metrics", headers=headers, trust_env=False, timeout=WAIT_SECONDS).text


def test_the_pod_judges_keeps_restarts_and_drains(cluster: Cluster) -> None:
    with cluster.deployed() as (pod, url), Client(url, token=TOKENS["trainer"]) as proctor:
        sources = {**ENDINGS, REACHES_A_STORE.format(address=cluster.network.services): "passed"}
        answer = asked(url, "endings", *sources, limits=LIMITS).json()
        assert [r["verdict"] for r in answer["results"]] == list(sources.values()), answer
        assert {tuple(r["degraded"]) for r in answer["results"]} == {tuple(EXPECTED_DEGRADED)}
        plain = asked(url, "plain", "import json", environment="plain").json()["results"]
        assert [(r["verdict"], r["environment"]) for r in plain] == [("passed", "plain")]
        assert "proctor_workers 2.0" in metrics_of(url)
        with proctor.sandbox() as sandbox:
            sandbox.exec(code="open('kept', 'w').write('kept')")
            assert sandbox.exec(code="print(open('kept').read())").stdout == "kept\n"
        drained = {}

        def wait_for_an_answer() -> None:
            drained["answer"] = asked(url, "drained", *[WAITS] * 20)

        batch = threading.Thread(target=wait_for_an_answer)
        batch.start()
        wait_until(lambda: proctor.capacity().busy > 0, "nothing runs")
        assert pod.terminate() == 0
        assert '"closed"' in pod.log, pod.log
        batch.join(WAIT_SECONDS)
        results = drained["answer"].json()["results"]
        done = [r for r in results if r["verdict"] == "passed"]
        handed_back = [r for r in results if r["error"]]
        assert done
        assert handed_back
        assert len(done) + len(handed_back) == 20
        assert {r["error"]["reason"] for r in handed_back} == {"cancelled"}
        assert all(r["reward"] is None for r in handed_back)

    with cluster.deployed() as (pod, url), Client(url, token=TOKENS["trainer"]) as proctor:
        # Answers are in Redis: nothing is judged twice.
        again = asked(url, "endings", *sources, limits=LIMITS).json()
        assert ids(again) == ids(answer)
        assert judged_here(url) == 0
        rest = asked(url, "drained", *[WAITS] * 20).json()
        assert [r["verdict"] for r in rest["results"]] == ["passed"] * 20
        assert {r["evaluation_id"] for r in done} <= set(ids(rest))
        assert judged_here(url) == 20 - len(done)
        # The journal is in PostgreSQL.
        wait_until(lambda: set(ids(rest)) <= recorded(proctor, "drained"), "not in the journal")
        assert recorded(proctor, "endings") == set(ids(answer))
        shown = proctor.evaluation(ids(answer)[0])
        assert shown.verdict == "passed"
        assert pod.terminate() == 0


def ids(answer: Mapping[str, Any]) -> list[str]:
    """The evaluations of an answer."""
    return [result["evaluation_id"] for result in answer["results"]]


def recorded(proctor: Client, job: str) -> set[str]:
    """The evaluations of a job that the journal has."""
    return {each.id for each in proctor.evaluations(job=job, limit=100).evaluations}


def test_a_pod_that_is_killed_leaves_its_stores_to_the_next(cluster: Cluster) -> None:
    with cluster.deployed() as (pod, url):
        answer = asked(url, "killed", "print(1)", "assert False").json()
        pod.send(signal.SIGKILL)
        assert pod.wait() != 0
    with cluster.deployed() as (_, url):
        assert ids(asked(url, "killed", "print(1)", "assert False").json()) == ids(answer)
        assert judged_here(url) == 0
