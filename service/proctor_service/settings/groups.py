"""All settings in groups, each with unit, default and reason.

Each field is the variable `PROCTOR_` + its name in capitals, and a key of the file in PROCTOR_CONFIG;
the README's tables are generated from the groups.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
)

from proctor_service.settings.aviato import AviatoOptions
from proctor_service.settings.language_rows import KNOWN_LANGUAGES
from proctor_service.settings.languages import Language
from proctor_service.settings.sources import AlsoReadAs, OrFile

Weight = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Accounts of slot seconds divided by a weight must stay finite."""
Dollars = Annotated[float, Field(ge=0, le=1e6)]


def _at_aviato(name: str) -> AlsoReadAs:
    """Return the variables of a setting which Aviato's own clients read as well."""
    return AlsoReadAs((f"CWSANDBOX_{name}", f"AVIATO_{name}"))


class Group(BaseModel):
    """A group of settings, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Server(Group):
    """Address, log, and the end of the service."""

    host: str = "127.0.0.1"
    """Address to listen on. Others than loopback need a token."""
    port: int = Field(8080, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level logged."""
    log_format: Literal["console", "json"] = "console"
    """For people, or for a collector."""
    grace_seconds: PositiveFloat = 25.0
    """After SIGTERM, what runs may finish within this."""
    max_body_mb: PositiveInt = 32
    """A larger request body is a 413."""


class Access(Group):
    """Tokens, and the readers of metrics."""

    tokens: SecretStr = SecretStr("")
    """JSON object from tenant to token."""
    tokens_file: Path | None = None
    """File that holds such an object."""
    metrics_public: bool = False
    """Serve /metrics without a token, with the jobs of all tenants."""
    metrics_tenants: list[str] = []
    """JSON list of tenants whose tokens show the jobs of all tenants on /metrics; others show their own."""


class Queue(Group):
    """Evaluations at once, waiting, and remembered."""

    slots: NonNegativeInt = 0
    """Evaluations at once; 0: two more than cores, as some are between sandboxes."""
    # "auto", "12"
    workers: str = Field("auto", pattern=r"^(auto|[0-9]{1,4})$", coerce_numbers_to_str=True)
    """Judge processes; 0: the listening process judges; auto: one for six cores, 0 below 8 cores."""
    max_queued: PositiveInt = 20_000
    """Submissions that may wait; beyond it a request is a 429."""
    cache_mb: NonNegativeInt = 256
    """Memory for results of identical work, about; 0 turns the cache off."""


class Tenants(Group):
    """Shares of tenants. In each object, `*` stands for all other tenants."""

    tenant_weights: dict[str, Weight] = {}
    """JSON object from tenant to its part of the time where several wait; `*`: others; default: 1."""
    tenant_slots: dict[str, PositiveInt] = {}
    """JSON object from tenant to its evaluations at once, per replica; `*`: others; default: all slots."""
    tenant_sandboxes: dict[str, NonNegativeInt] = {}
    """The same for its sandboxes of /sandboxes and /rollout; beyond it a request is a 429."""


class Limits(Group):
    """Default limits of submissions, and ceilings. Those that nobody chooses are constants."""

    cpu_seconds: PositiveFloat = 10.0
    """Default limit: CPU time of a submission for one test; of all together, ten times as much."""
    wall_seconds: PositiveFloat = 60.0
    """Default limit: wall time in which it idles, in the same way."""
    memory_mb: PositiveInt = 512
    """Default limit: memory of all its processes."""
    disk_mb: PositiveInt = 64
    """Default limit: files in the working directory and /tmp."""
    max_memory_mb: PositiveInt = 8192
    """Ceiling of `memory_mb`."""
    output_kb: ClassVar[int] = 64
    """Kept of each output stream."""
    processes: ClassVar[int] = 64
    """Processes and threads at once."""
    max_cpu_seconds: ClassVar[float] = 3600.0
    """A test of an hour; all tests together may take ten times as much."""
    max_wall_seconds: ClassVar[float] = 3600.0
    """The same, also for a command in a stateful sandbox; all tests together, ten times as much."""
    max_output_kb: ClassVar[int] = 16_384
    """Results are in memory several times on their way to the client."""
    max_processes: ClassVar[int] = 1024
    max_disk_mb: ClassVar[int] = 4096
    """Files of a sandbox are in memory."""


