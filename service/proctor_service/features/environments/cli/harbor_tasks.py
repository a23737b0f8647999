"""`proctor eval --format harbor`: reference solutions of Harbor tasks, or empty ones, and the reward."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from proctor_client import Client, Sandbox, SandboxTimeoutError, wire
from proctor_client.harbor import HarborTask, HarborTaskError, files_of, read_tasks
from proctor_client.tasks.task import Task
from proctor_service.cli.console import aside
from proctor_service.cli.failures import Trouble, settings_from
from proctor_service.cli.judging import Attempt
from proctor_service.errors import StartError
from proctor_service.features.environments.cli.harbor_images import build_images

AGENT_SECONDS = 600.0
"""Time of a reference solution without a time in its task."""
_MOST_AT_ONCE = 4
_SOLVE = (
    "mkdir -p /logs/agent /logs/verifier /logs/artifacts; chmod -R 755 /solution; "
    "exec /solution/solve.sh"
)


@dataclass(frozen=True)
class HarborTasks:
    """Tasks of a folder, as judged by `proctor eval`; at most `limit`.

    `empty`: run the verifier alone. Raises Trouble for a task without a reference solution.
    """

    folder: Path
    limit: int | None
    empty: bool

    @cached_property
    def tasks(self) -> Sequence[HarborTask]:
        """The tasks."""
        return load(self.folder, self.limit, empty=self.empty)

    @property
    def ids(self) -> list[str]:
        """Ids of the tasks, in their order."""
        return [each.id for each in self.tasks]

    def prepare(self) -> Mapping[str, str]:
        """Build the environments for a service of the command; return its variables."""
        return own_environments(self.tasks)

    def results(self, client: Client, job: str) -> Iterator[tuple[Attempt, wire.Result]]:
        """Yield each task with its result in order of completion. Raises Trouble and ProctorError."""
        for task, result in evaluated(client, self.tasks, job=job, empty=self.empty):
            yield Attempt(task, ""), result


def load(folder: Path, limit: int | None, *, empty: bool) -> list[HarborTask]:
    """Return the tasks of a folder. Raises Trouble for a task without a reference solution."""
    try:
        tasks = read_tasks(folder)[:limit]
    except HarborTaskError as error:
        raise Trouble(str(error)) from None
    for task in tasks:
        if not empty and not (task.solution / "solve.sh").is_file():
            raise Trouble(f"{task.folder}: no solution/solve.sh; give --empty to judge nothing")
    return tasks


def own_environments(tasks: Sequence[HarborTask]) -> Mapping[str, str]:
    """Build the environments of tasks for a service of this command; return its variables.

    Environments of PROCTOR_ENVIRONMENTS are used directly. Raises Trouble and StartError.
    """
    settings = settings_from()
    if settings.environments is not None:
        return {}
    from proctor_service.features.environments.store import EnvironmentStore, environments_folder
    from proctor_service.sandbox.environments import default_python
    from proctor_service.settings.environments import read_environments

    folder = environments_folder(settings)
    images = folder.parent / "harbor"
    text = build_images(tasks, images, print_step)
    # Another command may run at the same time, with other tasks.
    file = images / f"environments-{hashlib.sha256(text.encode()).hexdigest()[:16]}.toml"
    file.write_text(text, encoding="utf-8")
    store, python = EnvironmentStore(folder), default_python(settings)
    for name, definition in read_environments(file).items():
        try:
            store.build(name, definition, python, print_step)
        except StartError as error:
            raise Trouble(f"environment {name}: {error}") from None
    return {"PROCTOR_ENVIRONMENTS": str(file)}


def evaluated(
    client: Client, tasks: Sequence[HarborTask], *, job: str, empty: bool
) -> Iterator[tuple[Task, wire.Result]]:
    """Yield each task with its result in order of completion.

    Raises Trouble for an environment missing from the service, and ProctorError.
    """
    environment_names = {each.name for each in client.environments().environments}
    for task in tasks:
        if task.environment not in environment_names:
            raise Trouble(
                f"{task.folder}: the service has no environment {task.environment}: build it with "
                "proctor env harbor, then proctor env build"
            )
    with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        running = {
            pool.submit(_evaluate, client, task, job=job, empty=empty): task for task in tasks
        }
        try:
            for done in as_completed(running):
                task = running[done]
                yield Task(id=task.id, place=str(task.folder)), done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _evaluate(client: Client, task: HarborTask, *, job: str, empty: bool) -> wire.Result:
    failure = ""
    with client.sandbox(environment=task.environment, job=job) as sandbox:
        if not empty:
            for path, data in files_of(task.solution).items():
                sandbox.write_file(f"/solution/{path}", data)
            failure = _solve(sandbox, task)
        result = sandbox.grade(task.grader)
    if failure and result.error is None and result.verdict != "passed":
        return result.model_copy(update={"message": f"{failure} {result.message}".strip()})
    return result


def _solve(sandbox: Sandbox, task: HarborTask) -> str:
    """Run the reference solution; return a text about its failure."""
    variables = {"DEBIAN_FRONTEND": "noninteractive", **task.solution_variables}
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    seconds = task.timeout_seconds or AGENT_SECONDS
    try:
        ended = sandbox.exec(["sh", "-c", f"export {assigned}; {_SOLVE}"], timeout_seconds=seconds)
    except SandboxTimeoutError:
        return f"solve.sh took longer than {seconds:g} s."
    if ended.exit_code == 0:
        return ""
    return f"solve.sh ended with {ended.exit_code}: {ended.stderr[-500:] or ended.stdout[-500:]}"


def print_step(line: str) -> None:
    """Print a line about the progress of a build."""
    aside().print(line, style="dim", markup=False, soft_wrap=True)
