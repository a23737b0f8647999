"""The feature `evaluation`: commands for whole data sets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from proctor_service.feature import Command, Feature


class EvaluationFeature(Feature):
    """Commands alone: they judge over HTTP, or by a service of their own."""

    name = "evaluation"
    commands: ClassVar[Mapping[str, Command]] = MappingProxyType(
        {
            "eval": Command(
                "features.evaluation.evaluation",
                "evaluation",
                "Judge the problems of a file or of a data set: completions, or the reference solutions.",
                takes_parts=True,
            ),
            "audit": Command(
                "features.evaluation.audit",
                "audit",
                "Find errors in a data set: failing references, and flaky or vacuous tests.",
                takes_parts=True,
            ),
            "audit graders": Command("composition", "all_graders", "Rules of all graders."),
            "tasks": Command(
                "features.evaluation.conversion",
                "tasks",
                "Make tasks of the rows of public data sets.",
                is_group=True,
            ),
            "bench hacks": Command(
                "features.evaluation.hacks",
                "hacks",
                "Send programs that deserve no reward, and similar honest programs.",
            ),
        }
    )
