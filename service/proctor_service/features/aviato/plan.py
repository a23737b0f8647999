"""Settings converted to requests to Aviato: sizes, tags, lifetimes, limits."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import SecretStr

from proctor_service.errors import StartError
from proctor_service.features.aviato.budget import BudgetLimits
from proctor_service.sandbox.environments import NO_ENVIRONMENTS, BuiltEnvironment, Environments
from proctor_service.sandbox.interface import (
    DEFAULT,
    ENVIRONMENT_IDLE_SECONDS,
    FLOOD_BYTES,
    Limits,
)
from proctor_service.settings import Settings, Share
from proctor_service.settings.aviato import AviatoOptions
from proctor_service.settings.languages import Language

_OVERHEAD_MB = 192  # for supervisor, interpreter, and kernel memory besides the program's own
_STEP_MB = 256  # sizes are rounded up to multiples, so few sizes occur
_MARGIN_SECONDS = 30.0
_STARVED = 2.0  # run-queue wait is excluded from limits, so a program may take longer
_TAG = re.compile(r"[^\w.:=/-]")  # the blank in "run 7"
_TAG_CHARACTERS = 100
_OWN = "proctor"
_RUN = f"{_OWN}-run-"
_MICRO = 1_000_000
_PYTHON = "python3"
_CPU = "1"
_CREATIONS = 16  # at once: so a pool fills in a few starts, and a small quota of requests suffices
START_SECONDS = 60.0  # a sandbox not ready by then is given up
_MAX_AGE_SECONDS = 1800.0  # a sandbox unused until then is replaced
_KEPT_SECONDS = 86_400.0  # longest life of a stateful sandbox, however busy
LEASE_SECONDS = 30.0  # other replicas stop the sandboxes of a replica silent in Redis for so long
_OTHERS = "*"  # the price of environments without their own
_WARM = 2  # ready sandboxes of an environment beside the default


@dataclass(frozen=True, slots=True)
class Shape:
    """Attributes in which sandboxes differ: total memory, and network access."""

    memory_mb: int
    network: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Request for a new sandbox."""

    image: str
    shape: Shape
    tags: tuple[str, ...]
    lifetime_seconds: float
    cpu: str
    options: AviatoOptions


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """Budget of all replicas with this Redis, or of this process without Redis."""

    limits: BudgetLimits
    lease_seconds: float
    redis_url: SecretStr


