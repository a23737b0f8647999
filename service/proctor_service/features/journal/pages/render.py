"""Templates of the pages, with their filters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from proctor_client.wire import long_integers
from proctor_service.features.journal.pages import charts, graders, shown

_FILTERS = {
    "text": shown.text,
    "name": shown.name,
    "when": shown.when,
    "duration": shown.duration,
    "number": shown.number,
    "percent": shown.percent,
}


class Templates:
    """Renderer of templates; several threads may use the same object."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("proctor_service.features.journal.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(_FILTERS)
        self._environment.filters["in_path"] = in_path
        self._environment.filters["drawn"] = self.drawn
        self._environment.globals.update(
            charts=charts,
            marked=shown.marked,
            parts_of=graders.parts,
            list_of=list_of,
            job_page=job_page,
            pretty=pretty,
        )

    def html(self, template: str, **values: Any) -> str:
        """Return the HTML of a template, such as `jobs.html`."""
        found = self._environment.get_template(template).render(values)
        return found.encode("utf-8", "replace").decode()

    def drawn(self, chart: charts.Chart) -> Markup:
        """Return the HTML of a chart."""
        return Markup(self.html("_chart.html", chart=chart))


def in_path(value: str) -> str:
    """Return a name for a path of a URL; a slash is escaped as well."""
    return quote(value.encode("utf-8", "replace"), safe="")


def job_page(job: str) -> str:
    """Return the URL of a job's page. A browser would remove a job `..` from the end of a path."""
    if job in ("", ".", ".."):
        return "/console/jobs?" + urlencode({"name": job})
    return "/console/jobs/" + in_path(job)


def list_of(**filters: object) -> str:
    """Return the URL of the list of evaluations with these filters."""
    values = {key: value for key, value in filters.items() if value is not None}
    return "/console/evaluations" + ("?" + urlencode(values, errors="replace") if values else "")


def pretty(value: Mapping[str, Any] | None) -> str:
    """Return JSON in lines."""
    return long_integers.dumps(value, json.JSONEncoder(indent=2, ensure_ascii=False))
