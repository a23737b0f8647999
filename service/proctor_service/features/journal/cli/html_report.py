"""The reports of a job and of `proctor eval` as files for a browser."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from proctor_service.features.journal.cli.export import replaced
from proctor_service.features.journal.cli.recorded import Row


def write_html(found: Row, tenant: str | None, path: Path) -> None:
    """Write the report of a job (`Reader.job_page`); the file appears when it is complete.

    Raises Trouble.
    """
    from proctor_service.features.journal.pages.report import report_html

    html = report_html(
        {"job": found["job"], **found["figures"]},
        found["series"],
        found["times"],
        tenant=tenant,
        made_at=time.time(),
    )
    with replaced(path) as file:
        file.write(html.encode())


def write_eval_html(found: Row, unsound: Sequence[Row], path: Path) -> None:
    """Write the report of `proctor eval`; the file appears when it is complete.

    `found`: the body of its JSON report. `unsound`: `task`, `verdict` and `message` of each
    submission that did not pass. Raises Trouble.
    """
    from proctor_service.features.journal.pages.report import eval_report_html

    html = eval_report_html(found, unsound, made_at=time.time())
    with replaced(path) as file:
        file.write(html.encode())
