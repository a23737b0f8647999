"""Bodies of the pages about the journal, made in the process that reads it (`process.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from pydantic_core import from_json

from proctor_client import wire
from proctor_service.errors import NotFound
from proctor_service.features.journal.answering.answers import (
    Query,
    evaluation_row,
    found_page,
    rollout_row,
)
from proctor_service.features.journal.answering.texts import TEXTS
from proctor_service.features.journal.json_texts import parsed_if_short
from proctor_service.features.journal.pages.render import Templates
from proctor_service.features.journal.reading import Reader
from proctor_service.features.journal.replay import why_not

FILTERS = ("job", "step", "task", "tag", "signal", "verdict", "error", "reward", "text")
_JSON = ("grader", "files", "output", "failures", "prompt")


class Views:
    """Bodies of pages with one tenant's records."""

    def __init__(self, reader: Reader, templates: Templates) -> None:
        self._reader = reader
        self._templates = templates

    def jobs_page(self, tenant: str) -> str:
        """Return the list of jobs."""
        return self._templates.html("jobs.html", jobs=self._reader.jobs(tenant))

    def job_page(self, tenant: str, job: str) -> str:
        """Return the figures and charts of a job. Raises NotFound."""
        found = self._reader.job_page(tenant, job)
        if found is None:
            raise NotFound("the journal has no evaluation of this job")
        return self._templates.html(
            "job.html",
            found={"job": job, **found["figures"]},
            steps=found["series"],
            times=found["times"],
            links=True,
        )

    def evaluations_page(self, tenant: str, query: Query, given: Mapping[str, str]) -> str:
        """Return the evaluations that fit, with the form of the filters."""
        page = found_page(self._reader, tenant, query)
        filters = {name: given.get(name, "") for name in FILTERS}
        active = {name: value for name, value in filters.items() if value.strip()}
        return self._templates.html(
            "evaluations.html",
            rows=page.rows,
            filters=filters,
            active=active,
            following=page.following,
            is_first=query["cursor"] is None,
            choices={"verdict": get_args(wire.Verdict), "error": get_args(wire.ErrorReason)},
        )

    def evaluation_page(self, tenant: str, id_: str, csrf: str, compared: bytes | None) -> str:
        """Return one evaluation; `compared`: what came of judging it again. Raises NotFound."""
        row = evaluation_row(self._reader, tenant, id_)
        short = {name: parsed_if_short(row[f"{name}_json"]) for name in _JSON}
        return self._templates.html(
            "evaluation.html",
            row=row,
            **short,
            long=[name for name in _JSON if short[name] is None and row[f"{name}_json"]],
            conditions=row["conditions"] or {},
            why_not=why_not(row),
            csrf=csrf,
            compared=None if compared is None else from_json(compared),
        )

    def whole_text(self, tenant: str, id_: str, name: str) -> bytes:
        """Return one whole text of an evaluation. Raises NotFound."""
        row = evaluation_row(self._reader, tenant, id_)
        found = row[TEXTS[name]]
        if found is None:
            raise NotFound(f"evaluation {id_!a} has no such text")
        content: bytes = found.encode("utf-8", "surrogatepass")
        return content

    def rollout_page(self, tenant: str, id_: str) -> str:
        """Return one rollout as a conversation. Raises NotFound."""
        row = rollout_row(self._reader, tenant, id_)
        return self._templates.html(
            "rollout.html", row=row, conversation=parsed_if_short(row["conversation_json"])
        )
