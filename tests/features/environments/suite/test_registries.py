"""Registries with TLS and credentials, and layers as registries have them."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from image_registry import running_registry

from features.environments.suite.test_images_by_name import ask, base, layer, serving
from proctor_service.features.environments import fetching


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the service's user, without credentials of this machine."""
    found = tmp_path / "home"
    (found / ".config/containers").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(found))
    for name in ("XDG_RUNTIME_DIR", "REGISTRY_AUTH_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetching, "_PAUSES_SECONDS", (0.0,))
    monkeypatch.setattr(fetching, "_REMEMBER_SECONDS", 0.0)
    return found


@pytest.mark.parametrize("form", ["gzip", "zstd", ""])
def test_layers_in_each_form(tmp_path: Path, home: Path, form: str) -> None:
    with running_registry() as registry:
        registry.configuration(home)
        image = registry.add("allowed/x", [base(), layer(name=form or "plain")], form=form)
        with serving(tmp_path, registry) as (_, client):
            [result] = ask(client, image, "cat /app/name")
            assert (result["error"], result["stdout"]) == (None, form or "plain")


def test_tls_and_credentials_are_those_of_skopeo(tmp_path: Path, home: Path) -> None:
    certificate = tmp_path / "own.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(certificate), "-out", str(tmp_path / "ca.crt")]
    subprocess.run([*request, *names, *files], check=True, capture_output=True)
    with certificate.open("a") as file:
        file.write((tmp_path / "ca.crt").read_text())
    containers = home / ".config/containers"
    with running_registry(certificate=certificate) as registry:
        registry.login = "ann:secret"
        image = registry.add("allowed/x", [base(), layer(name="private")])
        with serving(tmp_path, registry) as (_, client):
            [result] = ask(client, image, "true")
            assert result["error"]["reason"] == "sandbox_unavailable"
            assert "certificate" in result["error"]["message"]
            trusted = containers / "certs.d" / f"127.0.0.1:{registry.port}"
            trusted.mkdir(parents=True)
            shutil.copy(tmp_path / "ca.crt", trusted)
            [result] = ask(client, image, "true")
            assert result["error"]["reason"] == "unknown_environment", result
            assert "unauthorized" in result["error"]["message"]
            login = base64.b64encode(registry.login.encode()).decode()
            auth = {"auths": {f"127.0.0.1:{registry.port}": {"auth": login}}}
            (containers / "auth.json").write_text(json.dumps(auth))
            [result] = ask(client, image, "cat /app/name")
            assert (result["error"], result["stdout"]) == (None, "private")
