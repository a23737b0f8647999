"""Backends, graders and settings of the core and of all features, for the service and for its commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from proctor_service.feature import LanguageRules
from proctor_service.features import FEATURES
from proctor_service.judge.graders import own_graders
from proctor_service.judge.submission import Graders
from proctor_service.sandbox.environments import NO_ENVIRONMENTS, Environments
from proctor_service.sandbox.interface import Backend, BackendSource, MachineCheck
from proctor_service.sandbox.local import LocalBackends
from proctor_service.settings import Settings, Share
from proctor_service.settings.languages import Language
from proctor_service.settings.sources import Group

BACKENDS: Mapping[str, BackendSource] = MappingProxyType(
    {"local": LocalBackends()}
    | {name: source for each in FEATURES for name, source in each.sandboxes.items()}
)


def make_backend(
    settings: Settings, share: Share | None = None, environments: Environments = NO_ENVIRONMENTS
) -> Backend:
    """Return the backend named in the settings. Raises StartError if the backend is unavailable.

    `share`: the backend's part of the machine; the whole by default.
    """
    return BACKENDS[settings.backend].make(settings, share or Share(), environments)


def doctor(settings: Settings) -> list[MachineCheck]:
    """Return the checks of the chosen backend: present and missing protections."""
    return BACKENDS[settings.backend].examine(settings)


def feature_settings() -> tuple[Group, ...]:
    """Return the settings that features have of their own, beside `Settings`."""
    return tuple(group for each in FEATURES if (group := each.settings()) is not None)


def make_rules(languages: Mapping[str, Language]) -> tuple[Graders, LanguageRules]:
    """Return the rules of each grader, and those of languages. Raises StartError.

    `languages`: all but Python, by name.
    """
    added = [each.graders(languages) for each in FEATURES]
    others = next(each.languages for each in added if each.languages is not None)
    graders = [*own_graders(others.programs)]
    for each in added:
        graders += each.graders(others.programs)
    return {each.kind: each for each in graders}, others


def all_graders(languages: Mapping[str, Language]) -> Graders:
    """Return the rules of each grader of the service, as `make_rules`."""
    graders, _ = make_rules(languages)
    return graders
