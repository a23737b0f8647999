"""Bugs planted in real projects, judged with the right change, with none, and with a wrong one.

    python bench/instances.py make --work FOLDER      images and rows; as root, with mmdebstrap
    python bench/instances.py judge --work FOLDER     a service of its own judges them

`make` plants small faults, runs the tests in the image without the service, and writes rows as SWE-smith
has them. `judge` asks POST /reward for each row; some are also judged as the state of a sandbox and as a
rollout of a scripted policy.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from instance_doors import DOORS
from instance_images import Layout
from instance_making import Maker, Project, projects

from proctor_client.tasks.forms import MAKERS

_JAVA = "/usr/lib/jvm/java-17-openjdk-amd64"
_RUST = "~/.rustup/toolchains/stable-x86_64-unknown-linux-gnu"
TOOLS: Mapping[str, Mapping[str, Any]] = {
    "node": {
        "paths": ["/usr/bin/node", "/usr/lib/node_modules/npm"],
        "links": {
            "/usr/bin/npm": "../lib/node_modules/npm/bin/npm-cli.js",
            "/usr/bin/npx": "../lib/node_modules/npm/bin/npx-cli.js",
        },
    },
    "go": {
        "paths": ["/usr/lib/go-1.19", "/usr/share/go-1.19"],
        "links": {"/usr/bin/go": "../lib/go-1.19/bin/go"},
    },
    "rust": {
        "paths": [f"{_RUST}/{each}" for each in ("bin", "lib")],
        "links": {
            f"/usr/local/bin/{each}": f"{_RUST}/bin/{each}"
            for each in ("cargo", "rustc", "rustdoc")
        },
    },
    "java": {
        "paths": [
            _JAVA,
            "/etc/java-17-openjdk",
            "/usr/share/maven",
            "/etc/maven",
            "/usr/share/java",
            "~/.m2",
        ],
        "links": {
            **{
                f"/usr/bin/{each}": f"/usr/lib/jvm/java-17-openjdk-amd64/bin/{each}"
                for each in ("java", "javac")
            },
            "/usr/bin/mvn": "/usr/share/maven/bin/mvn",
        },
    },
}
"""Folders of this machine that images get, and links to their programs."""
LIMITS = {
    "memory_mb": 3072,
    "disk_mb": 1024,
    "cpu_seconds": 240,
    "wall_seconds": 300,
    "processes": 512,
    "output_kb": 4096,
}


def main() -> None:
    """One of the steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("step", choices=["make", "judge"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], help="names of projects")
    parser.add_argument("--door", action="append", default=[], choices=[*DOORS])
    parser.add_argument("--at-once", type=int, default=2)
    args = parser.parse_args()
    table = {each.name: each for each in projects()}
    chosen = [table[name] for name in args.only or table]
    if args.step == "make":
        make(args.work, chosen, args.at_once)
    else:
        judge(args.work, chosen, args.at_once, args.door or [*DOORS])


