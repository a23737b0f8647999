"""Images by name: fetched beside judging, each layer once, within a bound, and with errors that name them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import proctor
from harness import Service, running_service
from host_image import image_layer
from image_registry import Registry, running_registry

from proctor_service.features.environments import fetching
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.settings import Settings
from proctor_service.settings.environments import read_environments

WAIT_SECONDS = 120.0


@cache
def base() -> bytes:
    return image_layer()


def layer(**files: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"app/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with running_registry() as found:
        found.configuration(tmp_path / "home")
        yield found


@contextmanager
def serving(
    folder: Path, registry: Registry, **settings: Any
) -> Iterator[tuple[Service, httpx.Client]]:
    chosen = Settings(
        **{
            "slots": 2,
            "workers": 0,
            "images": [f"127.0.0.1:{registry.port}/allowed/*"],
            "environments_folder": folder / "store",
            **settings,
        }
    )
    with running_service(chosen, judge=None) as service, service.client() as client:
        yield service, client


def ask(client: httpx.Client, image: str | None, *lines: str, **more: Any) -> list[dict[str, Any]]:
    """The results of shell programs in an image."""
    body: dict[str, Any] = {
        "submissions": [{"completion": each} for each in lines],
        "grader": {"kind": "exec"},
        "extract": "none",
        "language": "bash",
        "cache": False,
        **more,
    }
    body["submissions"] = [{**each, "language": body["language"]} for each in body["submissions"]]
    del body["language"]
    if image is not None:
        body["environment"] = {"image": image}
    answer = client.post("/reward", json=body)
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def reasons(results: list[dict[str, Any]]) -> set[str | None]:
    return {each["error"] and each["error"]["reason"] for each in results}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_is_fetched_once_beside_judging(
    tmp_path: Path, registry: Registry, workers: int
) -> None:
    image = registry.add("allowed/one", [base(), layer(name="one")])
    registry.open.clear()
    with (
        serving(tmp_path, registry, workers=workers) as (service, client),
        ThreadPoolExecutor() as pool,
    ):
        batches = [pool.submit(ask, client, image, *["cat /app/name"] * 8) for _ in range(3)]
        assert registry.asked.wait(WAIT_SECONDS)
        service.until(lambda: service.parts.feature("environments").fetches.waiting.total() == 24)
        # All slots are free for others meanwhile.
        assert [each["stdout"] for each in ask(client, None, *["echo hi"] * 4)] == ["hi\n"] * 4
        assert service.parts.core.queue.busy == 0
        [listed] = client.get("/environments").json()["images"]
        assert (listed["image"], listed["state"], listed["waiting"]) == (image, "fetching", 24)
        assert listed["total_bytes"] > listed["bytes"]
        registry.open.set()
        for batch in batches:
            assert {(each["stdout"], each["environment"]) for each in batch.result()} == {
                ("one", image)
            }
        assert registry.layer_fetches() == 2
        [listed] = client.get("/environments").json()["images"]
        assert (listed["state"], listed["waiting"]) == ("ready", 0)
        created = client.post("/sandboxes", json={"environment": {"image": image}})
        assert created.json()["environment"] == image
        metrics = client.get("/metrics").text
        assert 'proctor_image_fetches_total{result="fetched"} 1.0' in metrics


def test_layers_are_shared(tmp_path: Path, registry: Registry) -> None:
    images = [registry.add(f"allowed/{n}", [base(), layer(name=f"{n}")]) for n in range(4)]
    with serving(tmp_path, registry) as (_, client):
        for number, image in enumerate(images):
            [result] = ask(client, image, "cat /app/name")
            assert result["stdout"] == f"{number}"
            assert registry.layer_fetches() == 2 + number
        size = int(subprocess.check_output(["du", "-sk", str(tmp_path / "store")]).split()[0]) << 10
    whole = sum(tarfile_bytes(each) for each in (base(), layer(name="1")))
    assert size < 1.1 * whole + (1 << 20)


def tarfile_bytes(archive: bytes) -> int:
    """The bytes of an archive's files on a disk."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return sum(-(-each.size // 4096) * 4096 + 4096 * each.isdir() for each in opened)


