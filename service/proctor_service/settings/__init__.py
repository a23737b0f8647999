"""All settings, with unit, default and reason. Only this module reads the environment.

Each field is the variable `PROCTOR_` + its name in capitals; the README's table is generated from
the fields.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from os import environ
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AliasChoices,
    Field,
    NonNegativeInt,
    PositiveInt,
    SecretStr,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from proctor_service.errors import StartError
from proctor_service.settings.languages import LANGUAGES, Language
from proctor_service.settings.tokens import parse_tokens

_PREFIX = "PROCTOR_"
_OTHERS = frozenset({"URL", "TOKEN"})  # variables of the client
OWN_OPEN_FILES = 64
SANDBOX_OPEN_FILES = 16
"""Open files of a sandbox: its channel, streams and cgroup, and the pipes of a command."""
LEAST_OPEN_FILES = 320
"""A sandbox's channel has descriptor 300, since programs may close descriptors 3 to 255."""
Weight = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Accounts of slot seconds divided by a weight must stay finite."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


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


class Settings(BaseSettings):
    """Settings of the service, frozen and created once at the start."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, frozen=True, extra="forbid", populate_by_name=True
    )

    host: str = Field(
        "127.0.0.1", description="Address to listen on. Others than loopback need a token."
    )
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    tokens: SecretStr = Field(SecretStr(""), description="JSON object from tenant to token.")
    tokens_file: Path | None = Field(None, description="File that holds such an object.")
    metrics_public: bool = Field(
        False, description="Serve /metrics without a token, with the jobs of all tenants."
    )
    metrics_tenants: list[str] = Field(
        [],
        description="JSON list of the tenants, of Prometheus say, whose tokens show the jobs of all tenants "
        "on /metrics; any other shows its own.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level logged."
    )
    log_format: Literal["console", "json"] = Field(
        "console", description="For people, or for a collector."
    )
    grace_seconds: float = Field(
        25.0, gt=0, description="After SIGTERM, what runs may finish within this."
    )
    max_body_mb: int = Field(32, gt=0, description="A larger request body is a 413.")

    slots: int = Field(
        0,
        ge=0,
        description="Evaluations at once; 0: two more than cores, as some are between sandboxes.",
    )
    max_queued: int = Field(
        20_000, gt=0, description="Submissions that may wait; beyond it a request is a 429."
    )
    cache_entries: int = Field(
        10_000, ge=0, description="Results kept for identical work; 0 turns the cache off."
    )
    cache_mb: int = Field(256, gt=0, description="Memory for those results, about.")
    idempotency_seconds: float = Field(
        3600.0, gt=0, description="How long an Idempotency-Key is remembered."
    )
    idempotency_mb: int = Field(
        256, gt=0, description="Memory for answers remembered by key; the oldest go first."
    )
    orphan_seconds: float = Field(
        30.0, ge=0, description="With a key, work goes on this long after its client went away."
    )

    tenant_weights: dict[str, Weight] = Field(
        {},
        description="JSON object from tenant to its part of the time where several wait; `*`: those "
        "not named, 1 by default.",
    )
    tenant_slots: dict[str, PositiveInt] = Field(
        {},
        description="JSON object from tenant to its evaluations at once, on each replica; `*`: those "
        "not named, as many as there are by default.",
    )
    tenant_sandboxes: dict[str, NonNegativeInt] = Field(
        {},
        description="The same for its sandboxes of /sandboxes and /rollout; beyond it a request is "
        "a 429.",
    )

    max_stateful_sandboxes: int = Field(
        256,
        gt=0,
        description="Sandboxes of /sandboxes at once; at most half of `max_sandboxes`, so that "
        "rewards never starve.",
    )
    ended_sandbox_seconds: float = Field(
        600.0, ge=0, description="How long one that ended is remembered: a 410, then a 404."
    )
    ended_sandboxes: int = Field(
        2000, ge=0, description="How many of those are remembered; the oldest go first."
    )
    max_file_mb: int = Field(32, gt=0, description="A larger file of a sandbox is refused.")

    max_rollouts: int = Field(
        256, gt=0, description="Trajectories of /rollout played at once; others wait their turn."
    )
    policy_hosts: list[str] = Field(
        ["*"],
        description="JSON list of the hosts that a policy's URL may name; `*` is a wild card. "
        "Link-local and metadata addresses are refused whatever stands here.",
    )
    policy_attempts: int = Field(
        4, gt=0, description="How often a policy is asked for one answer before it has failed."
    )

    peers: list[str] = Field(
        [],
        description="JSON list of the replicas' addresses: `http://10.0.0.7:8080`, or "
        "`dns://proctor-replicas:8080` for all that a name has. This one may be among them.",
    )
    advertise_url: str = Field(
        "", description="Under which of them the others reach this one. Needed with `peers`."
    )
    redis_url: SecretStr = Field(
        SecretStr(""),
        description="Redis in which replicas share what was judged under an Idempotency-Key; "
        "without it each knows its own.",
    )

    otlp_endpoint: str = Field(
        "", description="Where traces go over OTLP/HTTP: `http://collector:4318`; none by default."
    )
    trace_share: float = Field(
        1.0, ge=0, le=1, description="Part of the traces that begin here that is kept."
    )

    sandbox_python: Path | None = Field(
        None,
        description="Interpreter of the sandboxes; default: the base interpreter of this venv.",
    )
    sandbox_paths: list[Path] = Field(
        [], description="More directories to show read-only in every sandbox."
    )
    sandbox_preload: list[str] = Field(
        ["bisect", "collections", "copy", "datetime", "functools", "heapq", "itertools", "json",
         "math", "operator", "random", "re", "string", "traceback", "typing"],
        description="Modules that are warm in every sandbox; more make a fork dearer.",
    )  # fmt: skip
    sandbox_uid: int = Field(
        61_000, gt=0, lt=61_500, description="First of 4,000 user ids that submissions run under."
    )
    sandbox_nice: int = Field(
        5, ge=0, le=19, description="How far sandboxes step back for the service."
    )
    max_sandboxes: int = Field(
        512, gt=0, description="Forkservers at most, one for each sandbox at once."
    )
    allow_degraded: bool = Field(
        False, description="Start although isolation is incomplete; every result says so."
    )

    backend: Literal["local", "aviato"] = Field(
        "local", description="Where sandboxes are: on this machine, or at Aviato."
    )
    pool_size: int = Field(
        32,
        gt=0,
        description="Aviato: sandboxes kept ready; without `slots` also what runs at once.",
    )
    aviato_api_key: SecretStr = Field(
        SecretStr(""),
        validation_alias=AliasChoices(
            "PROCTOR_AVIATO_API_KEY", "CWSANDBOX_API_KEY", "AVIATO_API_KEY"
        ),
        description="Aviato's key; CWSANDBOX_API_KEY and AVIATO_API_KEY are read too.",
    )
    aviato_base_url: str = Field(
        "https://api.cwsandbox.com",
        validation_alias=AliasChoices(
            "PROCTOR_AVIATO_BASE_URL", "CWSANDBOX_BASE_URL", "AVIATO_BASE_URL"
        ),
        description="Aviato's address; CWSANDBOX_BASE_URL and AVIATO_BASE_URL are read too.",
    )
    aviato_instance: str = Field(
        "",
        description="Name of this service at Aviato, no other's and the same after a restart, "
        "which stops what the last start left; default: the host's name.",
    )
    aviato_image: str = Field(
        "python:3.11", description="Image of the sandboxes: Python 3.11 or later, commands as root."
    )
    aviato_python: str = Field("python3", description="The interpreter in that image.")
    aviato_cpu: str = Field("1", description="Cores of a sandbox, as Aviato writes them.")
    aviato_reuse: Literal["never", "process"] = Field(
        "never",
        description="`process`: one sandbox for many submissions, each as another user in an emptied "
        "directory; every result says so.",
    )
    aviato_creations: int = Field(
        16, gt=0, description="Sandboxes that are being made at once, at most."
    )
    aviato_start_seconds: float = Field(
        60.0, gt=0, description="A sandbox that is not to be had by then is given up."
    )
    aviato_max_age_seconds: float = Field(
        1800.0, gt=0, description="A sandbox that nobody has used by then is replaced."
    )
    aviato_kept_seconds: float = Field(
        86_400.0, gt=0, description="Longest life of a stateful sandbox, however often it is used."
    )

    cpu_seconds: float = Field(10.0, gt=0, description="Default limit: CPU time of a submission.")
    wall_seconds: float = Field(
        60.0, gt=0, description="Default limit: wall time in which it idles."
    )
    memory_mb: int = Field(512, gt=0, description="Default limit: memory of all its processes.")
    output_kb: int = Field(64, gt=0, description="Default limit: kept of each output stream.")
    processes: int = Field(64, gt=0, description="Default limit: processes and threads at once.")
    disk_mb: int = Field(
        64, gt=0, description="Default limit: files in the working directory and /tmp."
    )
    max_cpu_seconds: float = Field(600.0, gt=0, description="Ceiling of `cpu_seconds`.")
    max_wall_seconds: float = Field(3600.0, gt=0, description="Ceiling of `wall_seconds`.")
    max_memory_mb: int = Field(8192, gt=0, description="Ceiling of `memory_mb`.")
    max_output_kb: int = Field(16_384, gt=0, description="Ceiling of `output_kb`.")
    max_processes: int = Field(1024, gt=0, description="Ceiling of `processes`.")
    max_disk_mb: int = Field(4096, gt=0, description="Ceiling of `disk_mb`.")
    flood_mb: int = Field(
        64, gt=0, description="Output beyond this ends a program with output_limit."
    )

    languages: dict[str, Language] = Field(
        default_factory=lambda: dict(LANGUAGES),
        description="How other languages compile and run; JSON.",
    )

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
            try:
                text = self.tokens_file.read_text()
            except (OSError, ValueError) as error:
                raise StartError(f"{where}: {error}") from None
        return parse_tokens(text, where) if text.strip() else {}

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
        return self.slots or (self.pool_size if self.backend == "aviato" else _cores() + 2)
