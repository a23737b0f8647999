"""Conversion of submissions between wire and domain, in both directions. Pure, no I/O.

Here a request meets the server's settings: defaults are filled in, ceilings are enforced, and
requests unsuited to this machine are rejected, always naming the field. Later stages never see the
wire's request. An outcome becomes a line of the response.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from proctor_client.wire import (
    MAX_FAILURES,
    CommandGrader,
    Compiler,
    Grader,
    Message,
    PytestGrader,
    RewardRequest,
    StdioGrader,
)
from proctor_client.wire import Limits as WireLimits
from proctor_client.wire import Submission as WireSubmission
from proctor_service.errors import BatchTooLarge, Failure, InvalidRequest, JudgeFailed
from proctor_service.evaluate import Item, NoCode, Origin, Outcome
from proctor_service.features.environments.built import NO_ENVIRONMENTS, Environments
from proctor_service.http.json_encoding import encode
from proctor_service.http.responses import Line
from proctor_service.judge.assemble import Around, read_program
from proctor_service.judge.submission import Judgement, Submission, integrity_of, test_count
from proctor_service.rewards.checks import (
    check_compiler,
    check_files,
    check_files_of,
    check_judges_code,
    check_language,
)
from proctor_service.sandbox.interface import TESTS, Backend, Limits
from proctor_service.scheduling.pacer import Pacer
from proctor_service.settings import Settings
from proctor_service.settings.environments import DEFAULT
from proctor_service.settings.languages import PYTHON, language_named
from proctor_service.settings.mcp_servers import NO_SERVERS, McpServer

MAX_ADDED_CHARACTERS = 128 << 20
"""Of all programs of a batch beyond their completions: a prelude of one request is in every program."""
LIMITS_WITH_CEILING = (
    "cpu_seconds",
    "wall_seconds",
    "memory_mb",
    "output_kb",
    "processes",
    "disk_mb",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One submission of a request: the fields to echo, and the item for the evaluator."""

    index: int
    id: str | None
    group: str | None
    item: Item


