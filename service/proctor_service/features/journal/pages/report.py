"""The report of a job in one file of HTML, without a script and without a link."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from proctor_service.features.journal.pages.render import Templates

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
    return Templates().html(
        "report.html",
        found=found,
        steps=steps,
        times=times,
        tenant=tenant,
        made_at=made_at,
        links=False,
        **_style(),
    )


def eval_report_html(found: Row, unsound: Sequence[Row], *, made_at: float) -> str:
    """Return the report of `proctor eval`.

    `found`: `cli.scores.Scores.report` with `dataset`, `format` and `seconds`. `unsound`: `task`,
    `verdict` and `message` of each submission that did not pass. `made_at`: as in `report_html`.
    """
    return Templates().html(
        "eval_report.html", found=found, unsound=unsound, made_at=made_at, **_style()
    )


def _style() -> dict[str, str]:
    """Return the style sheet of a page in one file, and its digest for the page's policy."""
    style = (files("proctor_service.features.journal.pages") / "static" / "console.css").read_text(
        "utf-8"
    )
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return {"style": Markup(style), "style_hash": f"sha256-{digest}"}
