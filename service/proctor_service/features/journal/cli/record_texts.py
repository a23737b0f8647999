"""Records of the journal as readable text.

Models and their programs wrote these texts. Each of their lines is indented, so headings cannot be
imitated, and control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from proctor_client.wire import long_integers

Row = Mapping[str, Any]
_INDENT = "    "
_SECONDS = ("cpu_seconds", "wall_seconds", "queue_seconds", "seconds")


def visible(text: str) -> str:
    """Return the text in lines, with escapes (`\\x1b`) for all else that a terminal does not print.

    A tab becomes spaces.
    """
    lines = text.expandtabs(4).split("\n")
    return "\n".join(line if line.isprintable() else _escaped(line) for line in lines)


def evaluation_text(row: Row) -> str:
    """Return an evaluation (`Reader.evaluation`, `parsed`) as text."""
    output, conditions = row["output"] or {}, row["conditions"] or {}
    parts = [*_heads(row, _evaluation_facts(row, conditions))]
    if not row["with_texts"]:
        parts.append("\nIts texts were not recorded (PROCTOR_JOURNAL_TEXTS).")
    completion, source = row["completion_text"], row["source"]
    parts += _block("completion", completion)
    if source is not None and source != completion:
        parts += _block("code that was judged", source)
    for path, content in (row["files"] or {}).items():
        parts += _block(f"file {_line(path)}", content)
    parts += _grader(row["grader"])
    parts += _block("message", output.get("message"))
    for failure in row["failures"] or ():
        text = f"{failure['test']}\n{failure['message']}"
        parts += _block(f"failed test {failure['index']}", text)
    cut = " (cut)" if row["truncated"] else ""
    parts += _block(f"stdout{cut}", output.get("stdout"))
    parts += _block(f"stderr{cut}", output.get("stderr"))
    return "\n".join(parts)


def rollout_text(row: Row) -> str:
    """Return a rollout (`Reader.rollout`, `parsed`) as text."""
    metrics = ", ".join(f"{name} {value:g}" for name, value in row["metrics"].items())
    facts = {"metrics": metrics, "sandbox": row["sandbox_id"]}
    parts = [*_heads(row, facts)]
    conversation = row["conversation"]
    if conversation is None:
        parts.append("\nIts texts were not recorded (PROCTOR_JOURNAL_TEXTS).")
        conversation = {}
    parts += _block("message", conversation.get("error_message"))
    for each in conversation.get("messages_and_choices") or ():
        parts += _message(each)
    evaluations = row["evaluations"]
    if evaluations:
        parts.append("\nevaluations")
    for each in evaluations:
        parts.append(f"{_INDENT}{_line(each['id'])}  {_verdict(each)}")
    return "\n".join(parts)


def report_text(found: Row) -> str:
    """Return the figures of a job (`Reader.figures`) as text."""
    tasks, groups, latest = found["tasks"], found["groups"], found["latest"]
    facts = {
        "job": found["job"],
        "evaluations": f"{found['evaluations']:,}, {found['judged']:,} with a reward",
        "mean reward": _number(found["mean_reward"], found["spread"]),
        "verdicts": _counts(found["verdicts"]),
        "without a reward": f"{found['null_share']:.1%}",
        "without code": f"{found['no_code_share']:.1%}",
        "tasks": f"{tasks['count']:,}: {tasks['solved_by_nobody']:,} solved by nobody, "
        f"{tasks['solved_by_everybody']:,} by everybody",
        "solved by nobody": ", ".join(tasks["nobody"]),
        "solved by everybody": ", ".join(tasks["everybody"]),
        "pass@k": ", ".join(f"{k}: {share:.3f}" for k, share in found["pass_at"].items()),
        "groups": f"{groups['count']:,}: {groups['without_spread']:,} without spread",
        "signals": _counts(found["signals"]),
        "rewards by characters": ", ".join(
            f"{each['from_characters']:,}-{each['to_characters']:,}: {each['mean_reward']:.3g}"
            for each in found["lengths"]
        ),
        f"newest {latest['sampled']:,}": ", ".join(
            f"{name} {value:.3g}"
            for name, value in latest.items()
            if name != "sampled" and value is not None
        ),
    }
    shown = {name: value for name, value in facts.items() if value}
    width = max(map(len, shown))
    lines = [f"{name:{width}}  {_line(str(value))}" for name, value in shown.items()]
    return "\n".join([*lines, *(f"warning: {each}" for each in found["warnings"])])


def _number(mean: float | None, spread: float | None) -> str:
    return "" if mean is None or spread is None else f"{mean:.4f}, standard deviation {spread:.4f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _evaluation_facts(row: Row, conditions: Row) -> dict[str, Any]:
    limits: Row = conditions.get("limits") or {}
    usage = [f"{name} {row[name]:.3g}" for name in _SECONDS]
    usage.append(f"peak_memory_mb {row['peak_memory_mb']:.4g}")
    return {
        "tests": f"{row['passed']} of {row['total']} passed" if row["total"] else None,
        "signals": ", ".join(row["signals"]),
        "exit code": row["exit_code"],
        "level": row["level"],
        "integrity": row["integrity"],
        "negative control": row["negative_control"],
        "cache": row["cache"],
        "grader": row["grader_kind"],
        "language": conditions.get("language"),
        "scoring": conditions.get("scoring"),
        "extract": conditions.get("extract"),
        "limits": ", ".join(f"{name} {value}" for name, value in limits.items()),
        "usage": ", ".join(usage),
        "id in request": row["submission_id"],
        "rollout": row["rollout_id"],
        "sandbox": row["sandbox_id"],
        "graded sandbox": row["graded_sandbox_id"],
        "files of a sandbox": "judged too, not recorded" if conditions.get("with_state") else None,
        "trace": row["trace_id"],
    }


def _heads(row: Row, more: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each fact with a value."""
    ended = datetime.fromtimestamp(row["at"], UTC)
    facts = {
        "id": row["id"],
        "result": _verdict(row),
        "ended": ended.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "tenant": row["tenant"],
        "job": row["job"],
        "step": row["step"],
        "task": row["task"],
        "tags": ", ".join(row["tags"]),
        **more,
        "version": row["version"],
    }
    shown = {name: value for name, value in facts.items() if value not in (None, "")}
    width = max(map(len, shown))
    for name, value in shown.items():
        yield f"{name:{width}}  {_line(str(value))}"


