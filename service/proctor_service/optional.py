"""Parts that a setting turns on, some of which need an optional extra of the package."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from proctor_service.errors import StartError
from proctor_service.features.journal.address import checked, is_plain_file, of_file
from proctor_service.features.journal.answering.questions import Questions
from proctor_service.features.journal.recorder import Recorder, Target
from proctor_service.http.job_store import KEEP_SECONDS
from proctor_service.observe.metrics import Metrics
from proctor_service.settings import Settings, worker_environment
from proctor_service.settings.state_folder import NoStateFolder, journal_path, make_private
from proctor_service.version import version

if TYPE_CHECKING:  # optional extras
    from proctor_service.features.replicas.redis_store import RedisStore
    from proctor_service.observe.tracing import Tracing

JOURNAL_BYTES = 10 << 30
"""Beyond it the oldest records are removed: a month of a busy trainer, with texts."""
DAY_SECONDS = 86_400
QUERY_SECONDS = 5.0
"""Longest time of a question to the journal."""


def make_store(settings: Settings, metrics: Metrics) -> RedisStore | None:
    """Return the store that replicas share, or None without a Redis. Raises StartError."""
    url = settings.redis_url.get_secret_value()
    if not url:
        return None
    with needing("redis", "PROCTOR_REDIS_URL", "redis"):
        from proctor_service.features.replicas.redis_store import RedisStore
    store = RedisStore(url, KEEP_SECONDS, metrics.store_failed)
    metrics.watch_store(lambda: store.up)
    return store


def with_own_journal(
    settings: Settings, seen_in_sandboxes: Callable[[Settings, Path], bool]
) -> tuple[Settings, str]:
    """Return the settings with a journal in the user's state folder, unless one is set.

    Creates the file. Where that cannot be, the journal is off, and the text says why.
    """
    if settings.journal is not None:
        return settings, ""
    url, why = "off", ""
    try:
        path = journal_path(settings.address())
        if seen_in_sandboxes(settings, path):
            raise NoStateFolder(f"submissions could read {path}")
        make_private(path)
        url = of_file(path)
    except NoStateFolder as error:
        why = str(error)
    return settings.model_copy(update={"journal": SecretStr(url)}), why


def make_journal(
    settings: Settings, metrics: Metrics
) -> tuple[Recorder, Questions] | tuple[None, None]:
    """Return what writes the journal and what asks it. Raises StartError for an address that is none."""
    url = "off" if settings.journal is None else settings.journal.get_secret_value()
    if url == "off":
        return None, None
    if not is_plain_file(url):
        with needing("psycopg", "PROCTOR_JOURNAL", "postgres"):
            from proctor_service.features.journal.database import connect

            connect(checked(url))  # loads the driver
    age_seconds = settings.journal_days * DAY_SECONDS
    target = Target(url, version(), settings.journal_texts, age_seconds, JOURNAL_BYTES)
    recorder = Recorder(target, settings.journal_texts, metrics, worker_environment())
    metrics.watch_journal(lambda: recorder.unwritten)
    return recorder, Questions(url, QUERY_SECONDS, worker_environment())


def make_tracing(settings: Settings) -> Tracing | None:
    """Return the tracing, or None without a collector. Raises StartError."""
    if not settings.otlp_endpoint:
        return None
    with needing("opentelemetry", "PROCTOR_OTLP_ENDPOINT", "otel"):
        from proctor_service.observe.tracing import Tracing
    instance = settings.advertise_url
    return Tracing(settings.otlp_endpoint, version(), instance)


@contextlib.contextmanager
def needing(package: str, setting: str, extra: str) -> Iterator[None]:
    """Context for the import of an optional extra. Raises StartError if the extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        message = f"{setting} needs the package {package}: install proctor-service[{extra}]"
        raise StartError(message) from None
