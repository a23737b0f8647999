"""Rows of the journal's tables for records, and texts as a database takes them."""

from __future__ import annotations

import hashlib
import json
import marshal
import math
import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from proctor_client.wire import MAX_FAILURES, long_integers
from proctor_service.features.journal.entry import EVALUATION, Record
from proctor_service.features.journal.texts import Texts, packed

TEXT_AGE_SECONDS = 60.0
"""The time of a text's last use is stored in steps of this: for so long a text may outlive its records,
which a journal at its bound has no room for."""
MOST_WORDS_CHARACTERS = 200_000
MOST_NAME_CHARACTERS = 200
_JUDGEMENT = (
    "verdict", "passed", "total", "message", "stdout", "stderr", "truncated", "exit_code",
    "integrity", "level", "signals", "negative_control", "sandbox_id", "unreported",
    "verifier_reward", "failures", "usage",
)  # fmt: skip
_LIMITS = (
    "cpu_seconds", "wall_seconds", "memory_mb", "output_kb", "processes", "disk_mb", "network",
    "total_cpu_seconds", "total_wall_seconds",
)  # fmt: skip
"""Names of the values that `processes/values.py` makes of a judgement and of limits."""
_COMPACT = json.JSONEncoder(separators=(",", ":"))
_SEPARATORS = re.compile(r"[^\w\x00-\x7f]+")


