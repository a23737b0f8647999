"""Bodies of the pages, each made from the journal in one question. All functions block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from proctor_client import wire
from proctor_service.api.body import describe_errors
from proctor_service.api.journal_answers import evaluation_row, found_page, rollout_row
from proctor_service.errors import InvalidRequest, NotFound
from proctor_service.journal.json_texts import parsed_if_short
from proctor_service.journal.pages.render import Templates
from proctor_service.journal.reading import Reader
from proctor_service.journal.replay import why_not

FILTERS = ("job", "step", "task", "tag", "signal", "verdict", "error", "reward", "text")
TEXTS = {
    "completion": "completion_text",
    "source": "source",
    **{name: f"{name}_json" for name in ("grader", "files", "output", "failures")},
}
"""Texts that a page may show in part: their names, and where a row has them."""
_JSON = ("grader", "files", "output", "failures")


def query_of(given: Mapping[str, str]) -> wire.EvaluationQuery:
    """Return the query of a list, in which an empty field is none. Raises InvalidRequest."""
    try:
        return wire.EvaluationQuery.model_validate({k: v for k, v in given.items() if v.strip()})
    except ValidationError as error:
        raise InvalidRequest(describe_errors(error.errors())) from None


class Views:
    """Pages of one tenant's records."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates

    def jobs(self, tenant: str, reader: Reader) -> str:
        """Return the list of jobs."""
        return self._templates.html("jobs.html", jobs=reader.jobs(tenant))

    def job(self, tenant: str, job: str, reader: Reader) -> str:
        """Return the figures and charts of a job. Raises NotFound."""
        found = reader.job_page(tenant, job)
        if found is None:
            raise NotFound("the journal has no evaluation of this job")
        return self._templates.html(
            "job.html",
            found={"job": job, **found["figures"]},
            steps=found["series"],
            times=found["times"],
            links=True,
        )

    def evaluations(
        self, tenant: str, query: wire.EvaluationQuery, given: Mapping[str, str], reader: Reader
    ) -> str:
        """Return the evaluations that fit, with the form of the filters."""
        page = found_page(tenant, query, reader)
        filters = {name: given.get(name, "") for name in FILTERS}
        active = {name: value for name, value in filters.items() if value.strip()}
        return self._templates.html(
            "evaluations.html",
            rows=page.rows,
            filters=filters,
            active=active,
            following=page.following,
            is_first=query.cursor is None,
            choices={"verdict": get_args(wire.Verdict), "error": get_args(wire.ErrorReason)},
        )

    def evaluation(
        self, tenant: str, id_: str, csrf: str, compared: Mapping[str, Any] | None, reader: Reader
    ) -> str:
        """Return one evaluation; `compared`: what came of judging it again. Raises NotFound."""
        row = evaluation_row(tenant, id_, reader)
        short = {name: parsed_if_short(row[f"{name}_json"]) for name in _JSON}
        return self._templates.html(
            "evaluation.html",
            row=row,
            **short,
            long=[name for name in _JSON if short[name] is None and row[f"{name}_json"]],
            conditions=row["conditions"] or {},
            why_not=why_not(row),
            csrf=csrf,
            compared=compared,
        )

    def text(self, tenant: str, id_: str, name: str, reader: Reader) -> str:
        """Return one whole text of an evaluation. Raises NotFound."""
        row = evaluation_row(tenant, id_, reader)
        found = row[TEXTS[name]]
        if found is None:
            raise NotFound(f"evaluation {id_!a} has no such text")
        return str(found)

    def rollout(self, tenant: str, id_: str, reader: Reader) -> str:
        """Return one rollout as a conversation. Raises NotFound."""
        row = rollout_row(tenant, id_, reader)
        return self._templates.html(
            "rollout.html", row=row, conversation=parsed_if_short(row["conversation_json"])
        )
