"""The feature `languages`: every language but Python."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from proctor_service.feature import Command, Feature, FeatureGraders, LanguageRules

if TYPE_CHECKING:
    from proctor_service.feature import Sources
    from proctor_service.settings.languages import Language


class LanguagesFeature(Feature):
    """Languages of a service."""

    name = "languages"
    commands: ClassVar[Mapping[str, Command]] = MappingProxyType(
        {
            "languages": Command(
                "features.languages.prepare",
                "languages",
                "Files that make compilers start faster, for all sandboxes.",
                is_group=True,
            ),
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

    def backend(self, sources: Sources) -> Sources:
        """Make the folder of prepared files, which must exist before the first sandbox."""
        from proctor_service.settings.prepared_folder import prepared_folder

        if sources.keeps_state and sources.settings.backend == "local":
            with suppress(OSError):  # a read-only installation has what its build has prepared
                prepared_folder().mkdir(0o755, parents=True, exist_ok=True)
        return sources
