"""All settings, with unit, default and reason. Only this module reads the environment.

Each field is the variable `PROCTOR_` + its name in capitals; the README's table is generated from
the fields.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from proctor_service.errors import StartError
from proctor_service.settings.aviato import AviatoOptions
from proctor_service.settings.cgroups_above import cpu_quota
from proctor_service.settings.languages import LANGUAGES, Language, with_go_cache
from proctor_service.settings.mcp_servers import McpServer, parse_mcp_servers

_PREFIX = "PROCTOR_"
_OTHERS = frozenset({"URL", "TOKEN"})  # variables of the client
_WITH_SECRETS = (_PREFIX, "CWSANDBOX_", "AVIATO_")
_CORES_OF_WORKER = 6
"""Cores that one judge process keeps busy with tests of a few milliseconds."""
_LEAST_CORES = 8
"""With fewer cores, a single process judges as many, and a reward costs less."""
OWN_OPEN_FILES = 64
SANDBOX_OPEN_FILES = 16
"""Open files of a sandbox: its channel, streams and cgroup, and the pipes of a command."""
LEAST_OPEN_FILES = 320
"""A sandbox's channel has descriptor 300, since programs may close descriptors 3 to 255."""
Weight = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Accounts of slot seconds divided by a weight must stay finite."""
_STANDARDS = (
    *("c11", "c17", "gnu11", "gnu17"),
    *(f"{kind}++{year}" for kind in ("c", "gnu") for year in (11, 14, 17, 20, 23)),
)
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _at_aviato(name: str) -> AliasChoices:
    """Return the variables of a setting that Aviato's own clients read as well."""
    return AliasChoices(f"{_PREFIX}AVIATO_{name}", f"CWSANDBOX_{name}", f"AVIATO_{name}")


