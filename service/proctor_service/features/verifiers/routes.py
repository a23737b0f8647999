"""GET /verifiers: the verifiers by name, for the grader `verifier`."""

from __future__ import annotations

from fastapi import APIRouter

from proctor_client.wire import Verifier as WireVerifier
from proctor_client.wire import VerifierLimits, VerifierList, VerifierParam
from proctor_service.features.verifiers.named_verifiers import NamedVerifiers
from proctor_service.http.openapi import answers
from proctor_service.settings.verifiers import Param, Verifier


def verifier_routes(named: NamedVerifiers) -> APIRouter:
    """Return the route."""
    routes = APIRouter()
    listed = VerifierList(verifiers=[_body(each, named) for each in named.by_name.values()])

    @routes.get("/verifiers", responses=answers(VerifierList, 401))
    async def verifiers() -> VerifierList:
        """Return the verifiers by name, with their parameters."""
        return listed

    return routes


def _body(verifier: Verifier, named: NamedVerifiers) -> WireVerifier:
    reason = named.missing(verifier)
    limits = verifier.limits.model_dump(exclude_none=True)
    return WireVerifier(
        name=verifier.name,
        description=verifier.description,
        language=verifier.language,
        environment=verifier.environment,
        params={name: _param(each) for name, each in verifier.params.items()},
        limits=VerifierLimits(**limits) if limits else None,
        digest=verifier.digest,
        available=reason is None,
        reason=reason,
    )


def _param(param: Param) -> VerifierParam:
    return VerifierParam(
        types=list(param.types),
        required=param.is_required,
        default=param.default,
        choices=list(param.choices),
        description=param.description,
    )