def _verdict(row: Row) -> str:
    if row["verdict"] is None:
        return f"no reward, error {_line(str(row['error']))}"
    return f"{_line(row['verdict'])}, reward {row['reward']:g}"


def _grader(grader: Row | None) -> Iterator[str]:
    if grader is None:
        return
    fields = dict(grader)
    fields.pop("kind", None)
    for name in ("setup",):
        yield from _block(name, fields.pop(name, None))
    for name in ("tests", "cases"):
        if not isinstance(fields.get(name), list):  # absent, or generated from seeds
            continue
        for index, each in enumerate(fields.pop(name)):
            text = each if isinstance(each, str) else long_integers.dumps(each)
            yield from _block(f"test {index}", text)
    if isinstance(files := fields.pop("files", None), Mapping):
        for path, content in files.items():
            yield from _block(f"test file {_line(path)}", content)
    options = {name: value for name, value in fields.items() if value not in (None, False)}
    if options:
        yield from _block("grader", long_integers.dumps(options))


def _message(each: Row) -> Iterator[str]:
    """Yield a message of a conversation, or a choice of the policy."""
    message = each.get("message") if isinstance(each.get("message"), Mapping) else each
    assert isinstance(message, Mapping)
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        content = long_integers.dumps(content)
    role = _line(str(message.get("role", "message")))
    yield from _block(role, content) if content else [f"\n{role}"]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        text = f"{function.get('name')}({function.get('arguments')})"
        yield f"{_INDENT}calls {_indented(text)}"


def _block(title: str, text: str | None) -> Iterable[str]:
    if not text:
        return ()
    return (f"\n{title}", f"{_INDENT}{_indented(text)}")


def _indented(text: str) -> str:
    return visible(text).replace("\n", f"\n{_INDENT}")


def _line(text: str) -> str:
    return text if text.isprintable() else _escaped(text)


def _escaped(text: str) -> str:
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )
