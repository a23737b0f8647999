"""Interface between the core and a feature: a feature's additions to the service.

The core imports no feature. `features/__init__.py` lists the features; `app.py` makes one object of
each for a service, and asks the object for its members. A feature imports its modules where it uses
them, since the command line reads `commands` alone, and must start at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from proctor_service.errors import StartError

if TYPE_CHECKING:
    from fastapi import APIRouter
    from pydantic import BaseModel

    from proctor_service.evaluate import Evaluate, Judge
    from proctor_service.http.fleet import Fleet
    from proctor_service.http.middleware import Pages, Tokens
    from proctor_service.http.responses import RequestTask
    from proctor_service.judge.extract import Texts
    from proctor_service.judge.graders.programs import Languages
    from proctor_service.judge.submission import GraderRules
    from proctor_service.observe.metrics import Metrics
    from proctor_service.observe.observer import Observer, Observers
    from proctor_service.rewards.machine import Machine, NamedVerifiers
    from proctor_service.rewards.routes import RewardHandler
    from proctor_service.sandbox.environments import Environments, HoldEnvironment
    from proctor_service.sandbox.interface import Backend, BackendSource
    from proctor_service.sandboxes.registry import Registry
    from proctor_service.scheduling.fair_share import Shares
    from proctor_service.scheduling.queue import Deadlines, FairQueue
    from proctor_service.settings import Settings
    from proctor_service.settings.languages import Language


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its module in this package, the function there, and the line in the list of commands.

    `takes_parts`: the function is called with the command's parts, and returns the command itself.
    `is_group`: the result of the function is a Typer app with further commands.
    """

    module: str
    function: str
    help: str
    is_group: bool = False
    takes_parts: bool = False


@dataclass(frozen=True, slots=True)
class Sources:
    """Where judging happens, before the parts of the service exist.

    `backend`, `judge`: None: sandboxes of this machine, and the judge in this process.
    `environments`: by name, without the default. `fleet`: this replica among its peers. `verifiers`: by
    name.
    `hold`: context in which an environment has all its files; None: they are always there.
    `keeps_state`: files in the user's state folder are allowed, as for `proctor serve`.
    """

    settings: Settings
    metrics: Metrics
    environments: Environments
    fleet: Fleet
    backend: Backend | None = None
    judge: Judge | None = None
    keeps_state: bool = False
    verifiers: NamedVerifiers | None = None
    hold: HoldEnvironment | None = None


@dataclass(frozen=True, slots=True)
class Core:
    """The connected parts of the service, as features use them.

    `running`: unfinished requests, which a drain waits for and then cancels. `queues`: queues
    closed to new work by a drain, after the main queue. `finishing`: awaited in a drain, within the
    grace period. `listening`: called with the URL of the listening service. `bodies`: models
    of bodies for the OpenAPI page. `pages`: pages for browsers, at most one.
    """

    settings: Settings
    machine: Machine
    metrics: Metrics
    queue: FairQueue
    gradings: FairQueue
    deadlines: Deadlines
    shares: Shares
    evaluate: Evaluate
    rewards: RewardHandler
    registry: Registry
    tokens: Tokens
    observers: Observers
    running: set[RequestTask[Any]]
    queues: list[FairQueue]
    finishing: list[Callable[[], Awaitable[None]]]
    listening: list[Callable[[str], None]]
    bodies: list[type[BaseModel]]
    pages: list[Pages]


@dataclass(frozen=True, slots=True)
class LanguageRules:
    """The languages other than Python.

    `programs`: for the graders of the core. `texts`: rules of texts in a language, by its name.
    `named`: returns a language with the class names of a source.
    """

    programs: Languages
    texts: Callable[[str], Texts]
    named: Callable[[Language, str], Language]


def _no_graders(_: Languages) -> Sequence[GraderRules]:
    return ()


@dataclass(frozen=True, slots=True)
class FeatureGraders:
    """Graders of a feature, or the languages other than Python.

    `graders`: takes the languages other than Python; a grader of the core's kind replaces it.
    """

    graders: Callable[[Languages], Sequence[GraderRules]] = _no_graders
    languages: LanguageRules | None = None


class Feature:
    """A feature of one service. Each member is optional: the members of this class are empty."""

    name: ClassVar[str]
    commands: ClassVar[Mapping[str, Command]] = MappingProxyType({})
    """Commands of `proctor` by name; `eval harbor` is a part that the command `eval` is given."""

    sandboxes: ClassVar[Mapping[str, BackendSource]] = MappingProxyType({})
    """Sources of sandboxes, by the value of PROCTOR_BACKEND."""

    @classmethod
    def settings(cls) -> type[BaseModel] | None:
        """Return the feature's own settings: a frozen pydantic model, each field with a default.

        A field is read as `PROCTOR_` and its name, by `read_group` of settings/sources.py.
        """
        return None

    @classmethod
    def graders(cls, languages: Mapping[str, Language]) -> FeatureGraders:
        """Return graders, or replacements for the core's languages; `languages`: their table."""
        return FeatureGraders()

    def backend(self, sources: Sources) -> Sources:
        """Return where judging happens, with the feature's sandboxes, environments or judge.

        Called in the order of the features, before the parts exist. Raises StartError.
        """
        return sources

    def observers(self, sources: Sources) -> Sequence[Observer]:
        """Return listeners to evaluations and rollouts."""
        return ()

    def routes(self, core: Core) -> Sequence[APIRouter]:
        """Return the feature's routes, connected with the core. Raises StartError."""
        return ()

    async def open(self) -> None:
        """Start after all parts of a reward. Raises StartError."""

    async def close(self) -> None:
        """End the parts started by `backend`, `routes` and `open`."""


@contextlib.contextmanager
def needing(packages: Sequence[str], setting: str, extra: str) -> Iterator[None]:
    """Context for the import of an optional extra. Raises StartError if the extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in packages:
            raise
        message = f"{setting} needs the package {error.name}: install proctor-service[{extra}]"
        raise StartError(message) from None
