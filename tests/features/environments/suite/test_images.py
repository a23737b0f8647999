"""Sandboxes of a container image: its programs, its changes as a layer, and what it cannot reach."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from container_images import debian_image
from harness import running_service

from core.contract.test_contract_ordinary_user import as_ordinary_user
from proctor_service.errors import FileRefused, StartError
from proctor_service.features.environments.images import image_ids
from proctor_service.features.environments.store import EnvironmentStore
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.sandbox.interface import Command, Limits, StatefulSandbox
from proctor_service.sandbox.local import LocalBackend
from proctor_service.sandbox.local.launch import make_plan
from proctor_service.settings import Settings
from proctor_service.settings.environments import Environment, read_environments

LIMITS = Limits(20, 20, 512, 256, 64, 128)
# What an agent may do to a grading that runs after it.
TAMPERING = """
mkdir -p /usr/local/bin && printf '#!/bin/sh\\necho cheated' > /usr/local/bin/python3
chmod +x /usr/local/bin/python3; cp /usr/local/bin/python3 /usr/bin/python3.11
echo cheated > /etc/ld.so.preload; echo cheated > /root/.bashrc; echo cheated > /.env
mkdir -p /var/spool/cron; echo cheated > /var/spool/cron/root; rm -rf /etc/passwd
mkdir -p /root/.local/lib; echo cheated > /root/.local/lib/x; ln -s /usr /app/usr
rm -rf /srv; echo mine > /srv; mkdir -p /app/deep/er; echo kept > /app/deep/er/file
chmod 640 /app/deep/er/file; chown 33:33 /app/deep/er; rm -rf /opt; mkdir /opt; mv /media /media2
mkfifo /app/pipe; ln /app/deep/er/file /app/second; touch '/app/.wh.deep'; rm /lib64
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    return debian_image(tmp_path_factory)