@dataclass(frozen=True, slots=True)
class AviatoPlan:
    """Parameters of the Aviato backend.

    `variables`: of every program, beside the sandbox's own. `environments`: the plan of each
    environment but the default; a pool of theirs ends after `idle_seconds` without use. `price`:
    micro-dollars per hour of a sandbox. `wandb`: the credentials are W&B's.
    """

    base_url: str
    api_key: SecretStr
    wandb: bool
    image: str
    python: str
    cpu: str
    instance: str
    start: str
    worker: int
    run: str
    memory_mb: int
    flood_bytes: int
    first_uid: int
    pool_size: int
    most_sandboxes: int
    creations: int
    start_seconds: float
    max_age_seconds: float
    longest_seconds: float
    kept_seconds: float
    reuse: bool
    allow_degraded: bool
    languages: Mapping[str, Language]
    idle_seconds: float
    options: AviatoOptions = field(default_factory=AviatoOptions)
    price: int = 0
    budget: BudgetPlan | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, AviatoPlan] = field(default_factory=dict)

    @property
    def instance_tag(self) -> str:
        """Tag on every sandbox of this instance name, across restarts of the service."""
        return f"{_OWN}-instance-{_clean(self.instance)}"

    @property
    def start_tag(self) -> str:
        """Tag on every sandbox of all judge processes of this start of the service."""
        return f"{_OWN}-start-{self.start}"

    @property
    def own_tags(self) -> tuple[str, str]:
        """Two tags, together unique to this process and the judge process before."""
        return self.start_tag, f"{_OWN}-worker-{self.worker}"

    @property
    def run_tag(self) -> str:
        """Tag on every sandbox of this run of the service."""
        return self.run_tag_of(self.run)

    @staticmethod
    def run_tag_of(run: str) -> str:
        """Tag on every sandbox of a run of any replica."""
        return f"{_RUN}{run}"

    @staticmethod
    def run_of(tags: Sequence[str]) -> str | None:
        """Run of a sandbox with these tags."""
        return next((tag.removeprefix(_RUN) for tag in tags if tag.startswith(_RUN)), None)

    @staticmethod
    def group_tag_of(group: str) -> str:
        """Tag on every sandbox of all replicas with the same budget."""
        return f"{_OWN}-replicas-{group}"

    @property
    def pool_shape(self) -> Shape:
        """Shape of the sandboxes in the pool: for the default limits and for lower limits."""
        return _shape(self.memory_mb, False)

    def shape(self, limits: Limits) -> Shape:
        """Return the pool's shape, or a larger shape if the limits require more."""
        return _shape(max(limits.memory_mb, self.memory_mb), limits.network)

    def warm_order(self, shape: Shape) -> Order:
        """Return the order for submissions' sandboxes.

        The lifetime covers the maximum age in the pool, the start, and the longest submission.
        """
        lifetime = self.max_age_seconds + self.start_seconds + self.longest_seconds
        return self._order(shape, self._tags(), lifetime)

    def kept_order(self, limits: Limits, tags: Sequence[str]) -> Order:
        """Return the order for a stateful sandbox, with the caller's tags."""
        return self._order(self.shape(limits), self._tags(tags), self.kept_seconds)

    def _order(self, shape: Shape, tags: tuple[str, ...], lifetime_seconds: float) -> Order:
        return Order(self.image, shape, tags, lifetime_seconds, self.cpu, self.options)

    def call_seconds(self, seconds: float) -> float:
        """Return the timeout of an SDK call, much longer than the time enforced inside."""
        return seconds * _STARVED + _MARGIN_SECONDS

    def _tags(self, more: Sequence[str] = ()) -> tuple[str, ...]:
        requested_tags = [_clean(tag) for tag in more if not tag.startswith(_OWN)]
        return (_OWN, self.instance_tag, self.run_tag, *self.own_tags, *requested_tags)


