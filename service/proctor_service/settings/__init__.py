"""All settings as one frozen object. Only this package reads the environment of the service.

`groups.py` has the fields with their defaults and reasons, `sources.py` the variables and the file.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any

from pydantic import SecretStr, field_validator, model_validator

from proctor_service.errors import StartError
from proctor_service.settings import groups, sources
from proctor_service.settings.cgroups_above import cpu_quota
from proctor_service.settings.groups import REMOVED_SETTINGS
from proctor_service.settings.language_rows import KNOWN_LANGUAGES, check_names, read_languages
from proctor_service.settings.languages import Language, with_go_cache
from proctor_service.settings.mcp_servers import McpServer, parse_mcp_servers

_WITH_SECRETS = (sources.PREFIX, "CWSANDBOX_", "AVIATO_")
_CORES_OF_WORKER = 6
"""Cores kept busy by a judge process with tests of a few milliseconds."""
_LEAST_CORES = 8
"""With fewer cores, a single process judges as many, and a reward costs less."""
OWN_OPEN_FILES = 64
SANDBOX_OPEN_FILES = 16
"""Open files of a sandbox: its channel, streams and cgroup, and the pipes of a command."""
LEAST_OPEN_FILES = 320
"""A sandbox's channel has descriptor 300, since programs may close descriptors 3 to 255."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
GROUPS: tuple[sources.Group, ...] = (
    groups.Server,
    groups.Access,
    groups.Queue,
    groups.Tenants,
    groups.Limits,
    groups.Sandboxes,
    groups.Programs,
    groups.Rollouts,
    groups.Replicas,
    groups.Records,
    groups.Aviato,
)


def start_warnings(more: Sequence[sources.Group] = ()) -> list[str]:
    """Return the warnings of a start: unknown and removed variables, and readable secrets.

    `more`: groups of features. Raises StartError for an unknown key of the file in PROCTOR_CONFIG.
    """
    groups = (*GROUPS, *more)
    config = sources.read_config()
    if config is not None:
        config.check_names(groups, REMOVED_SETTINGS)
    warnings = [
        f"{name} is no setting any more: {text}" for name, text in removed_variables().items()
    ]
    for name, nearest in sources.unknown_variables(groups, REMOVED_SETTINGS).items():
        meant = f"; did you mean {nearest}?" if nearest else ""
        warnings.append(f"{name} is no setting{meant}")
    readable = sources.open_secrets(config, groups)
    return [*warnings, readable] if readable else warnings


def removed_variables() -> dict[str, str]:
    """Return the variables of removed settings in this process, each with its replacement."""
    return sources.removed_variables(REMOVED_SETTINGS)


@dataclass(frozen=True, slots=True)
class Share:
    """A judge process's part of the machine: number `index` of `count` equal parts.

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


class Settings(
    groups.Aviato,
    groups.Records,
    groups.Replicas,
    groups.Rollouts,
    groups.Programs,
    groups.Sandboxes,
    groups.Limits,
    groups.Tenants,
    groups.Queue,
    groups.Access,
    groups.Server,
):
    """Settings of the service, frozen and created once at the start.

    Values beside the arguments come from variables, and then from the file in PROCTOR_CONFIG.
    Raises StartError and pydantic's ValidationError for invalid ones.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**{**sources.read_values(GROUPS), **values})

    @field_validator("languages", mode="before")
    @classmethod
    def _beside_the_known(cls, value: object) -> object:
        if isinstance(value, str):
            return read_languages(Path(value.strip()), KNOWN_LANGUAGES)
        if not isinstance(value, dict):
            return value
        merged = {**KNOWN_LANGUAGES, **value}
        return {name: language for name, language in merged.items() if language is not None}

    @field_validator("languages")
    @classmethod
    def _with_different_names(cls, languages: dict[str, Language]) -> dict[str, Language]:
        check_names(languages)
        return languages

    @model_validator(mode="after")
    def _with_go_cache(self) -> Settings:
        folder = self.go_cache
        if folder is not None and folder not in self.sandbox_paths:
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
        """Return the public URL, or `host:port`."""
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
        """Return the settings of each judge process: a part of the sandboxes, without credentials.

        Raises StartError for a budget too small for its parts.
        """
        count = self.worker_count()
        counts = {
            "slots": self.slot_count(),
            "max_sandboxes": self.max_sandboxes,
            "max_stateful_sandboxes": self.stateful_count(),
            "pool_size": self.pool_size,
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
    """Return the default number of judge processes for so many cores."""
    return 0 if count < _LEAST_CORES else -(-count // _CORES_OF_WORKER)


def cores() -> int:
    """Return the number of cores for this process, at most its cgroups' CPU quota."""
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
    names = re.finditer(rf"({'|'.join(map(re.escape, written))})\s*:", text)  # `"team" :`
    at = max((name.start() for name in names), default=-1)
    return "" if at < 0 else f" line {text.count(chr(10), 0, at) + 1}"