class Batch:
    """Rows of the tables for some records."""

    def __init__(self, version: str, known: Texts) -> None:
        self.evaluations: list[dict[str, Any]] = []
        self.rollouts: list[dict[str, Any]] = []
        self.labels: list[tuple[str, str, str, str]] = []
        self.words: list[tuple[str, str]] = []
        self._texts: dict[bytes, dict[str, Any]] = {}
        self._digests: dict[Hashable, bytes] = {}
        self._lists: dict[tuple[str, ...], str] = {}
        self._used_at = math.ceil(time.time() / TEXT_AGE_SECONDS) * TEXT_AGE_SECONDS
        self._version = version
        self._known = known

    @property
    def texts(self) -> list[dict[str, Any]]:
        """Rows of `texts`, in the order in which all writers lock them."""
        return [self._texts[digest] for digest in sorted(self._texts)]

    def add(self, record: Record) -> None:
        """Add the rows of a record."""
        if record[0] == EVALUATION:
            self._add_evaluation(*record[1:])
        else:
            self._add_rollout(*record[1:])

    def _add_evaluation(
        self, head: Sequence[Any], judged: Sequence[Any], said: Sequence[Any] | None, given: Any
    ) -> None:
        (
            id_, at, tenant, job, step, task, submission_id, rollout_id, tags, verdict, reward, error,
            cache, queue_seconds, seconds, graded, traceparent, characters, kind,
        ) = head  # fmt: skip
        judgement = dict(zip(_JUDGEMENT, judged, strict=True))
        cpu_seconds, wall_seconds, peak_memory_mb, _, _, *others = judgement["usage"]
        compile_seconds, control_seconds = others
        signals = judgement["signals"]
        row: dict[str, Any] = {
            "id": id_,
            "at": at,
            "tenant": clean(tenant),
            "job": clean(job),
            "step": step,
            "task": short_name(task),
            "submission_id": short_name(submission_id),
            "rollout_id": rollout_id,
            "tags": self._list(tags),
            "verdict": verdict,
            "reward": reward,
            "error": error,
            "passed": judgement["passed"],
            "total": judgement["total"],
            "level": judgement["level"],
            "integrity": judgement["integrity"],
            "signals": self._list(signals),
            "negative_control": judgement["negative_control"],
            "exit_code": judgement["exit_code"],
            "cache": cache,
            "cpu_seconds": cpu_seconds,
            "wall_seconds": wall_seconds,
            "queue_seconds": queue_seconds,
            "seconds": seconds,
            "peak_memory_mb": peak_memory_mb,
            "compile_seconds": compile_seconds,
            "control_seconds": control_seconds,
            "sandbox_id": judgement["sandbox_id"],
            "graded_sandbox_id": graded,
            "trace_id": traceparent[3:35] or None,
            "version": self._version,
            "grader_kind": kind,
            "completion_characters": characters,
            "truncated": judgement["truncated"],
            "completion": None,
            "source": None,
            "source_begin": None,
            "source_end": None,
            "grader": None,
            "files": None,
            "conditions": None,
            "output": None,
            "failures": None,
            "prompt": None,
            "with_texts": said is not None,
        }
        if said is not None:
            self._add_texts(row, judgement, said, given)
        self.evaluations.append(row)
        for kind_, names in (("tag", tags), ("signal", signals)):
            for name in dict.fromkeys(names):
                self.labels.append((id_, row["tenant"], kind_, clean(name)))

    def _add_texts(
        self, row: dict[str, Any], judgement: Mapping[str, Any], said: Sequence[Any], given: Any
    ) -> None:
        completion, extract, failure, prompt = said
        row["output"] = self._output(
            judgement["message"] or failure, judgement["stdout"], judgement["stderr"]
        )
        row["failures"] = self._failures(judgement["failures"][:MAX_FAILURES])
        if prompt:
            row["prompt"] = self._keep_once(("prompt", prompt), lambda: json.loads(prompt))
        if given is None:
            row["completion"] = self._keep(completion)
            shown = completion
        else:
            (
                source, grader, limits, scoring, language, files, with_state, environment,
                negative_control, compiler,
            ) = given  # fmt: skip
            shown = completion or source
            row["source_begin"] = shown.find(source)
            row["source_end"] = row["source_begin"] + len(source)
            row["completion"] = self._keep(shown)
            if row["source_begin"] < 0:  # the extraction changed it
                row["source"] = self._keep(source)
            row["grader"] = self._keep_once(grader, lambda: _grader(grader))
            if files:
                row["files"] = self._keep(dump(files))
            row["conditions"] = self._keep_once(
                (
                    language,
                    limits,
                    scoring,
                    str(extract),
                    with_state,
                    environment,
                    negative_control,
                    repr(compiler),
                ),
                lambda: {
                    "language": language,
                    "limits": dict(zip(_LIMITS, limits, strict=True)),
                    "scoring": scoring,
                    "extract": extract,
                    "with_state": with_state,
                    "environment": environment,
                    "negative_control": negative_control,
                    **({} if compiler is None else {"compiler": compiler}),
                },
            )
        row["completion_characters"] = len(shown)
        if words := words_of(shown):
            self.words.append((row["id"], words))

    def _output(self, message: str, stdout: str, stderr: str) -> bytes | None:
        if not (message or stdout or stderr):
            return None
        return self._keep_once(
            ("output", message, stdout, stderr),
            lambda: {"message": message, "stdout": stdout, "stderr": stderr},
        )

    def _failures(self, failures: Sequence[tuple[int, str, str]]) -> bytes | None:
        if not failures:
            return None
        return self._keep_once(
            ("failures", *failures),
            lambda: [
                {"index": index, "test": test, "message": message}
                for index, test, message in failures
            ],
        )

    def _add_rollout(self, head: Sequence[Any], conversation: Mapping[str, Any] | None) -> None:
        (
            id_, at, tenant, job, step, task, tags, verdict, reward, error, metrics, sandbox_id,
        ) = head  # fmt: skip
        self.rollouts.append(
            {
                "id": id_,
                "at": at,
                "tenant": clean(tenant),
                "job": clean(job),
                "step": step,
                "task": short_name(task),
                "tags": self._list(tags),
                "verdict": verdict,
                "reward": reward,
                "error": error,
                "metrics": dump(metrics),
                "sandbox_id": sandbox_id,
                "version": self._version,
                "conversation": None
                if conversation is None
                else self._keep(_conversation(conversation)),
            }
        )

    def _list(self, names: Sequence[str]) -> str:
        """Return the JSON list of names; most records of a batch have the same."""
        key = tuple(names)
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = dump(key)
        return found

    def _keep_once(self, key: Hashable, make: Callable[[], object]) -> bytes:
        """Keep the JSON text of a value that many records of a batch share."""
        digest = self._digests.get(key)
        if digest is None:
            digest = self._digests[key] = self._keep(dump(make()))
        return digest

    def _keep(self, value: str) -> bytes:
        content = value.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest not in self._texts and not self._known.has(digest, self._used_at):
            row = {"digest": digest, "packed": packed(content), "used_at": self._used_at}
            self._texts[digest] = row
        return digest


def dump(value: object) -> str:
    """Return the JSON text of a value, as the journal stores it: in ASCII, also NaN and infinities."""
    return long_integers.dumps(value, _COMPACT)


def words_of(value: str) -> str:
    """Return the text for the index of words: what is no ASCII is words in one case, apart by spaces.

    The index takes any other character for a part of a word.
    """
    value = value[:MOST_WORDS_CHARACTERS]
    if not value.isascii():
        value = _SEPARATORS.sub(" ", clean(value).casefold())
    return value.replace("\0", " ")


def clean(value: str | None) -> Any:
    """Return the text without NUL and lone surrogates, which no database column takes."""
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def short_name(value: str | None) -> Any:
    """Return a name that an index takes: the end of a long one is replaced by a digest of it all."""
    name = clean(value)
    if name is None or len(name) <= MOST_NAME_CHARACTERS:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: MOST_NAME_CHARACTERS - 20]}... {digest}"


def _conversation(said: Mapping[str, Any]) -> str:
    """Return the JSON of a conversation whose messages and choices are encoded."""
    decoded = [json.loads(each) for each in said["messages_and_choices"]]
    return dump({**said, "messages_and_choices": decoded})


def _grader(encoded: bytes) -> dict[str, Any]:
    kind, fields = marshal.loads(encoded)
    return {**fields, "kind": kind}
