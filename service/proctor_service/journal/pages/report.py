"""The report of a job in one file of HTML, without a script and without a link."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from proctor_service.journal.pages.render import Templates

Row = Mapping[str, Any]


def report_html(
    found: Row,
    steps: Sequence[Row],
    times: Sequence[Row] | None,
    *,
    tenant: str | None,
    made_at: float,
) -> str:
    """Return the report of a job.

    `found`: `Reader.figures`. `steps` and `times`: points of `Reader.job_page` by step and by time.
    `tenant`: the only one whose records count, or None. `made_at`: seconds since the epoch. The file
    forbids a browser to load anything: its policy admits the one style sheet in it.
    """
    style = (files("proctor_service.journal.pages") / "static" / "console.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Templates().html(
        "report.html",
        found=found,
        steps=steps,
        times=times,
        tenant=tenant,
        made_at=made_at,
        links=False,
        style=Markup(style),
        style_hash=f"sha256-{digest}",
    )
