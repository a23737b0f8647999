"""Instances of real projects: images with a project each, planted bugs, and rows with lists of tests.

The lists come from what the runner prints in the image itself, without the service.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instance_bugs import faults_of
from instance_images import CONDA, TESTBED, Ended, base_folder, inside, mounted, tool_folder
from instance_logs import SEPARATOR, passed_tests

PROJECTS = Path(__file__).parent / "instance_projects.toml"
ENVIRONMENT = f"/{CONDA}/envs/testbed"
EMPTY = (
    "diff --git a/notes.txt b/notes.txt\nnew file mode 100644\n--- /dev/null\n+++ b/notes.txt\n"
    "@@ -0,0 +1 @@\n+Looked at it.\n"
)
MOST_TRIES = 14
_GIT = "git -c user.name=bench -c user.email=bench@example.org -c core.autocrlf=false"
_BEGIN = f"git init -q -b main && git add -A -f && {_GIT} commit -q -m base"


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug: by a seed among the small faults of a file, or as a text and its replacement."""

    file: str
    seed: int = 0
    within: str = ""
    old: str = ""
    new: str = ""
    wrong: Sequence[str] = ()
    """A text and its replacement: another change."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project of the table."""

    name: str
    source: str
    test: str
    bugs: Sequence[Bug]
    report: str = "pytest"
    python: str = "3"
    """`3`: the image's; `3.6.15`: one of pyenv; empty: none."""
    tools: Sequence[str] = ()
    install: str = ""
    add: Mapping[str, str] = field(default_factory=dict)
    """Files by path, beside the project's own."""
    written: str = ""
    """Files that the runner writes; the plain run prints them, the service reads its own report."""
    plain: str = ""
    """The command of the plain run, where another one prints more."""
    env: Mapping[str, str] = field(default_factory=dict)
    grader: Mapping[str, Any] = field(default_factory=dict)
    row: Mapping[str, Any] = field(default_factory=dict)
    doors: bool = False
    """Also judged as a sandbox's state and as a rollout."""


