"""Verifiers by name: the ready verifiers of this package, and the verifiers of the folder PROCTOR_VERIFIERS.

The source and the parameters of the verifier replace the name in a request's grader, so that all later
code handles sources alone, and the cache key has the source.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import JsonValue

from proctor_client.wire import Limits, VerifierGrader
from proctor_service.errors import InvalidRequest
from proctor_service.settings.environments import DEFAULT
from proctor_service.settings.verifiers import Verifier, read_verifiers

SHIPPED = Path(__file__).parent / "shipped"
_SHOWN_CHARACTERS = 100


class NamedVerifiers:
    """Verifiers of a service. `environments`: names of its environments, beside the default."""

    def __init__(self, verifiers: Mapping[str, Verifier], environments: Iterable[str]) -> None:
        self.by_name = verifiers
        self._environments = frozenset((DEFAULT, *environments))

    @property
    def digests(self) -> Mapping[str, str]:
        """Digest of each verifier, by name."""
        return {name: each.digest for name, each in self.by_name.items()}

    def resolved(self, grader: VerifierGrader, where: str) -> VerifierGrader:
        """Return the grader with the source and all parameters, in place of the name.

        The grader's own environment and limits come before the verifier's. Raises InvalidRequest.
        """
        name = grader.name or ""
        verifier = self.by_name.get(name)
        if verifier is None:
            raise InvalidRequest(
                f"{where}.name: no verifier {name[:_SHOWN_CHARACTERS]!r} here{_near(name, self.by_name)}; "
                "GET /verifiers lists them"
            )
        if grader.files:
            raise InvalidRequest(f"{where}.files: a verifier by name takes data as its params")
        if grader.environment is None and (reason := self.missing(verifier)) is not None:
            raise InvalidRequest(f"{where}.name: {reason}")
        limits = verifier.limits.model_dump(exclude_none=True)
        if grader.verifier_limits is not None:
            limits |= grader.verifier_limits.model_dump(exclude_none=True)
        return grader.model_copy(
            update={
                "name": None,
                "source": verifier.source,
                "verifier_language": verifier.language,
                "environment": grader.environment or verifier.environment,
                "verifier_limits": Limits(**limits) if limits else None,
                "params": _checked(verifier, grader.params, f"{where}.params"),
            }
        )

    def missing(self, verifier: Verifier) -> str | None:
        """Return why a verifier is unavailable, and the remedy; None for an available verifier."""
        environment = verifier.environment
        if environment is None or environment in self._environments:
            return None
        return (
            f"the verifier {verifier.name} needs the environment {environment}, which this service lacks: "
            "define it in PROCTOR_ENVIRONMENTS, as in docs/named-verifiers.md, and run proctor env build"
        )


def named_verifiers(folder: Path | None, environments: Iterable[str]) -> NamedVerifiers:
    """Return the verifiers of this package and of a folder, which comes first. Raises StartError."""
    own = read_verifiers(folder)
    return NamedVerifiers(dict(sorted({**read_verifiers(SHIPPED), **own}.items())), environments)


def _checked(
    verifier: Verifier, params: Mapping[str, JsonValue], where: str
) -> dict[str, JsonValue]:
    """Return the parameters, with defaults for missing parameters. Raises InvalidRequest."""
    for name, value in params.items():
        param = verifier.params.get(name)
        if param is None:
            near = _near(name, verifier.params)
            shown = ascii(name)[:_SHOWN_CHARACTERS]
            raise InvalidRequest(f"{where}: {verifier.name} has no parameter {shown}{near}")
        if problem := param.problem_of(value):
            raise InvalidRequest(f"{where}.{name}: {ascii(value)[:_SHOWN_CHARACTERS]} {problem}")
    for name, param in verifier.params.items():
        if name not in params and param.is_required:
            raise InvalidRequest(f"{where}.{name}: {verifier.name} needs it")
    defaults = {
        name: param.default for name, param in verifier.params.items() if param.default is not None
    }
    return {**defaults, **params}


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name[:_SHOWN_CHARACTERS], sorted(names), 1)
    return f"; did you mean {near[0]}?" if near else ""
