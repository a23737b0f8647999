"""The feature `journal`: a record of every evaluation and rollout, its routes, commands and pages."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from proctor_service.feature import Command, Feature, needing
from proctor_service.version import version

if TYPE_CHECKING:
    from fastapi import APIRouter

    from proctor_service.feature import Core, Sources
    from proctor_service.features.journal.answering.routes import JournalHandler
    from proctor_service.features.journal.recorder import Recorder
    from proctor_service.observe.observer import Observer

log = logging.getLogger(__name__)

JOURNAL_BYTES = 10 << 30
"""Beyond it the oldest records are removed: a month of a busy trainer, with texts."""
DAY_SECONDS = 86_400
QUERY_SECONDS = 5.0
"""Longest time of a question to the journal."""


class JournalFeature(Feature):
    """The journal of one service."""

    name = "journal"
    commands: ClassVar[Mapping[str, Command]] = MappingProxyType(
        {
            "replay": Command(
                "features.journal.cli.replay",
                "replay",
                "Judge all recorded evaluations of a job again, and list the rewards that changed.",
            ),
            "journal": Command(
                "features.journal.cli.journal",
                "journal",
                "Look at what was judged, as the journal has recorded it.",
                is_group=True,
            ),
            "eval html": Command(
                "features.journal.pages.report",
                "write_eval_html",
                "The report for a browser.",
            ),
        }
    )

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.handler: JournalHandler | None = None
        self._address = "off"
        self._no_journal = ""

    def backend(self, sources: Sources) -> Sources:
        """Decide where the journal is; the sources stay as they are."""
        from proctor_service.features.journal.default import own_journal

        configured = sources.settings.journal
        if configured is not None:
            self._address = configured.get_secret_value()
        elif sources.keeps_state:
            self._address, self._no_journal = own_journal(sources.settings)
        return sources

    def observers(self, sources: Sources) -> Sequence[Observer]:
        """Return the recorder, if there is a journal. Raises StartError for an address that is none."""
        from proctor_service.features.journal.address import checked, is_plain_file
        from proctor_service.features.journal.default import leftover_of
        from proctor_service.features.journal.recorder import Recorder, Target
        from proctor_service.settings import worker_environment

        url, settings, metrics = self._address, sources.settings, sources.metrics
        if url == "off":
            return ()
        if not is_plain_file(url):
            with needing(["psycopg"], "PROCTOR_JOURNAL", "postgres"):
                from proctor_service.features.journal.database import connect

                connect(checked(url))  # loads the driver
        target = Target(
            url,
            version(),
            settings.journal_texts,
            settings.journal_days * DAY_SECONDS,
            JOURNAL_BYTES,
        )
        leftover = leftover_of(url, settings, sources.keeps_state)
        environment = worker_environment()
        recorder = Recorder(target, settings.journal_texts, metrics, environment, leftover=leftover)
        metrics.watch_journal(lambda: recorder.unwritten)
        self.recorder = recorder
        return [recorder]

    def routes(self, core: Core) -> Sequence[APIRouter]:
        """Return the routes of records, and the pages of the console."""
        from proctor_service.features.journal.answering.questions import Questions
        from proctor_service.features.journal.answering.routes import (
            JournalHandler,
            journal_routes,
        )
        from proctor_service.features.journal.console.cookies import Cookies
        from proctor_service.features.journal.console.costs import Costs
        from proctor_service.features.journal.console.policy import PAGES
        from proctor_service.features.journal.console.routes import ConsoleHandler, console_routes
        from proctor_service.settings import worker_environment

        settings, questions = core.settings, None
        core.pages.append(PAGES)
        if self.recorder is not None:
            questions = Questions(self._address, QUERY_SECONDS, worker_environment())
            core.listening.append(lambda url: log.info("console: %s/console", url))
        self.handler = JournalHandler(questions, core.rewards, version())
        costs = None
        if settings.backend == "aviato":
            several = len(settings.tokens_by_tenant()) > 1
            costs = Costs(core.metrics.spent, settings.metrics_tenants if several else None)
        console = ConsoleHandler(
            self.handler, core.rewards, Cookies(core.tokens), core.machine.backend, costs
        )
        return [journal_routes(self.handler), console_routes(console)]

    async def open(self) -> None:
        """Start the writer and the reader of the journal."""
        if self._no_journal:
            expected = "sqlite:////path/to/file, postgresql://… or off"
            log.warning(
                "no journal is kept: %s; set PROCTOR_JOURNAL to %s", self._no_journal, expected
            )
        if self.recorder is not None:
            await self.recorder.open()
        if self.handler is not None:
            self.handler.open()

    async def close(self) -> None:
        """Write the last records, and end the processes."""
        async with contextlib.AsyncExitStack() as closing:  # it calls the last one first
            for part in (self.recorder, self.handler):
                if part is not None:
                    closing.push_async_callback(part.close)
