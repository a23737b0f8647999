"""`proctor doctor`."""

from __future__ import annotations

import typer
from rich.table import Column, Table
from rich.text import Text

from proctor_service.cli.console import UNSOUND, friendly, screen, settings_from
from proctor_service.sandbox.interface import Check

LANGUAGE = "language "


def doctor() -> None:
    """Show the protections and languages of this machine. Status 1: isolation is incomplete."""
    with friendly():
        settings = settings_from()
        from proctor_service.sandbox.backends import doctor as examine

        checks = examine(settings)
        out = screen()
        out.print(_table([check for check in checks if not check.name.startswith(LANGUAGE)]))
        languages = [check for check in checks if check.name.startswith(LANGUAGE)]
        out.print(_languages(languages))
        missing = [check.name for check in checks if check.guards and not check.ok]
        if missing:
            out.print(f"Isolation is incomplete: {', '.join(missing)}.", style="red", markup=False)
            raise typer.Exit(UNSOUND)
        out.print("Isolation is complete.", style="green")


def _table(checks: list[Check]) -> Table:
    columns = Column("check", no_wrap=True), "", Column("what was found", overflow="fold")
    table = Table(*columns, box=None, pad_edge=False)
    for check in checks:
        table.add_row(check.name, _mark(check), Text(_found(check)))
    return table


def _mark(check: Check) -> Text:
    if check.ok:
        return Text("ok", style="green")
    return Text("missing", style="red" if check.guards else "yellow")


def _found(check: Check) -> str:
    return check.detail if check.ok or not check.mend else f"{check.detail}\nto mend: {check.mend}"


def _languages(checks: list[Check]) -> Text:
    def names(ok: bool) -> str:
        return ", ".join(each.name.removeprefix(LANGUAGE) for each in checks if each.ok is ok)

    installed = ", ".join(part for part in ("python", names(True)) if part)
    return Text(f"\nLanguages: {installed}. Not installed: {names(False) or 'none'}.")