@dataclass(frozen=True, slots=True)
class Machine:
    """The server's settings and backend: the same for every request."""

    settings: Settings
    backend: Backend
    environments: Environments = field(default_factory=lambda: NO_ENVIRONMENTS)
    mcp_servers: Mapping[str, McpServer] = field(default_factory=lambda: NO_SERVERS)

    def environment(self, name: str | None, where: str) -> str:
        """Return the name of an environment. Raises InvalidRequest for an unknown one."""
        if name is None or name == DEFAULT:
            return DEFAULT
        if name not in self.environments:
            known = ", ".join((DEFAULT, *self.environments))
            raise InvalidRequest(f"{where}: no {name[:100]!r} here, only: {known}")
        return name

    def digest(self, environment: str) -> str:
        """Return the digest of everything in an environment that a verdict may depend on."""
        return "" if environment == DEFAULT else self.environments[environment].digest

    def languages(self, environment: str = DEFAULT) -> tuple[str, ...]:
        """Return the languages of an environment.

        Those of its definition that this machine has, or those whose programs its image has. All
        for an image at Aviato, where the judge finds out which are missing.
        """
        here = self.backend.traits.languages
        if environment == DEFAULT:
            return here
        if self.environments[environment].remote_image:
            return (PYTHON, *self.settings.languages)
        image = self.environments[environment].image
        if image is not None:
            own = (PYTHON,) if image.python else ()
            return own + tuple(
                name
                for name, language in self.settings.languages.items()
                if set(language.needs) <= set(image.programs)
            )
        offered = self.environments[environment].definition.languages
        return tuple(name for name in here if offered is None or name == PYTHON or name in offered)

    def limits(
        self,
        asked: WireLimits | None,
        where: str,
        otherwise: Limits | None = None,
        environment: str = DEFAULT,
    ) -> Limits:
        """Return the requested limits.

        The defaults are `otherwise`, or else those of the environment and of the server. The ceiling
        of all tests together is `TESTS` times that of one. Raises InvalidRequest above a ceiling.
        """
        settings = self.settings
        own = None
        if otherwise is None and environment != DEFAULT:
            own = self.environments[environment].definition.limits
        values: dict[str, float] = {}
        for name in LIMITS_WITH_CEILING:
            value = getattr(asked, name, None)
            ceiling = getattr(settings, f"max_{name}")
            if value is not None and not value <= ceiling:
                raise InvalidRequest(f"{where}.{name}: {value} is above this server's {ceiling}")
            default = getattr(own, name, None)
            default = min(default or getattr(otherwise or settings, name), ceiling)
            values[name] = value if value is not None else default
        totals: dict[str, float | None] = {}
        for name in ("cpu_seconds", "wall_seconds"):
            total = getattr(asked, f"total_{name}", None)
            if total is None:
                total = getattr(otherwise, f"total_{name}", None)
            ceiling = TESTS * getattr(settings, f"max_{name}")
            if total is not None and not total <= ceiling:
                at = f"{where}.total_{name}"
                raise InvalidRequest(f"{at}: {total} is above this server's {ceiling}")
            totals[f"total_{name}"] = total
        network = bool(otherwise is not None and otherwise.network)
        if asked is not None and asked.network is not None:
            network = asked.network
        if network and not self.backend.traits.allows_network:
            raise InvalidRequest(f"{where}.network: this server gives no network to submissions")
        return Limits(
            cpu_seconds=float(values["cpu_seconds"]),
            wall_seconds=float(values["wall_seconds"]),
            memory_mb=int(values["memory_mb"]),
            output_kb=int(values["output_kb"]),
            processes=int(values["processes"]),
            disk_mb=int(values["disk_mb"]),
            network=network,
            **totals,
        )

    def language(self, name: str, grader: Grader, where: str, environment: str = DEFAULT) -> str:
        """Return the name of a language for a name or an alias.

        Raises InvalidRequest if the server or the grader lacks it.
        """
        language = language_named(name, self.settings.languages)
        here = self.languages(environment)
        if language not in here:
            only = ", ".join(here) or "commands"
            raise InvalidRequest(f"{where}.language: no {name!r} here, only: {only}")
        launches = language != PYTHON and self.settings.languages[language].launcher is not None
        check_language(grader, language, f"{where}.language", has_launcher=launches)
        return language


