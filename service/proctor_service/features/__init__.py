"""The features: each adds to the core by its `feature.py`, and knows no other feature."""

from __future__ import annotations

from proctor_service.feature import Feature
from proctor_service.features.aviato.feature import Aviato
from proctor_service.features.compat.feature import Compat
from proctor_service.features.environments.feature import EnvironmentsFeature
from proctor_service.features.evaluation.feature import Evaluation
from proctor_service.features.journal.feature import Journal
from proctor_service.features.languages.feature import LanguagesFeature
from proctor_service.features.replicas.feature import ReplicasFeature
from proctor_service.features.rollouts.feature import Rollouts

FEATURES: tuple[type[Feature], ...] = (
    EnvironmentsFeature,
    LanguagesFeature,
    ReplicasFeature,
    Aviato,
    Rollouts,
    Journal,
    Compat,
    Evaluation,
)
"""All features, in the order in which each may replace where judging happens."""
