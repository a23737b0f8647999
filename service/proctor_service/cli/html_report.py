"""The report of a job as a file for a browser."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from proctor_service.cli.export import replaced
from proctor_service.cli.recorded import Row

if TYPE_CHECKING:
    from proctor_service.journal.reading import Reader


def write_html(reader: Reader, tenant: str | None, found: Row, path: Path) -> None:
    """Write the report of a job whose figures are found; the file appears when it is complete.

    Raises Trouble.
    """
    from proctor_service.journal.pages.report import report_html

    by_step = reader.job(tenant, found["job"])
    steps = by_step["series"] if by_step else []
    html = report_html(found, steps, None, tenant=tenant, made_at=time.time())
    with replaced(path) as file:
        file.write(html.encode())
