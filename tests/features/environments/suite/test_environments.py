"""Environments by name: real ones, built by uv from wheels of the test, in a service with sandboxes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from constants import constants
from harness import Service, running_service
from tiny_packages import DEFAULT, offline, usable_interpreters, write_wheel
from visible_folder import visible_folder

from proctor_service.errors import StartError
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.sandbox.local import LocalBackend
from proctor_service.settings import Settings
from proctor_service.settings.environments import read_environments

NAMES = ("one", "two", "three")
SQUARES = {"kind": "asserts", "tests": ["assert f(2) == 4"]}
USES = "import proctortest_number\ndef f(x):\n    return proctortest_number.N  # {}"
THREADS = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""
DEFINED = """
[environments.one]
python = "{0}"
requirements = ["proctortest-number==1.0"]
preload = ["proctortest_number"]
env = {{GREETING = "hello"}}
paths = ["{3}"]
limits = {{memory_mb = 64}}
languages = []

[environments.two]
python = "{1}"
requirements = ["proctortest-number==2.0"]

[environments.three]
python = "{2}"
requirements = ["proctortest-number==4.0"]
"""


def versions() -> list[str]:
    """Three versions of Python, different ones as far as this machine has them."""
    found = sorted({each.version for each in usable_interpreters()})
    return [found[number % len(found)] for number in range(3)]


@pytest.fixture(scope="module")
def settings() -> Iterator[dict[str, Any]]:
    """Settings with three environments, all built."""
    with (
        pytest.MonkeyPatch.context() as patch,
        visible_folder() as folder,
        visible_folder() as shown,
    ):
        (shown / "data.txt").write_text("42")
        wheels = offline(patch, folder)
        for version in ("1.0", "2.0", "4.0"):
            text = {"proctortest_number.py": f"N = {float(version):.0f}"}
            write_wheel(wheels, "proctortest_number", text, version)
        file = folder / "environments.toml"
        file.write_text(DEFINED.format(*versions(), shown))
        store = EnvironmentStore(folder / "store")
        for name, definition in read_environments(file).items():
            store.build(name, definition, DEFAULT)
        yield {"environments": file, "environments_folder": folder / "store"}


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "judge processes"])
def service(request: pytest.FixtureRequest, settings: dict[str, Any]) -> Iterator[Service]:
    compat = {"/compat/run": "two"}
    chosen = Settings(slots=4, workers=request.param, compat_environments=compat, **settings)
    with running_service(chosen, judge=None) as running:
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened


def judged(client: httpx.Client, items: list[dict[str, Any]], **fields: Any) -> list[Any]:
    body = {"submissions": items, "grader": SQUARES, "extract": "none", **fields}
    answer = client.post("/reward", json=body)
    assert answer.status_code == 200, answer.text
    results: list[Any] = answer.json()["results"]
    return results


def one(client: httpx.Client, source: str, environment: str | None, **fields: Any) -> Any:
    item = {"completion": source, "environment": environment}
    [result] = judged(client, [item], grader={"kind": "exec"}, **fields)
    return result


def test_a_batch_has_each_submission_judged_in_its_own(client: httpx.Client) -> None:
    names = [NAMES[number % 3] for number in range(30)]
    items = [
        {"completion": USES.format(number // 3), "environment": name}
        for number, name in enumerate(names)
    ]
    results = judged(client, items)
    assert [result["environment"] for result in results] == names
    assert [result["reward"] for result in results] == [float(name == "three") for name in names]
    assert [each["cache"] for each in judged(client, items)] == ["hit"] * 30  # each its own result


def test_the_default_has_none_of_their_packages(client: httpx.Client) -> None:
    result = one(client, "import proctortest_number", None)
    assert (result["environment"], result["verdict"]) == ("default", "runtime_error")
    assert "ModuleNotFoundError" in result["message"]


def test_a_submission_goes_before_the_request(client: httpx.Client) -> None:
    items = [{"completion": USES.format(0)}, {"completion": USES.format(0), "environment": "two"}]
    results = judged(client, items, environment="three")
    assert [(each["environment"], each["reward"]) for each in results] == [
        ("three", 1.0),
        ("two", 0.0),
    ]


def test_each_has_its_own_python(client: httpx.Client) -> None:
    for name, version in zip(NAMES, versions(), strict=True):
        source = (
            "import platform, subprocess, sys\n"
            f"assert platform.python_version() == {version!r}, sys.version\n"
            "say = 'import platform, proctortest_number; print(platform.python_version())'\n"
            "said = subprocess.run([sys.executable, '-c', say], capture_output=True, text=True)\n"
            f"assert said.stdout.strip() == {version!r}, said\n"
            "said = subprocess.run(['python', '-c', say], capture_output=True, text=True)\n"
            f"assert said.stdout.strip() == {version!r}, said\n"
        )
        result = one(client, source, name)
        assert result["verdict"] == "passed", result["message"]


def test_variables_folders_and_limits_are_those_of_its_definition(
    client: httpx.Client, settings: dict[str, Any]
) -> None:
    definition = read_environments(settings["environments"])["one"]
    data = definition.paths[0] / "data.txt"
    source = (
        "import os\nassert os.environ['GREETING'] == 'hello'\n"
        f"assert open({str(data)!r}).read() == '42'\n"
        f"try:\n    open({str(data)!r}, 'w')\nexcept OSError:\n    pass\nelse:\n    raise SystemExit(1)\n"
    )
    found = one(client, source, "one")
    assert found["verdict"] == "passed", found["message"]
    assert one(client, source, "two")["verdict"] == "runtime_error"
    eats = "x = bytearray(200 << 20)\nfor n in range(0, len(x), 4096):\n    x[n] = 1"
    assert one(client, eats, "one")["verdict"] in ("memory_limit", "runtime_error")
    assert one(client, eats, "two")["verdict"] == "passed"
    assert one(client, eats, "one", limits={"memory_mb": 512})["verdict"] == "passed"


def test_a_language_that_it_does_not_offer_is_refused(client: httpx.Client) -> None:
    body = {
        "submissions": [{"completion": "true", "language": "bash"}],
        "grader": {"kind": "exec"},
        "environment": "one",
    }
    answer = client.post("/reward", json=body)
    assert answer.status_code == 422
    assert "no 'bash' here, only: python" in answer.json()["error"]["message"]
    assert client.post("/reward", json={**body, "environment": "two"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/reward",
            {"submissions": [{"completion": "1"}], "grader": SQUARES, "environment": "twoo"},
        ),
        (
            "/reward",
            {"submissions": [{"completion": "1", "environment": "twoo"}], "grader": SQUARES},
        ),
        ("/sandboxes", {"environment": "twoo"}),
        (
            "/rollout",
            {
                "tasks": [{"id": "a", "prompt": "b", "grader": SQUARES}],
                "policy": {"base_url": "http://127.0.0.1:1/v1", "model": "m"},
                "environment": "twoo",
            },
        ),
        ("/compat/run_code?environment=twoo", {"code": "1", "language": "python"}),
    ],
)
def test_an_unknown_name_is_told_with_the_known(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    assert "environment: no 'twoo' here, only: default, one, two, three" in answer.text


def test_a_stateful_sandbox_and_its_grading_have_it(client: httpx.Client) -> None:
    sandbox = client.post("/sandboxes", json={"environment": "three"}).json()
    assert sandbox["environment"] == "three"
    at = f"/sandboxes/{sandbox['id']}"
    said = client.post(f"{at}/exec", json={"code": "import proctortest_number as p\nprint(p.N)"})
    assert said.json()["stdout"] == "4\n"
    client.put(f"{at}/files/solution.py", content=USES.format("state")).raise_for_status()
    graded = client.post(f"{at}/grade", json={"grader": SQUARES}).json()
    assert (graded["environment"], graded["reward"]) == ("three", 1.0)
    client.delete(at).raise_for_status()


def test_compatible_routes_have_it_by_route_and_by_query(client: httpx.Client) -> None:
    asked = {"code": "import proctortest_number\nprint(proctortest_number.N)", "language": "python"}
    for query, number in (("", "2"), ("?environment=three", "4")):
        said = client.post(f"/compat/run_code{query}", json=asked).json()
        assert said["run_result"]["stdout"] == f"{number}\n", said


def test_all_are_listed(client: httpx.Client, settings: dict[str, Any]) -> None:
    listed = client.get("/environments").json()["environments"]
    assert [each["name"] for each in listed] == ["default", *NAMES]
    assert [each["python"] for each in listed[1:]] == versions()
    assert [each["packages"]["proctortest-number"] for each in listed[1:]] == ["1.0", "2.0", "4.0"]
    assert listed[1]["languages"] == ["python"]
    assert listed[1]["limits"]["memory_mb"] == 64
    assert listed[2]["limits"]["memory_mb"] == listed[0]["limits"]["memory_mb"] == 512


def test_no_sandbox_sees_another_environment(
    client: httpx.Client, settings: dict[str, Any]
) -> None:
    store = settings["environments_folder"]
    looks = f"import os\nprint(sorted(os.listdir({str(store)!r})))"
    assert "No such file" in one(client, looks, None)["message"]
    seen = {name: one(client, looks, name)["stdout"] for name in NAMES}
    assert all(len(json.loads(text.replace("'", '"'))) == 1 for text in seen.values())
    assert len(set(seen.values())) == 3


def test_the_metrics_tell_them_apart(client: httpx.Client) -> None:
    one(client, "pass", "two")
    assert 'proctor_environment_verdicts_total{environment="two"}' in client.get("/metrics").text


# ------------------------------------------------------------ life of an environment


def environments_in_use(service: Service) -> tuple[str, ...]:
    backend = service.parts.core.machine.backend
    assert isinstance(backend, LocalBackend)
    return backend.environments()


def test_an_idle_one_ends_and_starts_again(settings: dict[str, Any]) -> None:
    chosen = Settings(slots=2, workers=0, **settings)
    with (
        constants(environment_idle_seconds=0.2),
        running_service(chosen, judge=None) as service,
        service.client() as client,
    ):
        for number in range(2):
            [result] = judged(
                client, [{"completion": USES.format(number)}], environment="three", cache=False
            )
            assert result["reward"] == 1.0
            service.until(lambda: environments_in_use(service) == ("default",))


def test_a_killed_zygote_and_fork_server_cost_no_verdict(settings: dict[str, Any]) -> None:
    with (
        running_service(Settings(slots=2, workers=0, **settings), judge=None) as service,
        service.client() as client,
    ):
        backend = service.parts.core.machine.backend
        assert isinstance(backend, LocalBackend)
        for number in range(6):
            [result] = judged(
                client, [{"completion": USES.format(number)}], environment="three", cache=False
            )
            assert result["reward"] == 1.0, result
            if number % 2:
                os.kill(backend.zygote("three"), signal.SIGKILL)


def test_slots_are_shared_by_all(settings: dict[str, Any]) -> None:
    """With no more sandboxes than one evaluation needs, waiting ones are given up for others."""
    chosen = Settings(slots=1, max_sandboxes=2, workers=0, **settings)
    with running_service(chosen, judge=None) as service, service.client() as client:
        items = [
            {"completion": USES.format(number), "environment": NAMES[number % 3]}
            for number in range(9)
        ]
        rewards = [each["reward"] for each in judged(client, items)]
        assert rewards == [float(number % 3 == 2) for number in range(9)]


def test_one_that_cannot_start_is_an_error_and_no_verdict(
    tmp_path: Path,
) -> None:
    with visible_folder() as threads:
        (threads / "proctortest_threads.py").write_text(THREADS)
        file = tmp_path / "environments.toml"
        file.write_text(
            f'[environments.bad]\npreload = ["proctortest_threads"]\npaths = ["{threads}"]\n'
            f'env = {{PYTHONPATH = "{threads}"}}\n'
        )
        _is_our_error(Settings(slots=2, workers=0, environments=file))


def _is_our_error(chosen: Settings) -> None:
    with running_service(chosen, judge=None) as service, service.client() as client:
        result = one(client, "pass", "bad")
        assert result["reward"] is None
        assert result["error"]["reason"] == "sandbox_unavailable"
        assert "proctortest_threads starts threads" in result["error"]["message"]
        assert client.get("/readyz").status_code == 200  # the service itself works
        assert one(client, "pass", None)["reward"] == 1.0


def test_a_service_does_not_start_without_what_it_names(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    for chosen, words in (
        ({**settings, "environments_folder": tmp_path}, "run `proctor env build one`"),
        ({**settings, "compat_environments": {"/compat": "four"}}, "no 'four', only: default, one"),
        ({**settings, "compat_environments": {"/run_code": "one"}}, "as /compat/run_code does"),
        ({"environments": tmp_path / "missing.toml"}, "missing.toml"),
    ):
        with pytest.raises(StartError, match=words), running_service(Settings(**chosen)):
            pass