def make(work: Path, chosen: list[Project], at_once: int) -> None:
    """Write a file of rows for each project; one that fails is said and left out."""
    maker = Maker(work, TOOLS)
    for name in ("rows", "logs"):
        (work / name).mkdir(parents=True, exist_ok=True)

    def one(project: Project) -> None:
        begin = time.monotonic()
        try:
            rows = list(maker.instances(project))
        except Exception as error:  # said, and the others go on
            print(f"{project.name}: {str(error)[-600:]}", flush=True)
            (work / "logs" / f"{project.name}.error.log").write_text(traceback.format_exc())
            return
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (work / "rows" / f"{project.name}.jsonl").write_text(lines)
        for row in rows:
            lists = [len(row["row"][name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")]
            print(f"{row['instance']}: {lists} {row['what']}", flush=True)
        print(f"{project.name}: {time.monotonic() - begin:.0f} s", flush=True)

    for project in chosen:
        maker.layers_below(project)
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, chosen))


def rows_of(work: Path, chosen: list[Project]) -> list[dict[str, Any]]:
    """The rows of the projects that have them."""
    found = []
    for project in chosen:
        file = work / "rows" / f"{project.name}.jsonl"
        if file.exists():
            found += [json.loads(line) for line in file.read_text().splitlines()]
    return found


def judge(work: Path, chosen: list[Project], at_once: int, doors: Collection[str]) -> None:
    """Judge the rows of the projects by each door; say what is not as it must be."""
    rows = rows_of(work, chosen)
    maker = Maker(work, TOOLS)
    layout = Layout(work / "layout")
    layout.begin()
    images = {}
    for project in chosen:
        if any(row["project"] == project.name for row in rows):
            layers = [*maker.layers_below(project), maker.layer_of(project)]
            images[project.name] = layout.image(project.name, layers)
    wrong: list[str] = []
    lock = threading.Lock()
    with service(work) as client, (work / "results.jsonl").open("a") as file:

        def one(row: dict[str, Any]) -> None:
            for each in judged(client, row, images[row["project"]], doors):
                is_right = each["reward"] == each["expected"]
                words = "right" if is_right else "WRONG"
                with lock:
                    file.write(json.dumps(each) + "\n")
                    file.flush()
                    if not is_right:
                        wrong.append(f"{each['instance']} {each['door']} {each['change']}")
                    print(words, each["instance"], each["door"], each["change"], each["reward"],
                          each["seconds"], each["said"][:300], flush=True)  # fmt: skip

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(one, rows))
    print(f"{len(rows)} instances, {len(wrong)} wrong: {', '.join(wrong)}")
    sys.exit(bool(wrong))


def judged(
    client: httpx.Client, row: Mapping[str, Any], image: str, doors: Collection[str]
) -> Iterator[dict[str, Any]]:
    """The verdicts on a row's three changes, by each door."""
    grader = grader_of(row)
    fields = {"grader": grader, "environment": {"image": image}, "limits": LIMITS}
    for door, ask in DOORS.items():
        if door not in doors or (door != "reward" and not row["doors"]):
            continue
        for change in ("gold", "empty", "wrong"):
            begin = time.monotonic()
            try:
                result = ask(client, fields, row[change])
            except Exception as error:
                result = {"reward": None, "message": repr(error)}
            yield {
                "instance": row["instance"],
                "door": door,
                "change": change,
                "expected": float(change == "gold"),
                "reward": result.get("reward"),
                "said": json.dumps(
                    {
                        k: result.get(k)
                        for k in ("verdict", "message", "error", "repository", "integrity_signals")
                    }
                ),
                "seconds": round(time.monotonic() - begin, 1),
            }


def grader_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The grader of a row: by the form, or by hand where the row's parser is in a package."""
    asked = row["row"]
    if row["report"] in ("mocha", "jest", "vitest", "node", "junit"):
        return {
            "kind": "repository",
            "directory": "/testbed",
            "prepare": {"patch": asked["patch"]},
            "reference": row["gold"],
            "test": asked["test_cmd"],
            "report": row["report"],
            "fail_to_pass": asked["FAIL_TO_PASS"],
            "pass_to_pass": asked["PASS_TO_PASS"],
            **row["grader"],
        }
    task = MAKERS["swe_smith"](asked, row["instance"])
    return {**(task.grader or {}), "report": row["report"], **row["grader"]}


@contextmanager
def service(work: Path) -> Iterator[httpx.Client]:
    """A service of its own with these environments."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {
        "PROCTOR_IMAGES": json.dumps([f"oci:{work}/*"]),
        "PROCTOR_ENVIRONMENTS_FOLDER": str(work / "images"),
        "PROCTOR_JOURNAL": "off",
        "PROCTOR_PORT": str(port),
        "XDG_STATE_HOME": str(work / "state"),
    }
    variables = {**{k: v for k, v in os.environ.items() if not k.startswith("PROCTOR_")}, **own}
    command = [sys.executable, "-m", "proctor_service"]
    with (work / "serve.log").open("w") as log:
        running = subprocess.Popen([*command, "serve"], env=variables, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=1800) as client:
                for _ in range(600):
                    try:
                        if client.get("/readyz").status_code == 200:
                            break
                    except httpx.TransportError:
                        pass
                    time.sleep(0.1)
                yield client
        finally:
            running.terminate()
            running.wait(60)


if __name__ == "__main__":
    main()
