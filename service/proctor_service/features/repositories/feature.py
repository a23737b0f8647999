"""The feature `repositories`: the grader `repository`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proctor_service.feature import Feature, FeatureGraders

if TYPE_CHECKING:
    from proctor_service.settings.languages import Language


class RepositoriesFeature(Feature):
    """Patches of repositories in a service."""

    name = "repositories"

    @classmethod
    def graders(cls, languages: Mapping[str, Language]) -> FeatureGraders:
        """Return the grader `repository`."""
        from proctor_service.features.repositories import grader

        return FeatureGraders(lambda _: (grader.rules(),))
