"""Cost of the grader `repository` beside plain `git apply` and the same tests in a copied folder.

    python bench/repository_cost.py [--work FOLDER] [--rounds N] [--only evaluation,batch,first,agent]

Makes images of two projects of PyPI's sdists, and one of 5,000 files, in a base of Debian with Python and
pytest (mmdebstrap, skopeo, git; as root, with the network). FOLDER keeps them. The plain way is the floor:
`cp -a` of the repository, `git apply`, the task's test, and the same command with the same activation, in
a chroot of the same files. Prints tables for bench/README.md. Run on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import http.client
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import machine

from proctor_service.cli.temporary import Running, temporary_service

PACKAGES = "python3,python3-venv,git,ca-certificates"
PYTEST = ("pytest==8.3.4", "markupsafe==3.0.2")
PROJECTS = {
    "click": ("click==8.1.7", "src/click/utils.py"),
    "jinja2": ("jinja2==3.1.4", "src/jinja2/utils.py"),
}
LARGE = "click, 5,000 files"
VENV = "/opt/venv"
TEST = "from {module} import benchmarked\n\n\ndef test_benchmarked():\n    assert benchmarked(2) == 4\n"
TEST_PATH = "tests/test_benchmarked.py"
ADDED = ["", "", "def benchmarked(number):", "    return number * number"]
COMMAND = "python -m pytest -q -p no:cacheprovider"
PLAIN = (
    'set -e; cp -a "/plain/$1" "/tmp/$2"; cd "/tmp/$2"; . {venv}/bin/activate; git apply "/plain/$1.patch"; '
    'cp "/plain/$1.test" {test}; export PYTHONPATH=src; {command} > /dev/null'
)
CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"
IN_MOUNTS = "PROCTOR_BENCH_MOUNTS"
FILES = 16_000
MAKE_FILES = f"""
import os
for number in range({FILES}):
    folder = f"made/{{number % 160}}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{{folder}}/file{{number}}.txt", "w") as file:
        file.write(f"line {{number}}\\n" * 100)
"""
TIMED = """
n() { date +%s%N; }
a=$(n); tar -cf /tmp/out.tar made; b=$(n); mkdir /tmp/copy; tar -C /tmp/copy -xf /tmp/out.tar; c=$(n)
rm -rf /tmp/out.tar /tmp/copy
echo $(( (b-a)/1000000 )) $(( (c-a)/1000000 ))
"""
LIMITS = {"cpu_seconds": 300, "wall_seconds": 600, "memory_mb": 2048, "disk_mb": 1024}


def run(*argv: str | Path, **more: Any) -> str:
    """Run a program, and return its output. Ends this one where it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, argv))[:300]}: {(done.stderr or done.stdout)[-1000:]}")
    return str(done.stdout)


@dataclass(frozen=True, slots=True)
class Project:
    """A repository of an image, and a task of it. `image`: its reference."""

    name: str
    image: str
    patch: str
    test: str
    pass_to_pass: Sequence[str]

    def grader(self, **fields: Any) -> dict[str, Any]:
        """Return the grader of its task."""
        return {
            "kind": "repository",
            "directory": "/testbed",
            "activate": VENV,
            "env": {"PYTHONPATH": "src"},
            "files": {TEST_PATH: self.test},
            "test": COMMAND,
            "fail_to_pass": [f"{TEST_PATH}::test_benchmarked"],
            "pass_to_pass": list(self.pass_to_pass),
            **fields,
        }


