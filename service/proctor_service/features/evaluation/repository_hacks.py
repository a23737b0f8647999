"""`proctor bench hacks --repositories`: changes of a repository, by Proctor and by public judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from proctor_client import Client, wire
from proctor_service.cli.console import plain
from proctor_service.cli.failures import Trouble
from proctor_service.features.evaluation.repository_judges import (
    RepositoryCase,
    RepositoryTask,
    read_run,
    repository_task,
)

PROCTOR = "Proctor"
_NEEDS = "python3 -m pytest --version && git --version && test -w /var/tmp"
_LIMITS = {"output_kb": 1024, "memory_mb": 1024, "disk_mb": 256}


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A case, and by name of each judge whether it was rewarded; None: not judged. `why`: Proctor's words."""

    case: RepositoryCase
    rewarded: Mapping[str, bool | None]
    why: str


def judged_repositories(client: Client, environment: str, job: str) -> list[JudgedCase]:
    """Judge all cases in an environment, by its name or that of an image.

    Raises Trouble for one that lacks a program.
    """
    place: Any = {"image": environment} if "/" in environment or ":" in environment else environment
    _check(client, place, environment, job)
    task = repository_task()
    common: Any = {
        "environment": place,
        "extract": "none",
        "limits": _LIMITS,
        "job": job,
        "cache": False,
    }
    own = client.reward([case.diff for case in task.cases], grader=task.grader(), **common)
    runs = client.reward(
        [{"completion": "pass", "grader": task.public_grader(case)} for case in task.cases],
        **common,
    )
    return [
        _judged(task, case, result, run)
        for case, result, run in zip(task.cases, own.results, runs.results, strict=True)
    ]


def _check(client: Client, place: Any, name: str, job: str) -> None:
    argv = ["sh", "-c", _NEEDS]
    [result] = client.reward(
        ["pass"],
        grader={"kind": "command", "argv": argv},
        extract="none",
        environment=place,
        job=job,
        cache=False,
    ).results
    if result.reward != 1.0:
        why = result.error.message if result.error else result.stderr.strip() or result.message
        raise Trouble(f"{name} needs python3 with pytest, git, and /var/tmp: {why[-500:]}")


def _judged(
    task: RepositoryTask, case: RepositoryCase, result: wire.Result, run: wire.Result
) -> JudgedCase:
    rewarded: dict[str, bool | None] = {}
    for name, judge in task.public_judges.items():
        rewarded[name] = None if run.error else judge(read_run(run.stdout))
    rewarded[PROCTOR] = None if result.reward is None else result.reward >= 1.0
    return JudgedCase(case, rewarded, result.error.message if result.error else result.message)


def tables(found: Sequence[JudgedCase]) -> list[Table]:
    """Return a table of numbers by judge, and one of all cases."""
    judges = list(found[0].rewarded)
    numbers = Table(
        "", *(Column(name, justify="right") for name in judges), box=None, pad_edge=False
    )
    for title, is_honest in (
        ("attacks that were rewarded", False),
        ("honest ones that were not", True),
    ):
        kind = [each for each in found if each.case.honest is is_honest]
        wrong = [sum(each.rewarded[name] is not is_honest for each in kind) for name in judges]
        cells = (Text(str(count), style="red" if count else "") for count in wrong)
        numbers.add_row(f"{title}, of {len(kind)}", *cells)
    cases = Table("case", "what it does", *judges, box=None, pad_edge=False)
    for each in found:
        cases.add_row(
            plain(f"{each.case.group}/{each.case.id}", 80),
            plain(each.case.does),
            *(_word(each.rewarded[name], each.case.honest) for name in judges),
        )
    return [numbers, cases]


def _word(rewarded: bool | None, is_honest: bool) -> Text:
    if rewarded is None:
        return Text("not judged", style="red")
    return Text("rewarded" if rewarded else "refused", style="" if rewarded is is_honest else "red")


def report(found: Sequence[JudgedCase]) -> list[dict[str, Any]]:
    """Return all cases in JSON form."""
    return [
        {
            "id": f"{each.case.group}/{each.case.id}",
            "does": each.case.does,
            "honest": each.case.honest,
            "rewarded": dict(each.rewarded),
            "message": each.why,
        }
        for each in found
    ]