class Sandboxes(Group):
    """Sandboxes, and their view of the machine."""

    backend: Literal["local", "aviato"] = "local"
    """Where sandboxes are: on this machine, or at Aviato."""
    max_sandboxes: PositiveInt = 512
    """Forkservers at most, one for each sandbox at once."""
    max_stateful_sandboxes: PositiveInt = 256
    """Sandboxes of /sandboxes at once; at most half of `max_sandboxes`, so that rewards never starve."""
    sandbox_uid: int = Field(61_000, gt=0, lt=61_500)
    """First of 4,000 user ids that submissions run under."""
    sandbox_python: Path | None = None
    """Interpreter of the sandboxes; default: the base interpreter of this venv."""
    sandbox_paths: list[Path] = []
    """More directories to show read-only in every sandbox; none at /tmp or other places of its own files."""
    allow_degraded: bool = False
    """Start although isolation is incomplete; every result says so."""


class Programs(Group):
    """Languages and environments."""

    languages: Annotated[dict[str, Language], OrFile()] = Field(
        default_factory=lambda: dict(KNOWN_LANGUAGES)
    )
    """Languages beside those that are known: a TOML file (`.toml`) as in docs/languages.md, or JSON.

    In JSON also instead of those that are known, and null for one that is not wanted.
    """
    go_cache: Path | None = None
    """Warm build cache of Go, read-only in every sandbox: a directory that `proctor go-cache` fills."""
    environments: Path | None = None
    """TOML file of environments, as in docs/environments.md; `proctor env build` builds them."""
    environments_folder: Path | None = None
    """Where built environments are; default: `environments` in the user's state folder."""
    images: list[str] = []
    """Names of images that requests may name, with `*`: `["docker.io/swebench/*"]`; JSON."""
    image_spread: int = Field(2, ge=1)
    """Replicas that keep an image by name; the others hand its submissions to them."""
    images_gb: float = Field(100.0, gt=0)
    """Size of all images and their layers together; of images by name, those unused for longest go first."""
    verifiers: Path | None = None
    """Folder of verifiers, a TOML file for each, as in docs/named-verifiers.md; they stand beside the ready
    ones, and replace those of the same name."""
    compat_environments: dict[str, str] = {}
    """Environment of requests to /compat, by the beginning of the path; JSON."""


class Rollouts(Group):
    """Policies and tools of rollouts."""

    policy_hosts: list[str] = ["*"]
    """JSON list of hosts for policy URLs, `*` is a wild card; never link-local or metadata addresses."""
    mcp_servers: SecretStr = Field(
        SecretStr(""),
        description="JSON object from a name to `url` and `headers` of an MCP server with streamable "
        "HTTP: the only ones that a rollout may name.",
    )


class Replicas(Group):
    """Several replicas of the service."""

    peers: list[str] = Field(
        [],
        description="JSON list of the replicas' addresses: `http://10.0.0.7:8080`, or "
        "`dns://proctor-replicas:8080` for all that a name has. This one may be among them.",
    )
    advertise_url: str = ""
    """Under which of them the others reach this one. Needed with `peers`."""
    spread: bool = True
    """Peers with free cores judge a part of a large batch. Needs `peers`."""
    redis_url: SecretStr = SecretStr("")
    """Redis in which replicas share results judged under an Idempotency-Key; without it, each has its own."""


class Records(Group):
    """The journal, and traces."""

    journal: SecretStr | None = Field(
        None,
        description="Database of all evaluations and rollouts: `sqlite:////path/to/file`, "
        "`postgresql://…`, or `off`; default: a file in `~/.local/state/proctor`.",
    )
    journal_texts: bool = True
    """Record completions, tests and outputs too. Without them nothing can be judged again."""
    journal_days: PositiveFloat = 30.0
    """Older records are removed; so are the oldest beyond 10 GB."""
    otlp_endpoint: str = ""
    """Where traces go over OTLP/HTTP: `http://collector:4318`; none by default."""


