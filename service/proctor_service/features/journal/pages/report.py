"""Reports in a file of HTML, without scripts and links: of a job, and of `proctor eval`."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from proctor_service.features.journal.cli.export import replaced

Row = Mapping[str, Any]


def write_html(page: Row, tenant: str | None, path: Path) -> None:
    """Write the report of a job (`Reader.job_page`); the file appears when it is complete.

    Raises Trouble.
    """
    figures = {"job": page["job"], **page["figures"]}
    html = report_html(figures, page["series"], page["times"], tenant=tenant, made_at=time.time())
    with replaced(path) as file:
        file.write(html.encode())


def write_eval_html(report: Row, unsound: Sequence[Row], path: Path) -> None:
    """Write the report of `proctor eval`; the file appears when it is complete.

    `report`: the body of its JSON report. `unsound`: `task`, `verdict` and `message` of each
    failed submission. Raises Trouble.
    """
    html = _html("eval_report.html", found=report, unsound=unsound, made_at=time.time())
    with replaced(path) as file:
        file.write(html.encode())


def report_html(
    found: Row,
    steps: Sequence[Row],
    times: Sequence[Row] | None,
    *,
    tenant: str | None,
    made_at: float,
) -> str:
    """Return the report of a job.

    `found`: `job` and its figures. `steps` and `times`: points of `Reader.job_page` by step and by
    time. `tenant`: the tenant of all records, or None for all tenants. `made_at`: seconds since the epoch.
    """
    return _html(
        "report.html",
        found=found,
        steps=steps,
        times=times,
        tenant=tenant,
        made_at=made_at,
        links=False,
    )


def _html(template: str, **values: Any) -> str:
    """Return a page with its style sheet; its policy forbids browsers to load files."""
    from proctor_service.features.journal.pages.render import Templates  # slow to import

    folder = files("proctor_service.features.journal.pages") / "static"
    style = (folder / "console.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Templates().html(template, style=Markup(style), style_hash=f"sha256-{digest}", **values)
