"""Kubernetes' own schemas, by version, and those of the operators whose kinds the manifests use.

crds.json has of each custom resource definition what the manifests use, from prometheus-operator and
from the standard channel of gateway-api.
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import kubernetes_validate

from deploy.manifests import Json

VERSIONS = tuple(f"1.{minor}" for minor in range(30, 37))
CRDS = json.loads((Path(__file__).parent / "crds.json").read_text())


def validate(found: Json, version: str) -> None:
    """Raises when Kubernetes, or the operator whose kind it is, would not take it."""
    if found["kind"] in CRDS:
        jsonschema.validate(found, CRDS[found["kind"]])
    else:
        kubernetes_validate.validate(found, version, strict=True)
