"""Changes of an agent that a fresh sandbox of the same image takes over, by path."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from proctor_service.features.environments.harbor import (
    ARTIFACTS,
    OWN_FOLDERS,
    ImageDefaults,
    verifier_variables,
)
from proctor_service.guest.session.retained import Rule

PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/go/bin"


def defaults(directory: str = "/app", **variables: str) -> ImageDefaults:
    return ImageDefaults(directory, {"PATH": PATH, "HOME": "/root", **variables})


def retained(
    path: str,
    image: ImageDefaults | None = None,
    keep: Sequence[str] = (),
    left_out: Sequence[str] = OWN_FOLDERS,
    is_folder: bool = False,
) -> bool:
    image = image or defaults()
    rule = Rule(image.directory, image.variables, [*keep, ARTIFACTS], left_out)
    return rule.retains(path, is_folder)


@pytest.mark.parametrize(
    "path",
    [
        "/app",
        "/app/answer.txt",
        "/app/.git/config",
        "/app/usr/bin/python3",
        "/data/out.csv",
        "/home/someone/result",
        "/root/result",
        "/srv/www/index.html",
        "/var/www/index.html",
        "/answer.txt",
        "/logs/artifacts/model.bin",
    ],
)
def test_results_are_retained(path: str) -> None:
    assert retained(path)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/bin",
        "/bin/sh",
        "/dev/shm/x",
        "/etc/cron.d/job",
        "/etc/ld.so.preload",
        "/go/bin/go",
        "/go/src/fmt/print.go",
        "/home/someone/.bashrc",
        "/home/someone/.local/lib/python3.12/site-packages/sitecustomize.py",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/logs/verifier/reward.txt",
        "/opt/venv/lib/python3.12/site-packages/sitecustomize.py",
        "/proc/self/mem",
        "/root/.bashrc",
        "/root/.config/pip/pip.conf",
        "/run/x",
        "/solution/solve.sh",
        "/tests/test.sh",
        "/tmp/pytest-of-root",
        "/usr/local/bin/python3",
        "/var",
        "/var/lib/gems/3.1.0/x.rb",
        "/var/spool/cron/crontabs/root",
        "/.dockerenv",
    ],
)
def test_what_could_subvert_a_verifier_stays_behind(path: str) -> None:
    assert not retained(path)


def test_the_working_directory_is_kept_below_a_system_folder() -> None:
    seen = defaults("/usr/src/app")
    assert retained("/usr/src/app/main.js", seen)
    assert not retained("/usr/src/other", seen)
    assert not retained("/usr/bin/node", seen)


def test_programs_below_the_working_directory_stay_behind() -> None:
    seen = defaults(PATH=f"/app/.venv/bin:/app/bin:{PATH}", VIRTUAL_ENV="/app/.venv")
    assert retained("/app/main.py", seen)
    assert retained("/app/lib", seen)
    assert not retained("/app/.venv/lib/python3.12/site-packages/pytest.py", seen)
    assert not retained("/app/bin/python3", seen)


def test_a_home_as_the_working_directory_keeps_no_dotfiles() -> None:
    seen = defaults("/home/agent", HOME="/home/agent")
    assert retained("/home/agent/x", seen)
    assert not retained("/home/agent/.profile", seen)
    assert retained("/home/agent/.work/x", defaults("/home/agent/.work", HOME="/home/agent"))


def test_the_root_as_the_working_directory() -> None:
    assert retained("/work/x", defaults("/"))
    assert not retained("/usr/x", defaults("/"))


@pytest.mark.parametrize(
    ("directory", "is_kept"), [("/tmp", True), ("/usr", False), ("/etc", False)]
)
def test_a_system_folder_as_the_working_directory(directory: str, is_kept: bool) -> None:
    assert retained(f"{directory}/x", defaults(directory)) is is_kept


@pytest.mark.parametrize(
    "path", ["/root", "/home", "/home/someone", "/usr", "/app", "/data", "/data/venv", "/logs"]
)
def test_a_link_replaces_no_folder_on_the_way_to_what_stays_behind(path: str) -> None:
    seen = defaults(
        PATH="/app/.venv/bin:/data/venv/bin:/usr/bin",
        HOME="/home/someone",
        VIRTUAL_ENV="/app/.venv",
    )
    assert not retained(path, seen)
    assert retained(path, seen, is_folder=True) is (path not in ("/usr", "/data/venv"))


def test_a_task_names_more() -> None:
    keep = ["/etc/nginx", "/usr/share/nginx/"]
    assert retained("/etc/nginx/nginx.conf", keep=keep)
    assert retained("/usr/share/nginx", keep=keep)
    assert not retained("/etc/nginx2", keep=keep)
    assert not retained("/tests/test.sh", keep=["/"])
    assert retained("/usr/bin/x", keep=["/"])


def test_a_separate_verifier_sees_only_what_is_named() -> None:
    assert retained("/app/out/x", left_out=["/"], keep=["/app/out"])
    assert retained("/logs/artifacts/x", left_out=["/"])
    assert not retained("/app/x", left_out=["/"], keep=["/app/out"])


@pytest.mark.parametrize(
    ("name", "value", "changed"),
    [
        ("PYTHONPATH", "/app", ""),
        ("PYTHONPATH", "/app/src:/usr/share/x", "/usr/share/x"),
        ("PYTHONPATH", ":/usr/share/x", "/usr/share/x"),
        ("PYTHONPATH", "/usr/share/x", None),
        ("LD_LIBRARY_PATH", "/:/usr/lib", "/usr/lib"),
        ("BASH_ENV", "/app/env.sh", ""),
        ("PATH", "/app:/usr/bin:.", "/usr/bin"),
        ("PATH", "/app/bin:/usr/bin", None),
        ("DATA", "/app", None),
    ],
)
def test_variables_lead_to_no_code_of_the_agent(name: str, value: str, changed: str | None) -> None:
    found = verifier_variables(defaults(**{name: value}))
    assert found == ({} if changed is None else {name: changed})
