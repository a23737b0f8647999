"""Images by name in a fleet: each is fetched by its owners, and its submissions are judged there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fleet import Replica, fleet
from image_registry import Registry, running_registry

from features.environments.suite.test_images_by_name import ask, base, layer, reasons
from proctor_service.features.replicas.image_owners import owners_of
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes

IMAGES = 10


def judged_by(counts: Counter[str]) -> object:
    async def judge(submission: Submission, backend: Sandboxes) -> Judgement:
        counts[submission.environment] += 1
        return Judgement("passed", passed=1, total=1)

    return judge


@pytest.mark.parametrize("spread", [1, 2])
def test_each_image_is_fetched_by_its_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    counts = [Counter[str]() for _ in range(3)]
    with running_registry() as registry:
        registry.configuration(tmp_path / "home")
        images = [registry.add(f"allowed/{n}", [base(), layer(name=f"{n}")]) for n in range(IMAGES)]
        with fleet(
            3,
            judges=[judged_by(each) for each in counts],
            differing={n: {"environments_folder": tmp_path / f"{n}"} for n in range(3)},
            images=[f"127.0.0.1:{registry.port}/*"],
            image_spread=spread,
        ) as replicas:
            for image in images:
                for replica in replicas:
                    assert reasons(ask(replica.client, image, *["true"] * 4)) == {None}
            urls = [each.url for each in replicas]
            for image in images:
                owners = owners_of(image, urls, spread)
                found = {url for url, judged in zip(urls, counts, strict=True) if judged[image]}
                assert found == set(owners), image
            assert sum(each.total() for each in counts) == IMAGES * 3 * 4
            assert own_layers(registry) <= IMAGES * spread
            images_move_when_a_replica_goes(replicas, counts, images)


def own_layers(registry: Registry) -> int:
    """How often layers of one image alone were fetched."""
    return sum(
        count
        for digest, count in registry.fetched.items()
        if len(registry.blobs[digest]) < 5000 and registry.blobs[digest][:1] != b"{"
    )


def images_move_when_a_replica_goes(
    replicas: list[Replica], counts: list[Counter[str]], images: list[str]
) -> None:
    replicas[0].kill()
    before = sum(each.total() for each in counts)
    for image in images:
        for replica in replicas[1:]:
            assert reasons(ask(replica.client, image, "true")) == {None}
    assert sum(each.total() for each in counts) == before + 2 * len(images)
