"""`proctor doctor`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from proctor_service.cli.console import screen
from proctor_service.cli.failures import UNSOUND, Trouble, friendly, settings_from
from proctor_service.errors import StartError
from proctor_service.sandbox.interface import MachineCheck
from proctor_service.settings.languages import SANDBOX_PATH

if TYPE_CHECKING:
    from proctor_service.settings import Settings

LANGUAGE = "language "
_VERSION_SECONDS = 20.0
_LONGEST_VERSION_CHARACTERS = 100


def doctor(
    kubernetes: Annotated[
        bool,
        typer.Option(
            "--kubernetes",
            help="In a pod: what it lacks, and which component of deploy/components mends it.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    versions: Annotated[
        bool,
        typer.Option(
            "--versions",
            help="Show the programs of each language, and the version where its row asks.",
        ),
    ] = False,
) -> None:
    """Show the protections and languages of this machine. Status 1: isolation is incomplete."""
    with friendly():
        machine, pod = _in_pod() if kubernetes else (_machine(settings_from()), [])
        if versions:
            machine = _with_versions(machine, settings_from())
        out = screen()
        if as_json:
            _print_json(out, machine, pod)
        else:
            _print_tables(out, machine, pod, in_full=versions)
        if _missing(machine, pod):
            raise typer.Exit(UNSOUND)


def _machine(settings: Settings) -> list[MachineCheck]:
    """Return the checks of this machine, and a row for each variable of a removed setting."""
    from proctor_service.composition import doctor as examine
    from proctor_service.settings import removed_variables

    removed = [
        MachineCheck(name, False, "no setting any more", text)
        for name, text in removed_variables().items()
    ]
    return [*examine(settings), *removed]


def _with_versions(machine: list[MachineCheck], settings: Settings) -> list[MachineCheck]:
    """Return the checks; those of installed languages with `version` end with their versions."""
    commands = {
        f"{LANGUAGE}{name}": language.version
        for name, language in settings.languages.items()
        if language.version is not None
    }
    names = [each.name for each in machine if each.ok and each.name in commands]
    with ThreadPoolExecutor() as threads:
        found = dict(
            zip(names, threads.map(_version_of, [commands[each] for each in names]), strict=True)
        )
    return [
        replace(each, detail=f"{each.detail}: {found[each.name]}") if found.get(each.name) else each
        for each in machine
    ]


def _version_of(command: Sequence[str]) -> str:
    """Return the first line that a command prints; blocks for seconds."""
    from proctor_service.settings import worker_environment

    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**worker_environment(), "PATH": SANDBOX_PATH},
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no version: {error}"
    lines = ran.stdout.decode("utf-8", "replace").strip().splitlines()
    return lines[0][:_LONGEST_VERSION_CHARACTERS] if lines else ""


def _in_pod() -> tuple[list[MachineCheck], list[MachineCheck]]:
    """Return the checks of the machine and of the pod; settings may be invalid."""
    from proctor_service.cli.pod import pod_checks, settings_check

    try:
        settings = settings_from()
        settings.tokens_by_tenant()
    except (Trouble, StartError) as error:
        return [], [settings_check(str(error))]
    try:
        machine = _machine(settings)
    except StartError as error:  # without the SDK of Aviato, or an interpreter for sandboxes
        missing = MachineCheck("backend", False, str(error), required=True)
        return [], [settings_check(), missing, *pod_checks(settings, [])]
    return machine, [settings_check(), *pod_checks(settings, machine)]


def _missing(machine: Sequence[MachineCheck], pod: Sequence[MachineCheck]) -> list[str]:
    missing = [check.name for check in machine if check.guards and not check.ok]
    return missing + [check.name for check in pod if check.required and not check.ok]


def _print_json(out: Console, machine: Sequence[MachineCheck], pod: Sequence[MachineCheck]) -> None:
    body = {
        "complete": not _missing(machine, pod),
        "machine": [asdict(check) for check in machine],
        "pod": [asdict(check) for check in pod],
    }
    out.print_json(data=body, indent=None)


def _print_tables(
    out: Console, machine: Sequence[MachineCheck], pod: Sequence[MachineCheck], *, in_full: bool
) -> None:
    """Print the checks; `in_full`: languages with their programs, too."""
    if machine:
        out.print(_table("check", [each for each in machine if not _is_language(each)]))
        languages = [each for each in machine if _is_language(each)]
        if in_full:
            out.print(_table("language", languages))
        else:
            out.print(_languages(languages))
    if pod:
        out.print(_table("this pod", pod))
    missing = _missing(machine, pod)
    if missing:
        out.print(f"Isolation is incomplete: {', '.join(missing)}.", style="red", markup=False)
    else:
        out.print("Isolation is complete.", style="green")


def _is_language(check: MachineCheck) -> bool:
    return check.name.startswith(LANGUAGE)


def _table(title: str, checks: Sequence[MachineCheck]) -> Table:
    columns = Column(title, no_wrap=True), "", Column("what was found", overflow="fold")
    table = Table(*columns, box=None, pad_edge=False)
    for check in checks:
        table.add_row(
            check.name, _mark(check.ok, check.guards or check.required), Text(_found(check))
        )
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
