"""The features: each adds to the core by its `feature.py`, and knows no other feature."""

from __future__ import annotations

from proctor_service.feature import Feature
from proctor_service.features.aviato.feature import AviatoFeature
from proctor_service.features.compat.feature import CompatFeature
from proctor_service.features.environments.feature import EnvironmentsFeature
from proctor_service.features.evaluation.feature import EvaluationFeature
from proctor_service.features.journal.feature import JournalFeature
from proctor_service.features.languages.feature import LanguagesFeature
from proctor_service.features.replicas.feature import ReplicasFeature
from proctor_service.features.repositories.feature import RepositoriesFeature
from proctor_service.features.rollouts.feature import RolloutsFeature
from proctor_service.features.verifiers.feature import VerifiersFeature

FEATURES: tuple[type[Feature], ...] = (
    EnvironmentsFeature,
    RepositoriesFeature,
    LanguagesFeature,
    VerifiersFeature,
    ReplicasFeature,
    AviatoFeature,
    RolloutsFeature,
    JournalFeature,
    CompatFeature,
    EvaluationFeature,
)
"""All features, in the order in which each may replace where judging happens."""
