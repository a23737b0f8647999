"""Rows of the journal's tables for records, and texts in the form of the database: once, and compressed."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from proctor_client.wire import MAX_FAILURES, long_integers
from proctor_service.features.journal.entry import EVALUATION, Record
from proctor_service.processes.values import grader_json
from proctor_service.sandbox.interface import Limits, Usage

TEXT_AGE_SECONDS = 60.0
"""The time of a text's last use is stored in steps of this: for so long a text may outlive its records,
which a journal at its bound has no room for."""
MOST_WORDS_CHARACTERS = 200_000
MOST_NAME_CHARACTERS = 200
_HEAD = (
    "id", "at", "tenant", "job", "step", "task", "submission_id", "rollout_id", "tags", "verdict",
    "reward", "error", "cache", "queue_seconds", "seconds", "graded_sandbox_id", "trace_id",
    "completion_characters", "grader_kind",
)  # fmt: skip
_ROLLOUT_HEAD = (
    "id", "at", "tenant", "job", "step", "task", "tags", "verdict", "reward", "error", "metrics",
    "sandbox_id",
)  # fmt: skip
"""Names of the values in records of `entry.py`."""
_JUDGEMENT = (
    "verdict", "passed", "total", "message", "stdout", "stderr", "truncated", "exit_code",
    "integrity", "level", "signals", "negative_control", "sandbox_id", "unreported",
    "score", "repository", "failures", "usage",
)  # fmt: skip
"""Names of the values of a judgement from `processes/values.py`."""
_OF_JUDGEMENT = (
    "passed", "total", "level", "integrity", "negative_control", "exit_code", "truncated", "sandbox_id",
)  # fmt: skip
_OF_USAGE = (
    "cpu_seconds", "wall_seconds", "peak_memory_mb", "compile_seconds", "control_seconds",
)  # fmt: skip
_OF_TEXTS = (
    "completion", "source", "source_begin", "source_end", "grader", "files", "conditions", "output",
    "failures", "prompt",
)  # fmt: skip
_CONDITIONS = (
    "limits", "scoring", "language", "with_state", "environment", "negative_control", "compiler",
)  # fmt: skip
NAMES = (_HEAD, _ROLLOUT_HEAD, _JUDGEMENT, Usage.__slots__, _CONDITIONS)
"""Of all values in a record."""
LEAST_COMPRESSED = 120
MOST_KNOWN = 50_000
_COMPACT = json.JSONEncoder(separators=(",", ":"))
_SEPARATORS = re.compile(r"[^\w\x00-\x7f]+")
"""Characters outside of ASCII and of words: `…` and `—`, not `é` and `+`."""


class Batch:
    """Rows of the tables for some records."""

    def __init__(self, version: str, known_texts: KnownTexts) -> None:
        self.evaluations: list[dict[str, Any]] = []
        self.rollouts: list[dict[str, Any]] = []
        self.labels: list[tuple[str, str, str, str]] = []
        self.words: list[tuple[str, str]] = []
        self._texts: dict[bytes, dict[str, Any]] = {}
        self._digests: dict[Hashable, bytes] = {}
        self._lists: dict[tuple[str, ...], str] = {}
        self._used_at = math.ceil(time.time() / TEXT_AGE_SECONDS) * TEXT_AGE_SECONDS
        self._version = version
        self._known_texts = known_texts

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
        self,
        head: Sequence[Any],
        judgement_values: Sequence[Any],
        texts: Sequence[Any] | None,
        submission: Sequence[Any] | None,
    ) -> None:
        judgement = dict(zip(_JUDGEMENT, judgement_values, strict=True))
        usage = dict(zip(Usage.__slots__, judgement["usage"], strict=True))
        row = dict(zip(_HEAD, head, strict=True))
        tags, signals = row["tags"], judgement["signals"]
        row |= {
            "tenant": clean(row["tenant"]),
            "job": clean(row["job"]),
            "task": short_name(row["task"]),
            "submission_id": short_name(row["submission_id"]),
            "tags": self._list(tags),
            "signals": self._list(signals),
            "trace_id": row["trace_id"][3:35] or None,  # of a W3C traceparent
            **{name: judgement[name] for name in _OF_JUDGEMENT},
            **{name: usage[name] for name in _OF_USAGE},
            **dict.fromkeys(_OF_TEXTS),
            "version": self._version,
            "with_texts": texts is not None,
        }
        if texts is not None:
            self._add_texts(row, judgement, texts, submission)
        self.evaluations.append(row)
        for kind, names in (("tag", tags), ("signal", signals)):
            for name in dict.fromkeys(names):
                self.labels.append((row["id"], row["tenant"], kind, clean(name)))

    def _add_texts(
        self,
        row: dict[str, Any],
        judgement: Mapping[str, Any],
        texts: Sequence[Any],
        submission: Sequence[Any] | None,
    ) -> None:
        completion, extract, failure, prompt = texts
        output = {name: judgement[name] for name in ("message", "stdout", "stderr")}
        output["message"] = output["message"] or failure
        if any(output.values()):
            row["output"] = self._keep_once(("output", *output.values()), lambda: output)
        if failures := judgement["failures"][:MAX_FAILURES]:
            names = ("index", "test", "message")
            row["failures"] = self._keep_once(
                ("failures", *failures),
                lambda: [dict(zip(names, each, strict=True)) for each in failures],
            )
        if prompt:
            row["prompt"] = self._keep_once(("prompt", prompt), lambda: json.loads(prompt))
        shown = completion
        if submission is not None:
            source, grader, limits, scoring, language, files, *others = submission
            shown = completion or source
            row["source_begin"] = shown.find(source)
            row["source_end"] = row["source_begin"] + len(source)
            if row["source_begin"] < 0:  # the extraction changed it
                row["source"] = self._keep(source)
            row["grader"] = self._keep_once(grader, lambda: grader_json(grader))
            if files:
                row["files"] = self._keep(dump(files))
            conditions = dict(zip(_CONDITIONS, (limits, scoring, language, *others), strict=True))
            conditions["extract"] = extract
            row["conditions"] = self._keep_once(
                ("conditions", repr(conditions)), lambda: _conditions(conditions)
            )
        row["completion"] = self._keep(shown)
        row["completion_characters"] = len(shown)
        if words := words_of(shown):
            self.words.append((row["id"], words))

    def _add_rollout(self, head: Sequence[Any], conversation: Mapping[str, Any] | None) -> None:
        row = dict(zip(_ROLLOUT_HEAD, head, strict=True))
        row |= {
            "tenant": clean(row["tenant"]),
            "job": clean(row["job"]),
            "task": short_name(row["task"]),
            "tags": self._list(row["tags"]),
            "metrics": dump(row["metrics"]),
            "version": self._version,
            "conversation": None,
        }
        if conversation is not None:
            row["conversation"] = self._keep(_conversation(conversation))
        self.rollouts.append(row)

    def _list(self, names: Sequence[str]) -> str:
        """Return the JSON list of names; most records of a batch have the same."""
        key = tuple(names)
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = dump(key)
        return found

    def _keep_once(self, key: Hashable, make: Callable[[], object]) -> bytes:
        """Keep the JSON text of a value shared by many records of a batch."""
        digest = self._digests.get(key)
        if digest is None:
            digest = self._digests[key] = self._keep(dump(make()))
        return digest

    def _keep(self, value: str) -> bytes:
        content = value.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest not in self._texts and not self._known_texts.has(digest, self._used_at):
            row = {"digest": digest, "packed": packed(content), "used_at": self._used_at}
            self._texts[digest] = row
        return digest


def dump(value: object) -> str:
    """Return the JSON text of a value, as the journal stores it: in ASCII, also NaN and infinities."""
    return long_integers.dumps(value, _COMPACT)


def words_of(value: str) -> str:
    """Return the text for the index of words: words outside ASCII in lower case, apart by spaces.

    The index takes all characters outside ASCII for parts of words.
    """
    value = value[:MOST_WORDS_CHARACTERS]
    if not value.isascii():
        value = _SEPARATORS.sub(" ", clean(value).casefold())
    return value.replace("\0", " ")


def clean(value: str | None) -> Any:
    """Return the text without NUL and lone surrogates, which databases refuse."""
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def short_name(value: str | None) -> Any:
    """Return a name short enough for an index: a digest of the name replaces the end of a long name."""
    name = clean(value)
    if name is None or len(name) <= MOST_NAME_CHARACTERS:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: MOST_NAME_CHARACTERS - 20]}... {digest}"


def _conversation(conversation: Mapping[str, Any]) -> str:
    """Return the JSON of a conversation with encoded messages and choices."""
    decoded = [json.loads(each) for each in conversation["messages_and_choices"]]
    return dump({**conversation, "messages_and_choices": decoded})


def _conditions(conditions: dict[str, Any]) -> dict[str, Any]:
    """Return the conditions of a submission with names for its limits; a compiler's if any."""
    found = {**conditions, "limits": dict(zip(Limits.__slots__, conditions["limits"], strict=True))}
    if found["compiler"] is None:
        del found["compiler"]
    return found


def packed(value: bytes) -> bytes:
    """Return the bytes, compressed from a certain size on; the first byte says whether."""
    if len(value) < LEAST_COMPRESSED:
        return b"0" + value
    return b"1" + zlib.compress(value, 1)


def unpacked(value: bytes) -> bytes:
    """Return the bytes of `packed`."""
    return value[1:] if value[:1] == b"0" else zlib.decompress(value[1:])


class KnownTexts:
    """Digests of the lately written texts, with their stored time of use."""

    def __init__(self) -> None:
        self._known_texts: OrderedDict[bytes, float] = OrderedDict()

    def has(self, digest: bytes, used_at: float) -> bool:
        """Return True if the text is stored with this time of use; note the text if not."""
        if self._known_texts.get(digest) == used_at:
            self._known_texts.move_to_end(digest)
            return True
        self._known_texts[digest] = used_at
        self._known_texts.move_to_end(digest)
        while len(self._known_texts) > MOST_KNOWN:
            self._known_texts.popitem(last=False)
        return False

    def forget(self) -> None:
        """Forget all texts."""
        self._known_texts.clear()
