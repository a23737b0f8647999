"""Registry of the core's graders: each module here with a function `rules`. Features add further graders."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module

from proctor_service.judge.graders.programs import Languages
from proctor_service.judge.submission import GraderRules


def own_graders(languages: Languages) -> tuple[GraderRules, ...]:
    """Return the rules of each grader of the core. `languages`: all but Python."""
    found: list[GraderRules] = []
    for each in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{each.name}")
        if hasattr(module, "rules"):  # others help graders
            rules: Sequence[GraderRules] = module.rules(languages)
            found += rules
    return tuple(found)
