"""The service in a pod as it is deployed: it judges, its walls stand, and it leaves when told to.

Each way to give the local backend what it needs is played, and what is left out of one is missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.images import Image
from deploy.manifests import DEPLOY, WAYS, Json, environment_of, pod_of, render, render_with
from deploy.pods import Pod, running

GIVEN = {"POD_IP": "127.0.0.1", "PROCTOR_AVIATO_API_KEY": "a key"}
TOKENS = {"trainer": "a-token-of-the-trainer"}
PLAYED = [way for way in WAYS if "gvisor" not in way]
EXPECTED_DEGRADED = ["memory_cgroup", "pids_cgroup"]

ASK = """
import json, sys
from proctor_client import Client
from pathlib import Path

token = json.loads(Path("/etc/proctor/tokens.json").read_text())["trainer"]
with Client("http://127.0.0.1:8080", token=token, timeout_seconds=60) as proctor:
    answer = proctor.reward(json.loads(sys.argv[1]), grader={"kind": "exec"}, extract="none",
                            limits=json.loads(sys.argv[2]), cache=False)
    with proctor.sandbox() as sandbox:
        sandbox.exec(code="open('kept', 'w').write('kept')")
        kept = sandbox.exec(code="print(open('kept').read())").stdout
print(json.dumps({"results": [r.model_dump() for r in answer.results], "kept": kept}))
"""

# Time for a slow machine to fill the memory: what is over two limits has run out of time.
LIMITS = {"cpu_seconds": 5, "wall_seconds": 5, "memory_mb": 256}

FORKS = """
import os, time
held = bytearray(100 << 20)
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        time.sleep(0.5)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""

LOOKS_AROUND = """
import os, socket
assert not os.path.exists("/etc/proctor") and not os.path.exists("/app")
assert not [name for name in os.environ if "PROCTOR" in name], os.environ
assert [name for name in os.listdir("/proc") if name.isdigit()] == ["1", "2"]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
assert int(status["CapEff"], 16) == 0 == int(status["CapBnd"], 16)
assert status["Seccomp"].strip() == "2" and status["NoNewPrivs"].strip() == "1"
try:
    socket.create_connection(("127.0.0.1", 8080), 1)
except OSError:
    pass
else:
    raise AssertionError("it reached the service")
"""

ENDINGS = {
    "print('hi')": "passed",
    "assert False": "failed",
    "while True: pass": "timeout",
    "import time; time.sleep(60)": "timeout",
    "b = []\nwhile True: b.append(bytearray(1 << 24))": "memory_limit",
    FORKS: "passed",
    LOOKS_AROUND: "passed",
}

ORPHANS = """
import os, signal, time
from pathlib import Path

def stats():
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        yield int(path.parent.name), name, state, int(parent)

def named_python():
    return {pid: parent for pid, name, _, parent in stats() if name.startswith("python3")}

family = named_python()
zygote = next(pid for pid, parent in family.items() if parent not in family and parent > 1)
os.kill(zygote, signal.SIGKILL)
while not (orphans := [pid for pid, parent in named_python().items() if parent == 1]):
    time.sleep(0.01)
del orphans[3:]
for pid in orphans:
    os.kill(pid, signal.SIGKILL)
while any(pid in orphans for pid, *_ in stats()):  # as zombies they would be here for ever
    time.sleep(0.01)
print(len(orphans))
"""


def pod(objects: Iterable[Json], **more: str) -> Pod:
    """The Deployment's pod, with its settings and its tokens."""
    objects = list(objects)
    seen = {**environment_of(objects, GIVEN), **more}
    return Pod(pod_of(objects), seen, {seen["PROCTOR_TOKENS_FILE"]: json.dumps(TOKENS)})


def ask(running_pod: Any) -> Mapping[str, Any]:
    """What comes of all the endings, asked for within the pod; the client waits until it is up."""
    said = running_pod.exec("/app/bin/python", "-I", "-c", ASK, json.dumps(
        [{"completion": source} for source in ENDINGS]), json.dumps(LIMITS))  # fmt: skip
    found: Mapping[str, Any] = json.loads(said)
    return found


@pytest.mark.parametrize("way", PLAYED, ids=" ".join)
def test_a_pod_judges(way: tuple[str, ...], image: Image, tmp_path: Path) -> None:
    objects = render_with("dev", way, tmp_path)
    with running(pod(objects), image) as found:
        answer = ask(found)
        assert [r["verdict"] for r in answer["results"]] == list(ENDINGS.values()), answer
        assert {tuple(r["degraded"]) for r in answer["results"]} == {tuple(EXPECTED_DEGRADED)}
        assert answer["kept"].strip() == "kept"
        assert found.terminate() == 0
        assert '"closed"' in found.log


def test_orphans_are_reaped_and_the_pod_goes_on(image: Image) -> None:
    with running(pod(render(DEPLOY / "overlays" / "dev")), image) as found:
        ask(found)
        assert int(found.exec("/app/bin/python", "-I", "-c", ORPHANS)) > 0
        assert ask(found)["kept"].strip() == "kept"


def test_the_health_check_and_pre_stop_run_in_the_image(image: Image) -> None:
    dev = pod(render(DEPLOY / "overlays" / "dev"))
    kind, *check = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    with running(dev, image) as found:
        ask(found)
        found.exec(*check)
        program, *_ = dev.container["lifecycle"]["preStop"]["exec"]["command"]
        found.exec(program, "0")


def test_without_tokens_it_says_what_it_needs(image: Image) -> None:
    dev = pod(render(DEPLOY / "overlays" / "dev"))
    alone = Pod(dev.spec, {}, {})
    with running(alone, image) as found:
        assert found.wait() == 2
        assert "PROCTOR_TOKENS" in found.log
        assert "Traceback" not in found.log


def test_the_base_makes_no_sandboxes_and_says_so(image: Image) -> None:
    objects = render(DEPLOY / "overlays" / "aviato")
    with running(pod(objects, PROCTOR_BACKEND="local"), image) as found:
        assert found.wait() != 0
        assert "namespaces" in found.log


def without(objects: list[Json], name: str) -> list[Json]:
    """The same with one thing left out of the security context, or a capability."""
    context = pod_of(objects)["containers"][0]["securityContext"]
    if name in context:
        del context[name]
    else:
        context["capabilities"]["add"].remove(name)
    return objects


@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("user-namespaces", "procMount"),
        ("user-namespaces", "seccompProfile"),
        ("capabilities", "seccompProfile"),
        ("capabilities", "SYS_ADMIN"),
        ("capabilities", "NET_ADMIN"),
        ("capabilities", "DAC_OVERRIDE"),
    ],
)
def test_with_less_it_does_not_start(way: str, name: str, image: Image, tmp_path: Path) -> None:
    objects = without(render_with("dev", (way,), tmp_path), name)
    with running(pod(objects), image) as found:
        assert found.wait() != 0
        assert "no sandbox came up" in found.log or "cannot isolate" in found.log
