"""The image: what is in it, as whom it runs, and that it comes out the same again."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

from deploy.images import Builder, Image
from deploy.manifests import DEPLOY, ROOT, pod_of, render


def packages(image: Image) -> dict[str, str]:
    """Name and version of what is installed beside the base."""
    found = {}
    for info in image.root.glob("app/lib/python3*/site-packages/*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        found[plain(name)] = version
    return found


def plain(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_is_pinned(image: Image) -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {plain(name): version for name, _, version in (line.partition("==") for line in lines)}
    found = packages(image)
    own = {name for name in found if name.startswith("proctor-")}
    assert own == {"proctor-client", "proctor-service"}
    assert {name: found[name] for name in found.keys() - own}.items() <= pinned.items()


def test_it_holds_no_tools_and_no_sources(image: Image) -> None:
    assert {path.name for path in image.root.glob("app/bin/*")}.isdisjoint({"pip", "pip3"})
    assert not list(image.root.glob("app/lib/python3*/site-packages/pip"))
    assert not (image.root / "src").exists()
    assert not (image.root / "build").exists()
    assert not (image.root / "wheels").exists()


def test_nobody_may_write_to_the_service(image: Image) -> None:
    for path in image.root.glob("app/**/*"):
        mode = path.lstat()
        assert mode.st_uid == 0
        assert stat.S_ISLNK(mode.st_mode) or not mode.st_mode & 0o022, path


def test_the_byte_code_is_made_beforehand(image: Image) -> None:
    [site] = image.root.glob("app/lib/python3*/site-packages")
    for source in site.glob("proctor_*/**/*.py"):
        assert list((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")), source


def test_it_runs_as_nobody_in_particular_and_without_a_shell(image: Image) -> None:
    context = pod_of(render(DEPLOY / "overlays" / "prod"))["securityContext"]
    assert image.config["User"] == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert image.config["Entrypoint"] == ["/app/bin/tini", "--", "/app/bin/proctor"]
    assert image.config["Cmd"] == ["serve"]
    assert image.config["Healthcheck"]["Test"][0] == "CMD"
    assert "PROCTOR_JOURNAL=off" in image.config["Env"]
    first = (image.root / "app/bin/proctor").read_text().splitlines()[0]
    assert first == "#!/app/bin/python"


def test_the_same_sources_give_the_same_layers(builder: Builder, image: Image) -> None:
    assert builder.build("localhost/proctor-test-again") == image.layers


def test_only_what_the_image_needs_is_sent_to_the_builder() -> None:
    lines = Path(ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    assert {line for line in lines if line.startswith("!")} == {
        "!constraints.txt",
        "!client",
        "!service",
    }


def test_it_has_the_clients_of_what_replicas_share(image: Image) -> None:
    assert {"redis", "psycopg", "opentelemetry-sdk"} <= packages(image).keys()


def test_its_bill_of_materials_is_what_is_installed(image: Image) -> None:
    listed = json.loads((image.root / "app" / "sbom.cdx.json").read_text())["components"]
    assert {plain(each["name"]): each["version"] for each in listed} == packages(image)
