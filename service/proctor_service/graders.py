"""The registry of graders: those of the core, and those that features add."""

from __future__ import annotations

from collections.abc import Mapping

from proctor_service.features.environments import harbor
from proctor_service.features.languages.installed import OtherLanguages
from proctor_service.judge.graders import own_graders
from proctor_service.judge.submission import Graders
from proctor_service.settings.languages import Language


def all_graders(languages: Mapping[str, Language]) -> Graders:
    """Return the rules of each grader of the service. `languages`: all but Python, by name."""
    return {each.kind: each for each in (*own_graders(OtherLanguages(languages)), harbor.RULES)}