class Aviato(Group):
    """Sandboxes at Aviato, where `backend` is `aviato`."""

    pool_size: PositiveInt = 32
    """Aviato: sandboxes kept ready; without `slots` also what runs at once."""
    aviato_api_key: Annotated[SecretStr, _at_aviato("API_KEY")] = SecretStr("")
    """Aviato's key; CWSANDBOX_API_KEY and AVIATO_API_KEY are read too."""
    aviato_auth: Literal["key", "wandb"] = "key"
    """Credentials for Aviato: this key, or those of W&B (WANDB_API_KEY or `wandb login`)."""
    aviato_base_url: Annotated[str, _at_aviato("BASE_URL")] = "https://api.cwsandbox.com"
    """Aviato's address; CWSANDBOX_BASE_URL and AVIATO_BASE_URL are read too."""
    aviato_instance: str = Field(
        "",
        description="Name of this service at Aviato, no other's and the same after a restart, "
        "which stops what the last start left; default: the host's name.",
    )
    aviato_image: str = "python:3.11"
    """Image of the sandboxes: `python3` of 3.11 or later, commands as root."""
    aviato_options: AviatoOptions = Field(
        AviatoOptions(),
        description="JSON: `cpu`, `gpu`, `runtime_class`, `secrets`, `mounts`, `egress` and `pull` of "
        "sandboxes without an environment, as `aviato` in docs/environments.md.",
    )
    aviato_reuse: Literal["never", "process"] = Field(
        "never",
        description="`process`: one sandbox for many submissions, each as another user in an emptied "
        "directory; every result says so.",
    )
    aviato_prices_per_hour: dict[str, Dollars] = {}
    """JSON: dollars per hour of a sandbox, by environment; `*`: others. A budget of money needs it."""
    aviato_budget_sandboxes: PositiveInt | None = Field(
        None,
        description="Sandboxes that all replicas with one `PROCTOR_REDIS_URL` may have at once; "
        "without Redis, those of this replica.",
    )
    aviato_budget_per_hour: float | None = Field(None, gt=0, le=1e9)
    """Dollars per hour of all these sandboxes together, at most."""


_LIMIT = "a request's `limits` set it"
_CONSTANT = "the service has a constant for it now"
REMOVED_SETTINGS = {
    "aviato_budget_lease_seconds": f"{_CONSTANT}, 30 s",
    "aviato_cpu": 'PROCTOR_AVIATO_OPTIONS={"cpu": "2"} replaces it',
    "aviato_creations": "half of PROCTOR_POOL_SIZE, and at least 16, are made at once",
    "aviato_kept_seconds": f"{_CONSTANT}, a day",
    "aviato_max_age_seconds": f"{_CONSTANT}, 30 minutes",
    "aviato_price_per_hour": 'PROCTOR_AVIATO_PRICES_PER_HOUR={"*": 0.4} replaces it',
    "aviato_python": f"{_CONSTANT}, python3 on the image's PATH",
    "aviato_start_seconds": f"{_CONSTANT}, 60 s",
    "cache_entries": "PROCTOR_CACHE_MB bounds the cache, and 0 turns it off",
    "compiler_flags": f"{_CONSTANT}: the standards and flags of docs/graders.md",
    "ended_sandbox_seconds": f"{_CONSTANT}, 10 minutes",
    "ended_sandboxes": f"{_CONSTANT}, 2,000",
    "environment_idle_seconds": f"{_CONSTANT}, 10 minutes",
    "flood_mb": f"{_CONSTANT}, 64 MB",
    "idempotency_mb": f"{_CONSTANT}, 256 MB",
    "idempotency_seconds": f"{_CONSTANT}, an hour",
    "journal_mb": f"{_CONSTANT}, 10 GB; PROCTOR_JOURNAL_DAYS keeps less",
    "max_cpu_seconds": f"{_CONSTANT}, 3600 s",
    "max_disk_mb": f"{_CONSTANT}, 4096 MB",
    "max_file_mb": f"{_CONSTANT}, 32 MB",
    "max_output_kb": f"{_CONSTANT}, 16 MB",
    "max_processes": f"{_CONSTANT}, 1024",
    "max_rollouts": f"{_CONSTANT}, 256",
    "max_wall_seconds": f"{_CONSTANT}, 3600 s",
    "orphan_seconds": f"{_CONSTANT}, 30 s",
    "output_kb": f"{_LIMIT}; the default is 64",
    "policy_attempts": f"{_CONSTANT}, 4",
    "processes": f"{_LIMIT}; the default is 64",
    "sandbox_nice": f"{_CONSTANT}, 5",
    "sandbox_preload": "`preload` of an environment in PROCTOR_ENVIRONMENTS",
    "trace_share": "OTEL_TRACES_SAMPLER=parentbased_traceidratio and OTEL_TRACES_SAMPLER_ARG replace it",
    "worker_memory_mb": f"{_CONSTANT}, 1024 MB",
}
"""Settings of earlier versions, each with what replaces it; a start names those that are still set."""