@dataclass(slots=True)
class Translation:
    """Converter of one request. `portable`: peers may judge its submissions.

    Most submissions share the request's grader and limits, so results for these are cached here, by
    identity: the request keeps these objects alive for as long as the converter lives.
    """

    machine: Machine
    request: RewardRequest
    tenant: str
    deadline: float
    portable: bool = True
    _limits: dict[tuple[int, str], Limits] = field(default_factory=dict)
    _checked_graders: set[int] = field(default_factory=set)
    _digests: dict[int, bytes] = field(default_factory=dict)
    _prompts: dict[int, str] = field(default_factory=dict)
    _added: int = 0

    async def entries(self) -> list[Entry]:
        """Return the items for all submissions.

        Raises InvalidRequest, naming the field, and BatchTooLarge.
        """
        found: list[Entry] = []
        pacer = Pacer()
        for index, submission in enumerate(self.request.submissions):
            found.append(await self._entry(index, submission))
            await pacer.pause()
        return found

    async def _entry(self, index: int, asked: WireSubmission) -> Entry:
        request, where = self.request, f"submissions.{index}"
        grader = asked.grader or request.grader
        if grader is None:
            raise InvalidRequest(f"{where}.grader: neither the submission nor the request has one")
        check_judges_code(grader, where)
        if isinstance(grader, PytestGrader | CommandGrader | StdioGrader):
            self._check_files_of(grader, f"{where}.grader" if asked.grader else "grader")
        environment = DEFAULT
        if asked.environment is not None:
            environment = self.machine.environment(asked.environment, f"{where}.environment")
        elif request.environment is not None:
            environment = self.machine.environment(request.environment, "environment")
        language = asked.language
        has_runner = isinstance(grader, CommandGrader) and grader.runner is not None
        elsewhere = environment != DEFAULT and grader.kind != "command"
        if language != PYTHON or has_runner or elsewhere:
            language = self.machine.language(language, grader, where, environment)
        compiler = asked.compiler or request.compiler
        if compiler is not None:
            self._check_compiler(compiler, language, f"{where}." * (asked.compiler is not None))
        if asked.files:
            check_files(asked.files, f"{where}.files")
        wanted = asked.limits or request.limits
        limits = self._limits.get((id(wanted), environment))
        if limits is None:
            at = f"{where}.limits" if asked.limits else "limits"
            limits = self.machine.limits(wanted, at, environment=environment)
            self._limits[id(wanted), environment] = limits
        text = completion_text(asked, where)
        rule = asked.extract or request.extract
        around = Around.of(grader, asked, request)
        source = await read_program(text, rule, language, around)
        self._added += 0 if source is None else max(0, len(source) - len(text))
        if self._added > MAX_ADDED_CHARACTERS:
            raise BatchTooLarge(
                "prelude, prompt_code and suffix_code make the programs of this batch too long"
            )
        submission: Submission | NoCode
        key = None
        if source is None:
            submission = NoCode(
                test_count(grader), environment=environment, integrity=integrity_of(grader)
            )
        else:
            scoring = asked.scoring or request.scoring
            submission = Submission(
                source,
                grader,
                limits,
                scoring,
                language,
                asked.files,
                environment=environment,
                negative_control=asked.negative_control or request.negative_control,
                compiler=compiler,
            )
            key = self._key(submission) if request.cache else None
        item = Item(
            evaluation_id=f"ev_{os.urandom(16).hex()}",
            submission=submission,
            tenant=self.tenant,
            job=request.job,
            deadline=self.deadline,
            cache_key=key,
            tags=tuple(request.tags),
            priority=request.priority,
            portable=self.portable and environment == DEFAULT,
            origin=self._origin(asked, text) if self.portable else None,
        )
        return Entry(index, asked.id, asked.group, item)

    def _check_compiler(self, compiler: Compiler, language: str, where: str) -> None:
        settings = self.machine.settings
        known = settings.languages.get(language)
        dialect = None if known is None else known.dialect
        check_compiler(compiler, dialect, f"{where}compiler")

    def _check_files_of(self, grader: Grader, where: str) -> None:
        if id(grader) not in self._checked_graders:
            check_files_of(grader, where)
            self._checked_graders.add(id(grader))

    def _origin(self, asked: WireSubmission, completion: str) -> Origin:
        request = self.request
        rule = asked.extract or request.extract
        prompt = request.prompt if asked.prompt is None else asked.prompt
        shown = self._prompts.get(id(prompt), "")
        if prompt is not None and not shown:
            messages = prompt if isinstance(prompt, str) else [_set_fields(each) for each in prompt]
            shown = self._prompts[id(prompt)] = json.dumps(messages)
        return Origin(completion, rule, asked.id, asked.group, request.step, shown)

    def _key(self, submission: Submission) -> bytes:
        """Return the cache key: a digest of the tenant and of everything the judge sees.

        The scoring rule is part of the key, since a judge may stop at the first failure if the
        reward is then decided. Names, tags, job and deadline are left out: no verdict depends on
        them.
        """
        key = hashlib.blake2b(digest_size=20)
        small = (
            self.tenant,
            submission.language,
            submission.environment,
            self.machine.digest(submission.environment),
            submission.scoring,
            submission.negative_control,
            submission.compiler,
            len(submission.source),
            sorted(submission.files.items()),
        )
        key.update(repr(small).encode())
        for shared in (submission.limits, submission.grader):
            digest = self._digests.get(id(shared))
            if digest is None:
                digest = self._digests[id(shared)] = _digest(shared)
            key.update(digest)
        key.update(submission.source.encode("utf-8", "surrogatepass"))
        return key.digest()


