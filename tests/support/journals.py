"""Journals for tests: evaluations of a job, written as the service writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor_client.wire import AssertsGrader, Failure, Grader
from proctor_service.errors import Failure as Error
from proctor_service.features.journal.address import checked
from proctor_service.features.journal.entry import Entries, Record
from proctor_service.features.journal.store import JournalStore
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.outcomes import Item, NoCode, Origin, Outcome
from proctor_service.sandbox.interface import Limits

LIMITS = Limits(
    cpu_seconds=5.0, wall_seconds=10.0, memory_mb=256, output_kb=64, processes=16, disk_mb=16
)
DOUBLE = "def double(n):\n    return 2 * n"
GRADER = AssertsGrader(kind="asserts", tests=["assert double(2) == 4", "assert double(5) == 10"])
PASSED = Judgement("passed", passed=2, total=2, level="calls")
FAILED = Judgement(
    "failed",
    passed=1,
    total=2,
    failures=(Failure(index=1, test="assert double(5) == 10", message="AssertionError"),),
    message="1 of 2 tests failed",
    stdout="said\n",
    level="calls",
)


@dataclass
class Evaluated:
    """One evaluation, to be recorded; `completion` is the code in a fence unless given."""

    number: int
    source: str = DOUBLE
    judgement: Judgement | None = PASSED
    reward: float | None = 1.0
    failure: Error | None = None
    completion: str | None = None
    grader: Grader = GRADER
    limits: Limits = LIMITS
    no_code: bool = False
    with_texts: bool = True
    state: bytes | None = None
    job: str = "run"
    tenant: str = "anyone"
    tags: tuple[str, ...] = ()
    step: int | None = None
    task: str | None = None
    submission_id: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its id."""
        return f"ev_{self.number:032x}"

    def record(self) -> Record:
        """Its record, as the service makes it."""
        submission: Submission | NoCode = Submission(
            self.source, self.grader, self.limits, state=self.state
        )
        if self.no_code:
            submission = NoCode(2)
        said = (
            f"Here:\n```python\n{self.source}\n```" if self.completion is None else self.completion
        )
        item = Item(
            evaluation_id=self.id,
            submission=submission,
            tenant=self.tenant,
            job=self.job,
            deadline=0.0,
            tags=self.tags,
            origin=Origin(
                said,
                "auto",
                self.submission_id or f"c{self.number}",
                self.task or f"task-{self.number % 3}",
                self.step,
            ),
            **self.more,
        )
        outcome = Outcome(self.judgement, self.reward, self.failure)
        return Entries(self.with_texts).evaluation(item, outcome, 0.25)


def written(path: Path, *evaluated: Evaluated, records: Sequence[Record] = ()) -> str:
    """Writes a journal; returns its address."""
    url = f"sqlite:///{path}"
    store = JournalStore(checked(url), "0.1.0")
    store.open()
    store.write([*(each.record() for each in evaluated), *records])
    store.close()
    return url