class Images:
    """The base, the projects and their images in a folder."""

    def __init__(self, work: Path) -> None:
        self.root = work / "root"
        self._work = work
        self._layout = work / "layout"

    def make(self) -> list[Project]:
        """Return the projects with their images, made where they are missing."""
        if not (self._work / "root.done").exists():
            self._make_root()
        folders = {name: self.root / "plain" / name for name in (*PROJECTS, LARGE)}
        return [self._project(name, folder) for name, folder in folders.items()]

    def _make_root(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", self.root)
        run(CHROOT, self.root, "python3", "-m", "venv", VENV)
        site = next((self.root / VENV[1:]).glob("lib/python3*/site-packages"))
        wheels = ("--no-compile", "--only-binary=:all:", "--python-version", site.parent.name[6:])
        run(sys.executable, "-m", "pip", "install", "-q", *wheels, "--target", site, *PYTEST)
        run(CHROOT, self.root, "python3", "-m", "compileall", "-q", "/usr/lib/python3", VENV)
        (self.root / "plain").mkdir()
        for name, (requirement, changed) in PROJECTS.items():
            self._unpack(name, requirement)
            self._commit(name, changed)
        shutil.copytree(self.root / "plain/click", self.root / "plain" / LARGE, symlinks=True)
        self._commit(LARGE, PROJECTS["click"][1], 5000)
        (self._work / "root.done").touch()

    def _unpack(self, name: str, requirement: str) -> None:
        options = ("--no-deps", "--no-binary", ":all:", "-q", "-d", self._work / "sdists")
        run(sys.executable, "-m", "pip", "download", *options, requirement)
        [archive] = (self._work / "sdists").glob(f"{name}-*.tar.gz")
        with tempfile.TemporaryDirectory(dir=self._work) as folder, tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
            [unpacked] = Path(folder).iterdir()
            shutil.move(unpacked, self.root / "plain" / name)

    def _commit(self, name: str, changed: str, files: int = 0) -> None:
        """Make a repository of a project, in which so many files are tracked, and its patch."""
        tree = self.root / "plain" / name
        shutil.rmtree(tree / ".git", ignore_errors=True)
        present = sum(each.is_file() for each in tree.rglob("*"))
        for number in range(present, files):
            path = tree / f"data/{number % 50}/module{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"VALUE = {number}\n" * 150)
        git = ("git", "-C", tree, "-c", "user.name=b", "-c", "user.email=b@example.org")
        run("git", "init", "-q", "-b", "main", tree)
        run(*git, "add", "-A", "-f")
        run(*git, "commit", "-q", "-m", "base")
        with (tree / changed).open("a") as file:
            file.write("\n".join([*ADDED, ""]))
        Path(f"{tree}.patch").write_text(run(*git, "diff"))
        run(*git, "checkout", "-q", ".")
        module = changed.removeprefix("src/").removesuffix(".py").replace("/", ".")
        Path(f"{tree}.test").write_text(TEST.format(module=module))
        script = f"cd '/plain/{name}'; . {VENV}/bin/activate; PYTHONPATH=src {COMMAND} -rA --tb=no || true"
        lines = run(CHROOT, self.root, "bash", "-c", script).splitlines()
        passed = [line.removeprefix("PASSED ") for line in lines if line.startswith("PASSED ")]
        Path(f"{tree}.passed").write_text(json.dumps(passed))
        for each in (*tree.rglob("__pycache__"), *tree.rglob(".pytest_cache")):
            shutil.rmtree(each, ignore_errors=True)

    def _project(self, name: str, tree: Path) -> Project:
        tag = "".join(each for each in name if each.isalnum())
        if not (self._layout / f"{tag}.done").exists():
            own = {each.name for each in (self.root / "plain").iterdir()}
            base = ["-C", str(self.root), *(f"--exclude=./plain/{each}" for each in own), "."]
            moved = f"--transform=s|^\\./plain/{name}|./testbed|"
            self._write(
                tag,
                [self._layer(base), self._layer([moved, "-C", str(self.root), f"./plain/{name}"])],
            )
        return Project(
            name,
            f"oci:{self._layout}/{tag}",
            Path(f"{tree}.patch").read_text(),
            Path(f"{tree}.test").read_text(),
            json.loads(Path(f"{tree}.passed").read_text()),
        )

    def _layer(self, words: Sequence[str]) -> bytes:
        outside = [f"--exclude=./{each}/*" for each in ("proc", "sys", "dev", "tmp")]
        made = subprocess.run(
            ["tar", "--numeric-owner", "--owner=0", *outside, "-cf", "-", *words],
            capture_output=True,
            check=True,
        )
        return made.stdout

    def _write(self, tag: str, layers: Sequence[bytes]) -> None:
        folder = self._layout / tag
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

        def blob(kind: str, content: bytes) -> dict[str, Any]:
            digest = hashlib.sha256(content).hexdigest()
            (folder / "blobs/sha256" / digest).write_bytes(content)
            media = f"application/vnd.oci.image.{kind}"
            return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

        config = {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "WorkingDir": "/testbed"},
            "rootfs": {
                "type": "layers",
                "diff_ids": ["sha256:" + hashlib.sha256(each).hexdigest() for each in layers],
            },
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config.v1+json", json.dumps(config).encode()),
            "layers": [blob("layer.v1.tar+gzip", gzip.compress(each, 1)) for each in layers],
        }
        about = blob("manifest.v1+json", json.dumps(manifest).encode())
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [about]}))
        (self._layout / f"{tag}.done").touch()


