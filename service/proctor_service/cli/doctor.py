"""`proctor doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from proctor_service.cli.console import screen
from proctor_service.cli.failures import UNSOUND, Trouble, friendly, settings_from
from proctor_service.cli.pod.pod_check import PodCheck
from proctor_service.errors import StartError
from proctor_service.sandbox.interface import MachineCheck

LANGUAGE = "language "


def doctor(
    kubernetes: Annotated[
        bool,
        typer.Option(
            "--kubernetes",
            help="In a pod: what it lacks, and which component of deploy/components mends it.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show the protections and languages of this machine. Status 1: isolation is incomplete."""
    with friendly():
        checks, pod_checks = _in_pod() if kubernetes else (_checks(), [])
        out = screen()
        if as_json:
            _print_json(out, checks, pod_checks)
        else:
            _print_tables(out, checks, pod_checks)
        if _missing(checks, pod_checks):
            raise typer.Exit(UNSOUND)


def _checks() -> list[MachineCheck]:
    settings = settings_from()
    from proctor_service.composition import doctor as examine

    return examine(settings)


def _in_pod() -> tuple[list[MachineCheck], list[PodCheck]]:
    """Return the checks of the machine and those of the pod; settings may be invalid."""
    from proctor_service.cli.pod.examine import examine_pod, examine_without_settings
    from proctor_service.composition import doctor as examine

    try:
        settings = settings_from()
        settings.tokens_by_tenant()
    except (Trouble, StartError) as error:
        return [], list(examine_without_settings(str(error)))
    try:
        checks = examine(settings)
    except StartError as error:  # without the SDK of Aviato, or an interpreter for sandboxes
        missing = PodCheck("backend", False, str(error), required=True)
        return [], [missing, *examine_pod(settings, [])]
    return checks, list(examine_pod(settings, checks))


def _missing(checks: Sequence[MachineCheck], pod_checks: Sequence[PodCheck]) -> list[str]:
    missing = [check.name for check in checks if check.guards and not check.ok]
    return missing + [each.name for each in pod_checks if each.required and not each.ok]


def _print_json(
    out: Console, checks: Sequence[MachineCheck], pod_checks: Sequence[PodCheck]
) -> None:
    body = {
        "complete": not _missing(checks, pod_checks),
        "machine": [asdict(check) for check in checks],
        "pod": [asdict(check) for check in pod_checks],
    }
    out.print_json(data=body, indent=None)


def _print_tables(
    out: Console, checks: Sequence[MachineCheck], pod_checks: Sequence[PodCheck]
) -> None:
    if checks:
        out.print(_table([check for check in checks if not check.name.startswith(LANGUAGE)]))
        languages = [check for check in checks if check.name.startswith(LANGUAGE)]
        out.print(_languages(languages))
    if pod_checks:
        out.print(_pod_table(pod_checks))
    missing = _missing(checks, pod_checks)
    if missing:
        out.print(f"Isolation is incomplete: {', '.join(missing)}.", style="red", markup=False)
    else:
        out.print("Isolation is complete.", style="green")


def _table(checks: Sequence[MachineCheck]) -> Table:
    columns = Column("check", no_wrap=True), "", Column("what was found", overflow="fold")
    table = Table(*columns, box=None, pad_edge=False)
    for check in checks:
        table.add_row(check.name, _mark(check.ok, check.guards), Text(_found(check)))
    return table


def _pod_table(pod_checks: Sequence[PodCheck]) -> Table:
    columns = Column("this pod", no_wrap=True), "", Column("what was found", overflow="fold")
    table = Table(*columns, box=None, pad_edge=False)
    for each in pod_checks:
        remedy = each.remedy()
        text = f"{each.detail}\nto mend: {remedy}" if remedy else each.detail
        table.add_row(each.name, _mark(each.ok, each.required), Text(text))
    return table


def _mark(ok: bool, grave: bool) -> Text:
    if ok:
        return Text("ok", style="green")
    return Text("missing", style="red" if grave else "yellow")


def _found(check: MachineCheck) -> str:
    return check.detail if check.ok or not check.mend else f"{check.detail}\nto mend: {check.mend}"


def _languages(languages: Sequence[MachineCheck]) -> Text:
    def names(ok: bool) -> str:
        return ", ".join(each.name.removeprefix(LANGUAGE) for each in languages if each.ok is ok)

    installed = ", ".join(part for part in ("python", names(True)) if part)
    return Text(f"\nLanguages: {installed}. Not installed: {names(False) or 'none'}.")