def _set_fields(message: Message) -> dict[str, Any]:
    return message.model_dump(exclude_unset=True)


def _digest(value: BaseModel | Limits) -> bytes:
    # Both encodings tell 1 from 1.0 and True, and NaN from None.
    try:
        whole = to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError:  # a lone surrogate
        whole = repr(value).encode()
    return hashlib.blake2b(whole, digest_size=20).digest()


def completion_text(asked: WireSubmission, where: str) -> str:
    """Return the completion, or the text of its last assistant message."""
    if isinstance(asked.completion, str):
        return asked.completion
    for message in reversed(asked.completion):
        if message.role == "assistant":
            content = message.content
            if isinstance(content, str):
                return content
            parts = (part.get("text") for part in content or ())
            return "".join(text for text in parts if isinstance(text, str))
    raise InvalidRequest(f"{where}.completion: none of its messages has the role assistant")


def line(entry: Entry, outcome: Outcome, degraded: tuple[str, ...]) -> Line:
    """Return the result of one submission as a plain dict, encoded once.

    A pydantic model for each of a thousand results would cost more than judging some of them. A
    test checks the dicts against the wire's models.
    """
    judgement, failure = outcome.judgement, outcome.failure
    if outcome.peer_degraded is not None:
        degraded = outcome.peer_degraded
    if failure is None and (judgement is None or outcome.reward is None):
        failure = JudgeFailed("the judge said nothing")
    if failure is not None or judgement is None:
        failure = failure or JudgeFailed("no judgement")
        judgement, reward, verdict = _nothing(entry.item.submission), None, None
    else:
        reward, verdict = outcome.reward, judgement.verdict
    usage = judgement.usage
    failures = judgement.failures[:MAX_FAILURES]
    body = {
        "index": entry.index,
        "id": entry.id,
        "group": entry.group,
        "evaluation_id": entry.item.evaluation_id,
        "reward": reward,
        "verdict": verdict,
        "error": None if failure is None else error_body(failure),
        "tests": {
            "passed": judgement.passed,
            "total": judgement.total,
            "failures": [
                {"index": each.index, "test": each.test, "message": each.message}
                for each in failures
            ],
        },
        "message": judgement.message,
        "stdout": judgement.stdout,
        "stderr": judgement.stderr,
        "truncated": judgement.truncated,
        "exit_code": judgement.exit_code,
        "integrity": judgement.integrity,
        "level": judgement.level,
        "hack_signals": list(judgement.hack_signals),
        "negative_control": judgement.negative_control,
        "usage": {
            "cpu_seconds": round(usage.cpu_seconds, 6),
            "wall_seconds": round(usage.wall_seconds, 6),
            "queue_seconds": round(outcome.queue_seconds, 6),
            "peak_memory_mb": round(usage.peak_memory_mb, 3),
            "compile_seconds": round(usage.compile_seconds, 6),
            "control_seconds": round(usage.control_seconds, 6),
        },
        "cache": outcome.cache,
        "sandbox_id": judgement.sandbox_id,
        "environment": entry.item.submission.environment,
        "degraded": degraded,
    }
    return Line(encode(body), reward, verdict, failure is not None and failure.retryable)


def _nothing(submission: Submission | NoCode) -> Judgement:
    """Return the fields of an item without a verdict."""
    if isinstance(submission, NoCode):
        return Judgement("failed", integrity=submission.integrity)
    return Judgement("failed", integrity=integrity_of(submission.grader))


def error_body(failure: Failure) -> dict[str, Any]:
    """Return the error of an item in its wire form."""
    return {
        "reason": failure.reason,
        "message": failure.message,
        "retryable": failure.retryable,
    }