def projects() -> list[Project]:
    """The projects of the table."""
    tables = tomllib.loads(PROJECTS.read_text())
    found = []
    for name, fields in tables.items():
        bugs = [Bug(**each) for each in fields.pop("bugs")]
        found.append(Project(name, bugs=bugs, **fields))
    return found


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes images and rows in a folder."""

    work: Path
    tools: Mapping[str, Mapping[str, Any]]

    def layers_below(self, project: Project) -> list[Path]:
        """The base and the tools of a project."""
        names = list(project.tools)
        if project.python.count(".") == 2:
            names.append(f"python{project.python}")
        folders = [base_folder(self.work)]
        for name in names:
            tool = self.tools.get(name) or {"paths": [f"~/.pyenv/versions/{name[6:]}"], "links": {}}
            folders.append(tool_folder(self.work, name, tool["paths"], dict(tool["links"])))
        return folders

    def layer_of(self, project: Project) -> Path:
        """The layer of a project: its repository of one commit, and its environment. Made once."""
        folder = self.work / "projects" / project.name
        done = folder.with_suffix(".done")
        if done.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        tree = folder / TESTBED.lstrip("/")
        unpack(self.work / "sdists" / project.source, tree)
        for path, text in project.add.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        with mounted(self.work, self.layers_below(project), folder) as root:
            lines = ["set -e", f"cd {TESTBED}", _BEGIN]
            if project.python:
                python = "/usr/bin/python3"
                if project.python != "3":
                    python = f"/root/.pyenv/versions/{project.python}/bin/python"
                lines += [f"{python} -m venv {ENVIRONMENT}", f". /{CONDA}/bin/activate testbed"]
            lines += [project.install, "rm -rf /root/.cache/pip"]
            resolv = root / "etc" / "resolv.conf"
            shutil.copyfile("/etc/resolv.conf", resolv)
            certificates = "etc/ssl/certs/ca-certificates.crt"
            shutil.copyfile(f"/{certificates}", root / certificates)
            variables = {"PIP_CERT": f"/{certificates}"}
            ended = inside(root, "\n".join(lines), variables, network=True, seconds=900)
        (self.work / "logs" / f"{project.name}.install.log").write_text(ended.output)
        if ended.status:
            raise RuntimeError(f"{project.name}: install: {ended.output[-1500:]}")
        done.touch()
        return folder

    def run_tests(self, project: Project, changes: Mapping[str, str], label: str) -> set[str]:
        """The passed tests of the project with changed files, in a fresh copy."""
        upper = self.work / "runs" / f"{project.name}.{label}"
        shutil.rmtree(upper, ignore_errors=True)
        lower = [*self.layers_below(project), self.layer_of(project)]
        with mounted(self.work, lower, upper) as root:
            (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
            for path, text in changes.items():
                place = root / TESTBED.lstrip("/") / path
                place.write_bytes(text.encode())
            ended = self._plain(project, root)
        shutil.rmtree(upper, ignore_errors=True)
        log = self.work / "logs" / f"{project.name}.{label}.log"
        log.write_text(ended.output)
        return passed_tests(project.report, ended.output)

    def _plain(self, project: Project, root: Path) -> Ended:
        lines = [f". /{CONDA}/bin/activate testbed"] if project.python else []
        lines += [f"cd {TESTBED}"]
        build = project.grader.get("build")
        lines += [str(build)] if build else []
        lines.append(project.plain or project.test)
        if project.written:
            lines.append(
                f"for each in {project.written}; do echo; echo {SEPARATOR}; cat $each; done"
            )
        return inside(root, "\n".join(lines), project.env)

    def instances(self, project: Project) -> Iterator[dict[str, Any]]:
        """A row for each bug of a project. Raises RuntimeError where no bug shows."""
        tree = self.layer_of(project) / TESTBED.lstrip("/")
        clean = self.run_tests(project, {}, "clean")
        if not clean:
            raise RuntimeError(f"{project.name}: no test passes")
        for number, bug in enumerate(project.bugs):
            text = (tree / bug.file).read_bytes().decode()
            for what, buggy, changed in candidates(text, bug):
                label = f"{number}"
                with_bug = self.run_tests(project, {bug.file: buggy}, f"{label}.bug")
                lost = clean - with_bug
                if not lost or len(lost) > max(1, 0.6 * len(clean)) or not clean & with_bug:
                    continue
                with_wrong = self.run_tests(project, {bug.file: changed}, f"{label}.wrong")
                if lost <= with_wrong:
                    continue
                yield self._row(
                    project, number, bug, what, (text, buggy, changed), lost, clean & with_bug
                )
                break
            else:
                raise RuntimeError(f"{project.name}: {bug.file}: no bug shows")

    def _row(
        self,
        project: Project,
        number: int,
        bug: Bug,
        what: str,
        texts: tuple[str, str, str],
        lost: set[str],
        kept: set[str],
    ) -> dict[str, Any]:
        text, buggy, changed = texts
        return {
            "instance": f"{project.name}-{number}",
            "project": project.name,
            "report": project.report,
            "what": f"{bug.file}: {what}",
            "gold": diff_of(bug.file, buggy, text),
            "wrong": diff_of(bug.file, buggy, changed),
            "empty": EMPTY,
            "doors": project.doors and number == 0,
            "grader": dict(project.grader),
            "row": {
                "instance_id": f"bench__{project.name}.00000000.planted__{number}",
                "repo": f"bench/{project.name}",
                "patch": diff_of(bug.file, text, buggy),
                "FAIL_TO_PASS": sorted(lost),
                "PASS_TO_PASS": sorted(kept),
                "image_name": f"bench/{project.name}",
                "problem_statement": f"Something in {bug.file} is wrong.",
                "test_cmd": project.test,
                **project.row,
            },
        }


def diff_of(path: str, old: str, new: str) -> str:
    """A diff of two texts, by git."""
    with tempfile.TemporaryDirectory() as name:
        for side, text in (("a", old), ("b", new)):
            place = Path(name) / side / path
            place.parent.mkdir(parents=True)
            place.write_bytes(text.encode())
        command = ["git", "diff", "--no-index", "--no-prefix", f"a/{path}", f"b/{path}"]
        ended = subprocess.run(command, cwd=name, capture_output=True, check=False)
    return ended.stdout.decode()


def candidates(text: str, bug: Bug) -> Iterator[tuple[str, str, str]]:
    """Bugs in words, each with the buggy text, and a wrong change of it."""
    if bug.old:
        buggy = replaced(text, bug.old, bug.new)
        first, second = bug.wrong
        yield f"{bug.old!r} is {bug.new!r}", buggy, replaced(buggy, first, second)
        return
    for fault in faults_of(text, bug.seed, bug.within)[:MOST_TRIES]:
        others = faults_of(fault.text, bug.seed + 1)
        away = [each for each in others if abs(each.line - fault.line) > 3 and each.text != text]
        if away:
            yield f"line {fault.line}: {fault.what}", fault.text, away[0].text


def replaced(text: str, old: str, new: str) -> str:
    """The text with its one `old` replaced. Raises RuntimeError for none or several."""
    if text.count(old) != 1:
        raise RuntimeError(f"{old!r} occurs {text.count(old)} times")
    return text.replace(old, new)


def unpack(source: Path, tree: Path) -> None:
    """Unpack an archive or copy a folder; the one folder in an archive is left out."""
    tree.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, tree, symlinks=True)
        return
    place = tree.parent / ".unpacked"
    with tarfile.open(source) as archive:
        archive.extractall(place, filter="data")
    [folder] = place.iterdir()
    folder.rename(tree)
    place.rmdir()