class Service:
    """Requests to a service."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send a request on a connection of its own."""
        connection = http.client.HTTPConnection(urllib.parse.urlparse(self._running.url).netloc)
        headers = {
            "Authorization": f"Bearer {self._running.token}",
            "Content-Type": "application/json",
        }
        connection.request(method, path, json.dumps(body), headers)
        answer = connection.getresponse().read()
        connection.close()
        found: dict[str, Any] = json.loads(answer or b"{}")
        return found

    def judge(self, project: Project, count: int = 1, **fields: Any) -> float:
        """Judge the task's patch so many times in a batch; return the seconds."""
        submissions = [{"completion": project.patch} for _ in range(count)]
        body = {
            "submissions": submissions,
            "grader": project.grader(**fields),
            "environment": {"image": project.image},
            "limits": LIMITS,
            "cache": False,
            "deadline_seconds": 3000,
        }
        begun = time.perf_counter()
        answer = self.call("POST", "/reward", body)
        took = time.perf_counter() - begun
        results = answer.get("results", [answer])
        if any(each.get("reward") != 1.0 for each in results):
            sys.exit(f"{project.name} is judged wrong: {json.dumps(results)[:1500]}")
        return took


def plainly(root: Path, project: Project) -> float:
    """Return the seconds of the plain way."""
    place = f"{threading.get_ident()}-{time.monotonic_ns()}"
    script = PLAIN.format(venv=VENV, test=TEST_PATH, command=COMMAND)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    begun = time.perf_counter()
    run(CHROOT, root, "bash", "-c", script, "plain", project.name, place, env=environment)
    took = time.perf_counter() - begun
    shutil.rmtree(root / "tmp" / place)
    return took


def memory_mb(running: Running) -> tuple[float, float]:
    """Return memory and peak memory of the service and its judge processes; the peak begins anew."""
    now = peak = 0.0
    for pid in _processes(running.pid):
        with contextlib.suppress(OSError):
            fields = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            )
            now += int(fields["VmRSS"].split()[0]) / 1024
            peak += int(fields["VmHWM"].split()[0]) / 1024
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    return now, peak


