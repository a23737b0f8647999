"""The image: what is in it, as whom it runs, and that it comes out the same again."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from urllib.parse import quote

from deploy.images import BASE, Builder, Image
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


def test_only_what_the_image_needs_is_sent_to_the_builder() -> None:
    lines = Path(ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    assert {line for line in lines if line.startswith("!")} == {
        "!constraints.txt",
        "!client",
        "!deploy/sbom.py",
        "!service",
    }


def test_it_has_the_clients_of_what_replicas_share(image: Image) -> None:
    assert {"redis", "psycopg", "opentelemetry-sdk"} <= packages(image).keys()


def listed(image: Image, kind: str) -> dict[str, str]:
    """Name and version of what the bill of materials has of a type of package URLs."""
    components = json.loads((image.root / "app" / "sbom.cdx.json").read_text())["components"]
    found = [each for each in components if each.get("purl", "").startswith(f"pkg:{kind}/")]
    return {each["name"]: each["version"] for each in found}


def test_its_bill_of_materials_is_what_is_installed(image: Image) -> None:
    python = {plain(name): version for name, version in listed(image, "pypi").items()}
    assert python.items() <= packages(image).items()
    assert packages(image).keys() - python.keys() <= {"proctor-client", "proctor-service"}


def test_its_bill_of_materials_has_the_packages_of_the_base(image: Image) -> None:
    status = (image.root / "var" / "lib" / "dpkg" / "status").read_text()
    fields = [
        dict(re.findall(r"^(\w+): (.*)$", each, re.MULTILINE)) for each in status.split("\n\n")
    ]
    installed = {each["Package"]: each["Version"] for each in fields if each}
    assert "libc6" in installed
    assert listed(image, "deb") == installed
    body = json.loads((image.root / "app" / "sbom.cdx.json").read_text())
    purls = [each["purl"] for each in body["components"] if each["name"] == "libc6"]
    assert purls[0].startswith(f"pkg:deb/debian/libc6@{quote(installed['libc6'])}?arch=")
    assert list(listed(image, "generic")) == ["python"]


def test_a_slim_image_has_no_client_of_what_replicas_share(builder: Builder, image: Image) -> None:
    slim = builder.image("localhost/proctor-test-slim", "SLIM=1")
    left_out = packages(image).keys() - packages(slim).keys()
    assert left_out >= {"redis", "psycopg", "psycopg-binary", "opentelemetry-sdk"}
    assert packages(slim).items() <= packages(image).items()
    assert listed(slim, "pypi").keys().isdisjoint(left_out)


# ------------------------------------------------------------ its base


def test_it_says_on_which_base_it_stands(image: Image) -> None:
    labels = image.config["Labels"]
    assert labels["org.opencontainers.image.base.name"] == BASE
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", labels["org.opencontainers.image.base.digest"])


def test_the_same_sources_on_a_pinned_base_give_the_same_layers(
    builder: Builder, image: Image
) -> None:
    builder.make("pin-base", f"BASE_IMAGE={BASE}")
    digest = image.config["Labels"]["org.opencontainers.image.base.digest"]
    assert builder.written("deploy/base-image.txt") == f"{BASE}@{digest}\n"
    assert builder.build("localhost/proctor-test-pinned", "BASE_IMAGE=") == image.layers


def test_the_default_base_is_one() -> None:
    name = (DEPLOY / "base-image.txt").read_text().strip().partition("@")[0]
    assert f"ARG BASE_IMAGE={name}\n" in (ROOT / "Dockerfile").read_text()
