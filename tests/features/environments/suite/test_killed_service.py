"""The service killed while it fetches an image, and the environments file read anew under load."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from image_registry import Registry, running_registry
from service_process import ServiceProcess

from features.environments.suite.test_images_by_name import WAIT_SECONDS, ask, base, layer, reasons
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.settings.environments import read_environments


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with running_registry() as found:
        found.configuration(tmp_path / "home")
        yield found


def process(folder: Path, registry: Registry, **settings: str) -> ServiceProcess:
    return ServiceProcess(
        PROCTOR_SLOTS="2",
        PROCTOR_WORKERS="0",
        PROCTOR_IMAGES=json.dumps([f"127.0.0.1:{registry.port}/allowed/*"]),
        PROCTOR_ENVIRONMENTS_FOLDER=str(folder / "store"),
        **settings,
    )


def client_of(service: ServiceProcess) -> httpx.Client:
    return httpx.Client(base_url=service.url, trust_env=False, timeout=WAIT_SECONDS)


def unfinished(store: Path) -> list[Path]:
    return [*store.glob("*.part"), *store.glob("images/*.part"), *store.glob("images/*/*.part")]


@pytest.mark.parametrize("stage", ["fetching", "unpacking"])
def test_nothing_half_is_left_of_a_killed_service(
    tmp_path: Path, registry: Registry, stage: str
) -> None:
    store = tmp_path / "store"
    image = registry.add("allowed/one", [base(), layer(name="one", data="x" * (200 << 20))])
    with process(tmp_path, registry) as service, ThreadPoolExecutor() as pool:
        if stage == "fetching":
            registry.open.clear()
        with client_of(service) as client:
            asked = pool.submit(ask, client, image, "cat /app/name")
            assert registry.asked.wait(WAIT_SECONDS)
            until = time.monotonic() + WAIT_SECONDS
            while stage == "unpacking" and not list(store.glob("images/*.part")):
                assert time.monotonic() < until
                threading.Event().wait(0.01)  # another process has no event for us
            service.kill()
            with pytest.raises(httpx.HTTPError):
                asked.result()
        registry.open.set()
        service.start()
        with client_of(service) as client:
            assert client.get("/environments").json()["images"] == []
            assert unfinished(store) == []
            [result] = ask(client, image, "cat /app/name")
            assert (result["error"], result["stdout"]) == (None, "one")
            assert unfinished(store) == []
            [listed] = client.get("/environments").json()["images"]
            assert (listed["image"], listed["state"]) == (image, "ready")


def test_the_file_is_read_anew_under_load(tmp_path: Path, registry: Registry) -> None:
    """Each submission is judged in the image before or in the one after; none is lost."""
    images = [registry.add(f"allowed/{n}", [base(), layer(name=n)]) for n in ("one", "two")]
    file, store = tmp_path / "environments.toml", tmp_path / "store"

    def written(image: str) -> None:
        file.write_text(f"[environments.app]\nimage = {json.dumps(image)}\n")
        for name, definition in read_environments(file).items():
            EnvironmentStore(store).build(name, definition, Path("/"))

    written(images[1])
    written(images[0])
    settings = {"PROCTOR_ENVIRONMENTS": str(file)}
    with process(tmp_path, registry, **settings) as service, client_of(service) as client:
        is_over = threading.Event()

        def load() -> list[str]:
            found = []
            while not is_over.is_set():
                results = ask(client, None, *["cat /app/name"] * 4, environment="app")
                assert reasons(results) == {None}, results
                found += [each["stdout"] for each in results]
            return found

        with ThreadPoolExecutor() as pool:
            loads = [pool.submit(load) for _ in range(2)]
            try:
                for turn in range(1, 5):
                    written(images[turn % 2])
                    if turn % 2:
                        listed = client.post("/environments/reload").json()["environments"]
                        assert [each["name"] for each in listed] == ["default", "app"]
                    else:
                        before = service.logged.count("read anew")
                        os.kill(service.pid, signal.SIGHUP)
                        until = time.monotonic() + WAIT_SECONDS
                        while service.logged.count("read anew") == before:
                            assert time.monotonic() < until
                            threading.Event().wait(0.02)
                    wanted = ("one", "two")[turn % 2]
                    [result] = ask(client, None, "cat /app/name", environment="app")
                    assert result["stdout"] == wanted
            finally:
                is_over.set()
            found = [name for each in loads for name in each.result()]
        assert set(found) <= {"one", "two"}
        assert len(found) >= 8
