"""The feature `verifiers`: programs of a task's author that judge: checkers, interactors and verifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proctor_service.feature import Feature, FeatureGraders

if TYPE_CHECKING:
    from proctor_service.judge.graders.programs import Languages
    from proctor_service.judge.submission import GraderRules
    from proctor_service.settings.languages import Language


class VerifiersFeature(Feature):
    """Programs of tasks' authors in one service."""

    name = "verifiers"

    @classmethod
    def graders(cls, languages: Mapping[str, Language]) -> FeatureGraders:
        """Return `stdio` with programs of the task's author, and `verifier`."""
        from proctor_service.features.verifiers.author_programs import AuthorPrograms
        from proctor_service.features.verifiers.stdio_tasks import StdioTasks
        from proctor_service.features.verifiers.verifier import Verifiers

        def graders(programs: Languages) -> Sequence[GraderRules]:
            authors = AuthorPrograms(programs, languages)
            return (*StdioTasks(authors).rules(), *Verifiers(authors).rules())

        return FeatureGraders(graders)