def test_errors_name_their_cause(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_PAUSES_SECONDS", (0.0,))
    own = f"127.0.0.1:{registry.port}/allowed"
    hostile = registry.add("allowed/hostile", [layer(**{"../../../../etc/x": "x"})])
    image = registry.add("allowed/one", [base(), layer(name="one")])
    with serving(tmp_path, registry) as (_, client):
        for body, words in (
            ({"image": f"127.0.0.1:{registry.port}/other"}, "is not allowed here, only"),
            ({"image": "oci:/srv/../etc"}, "is no image"),
            ({"image": f"{own}/../other/x"}, "is no image"),
            ({"image": "x" * 2000}, "1000"),
            ({"picture": "x"}, "environment"),
        ):
            answer = client.post("/sandboxes", json={"environment": body})
            assert answer.status_code == 422, answer.text
            assert words in answer.text
        for reference, reason, words in (
            (f"{own}/missing:1", "unknown_environment", "manifest unknown"),
            (hostile, "unknown_environment", ".."),
        ):
            [result] = ask(client, reference, "true")
            assert result["error"]["reason"] == reason, result
            assert words in result["error"]["message"]
            assert not result["error"]["retryable"]
        answer = client.post("/sandboxes", json={"environment": {"image": f"{own}/missing:1"}})
        assert answer.status_code == 422
        assert "unknown_environment" in answer.text
        registry.status = 500
        assert reasons(ask(client, image, "true")) == {"sandbox_unavailable"}
        assert reasons(ask(client, None, "true")) == {None}
        registry.status = None
        assert reasons(ask(client, image, "true")) == {None}
        [late] = ask(client, registry.add("allowed/late", [base()]), "true", deadline_seconds=0.05)
        assert late["error"]["reason"] == "deadline"


def test_the_store_has_a_bound(tmp_path: Path, registry: Registry) -> None:
    each_bytes = 30 << 20
    images = [
        registry.add(f"allowed/{n}", [base(), layer(name=f"{n}", data=f"{n}" * each_bytes)])
        for n in range(4)
    ]
    large = registry.add("allowed/large", [base(), layer(data="x" * 9 * each_bytes)])
    bound_bytes = tarfile_bytes(base()) + int(3.5 * each_bytes)
    with serving(tmp_path, registry, images_gb=bound_bytes / 1e9) as (_, client):

        def ready() -> list[str]:
            return [each["image"] for each in client.get("/environments").json()["images"]]

        made = client.post("/sandboxes", json={"environment": {"image": images[0]}}).json()
        for image in images[1:3]:
            assert reasons(ask(client, image, "true")) == {None}
        assert set(ready()) == set(images[:3])
        assert reasons(ask(client, images[1], "true")) == {None}  # now the last used
        assert reasons(ask(client, images[3], "cat /app/name")) == {None}
        assert set(ready()) == {images[0], images[1], images[3]}
        path = f"/sandboxes/{made['id']}/exec"
        assert client.post(path, json={"command": ["cat", "/app/name"]}).json()["stdout"] == "0"
        assert client.delete(path.removesuffix("/exec")).status_code == 200
        [result] = ask(client, large, "true")
        assert result["error"]["reason"] == "unknown_environment"
        assert "PROCTOR_IMAGES_GB" in result["error"]["message"]
        assert reasons(ask(client, images[0], "true")) == {None}
    layers = tmp_path / "store/images"
    assert not [each for each in layers.iterdir() if each.name.endswith(".part")]


def test_a_full_disk_is_an_error_that_names_it(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_PAUSES_SECONDS", (0.0,))
    monkeypatch.setattr(fetching, "_WAIT_SECONDS", 0.0)
    image = registry.add("allowed/one", [base(), layer(name="one")])
    whole = os.statvfs
    with serving(tmp_path, registry) as (_, client):
        with monkeypatch.context() as patch:

            def full(path: Any) -> os.statvfs_result:
                return os.statvfs_result((*whole(path)[:3], 0, 0, *whole(path)[5:]))

            patch.setattr("proctor_service.features.environments.bound.os.statvfs", full)
            [result] = ask(client, image, "true")
            answer = client.post("/sandboxes", json={"environment": {"image": image}})
        assert (result["reward"], result["error"]["reason"]) == (None, "sandbox_unavailable")
        assert f"the disk of {tmp_path / 'store'} is full" in result["error"]["message"]
        assert result["error"]["retryable"]
        assert (answer.status_code, "is full" in answer.text) == (503, True)
        assert reasons(ask(client, image, "true")) == {None}


def test_a_tag_that_moved_answers_from_no_cache(tmp_path: Path, registry: Registry) -> None:
    size_bytes = 30 << 20
    moving = registry.add("allowed/moving", [base(), layer(name="old", data="o" * size_bytes)])
    other = registry.add("allowed/other", [base(), layer(name="other", data="x" * size_bytes)])
    bound_bytes = tarfile_bytes(base()) + int(1.5 * size_bytes)
    with serving(tmp_path, registry, images_gb=bound_bytes / 1e9) as (_, client):

        def named(image: str) -> tuple[str, str]:
            [result] = ask(client, image, "cat /app/name", cache=True)
            return result["stdout"], result["cache"]

        assert named(moving)[0] == "old"
        assert named(moving) == ("old", "miss")
        assert named(moving) == ("old", "hit")
        registry.add("allowed/moving", [base(), layer(name="new", data="n" * size_bytes)])
        assert named(moving) == ("old", "hit")
        assert named(other)[0] == "other"  # for which the image before makes room
        assert named(moving)[0] == "new"
        assert named(moving) == ("new", "miss")


def test_rows_are_fetched_before_a_training(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [registry.add(f"allowed/{n}", [base(), layer(name=f"{n}")]) for n in range(3)]
    rows = tmp_path / "rows.jsonl"
    fields = (
        {"environment": {"image": names[0]}},
        {"image_name": names[1]},
        {"docker_image": names[2]},
    )
    rows.write_text("".join(json.dumps({"id": "x", **each}) + "\n" for each in fields))
    monkeypatch.setenv("PROCTOR_IMAGES", json.dumps([f"127.0.0.1:{registry.port}/*"]))
    monkeypatch.setenv("PROCTOR_ENVIRONMENTS_FOLDER", str(tmp_path / "store"))
    said = proctor("env", "pull", "--rows", str(rows), "--dry-run")
    assert "3 images, 4 layers to fetch" in said.stdout
    assert registry.layer_fetches() == 0
    registry.open.clear()
    killed = subprocess.Popen(
        [sys.executable, "-m", "proctor_service", "env", "pull", "--rows", str(rows)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert registry.asked.wait(WAIT_SECONDS)
    killed.kill()
    killed.wait()
    registry.open.set()
    said = proctor("env", "pull", "--rows", str(rows))
    assert "fetched 3 of 3 images" in said.stdout, said
    assert "0 layers to fetch" in proctor("env", "pull", "--rows", str(rows), "--dry-run").stdout
    assert not list((tmp_path / "store").rglob("*.part"))
    rows.write_text(json.dumps({"image": f"127.0.0.1:{registry.port}/missing"}))
    failed = proctor("env", "pull", "--rows", str(rows))
    assert failed.exit_code == 2
    assert "manifest unknown" in failed.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_the_environments_file_is_read_anew(
    tmp_path: Path, registry: Registry, workers: int
) -> None:
    one, two = (registry.add(f"allowed/{n}", [base(), layer(name=n)]) for n in ("one", "two"))
    file, store = tmp_path / "environments.toml", tmp_path / "store"

    def written(**images: str) -> None:
        texts = (
            f"[environments.{name}]\nimage = {json.dumps(each)}\n" for name, each in images.items()
        )
        file.write_text("".join(texts))
        for name, definition in read_environments(file).items():
            EnvironmentStore(store).build(name, definition, Path("/"))

    written(app=one)
    with serving(tmp_path, registry, workers=workers, environments=file, images=[]) as (_, client):

        def named(environment: str) -> str:
            [result] = ask(client, None, "cat /app/name", environment=environment)
            return str(result["stdout"])

        assert named("app") == "one"
        before = client.get("/fingerprint").json()["digest"]
        made = client.post("/sandboxes", json={"environment": "app"}).json()
        file.write_text("[environments.app]\nimage = 'oci:/nowhere'\n")
        refused = client.post("/environments/reload")
        assert refused.status_code == 422
        assert "proctor env build" in refused.text
        assert named("app") == "one"
        written(app=two, other=one)
        listed = client.post("/environments/reload").json()["environments"]
        assert [each["name"] for each in listed] == ["default", "app", "other"]
        assert (named("app"), named("other")) == ("two", "one")
        assert client.get("/fingerprint").json()["digest"] != before
        path = f"/sandboxes/{made['id']}/exec"
        assert client.post(path, json={"command": ["cat", "/app/name"]}).json()["stdout"] == "one"
        written(other=two)
        client.post("/environments/reload")
        assert client.post("/sandboxes", json={"environment": "app"}).status_code == 422
        assert named("other") == "two"