@pytest.fixture(scope="module")
def settings(image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings with the environment `app`, which is built."""
    folder = tmp_path_factory.mktemp("images")
    file = folder / "environments.toml"
    file.write_text(f"[environments.app]\nimage = {json.dumps(image)}\nenv = {{COLOUR = 'red'}}\n")
    for name, definition in read_environments(file).items():
        EnvironmentStore(folder / "store").build(name, definition, Path("/"))
    return {"environments": file, "environments_folder": folder / "store"}


@pytest.fixture(scope="module")
def built(settings: dict[str, Any]) -> BuiltEnvironment:
    [definition] = read_environments(settings["environments"]).values()
    return EnvironmentStore(settings["environments_folder"]).built("app", definition, Path("/"))


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "judge processes"])
def client(request: pytest.FixtureRequest, settings: dict[str, Any]) -> Iterator[httpx.Client]:
    chosen = Settings(slots=2, workers=request.param, **settings)
    with running_service(chosen, judge=None) as service, service.client() as opened:
        yield opened


Act = Callable[[Callable[[], Any]], Awaitable[None]]


def within(built: BuiltEnvironment, act: Act, slots: int = 2) -> None:
    """Run `act` with a function that opens a sandbox of the image."""

    async def acted() -> None:
        plan = make_plan(Settings(slots=slots), environments={"app": built})
        backend = LocalBackend(plan)
        await backend.start()
        try:
            await act(lambda: backend.open(LIMITS, "app"))
        finally:
            await backend.close()

    asyncio.run(acted())


async def sh(sandbox: StatefulSandbox, line: str) -> str:
    """The output of a shell command that must succeed."""
    ended = await sandbox.exec(Command(argv=("sh", "-ec", line)))
    assert ended.exit_code == 0, (line, ended)
    return ended.stdout.decode()


def ask_all(built: BuiltEnvironment) -> None:
    """What holds as root and as an ordinary user."""

    async def act(opened: Callable[[], Any]) -> None:
        async with opened() as sandbox:
            await programs_of_the_image(sandbox)
            await its_first_process_is_out_of_reach(sandbox)
            await sh(sandbox, f"set +e\n{TAMPERING}\ntrue")
            await sandbox.write_file("/data/new/file", b"written")
            archive = await sandbox.snapshot()
        async with opened() as sandbox:
            await nothing_is_left_of_others(sandbox)
            await sandbox.restore(archive)
            await changes_come_but_those_of_the_system(sandbox)
        async with opened() as sandbox:
            await sandbox.restore(archive, ["/usr/local", "/etc/ld.so.preload"])
            assert await sh(sandbox, "cat /etc/ld.so.preload") == "cheated\n"
            assert await sh(sandbox, "python3; ls /root/.local || true") == "cheated\n"
            with pytest.raises(FileRefused):
                await sandbox.restore(archive[:700])
        return

    within(built, act)


async def programs_of_the_image(sandbox: StatefulSandbox) -> None:
    assert await sh(sandbox, "pwd; id -u; echo $GREETING $COLOUR; hostname") == (
        "/app\n0\nhello red\nsandbox\n"
    )
    assert "bookworm" in await sh(sandbox, "cat /etc/os-release")
    ended = await sandbox.exec(
        Command(code="import os, sys; print(sys.version_info[:2], os.getcwd())")
    )
    assert ended.stdout == b"(3, 11) /app\n"
    assert (
        await sh(sandbox, "touch /usr/bin/mine /app/mine && ls /usr/bin/mine") == "/usr/bin/mine\n"
    )
    script = "import pty, os; a, b = pty.openpty(); os.write(a, b'x\\n'); print(os.read(b, 9))"
    assert await sh(sandbox, f'python3 -c "{script}"') == "b'x\\n'\n"
    assert await sh(sandbox, "getent hosts localhost && echo x > /dev/shm/x") != ""
    assert await sandbox.read_file("/etc/debian_version", 100) != b""


async def its_first_process_is_out_of_reach(sandbox: StatefulSandbox) -> None:
    for line in (
        "for s in $(seq 1 64); do kill -$s 1; done 2> /dev/null; true",
        "cat /proc/1/environ /proc/1/mem /proc/1/maps 2> /dev/null || true",
        "ls /proc/1/fd/301/ /proc/1/fd/302/ /proc/1/cwd/ 2> /dev/null || true",
        "mount -t tmpfs x /mnt 2> /dev/null && echo mounted || true",
        "unshare -U true 2> /dev/null && echo unshared || true",
        "chroot / true 2> /dev/null && echo changed || true",
        "mknod /app/disk b 254 0 2> /dev/null && echo made || true",
        "ls -A /sys; ls /proc/sys 2> /dev/null || true",
        "umount /proc /dev/shm 2> /dev/null && echo unmounted || true",
        "echo 1 2> /dev/null > /proc/1/oom_score_adj && echo written || true",
    ):
        assert await sh(sandbox, line) == "", line
    bounds = await sh(sandbox, "grep -E 'Cap(Eff|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status")
    assert bounds.split() == [
        *("CapEff:", "00000000000004fb", "CapBnd:", "00000000000004fb"),
        *("NoNewPrivs:", "1", "Seccomp:", "2"),
    ]


async def nothing_is_left_of_others(sandbox: StatefulSandbox) -> None:
    assert (
        await sh(sandbox, "ls /app /dev/shm /data 2> /dev/null || true") == "/app:\n\n/dev/shm:\n"
    )
    assert await sh(sandbox, "ls /usr/bin/mine 2> /dev/null || true") == ""


async def changes_come_but_those_of_the_system(sandbox: StatefulSandbox) -> None:
    assert await sh(sandbox, "cat /app/deep/er/file /app/second /data/new/file; cat /srv") == (
        "kept\nkept\nwrittenmine\n"
    )
    assert await sh(sandbox, "stat -c %a /app/deep/er/file; readlink /app/usr") == "640\n/usr\n"
    assert await sh(sandbox, "ls -d /media2; ls /media 2> /dev/null || true") == "/media2\n"
    assert await sh(sandbox, "python3 -c 'print(6 * 7)'; cat /etc/passwd | head -c 4") == "42\nroot"
    left = "ls -d /etc/ld.so.preload /.env /var/spool/cron/root /usr/local/bin/python3 /app/pipe"
    assert await sh(sandbox, f"{left} /root/.local/lib 2> /dev/null || true") == ""
    assert "cheated" not in await sh(sandbox, "cat /root/.bashrc")


def test_as_root(built: BuiltEnvironment) -> None:
    ask_all(built)


def test_as_an_ordinary_user(image: str) -> None:
    said = as_ordinary_user(f"""
        import pathlib, tempfile
        from features.environments.suite.test_images import ask_all
        from proctor_service.features.environments.store import EnvironmentStore
        from proctor_service.settings.environments import Environment
        with tempfile.TemporaryDirectory() as folder:
            definition = Environment(image={image!r}, env={{"COLOUR": "red"}})
            store = EnvironmentStore(pathlib.Path(folder) / "store")
            ask_all(store.build("app", definition, pathlib.Path("/")))
        print("done")
    """)
    assert said.splitlines()[-1] == "done"


def test_a_layer_is_one_of_the_image_format(built: BuiltEnvironment) -> None:
    async def act(opened: Callable[[], Any]) -> None:
        async with opened() as sandbox:
            remade = "rm -r /etc/skel; mkdir /etc/skel; echo x > /etc/skel/x"
            await sh(sandbox, f"rm -r /srv; {remade}; rm /etc/hosts")
            layer = await sandbox.snapshot()
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            names = archive.getnames()
        assert {".wh.srv", "etc/skel/.wh..bashrc", "etc/skel/x", "etc/.wh.hosts"} <= set(names)
        assert "usr/bin/python3.11" not in names

    within(built, act)


def test_services_run_as_their_own_user_and_get_low_ports(built: BuiltEnvironment) -> None:
    async def act(opened: Callable[[], Any]) -> None:
        program = (
            "import os, socket\n"
            "s = socket.create_server(('127.0.0.1', 80)); os.setgroups([33]); os.setgid(33)\n"
            "os.setuid(33); print(os.getuid(), os.getgroups(), s.getsockname()[1])"
        )
        async with opened() as sandbox:
            await sandbox.write_file("serve.py", program.encode())
            assert await sh(sandbox, "python3 serve.py") == "33 [33] 80\n"

    within(built, act)


def test_its_disk_is_limited(built: BuiltEnvironment) -> None:
    async def act(opened: Callable[[], Any]) -> None:
        async with opened() as sandbox:
            said = await sh(
                sandbox, "head -c 200M /dev/zero > /usr/big 2>&1 || echo full; rm /usr/big"
            )
            assert said.endswith("full\n")
            assert await sh(sandbox, "echo x > /usr/small && cat /usr/small") == "x\n"

    within(built, act)


def test_the_routes_have_it(client: httpx.Client) -> None:
    [_, listed] = client.get("/environments").json()["environments"]
    assert listed["image"].startswith("sha256:")
    assert (listed["python"], listed["packages"]) == ("3.11", {})
    assert "bash" in listed["languages"]
    created = client.post("/sandboxes", json={"environment": "app"})
    assert created.status_code == 201, created.text
    path = f"/sandboxes/{created.json()['id']}"
    done = client.post(
        f"{path}/exec", json={"command": ["sh", "-c", "echo $GREETING > x; pwd"]}
    ).json()
    assert done["stdout"] == "/app\n"
    grader = {"kind": "command", "argv": ["sh", "-c", "test $(cat x) = hello"]}
    graded = client.post(f"{path}/grade", json={"grader": grader})
    assert graded.status_code == 200, graded.text
    assert graded.json()["reward"] == 1.0
    assert client.delete(path).status_code == 200


def test_a_command_judges_in_it(client: httpx.Client) -> None:
    body = {
        "environment": "app",
        "extract": "none",
        "grader": {
            "kind": "command",
            "argv": ["sh", "-c", "grep -q right answer.txt && test -e /app"],
        },
        "submissions": [
            {"completion": "x", "files": {"answer.txt": text}} for text in ("right", "wrong")
        ],
    }
    answer = client.post("/reward", json=body)
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert [(each["reward"], each["environment"]) for each in results] == [
        (1.0, "app"),
        (0.0, "app"),
    ]


SQUARE = "def f(x):\n    return x * x\n"
GRADERS: tuple[dict[str, Any], ...] = (
    {"kind": "asserts", "tests": ["assert f(3) == 9"]},
    {"kind": "calls", "entry_point": "f", "cases": [{"args": [3], "expected": 9}]},
    {
        "kind": "pytest",
        "files": {"test_f.py": "from solution import f\ndef test_f():\n    assert f(3) == 9"},
    },
)


def test_its_own_python_judges_code(client: httpx.Client) -> None:
    for grader in GRADERS:
        body = {
            "environment": "app",
            "grader": grader,
            "submissions": [{"completion": SQUARE}, {"completion": SQUARE.replace("*", "+")}],
        }
        answer = client.post("/reward", json=body)
        assert answer.status_code == 200, answer.text
        results = answer.json()["results"]
        assert [each["reward"] for each in results] == [1.0, 0.0], results
    script = "import os, sys; print(sys.prefix, os.environ['GREETING'], sorted(os.listdir('/proc/self/fd')))"
    body = {
        "environment": "app",
        "grader": {"kind": "exec"},
        "submissions": [{"completion": script}],
    }
    [result] = client.post("/reward", json=body).json()["results"]
    assert result["stdout"] == "/usr hello ['0', '1', '2', '3', '300']\n", result


def test_wrong_images_are_refused_in_words(tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path / "store")
    for reference, words in (
        ("oci:/nowhere:x", "skopeo failed"),
        ("docker-archive:/nowhere.tar", "skopeo failed"),
    ):
        with pytest.raises(StartError, match=words):
            store.build("app", Environment(image=reference), Path("/"))
        with pytest.raises(StartError, match="is not built"):
            store.built("app", Environment(image=reference), Path("/"))
    assert [each.name for each in store.folder.iterdir()] == ["locks"]
    for text, words in (
        ("image = 'oci:relative'", "is no image"),
        ("image = 'oci:/x'\npython = '3.12'", "image and python exclude each other"),
    ):
        file = tmp_path / "environments.toml"
        file.write_text(f"[environments.app]\n{text}\n")
        with pytest.raises(StartError, match=words):
            read_environments(file)


def test_no_program_of_a_grading_comes_from_the_graded_sandbox(built: BuiltEnvironment) -> None:
    """A link instead of a home or a folder on PATH does not lead around what is not taken over."""

    async def act(opened: Callable[[], Any]) -> None:
        async with opened() as sandbox:
            await sh(
                sandbox,
                "cd /; mkdir -p /data/evil/.local; echo cheated > /data/evil/.bashrc; rm -r /root /home; "
                "ln -s /data/evil /root; ln -s /data/evil /home; rm -r /srv; mkdir /srv; echo x > /srv/x",
            )
            archive = await sandbox.snapshot()
        async with opened() as sandbox:
            await sandbox.restore(archive)
            assert "cheated" not in await sh(sandbox, "cat /root/.bashrc; cat /srv/x")
            assert await sh(sandbox, "cat /data/evil/.bashrc; ls -d /root/.local || true") == (
                "cheated\n"
            )

    within(built, act)


def test_a_link_on_path_protects_what_it_leads_to(built: BuiltEnvironment) -> None:
    image = built.image
    assert image is not None
    path = {"PATH": f"/opt/tool/bin:/app/bin:{image.variables['PATH']}"}
    chosen = replace(built, image=replace(image, variables={**image.variables, **path}))
    base = image.layers[-1]
    for folder in ("opt/tool-1/bin", "opt/other/bin"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    links = {"opt/tool": "tool-1", "usr/local/bin/other": "/opt/other/bin/other"}
    for name, target in links.items():
        (base / name).symlink_to(target)
    if image.ids is not None:
        for place in base.glob("opt/**/*"):
            os.lchown(place, image.ids.first, image.ids.first)

    async def act(opened: Callable[[], Any]) -> None:
        async with opened() as sandbox:
            files = "/opt/tool-1/bin/judge /opt/other/bin/other /opt/other/lib /app/bin/x /app/work"
            await sh(sandbox, f"mkdir -p /app/bin; for f in {files}; do echo mine > $f; done")
            archive = await sandbox.snapshot()
        async with opened() as sandbox:
            await sandbox.restore(archive)
            assert await sh(sandbox, f"ls {files} 2> /dev/null || true") == "/app/work\n"

    try:
        within(chosen, act)
    finally:
        for name in links:
            (base / name).unlink()
        for folder in ("opt/tool-1", "opt/other"):
            shutil.rmtree(base / folder)


FORGING = """
import os, sys
frame = sys._getframe()
while frame.f_code.co_name != "run_pytest": frame = frame.f_back
found, names = frame.f_locals, frame.f_globals
found["channel"].began()
found["say"]("collected", 1)
found["say"]("test", "test_f.py::test_f", "passed", "", "")
names["finish"](found["say"], found["job"].pop("end"), 0)
"""


def test_pythonpath_does_not_lead_the_judge_to_code_of_an_agent(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "environments.toml"
    text = settings["environments"].read_text().replace("{", "{PYTHONPATH = '/app:/app/more', ")
    file.write_text(text)
    chosen = Settings(slots=1, workers=0, **{**settings, "environments": file})
    with running_service(chosen, judge=None) as service, service.client() as client:
        made = client.post("/sandboxes", json={"environment": "app"}).json()
        path = f"/sandboxes/{made['id']}"
        for name, text in (
            ("pytest.py", FORGING),
            ("more/helper.py", "def f(x):\n    return x + 1\n"),
            ("solution.py", "from helper import f\n"),
        ):
            done = client.post(
                f"{path}/exec",
                json={"command": ["sh", "-c", f"mkdir -p more; cat > {name}"], "stdin": text},
            )
            assert done.status_code == 200, done.text
        graded = client.post(f"{path}/grade", json={"grader": GRADERS[2]}).json()
        assert (graded["reward"], graded["verdict"]) == (0.0, "failed"), graded
        assert "1 of 1" in graded["message"], graded


TAKING_ALL = """
import ctypes, os, signal, sys
kernel, total = ctypes.CDLL(None), os.pipe()
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
for user in range(1, 20):
    if os.fork() == 0:
        os.setgid(user)
        os.setuid(user)
        while kernel.inotify_init() >= 0: os.write(total[1], b"i")
        while kernel.sigqueue(os.getpid(), 40, 0) == 0: pass
        os.write(total[1], b".")
        signal.pause()
taken = 0
while True:
    text = os.read(total[0], 1000).decode()
    taken += text.count("i")
    user -= text.count(".")
    if user == 0: break
print(taken, flush=True)
"""
USING = """
import ctypes
timer = ctypes.c_void_p()
print(ctypes.CDLL(None).inotify_init() >= 0, ctypes.CDLL(None).timer_create(0, None, ctypes.byref(timer)))
"""


def test_many_users_take_no_more_than_one(built: BuiltEnvironment) -> None:
    """A sandbox can become any user of its image; limits of its user namespace count for all of them."""

    async def act(opened: Callable[[], Any]) -> None:
        async with opened() as hostile, opened() as other:
            await hostile.write_file("take.py", TAKING_ALL.encode())
            await other.write_file("use.py", USING.encode())
            said = await sh(
                hostile, "python3 take.py > said & while ! [ -s said ]; do :; done; cat said"
            )
            assert said == "8\n"
            assert await sh(other, "python3 use.py") == "True 0\n"

    within(built, act)


def test_an_unreadable_folder_is_skipped(built: BuiltEnvironment) -> None:
    image = built.image
    assert image is not None
    chosen = replace(built, image=replace(image, user=33, group=33))

    async def act(opened: Callable[[], Any]) -> None:
        async with opened() as sandbox:
            await sh(
                sandbox, "mkdir /tmp/closed /tmp/open; echo x > /tmp/open/x; chmod 0 /tmp/closed"
            )
            archive = await sandbox.snapshot()
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened_archive:
            assert {"tmp/closed", "tmp/open/x"} <= set(opened_archive.getnames())

    within(chosen, act)


def test_each_slot_has_users_of_its_own(built: BuiltEnvironment) -> None:
    async def act(opened: Callable[[], Any]) -> None:
        async with opened() as one, opened() as other:
            await sh(one, "sleep 600 & echo $! > pid")
            assert await sh(one, "stat -c %u / /app /etc/passwd") == "0\n0\n0\n"
            assert users_of_sandboxes() == 2
            assert await sh(other, "id -u") == "0\n"

    within(built, act)


def users_of_sandboxes() -> int:
    """How many users of images have processes on this machine, or 2 where it cannot map them."""
    if image_ids() is None or tuple(map(int, os.uname().release.split(".")[:2])) < (5, 19):
        return 2
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            uid = int(status.read_text().split("\nUid:")[1].split()[0])
            found.add(uid)
    own = [uid for uid in found if uid > 1_900_065_535]
    return min(len(own), 2)
