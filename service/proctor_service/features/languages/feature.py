"""The feature `languages`: every language but Python."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from proctor_service.feature import Command, Feature, FeatureGraders, LanguageRules

if TYPE_CHECKING:
    from proctor_service.settings.languages import Language


class LanguagesFeature(Feature):
    """Languages of one service."""

    name = "languages"
    commands: ClassVar[Mapping[str, Command]] = MappingProxyType(
        {
            "go-cache": Command(
                "features.languages.go_cache",
                "go_cache",
                "Compile Go's standard library into a build cache for all sandboxes: PROCTOR_GO_CACHE.",
            ),
        }
    )

    @classmethod
    def graders(cls, languages: Mapping[str, Language]) -> FeatureGraders:
        """Return the languages other than Python. Raises StartError for an unknown launcher."""
        from functools import partial

        from proctor_service.features.languages.installed import OtherLanguages
        from proctor_service.features.languages.jvm_names import named
        from proctor_service.features.languages.texts import texts_of

        texts = partial(texts_of, languages=languages)
        rules = LanguageRules(OtherLanguages(languages), texts, named)
        return FeatureGraders(languages=rules)
