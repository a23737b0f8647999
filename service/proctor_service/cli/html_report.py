"""The report of a job as a file for a browser."""

from __future__ import annotations

import time
from pathlib import Path

from proctor_service.cli.export import replaced
from proctor_service.cli.recorded import Row


def write_html(found: Row, tenant: str | None, path: Path) -> None:
    """Write the report of a job (`Reader.job_page`); the file appears when it is complete.

    Raises Trouble.
    """
    from proctor_service.journal.pages.report import report_html

    html = report_html(
        {"job": found["job"], **found["figures"]},
        found["series"],
        found["times"],
        tenant=tenant,
        made_at=time.time(),
    )
    with replaced(path) as file:
        file.write(html.encode())