def unknown_variables(environment: Iterable[str] | None = None) -> dict[str, str]:
    """Return the unknown variables that begin with PROCTOR_, each with the nearest known name.

    The nearest name may be empty. `environment`: names of the variables, by default of this
    process.
    """
    environment = environ if environment is None else environment
    known = {name.upper() for name in Settings.model_fields} | _OTHERS
    found = {
        name: name.upper().removeprefix(_PREFIX)
        for name in environment
        if name.upper().startswith(_PREFIX)
    }
    unknown = {name: bare for name, bare in found.items() if bare not in known}
    nearest = {n: difflib.get_close_matches(bare, sorted(known), 1) for n, bare in unknown.items()}
    return {name: f"{_PREFIX}{near[0]}" if near else "" for name, near in nearest.items()}


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the machine that a judge process has: number `index` of `count` equal parts.

    `start`: name of the service's start, the same for all its judge processes.
    """

    index: int = 0
    count: int = 1
    start: str = ""


def worker_environment() -> dict[str, str]:
    """Return the variables for a judge process: all except settings, which may be secrets."""
    return {
        name: value for name, value in environ.items() if not name.upper().startswith(_WITH_SECRETS)
    }


class Settings(BaseSettings):
    """Settings of the service, frozen and created once at the start."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on. Others than loopback need a token."""
    port: int = Field(8080, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    tokens: SecretStr = SecretStr("")
    """JSON object from tenant to token."""
    tokens_file: Path | None = None
    """File that holds such an object."""
    metrics_public: bool = False
    """Serve /metrics without a token, with the jobs of all tenants."""
    metrics_tenants: list[str] = []
    """JSON list of tenants whose tokens show the jobs of all tenants on /metrics; others show their own."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level logged."""
    log_format: Literal["console", "json"] = "console"
    """For people, or for a collector."""
    grace_seconds: PositiveFloat = 25.0
    """After SIGTERM, what runs may finish within this."""
    max_body_mb: PositiveInt = 32
    """A larger request body is a 413."""

    slots: NonNegativeInt = 0
    """Evaluations at once; 0: two more than cores, as some are between sandboxes."""
    workers: str = Field("auto", pattern=r"^(auto|[0-9]{1,4})$", coerce_numbers_to_str=True)
    """Judge processes; 0: the listening process judges; auto: one for six cores, 0 below 8 cores."""
    worker_memory_mb: PositiveInt = 1024
    """A judge process that takes more memory is replaced."""
    max_queued: PositiveInt = 20_000
    """Submissions that may wait; beyond it a request is a 429."""
    cache_entries: NonNegativeInt = 10_000
    """Results kept for identical work; 0 turns the cache off."""
    cache_mb: PositiveInt = 256
    """Memory for those results, about."""
    idempotency_seconds: PositiveFloat = 3600.0
    """How long an Idempotency-Key is remembered."""
    idempotency_mb: PositiveInt = 256
    """Memory for answers remembered by key; the oldest go first."""
    orphan_seconds: NonNegativeFloat = 30.0
    """With a key, work goes on this long after its client went away."""

    tenant_weights: dict[str, Weight] = {}
    """JSON object from tenant to its part of the time where several wait; `*`: others; default: 1."""
    tenant_slots: dict[str, PositiveInt] = {}
    """JSON object from tenant to its evaluations at once, per replica; `*`: others; default: all slots."""
    tenant_sandboxes: dict[str, NonNegativeInt] = {}
    """The same for its sandboxes of /sandboxes and /rollout; beyond it a request is a 429."""

    max_stateful_sandboxes: PositiveInt = 256
    """Sandboxes of /sandboxes at once; at most half of `max_sandboxes`, so that rewards never starve."""
    ended_sandbox_seconds: NonNegativeFloat = 600.0
    """How long one that ended is remembered: a 410, then a 404."""
    ended_sandboxes: NonNegativeInt = 2000
    """How many of those are remembered; the oldest go first."""
    max_file_mb: PositiveInt = 32
    """A larger file of a sandbox is refused."""

    max_rollouts: PositiveInt = 256
    """Trajectories of /rollout played at once; others wait their turn."""
    policy_hosts: list[str] = ["*"]
    """JSON list of hosts for policy URLs, `*` is a wild card; never link-local or metadata addresses."""
    policy_attempts: PositiveInt = 4
    """How often a policy is asked for one answer before it has failed."""
    mcp_servers: SecretStr = Field(
        SecretStr(""),
        description="JSON object from a name to `url` and `headers` of an MCP server with streamable "
        "HTTP: the only ones that a rollout may name.",
    )

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

    journal: SecretStr | None = Field(
        None,
        description="Database of all evaluations and rollouts: `sqlite:////path/to/file`, "
        "`postgresql://…`, or `off`; default: a file in `~/.local/state/proctor`.",
    )
    journal_texts: bool = True
    """Record completions, tests and outputs too. Without them nothing can be judged again."""
    journal_days: PositiveFloat = 30.0
    """Older records are removed."""
    journal_mb: PositiveInt = 10_240
    """Beyond this size the oldest records are removed; PostgreSQL keeps their room for new ones."""

    otlp_endpoint: str = ""
    """Where traces go over OTLP/HTTP: `http://collector:4318`; none by default."""
    trace_share: float = Field(1.0, ge=0, le=1)
    """Part of the traces that begin here that is kept."""

    sandbox_python: Path | None = None
    """Interpreter of the sandboxes; default: the base interpreter of this venv."""
    sandbox_paths: list[Path] = []
    """More directories to show read-only in every sandbox."""
    go_cache: Path | None = None
    """Warm build cache of Go, read-only in every sandbox: a directory that `proctor go-cache` fills."""
    sandbox_preload: list[str] = Field(
        ["bisect", "collections", "copy", "datetime", "functools", "heapq", "itertools", "json",
         "math", "operator", "random", "re", "string", "traceback", "typing"],
        description="Modules that are warm in every sandbox; more make a fork dearer.",
    )  # fmt: skip
    environments: Path | None = None
    """TOML file of environments, as in docs/environments.md; `proctor env build` builds them."""
    environments_folder: Path | None = None
    """Where built environments are; default: `environments` in the user's state folder."""
    compat_environments: dict[str, str] = {}
    """Environment of requests to /compat, by the beginning of the path; JSON."""
    environment_idle_seconds: PositiveFloat = 600.0
    """An environment that nobody has used for this time ends; the next use starts it again."""
    sandbox_uid: int = Field(61_000, gt=0, lt=61_500)
    """First of 4,000 user ids that submissions run under."""
    sandbox_nice: int = Field(5, ge=0, le=19)
    """How far sandboxes step back for the service."""
    max_sandboxes: PositiveInt = 512
    """Forkservers at most, one for each sandbox at once."""
    allow_degraded: bool = False
    """Start although isolation is incomplete; every result says so."""

    backend: Literal["local", "aviato"] = "local"
    """Where sandboxes are: on this machine, or at Aviato."""
    pool_size: PositiveInt = 32
    """Aviato: sandboxes kept ready; without `slots` also what runs at once."""
    aviato_api_key: SecretStr = Field(SecretStr(""), validation_alias=_at_aviato("API_KEY"))
    """Aviato's key; CWSANDBOX_API_KEY and AVIATO_API_KEY are read too."""
    aviato_auth: Literal["key", "wandb"] = "key"
    """Credentials for Aviato: this key, or those of W&B (WANDB_API_KEY or `wandb login`)."""
    aviato_base_url: str = Field(
        "https://api.cwsandbox.com", validation_alias=_at_aviato("BASE_URL")
    )
    """Aviato's address; CWSANDBOX_BASE_URL and AVIATO_BASE_URL are read too."""
    aviato_instance: str = Field(
        "",
        description="Name of this service at Aviato, no other's and the same after a restart, "
        "which stops what the last start left; default: the host's name.",
    )
    aviato_image: str = "python:3.11"
    """Image of the sandboxes: Python 3.11 or later, commands as root."""
    aviato_python: str = "python3"
    """The interpreter in that image."""
    aviato_cpu: str = "1"
    """Cores of a sandbox: `2`, `1.5` or `500m`."""
    aviato_options: AviatoOptions = Field(
        AviatoOptions(),
        description="JSON: `gpu`, `runtime_class`, `secrets`, `mounts`, `egress` and `pull` of "
        "sandboxes without an environment, as `aviato` in docs/environments.md.",
    )
    aviato_reuse: Literal["never", "process"] = Field(
        "never",
        description="`process`: one sandbox for many submissions, each as another user in an emptied "
        "directory; every result says so.",
    )
    aviato_creations: PositiveInt = 16
    """Sandboxes that are being made at once, at most."""
    aviato_start_seconds: PositiveFloat = 60.0
    """A sandbox that is not to be had by then is given up."""
    aviato_max_age_seconds: PositiveFloat = 1800.0
    """A sandbox that nobody has used by then is replaced."""
    aviato_kept_seconds: PositiveFloat = 86_400.0
    """Longest life of a stateful sandbox, however often it is used."""
    aviato_price_per_hour: float | None = Field(None, ge=0, le=1e6)
    """Dollars per hour of a sandbox; a budget of money needs it."""
    aviato_prices_per_hour: dict[str, Annotated[float, Field(ge=0, le=1e6)]] = {}
    """JSON: dollars per hour of a sandbox, by environment, where they differ."""
    aviato_budget_sandboxes: PositiveInt | None = Field(
        None,
        description="Sandboxes that all replicas with one `PROCTOR_REDIS_URL` may have at once; "
        "without Redis, those of this replica.",
    )
    aviato_budget_per_hour: float | None = Field(None, gt=0, le=1e9)
    """Dollars per hour of all these sandboxes together, at most."""
    aviato_budget_lease_seconds: float = Field(30.0, ge=2, le=45)
    """A replica that is silent in Redis for so long is gone: others stop its sandboxes."""

    cpu_seconds: PositiveFloat = 10.0
    """Default limit: CPU time of a submission."""
    wall_seconds: PositiveFloat = 60.0
    """Default limit: wall time in which it idles."""
    memory_mb: PositiveInt = 512
    """Default limit: memory of all its processes."""
    output_kb: PositiveInt = 64
    """Default limit: kept of each output stream."""
    processes: PositiveInt = 64
    """Default limit: processes and threads at once."""
    disk_mb: PositiveInt = 64
    """Default limit: files in the working directory and /tmp."""
    max_cpu_seconds: PositiveFloat = 600.0
    """Ceiling of `cpu_seconds`."""
    max_wall_seconds: PositiveFloat = 3600.0
    """Ceiling of `wall_seconds`."""
    max_memory_mb: PositiveInt = 8192
    """Ceiling of `memory_mb`."""
    max_output_kb: PositiveInt = 16_384
    """Ceiling of `output_kb`."""
    max_processes: PositiveInt = 1024
    """Ceiling of `processes`."""
    max_disk_mb: PositiveInt = 4096
    """Ceiling of `disk_mb`."""
    flood_mb: PositiveInt = 64
    """Output beyond this ends a program with output_limit."""

    compiler_flags: list[str] = Field(
        [f"-std={each}" for each in _STANDARDS]
        + ["-O0", "-O1", "-O2", "-O3", "-Os", "-g", "-Wall", "-Wextra", "-lm", "-pthread"],
        description="JSON list of what `compiler` of a request may ask of gcc and g++.",
    )

    languages: dict[str, Language] = Field(default_factory=lambda: dict(LANGUAGES))
    """Languages beside or instead of those that are known, and null for one that is not wanted; JSON.

    Each has `source`, `compile`, `run`, `needs` and `aliases`, as in `settings/languages.py`.
    """

    @field_validator("languages", mode="before")
    @classmethod
    def _beside_the_known(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        merged = {**LANGUAGES, **given}
        return {name: language for name, language in merged.items() if language is not None}

    @model_validator(mode="after")
    def _with_go_cache(self) -> Settings:
        folder = self.go_cache
        if folder is not None and folder not in self.sandbox_paths:
            if not folder.is_absolute():
                raise ValueError(f"PROCTOR_GO_CACHE: {folder} is no absolute path")
            if folder.is_relative_to("/tmp") or folder.is_relative_to("/var/tmp"):
                raise ValueError(
                    f"PROCTOR_GO_CACHE: {folder} lies where sandboxes have their own files"
                )
            languages = with_go_cache(self.languages, str(folder))
            object.__setattr__(
                self, "sandbox_paths", [*self.sandbox_paths, folder]
            )  # frozen from here on
            object.__setattr__(self, "languages", languages)
        return self

    @model_validator(mode="after")
    def _token_unless_loopback(self) -> Settings:
        if self.host not in LOOPBACK and not self.tokens_by_tenant():
            raise ValueError(
                f"host {self.host}: without a token the service listens on loopback only; set "
                "PROCTOR_TOKENS (or PROCTOR_TOKENS_FILE) to a JSON object from tenant to token"
            )
        return self

    @model_validator(mode="after")
    def _known_to_its_peers(self) -> Settings:
        if self.peers and not self.advertise_url:
            raise ValueError("PROCTOR_PEERS needs PROCTOR_ADVERTISE_URL: how they reach this one")
        return self

    def tokens_by_tenant(self) -> dict[str, str]:
        """Return the token of each tenant. Raises StartError for an invalid configuration."""
        text, where = self.tokens.get_secret_value(), "PROCTOR_TOKENS"
        if self.tokens_file is not None:
            where = f"PROCTOR_TOKENS_FILE {self.tokens_file}"
            if text.strip():
                raise StartError(f"{where}: PROCTOR_TOKENS is set, too; one of them must go")
            try:
                text = self.tokens_file.read_text()
            except (OSError, ValueError) as error:
                raise StartError(f"{where}: {error}") from None
            if not text.strip():
                raise StartError(f"{where}: it is empty, and would admit everybody")
        return parse_tokens(text, where) if text.strip() else {}

    def mcp_servers_by_name(self) -> dict[str, McpServer]:
        """Return the MCP servers for rollouts. Raises StartError for an invalid configuration."""
        return parse_mcp_servers(self.mcp_servers.get_secret_value())

    def address(self) -> str:
        """Return the URL that others are told, or `host:port`."""
        return self.advertise_url or f"{self.host}:{self.port}"

    def stateful_count(self) -> int:
        """Return the maximum number of stateful sandboxes at the same time."""
        return min(self.max_stateful_sandboxes, max(1, self.max_sandboxes // 2))

    def fitted(self, open_files: int) -> Settings:
        """Return the settings, with sandboxes and slots reduced to fit this many open files.

        Half of the files are for sandboxes, half for connections. Raises StartError, with the
        required number, if the files are too few for a single slot.
        """
        if open_files < LEAST_OPEN_FILES:
            raise StartError(
                f"only {open_files} open files are allowed; one slot needs {LEAST_OPEN_FILES}: raise "
                "the hard limit (ulimit -Hn; systemd: LimitNOFILE=)"
            )
        most = (open_files - OWN_OPEN_FILES) // 2 // SANDBOX_OPEN_FILES
        if self.max_sandboxes <= most:
            return self
        stateful = min(self.stateful_count(), most // 2)
        fewer = {
            "max_sandboxes": most,
            "max_stateful_sandboxes": stateful,
            # An evaluation may hold two sandboxes at the same time.
            "slots": min(self.slot_count(), (most - stateful) // 2),
        }
        return self.model_copy(update=fewer)

    def slot_count(self) -> int:
        """Return the maximum number of evaluations at the same time."""
        return self.slots or (self.pool_size if self.backend == "aviato" else cores() + 2)

    def worker_count(self) -> int:
        """Return the number of judge processes, at most one for each slot."""
        by_cores = default_workers(cores())
        wanted = by_cores if self.workers == "auto" else int(self.workers)
        return min(wanted, self.slot_count())

    def for_workers(self) -> list[Settings]:
        """Return the settings of each judge process: a part of the sandboxes, and no credentials.

        Raises StartError for a budget that is too small for its parts.
        """
        count = self.worker_count()
        counts = {
            "slots": self.slot_count(),
            "max_sandboxes": self.max_sandboxes,
            "max_stateful_sandboxes": self.stateful_count(),
            "pool_size": self.pool_size,
            "aviato_creations": self.aviato_creations,
        }
        hidden: dict[str, Any] = {
            "tokens": SecretStr(""),
            "tokens_file": None,
            "journal": SecretStr("off"),
            "mcp_servers": SecretStr(""),
        }
        budget, per_hour = self.aviato_budget_sandboxes, self.aviato_budget_per_hour
        # The judge processes share a budget in Redis themselves; without Redis each has a part.
        shares_budget = self.backend == "aviato" and bool(budget or per_hour)
        if not (shares_budget and self.redis_url.get_secret_value()):
            hidden["redis_url"] = SecretStr("")
            if shares_budget and budget and budget < 2 * count:
                raise StartError(
                    f"PROCTOR_AVIATO_BUDGET_SANDBOXES is {budget}, and each of {count} judge processes "
                    "needs 2: set PROCTOR_WORKERS to fewer, or PROCTOR_REDIS_URL"
                )
            hidden["aviato_budget_sandboxes"] = budget and budget // count
            hidden["aviato_budget_per_hour"] = per_hour and per_hour / count
        return [
            self.model_copy(
                update={
                    **hidden,
                    **{
                        name: max(1, number // count + (index < number % count))
                        for name, number in counts.items()
                    },
                }
            )
            for index in range(count)
        ]


def default_workers(count: int) -> int:
    """Return the number of judge processes for so many cores, where none is set."""
    return 0 if count < _LEAST_CORES else -(-count // _CORES_OF_WORKER)


def cores() -> int:
    """Return the number of cores that this process may use, at most its cgroups' CPU quota."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(allowed, math.ceil(min(cpu_quota(), allowed))))


def parse_tokens(text: str, where: str) -> dict[str, str]:
    """Return the token of each tenant, parsed from JSON.

    Raises StartError; the message names the position in the text and omits tokens.
    """
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise StartError(f"{where}: not JSON: {error.msg} at {at}") from None
    except RecursionError:
        raise StartError(f"{where}: nested too deeply") from None
    # `object_pairs_hook` makes an array of arrays look like an object, so check the first brace.
    if not isinstance(pairs, list) or not text.lstrip().startswith("{") or not pairs:
        raise StartError(f"{where}: not a JSON object from tenant to a non-empty token")
    tokens: dict[str, str] = {}
    tenants: dict[str, str] = {}
    for tenant, token in pairs:
        at = f"{where}{_line_of(text, tenant)}"
        if not isinstance(token, str) or not token.strip():
            raise StartError(f"{at}: tenant {tenant!r} has no JSON string for a non-empty token")
        token = token.strip()  # a header has no space around a token
        if not token.isprintable():
            raise StartError(f"{at}: tenant {tenant!r} has a token that no header can carry")
        if tenant in tokens:
            raise StartError(f"{at}: tenant {tenant!r} stands there twice")
        if token in tenants:
            raise StartError(f"{at}: tenants {tenants[token]!r} and {tenant!r} have one token")
        tokens[tenant] = token
        tenants[token] = tenant
    return tokens


def _line_of(text: str, tenant: str) -> str:
    written = {json.dumps(tenant, ensure_ascii=ascii_only) for ascii_only in (True, False)}
    names = re.finditer(rf"({'|'.join(map(re.escape, written))})\s*:", text)
    at = max((name.start() for name in names), default=-1)
    return "" if at < 0 else f" line {text.count(chr(10), 0, at) + 1}"