def make_plan(
    settings: Settings, share: Share | None = None, environments: Environments = NO_ENVIRONMENTS
) -> AviatoPlan:
    """Return the plan of the service, or of a judge process with a share.

    Raises StartError without a key, or if PROCTOR_MAX_SANDBOXES is too low.
    """
    wandb = settings.aviato_auth == "wandb"
    if not wandb and not settings.aviato_api_key.get_secret_value():
        raise StartError(
            "the backend aviato needs a key: set CWSANDBOX_API_KEY, AVIATO_API_KEY or "
            "PROCTOR_AVIATO_API_KEY, or PROCTOR_AVIATO_AUTH=wandb for the credentials of W&B"
        )
    share = share or Share()
    slots = settings.slot_count()
    needed = 2 * slots + settings.stateful_count()
    if settings.max_sandboxes < needed:
        raise StartError(
            f"PROCTOR_MAX_SANDBOXES is {settings.max_sandboxes}: an evaluation may hold two sandboxes, "
            f"so {slots} at once (PROCTOR_SLOTS), beside the stateful ones, need {needed}"
        )
    longest = (settings.max_cpu_seconds + settings.max_wall_seconds) * _STARVED + _MARGIN_SECONDS
    plan = AviatoPlan(
        base_url=settings.aviato_base_url,
        api_key=settings.aviato_api_key,
        wandb=wandb,
        image=settings.aviato_image,
        python=_PYTHON,
        cpu=settings.aviato_options.cpu or _CPU,
        options=settings.aviato_options,
        instance=settings.aviato_instance or socket.gethostname(),
        start=share.start or secrets.token_hex(8),
        worker=share.index,
        run=secrets.token_hex(8),
        memory_mb=settings.memory_mb,
        flood_bytes=FLOOD_BYTES,
        first_uid=settings.sandbox_uid,
        pool_size=settings.pool_size,
        most_sandboxes=settings.max_sandboxes,
        creations=max(_CREATIONS, settings.pool_size // 2),
        start_seconds=START_SECONDS,
        max_age_seconds=_MAX_AGE_SECONDS,
        longest_seconds=longest,
        kept_seconds=_KEPT_SECONDS,
        reuse=settings.aviato_reuse == "process",
        allow_degraded=settings.allow_degraded,
        languages=settings.languages,
        idle_seconds=ENVIRONMENT_IDLE_SECONDS,
        price=_price(settings, DEFAULT),
        budget=_budget(settings, environments),
    )
    own = {name: _plan_in(name, each, plan, settings) for name, each in environments.items()}
    return replace(plan, environments=own)


def _plan_in(
    name: str, environment: BuiltEnvironment, plan: AviatoPlan, settings: Settings
) -> AviatoPlan:
    """Return the plan of an environment: its image, variables and size of sandboxes."""
    own_mb = environment.definition.limits.memory_mb or plan.memory_mb
    options = environment.definition.aviato
    return replace(
        plan,
        image=environment.remote_image,
        variables=environment.definition.env,
        price=_price(settings, name),
        cpu=options.cpu or plan.cpu,
        options=options,
        memory_mb=min(own_mb, settings.max_memory_mb),
        pool_size=min(plan.pool_size, _WARM),
    )


def _price(settings: Settings, environment: str) -> int:
    """Return the price of a sandbox in micro-dollars per hour."""
    prices = settings.aviato_prices_per_hour
    return round(prices.get(environment, prices.get(_OTHERS, 0.0)) * _MICRO)


def _budget(settings: Settings, environments: Environments) -> BudgetPlan | None:
    """Return the budget, if any.

    Raises StartError if an evaluation alone exceeds it, and for a budget of money without a price.
    """
    prices, names = settings.aviato_prices_per_hour, (DEFAULT, *environments)
    if unknown := sorted(set(prices) - {_OTHERS, *names}):
        raise StartError(
            f"PROCTOR_AVIATO_PRICES_PER_HOUR: no environment {unknown[0]!r}, only: {', '.join(names)}"
        )
    sandboxes = settings.aviato_budget_sandboxes or 0
    rate = round((settings.aviato_budget_per_hour or 0) * _MICRO)
    if not sandboxes and not rate:
        return None
    # An evaluation may hold two sandboxes at the same time.
    if sandboxes == 1:
        raise StartError("PROCTOR_AVIATO_BUDGET_SANDBOXES is 1: an evaluation may hold two")
    priceless = [name for name in names if name not in prices]
    if rate and priceless and _OTHERS not in prices:
        raise StartError(
            f"PROCTOR_AVIATO_BUDGET_PER_HOUR needs a price of the environment {priceless[0]}: set "
            'PROCTOR_AVIATO_PRICES_PER_HOUR={"*": …}; 0 if it costs nothing'
        )
    dearest = max(_price(settings, name) for name in names)
    if rate and 2 * dearest > rate:
        raise StartError(
            f"PROCTOR_AVIATO_BUDGET_PER_HOUR is {rate / _MICRO:g}: an evaluation may hold two "
            f"sandboxes of {dearest / _MICRO:g} per hour"
        )
    limits = BudgetLimits(sandboxes, rate)
    return BudgetPlan(limits, LEASE_SECONDS, settings.redis_url)


def _shape(memory_mb: int, network: bool) -> Shape:
    return Shape(-(-(memory_mb + _OVERHEAD_MB) // _STEP_MB) * _STEP_MB, network)


def _clean(tag: str) -> str:
    return _TAG.sub("_", tag)[:_TAG_CHARACTERS]
