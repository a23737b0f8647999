"""The feature `verifiers`: programs of a task's author as judges: checkers, interactors and verifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from proctor_service.feature import Feature, FeatureGraders

if TYPE_CHECKING:
    from fastapi import APIRouter

    from proctor_service.feature import Core, Sources
    from proctor_service.features.verifiers.named_verifiers import NamedVerifiers
    from proctor_service.judge.graders.programs import Languages
    from proctor_service.judge.submission import GraderRules
    from proctor_service.settings.languages import Language


class VerifiersFeature(Feature):
    """Programs of tasks' authors in a service."""

    name = "verifiers"

    def __init__(self) -> None:
        self._named: NamedVerifiers | None = None

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

    def backend(self, sources: Sources) -> Sources:
        """Return the sources with the verifiers by name. Raises StartError."""
        from proctor_service.features.verifiers.named_verifiers import named_verifiers

        self._named = named_verifiers(sources.settings.verifiers, sources.environments)
        return replace(sources, verifiers=self._named)

    def routes(self, core: Core) -> Sequence[APIRouter]:
        """Return the route GET /verifiers."""
        from proctor_service.features.verifiers.routes import verifier_routes

        assert self._named is not None, "backend comes first"
        return [verifier_routes(self._named)]