def _processes(pid: int) -> Iterator[int]:
    """Yield the processes of the service: its own program, and no sandbox."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"proctor_service" not in words:
            return
        yield pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _processes(int(child))
    except OSError:
        return


def median(found: Sequence[float]) -> str:
    """Return the median and the extremes."""
    return f"{statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f})"


def evaluations(service: Service, root: Path, projects: Sequence[Project], rounds: int) -> None:
    """Measure single evaluations in turn with the plain way."""
    print("| one evaluation | plain s | Proctor s | ratio |\n|---|---|---|---|")
    for project in projects:
        service.judge(project)
        plainly(root, project)
        plain, ours = [], []
        for _ in range(rounds):
            plain.append(plainly(root, project))
            ours.append(service.judge(project))
        ratio = statistics.median(ours) / statistics.median(plain)
        print(f"| {project.name} | {median(plain)} | {median(ours)} | {ratio:.2f} |", flush=True)


def batches(service: Service, root: Path, projects: Sequence[Project], count: int) -> None:
    """Measure a batch beside two plain evaluations at a time, in turn."""
    print(
        f"| {count} in a batch | plain, two at a time, s | Proctor s | ratio |\n|---|---|---|---|"
    )
    for project in projects:
        service.judge(project)
        plain, ours = [], []
        for _ in range(3):
            begun = time.perf_counter()
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(plainly, [root] * count, [project] * count))
            plain.append(time.perf_counter() - begun)
            ours.append(service.judge(project, count))
        ratio = statistics.median(ours) / statistics.median(plain)
        print(f"| {project.name} | {median(plain)} | {median(ours)} | {ratio:.2f} |", flush=True)


def first(service: Service, projects: Sequence[Project]) -> None:
    """Measure new tasks: the first evaluation of each, 16 at once, and the next."""
    print("| a new task | first s | next s | 16 at once of another new task s |\n|---|---|---|---|")
    for project in projects:
        service.judge(project)  # fetches the image
        firsts, nexts, many = [], [], []
        for _ in range(3):
            prepare = {"commands": [f"echo {time.monotonic_ns()} > made"]}
            firsts.append(service.judge(project, prepare=prepare))
            nexts.append(service.judge(project, prepare=prepare))
            prepare = {"commands": [f"echo {time.monotonic_ns()} > made"]}
            many.append(service.judge(project, 16, prepare=prepare))
        print(
            f"| {project.name} | {median(firsts)} | {median(nexts)} | {median(many)} |", flush=True
        )


def agent(service: Service, running: Running, project: Project) -> None:
    """Measure the grade of a sandbox with many new files beside `tar` of them there."""
    quick = {"test": f"{COMMAND} {TEST_PATH}", "pass_to_pass": []}
    grader = project.grader(**quick)
    takes: dict[str, list[float]] = {"tar": [], "copy": [], "few": [], "many": []}
    peaks: dict[str, list[float]] = {"few": [], "many": []}
    for turn in range(4):
        for kind in ("few", "many"):
            body = {"environment": {"image": project.image}, "limits": LIMITS, "repository": grader}
            made = service.call("POST", "/sandboxes", body)
            if "id" not in made:
                sys.exit(f"no sandbox: {made}")
            place = f"/sandboxes/{made['id']}"
            patch = f"git apply - <<'END'\n{project.patch}END\n"
            words = patch + (f"python3 - <<'END'\n{MAKE_FILES}END\n" if kind == "many" else "")
            _executed(service, place, words)
            if kind == "many":
                for name, seconds in zip(
                    ("tar", "copy"), _executed(service, place, TIMED).split(), strict=True
                ):
                    takes[name].append(int(seconds) / 1000)
            before = memory_mb(running)[0]
            begun = time.perf_counter()
            graded = service.call("POST", f"{place}/grade", {"grader": grader, "limits": LIMITS})
            takes[kind].append(time.perf_counter() - begun)
            after, peak = memory_mb(running)
            peaks[kind].append(peak - before)
            result = graded.get("result", graded)
            if result.get("reward") != 1.0:
                sys.exit(f"the sandbox is judged wrong: {json.dumps(result)[:1500]}")
            service.call("DELETE", place)
        if turn == 0:
            for each in (*takes.values(), *peaks.values()):
                each.clear()  # the first fetches the image and warms caches
    tar, copy, few, many = map(statistics.median, takes.values())
    print(f"an agent's sandbox with {FILES} new files, 18 MB: s, medians of 3, all in sandboxes")
    print("| | s | of `tar -c` | of `tar -c` and `tar -x` |\n|---|---|---|---|")
    for name, took in (
        ("`tar -c` of the files", tar),
        ("`tar -c` and `tar -x`", copy),
        ("graded without the files", few),
        ("graded with them", many),
        ("the files alone: the difference", many - few),
    ):
        print(f"| {name} | {took:.2f} | {took / tar:.1f} | {took / copy:.1f} |")
    print(
        f"peak memory of the service's processes over that before: {max(peaks['few']):.1f} MB without the "
        f"files, {max(peaks['many']):.1f} MB with them; {before:.1f} MB before, {after:.1f} MB after the last"
    )


def _executed(service: Service, place: str, script: str) -> str:
    answer = service.call("POST", f"{place}/exec", {"command": ["bash", "-c", script]})
    if answer.get("exit_code") != 0:
        sys.exit(f"a command failed: {json.dumps(answer)[:1000]}")
    return str(answer["stdout"])


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", default="evaluation,batch,first,agent")
    parser.add_argument("--project", default="")
    arguments = parser.parse_args()
    if IN_MOUNTS not in os.environ:  # its mounts go with it
        os.environ[IN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    print(machine())
    with contextlib.ExitStack() as stack:
        work = arguments.work
        if work is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        work.mkdir(parents=True, exist_ok=True)
        images = Images(work)
        projects = [each for each in images.make() if arguments.project in each.name]
        for kind in ("dev", "proc"):
            run("mount", "--rbind", f"/{kind}", images.root / kind)
        store = stack.enter_context(tempfile.TemporaryDirectory(dir=work))
        settings = {
            "PROCTOR_IMAGES": json.dumps(["oci:*"]),
            "PROCTOR_ENVIRONMENTS_FOLDER": f"{store}/store",
        }
        running = stack.enter_context(temporary_service(settings=settings))
        service = Service(running)
        if "evaluation" in arguments.only:
            evaluations(service, images.root, projects, arguments.rounds)
        if "first" in arguments.only:
            first(service, projects)
        if "agent" in arguments.only:
            agent(service, running, projects[0])
        if "batch" in arguments.only:
            batches(service, images.root, projects, 32)


if __name__ == "__main__":
    main()
