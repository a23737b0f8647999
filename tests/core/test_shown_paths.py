"""Which directories sandboxes may see: none where they have their own files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from visible_folder import visible_folder

from proctor_service.errors import StartError
from proctor_service.sandbox.local.launch import make_plan
from proctor_service.sandbox.local.shown_paths import check_shown
from proctor_service.settings import Settings

HIDING = (
    "/", "/tmp", "/tmp/", "/tmp/venv", "//tmp/venv", "/var", "/var/tmp/x", "/dev", "/dev/shm/x", "/proc/self",
    "/sys/x", "/box/home/x", "/etc", "/etc/R", "/etc/php/8.2", "/opt", "/opt/proctor", "/srv/../tmp/x",
)  # fmt: skip
SEEN = (
    "/home/user/venv", "/root/python-3.12", "/home", "/opt/venv", "/opt/proctor/envs", "/var/lib/x",
    "/usr/share/x", "/etc/ssl", "/run/user/1000/venv", "/mnt", "/srv", "/tmpfs/x", "/devel", "/boxes",
)  # fmt: skip


def test_paths_beside_the_sandboxes_own_files_are_shown() -> None:
    for path in SEEN:
        assert check_shown(path, "PROCTOR_X") == path
    for path in (*HIDING, "relative", "../tmp"):
        with pytest.raises(StartError, match=rf"^PROCTOR_X: {re.escape(path)}"):
            check_shown(path, "PROCTOR_X")
    with visible_folder() as folder:
        (folder / "link").symlink_to("/dev/shm")
        with pytest.raises(StartError, match=r"link/x \(/dev/shm/x\) lies where sandboxes"):
            check_shown(folder / "link" / "x", "PROCTOR_X")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"sandbox_paths": ["/srv", "/tmp/data"]}, "PROCTOR_SANDBOX_PATHS: /tmp/data"),
        ({"go_cache": "/var/tmp/go"}, "PROCTOR_GO_CACHE: /var/tmp/go"),
        ({"go_cache": "cache"}, "PROCTOR_GO_CACHE: cache is no absolute path"),
        ({"environments": "paths = ['/tmp/x']"}, "environments.own.paths: /tmp/x"),
        ({"environments": "python = '{folder}/venv/bin/python'"}, "environments.own.python"),
        (
            {"environments": "requirements = ['x']", "environments_folder": "/tmp/store"},
            "PROCTOR_ENVIRONMENTS_FOLDER: /tmp/store",
        ),
    ],
)
def test_a_start_names_the_setting(settings: dict[str, str], named: str, tmp_path: Path) -> None:
    if definition := settings.get("environments"):
        if not str(tmp_path).startswith("/tmp/"):
            definition = definition.replace("{folder}", "/tmp")
        text = definition.replace("{folder}", str(tmp_path))
        (tmp_path / "environments.toml").write_text(f"[environments.own]\n{text}\n")
        settings = {**settings, "environments": str(tmp_path / "environments.toml")}
        bin_folder = tmp_path / "venv" / "bin"
        bin_folder.mkdir(parents=True)
        (tmp_path / "venv" / "pyvenv.cfg").touch()
        (bin_folder / "python").symlink_to("/usr/bin/python3")
    with pytest.raises(StartError, match=re.escape(named)):
        make_plan(Settings(**settings))
