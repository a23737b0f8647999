"""Tags of sandboxes: tags from the environment, and the conversion of tags to Kubernetes labels.

A tag is any text, by convention `name:value` (`slurm-job:4711`) or one word (`trl-grpo`).

A label consists of a key and a value. Each has at most 63 characters out of A-Z a-z 0-9 - _ . and
begins and ends with a letter or digit; a value may be empty. The conversion follows these rules:

- `name:value` becomes `name=value`; a word becomes `word=true`.
- Every other character becomes `-`; then `-`, `_` and `.` at both ends are removed.
- A text over the limit is cut, and ends with eight hexadecimal digits of the whole text's SHA-256.
- If an earlier tag of the same sandbox already has the key, the key ends with these digits too. So
  every tag keeps a label.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping

LONGEST_LABEL = 63
_DIGITS = 8


def environment_tags(
    *,
    model: str | None = None,
    env: str | None = None,
    environ: Mapping[str, str] | None = None,
    with_fallbacks: bool = False,
) -> tuple[str, ...]:
    """Return tags for the run, job, model and environment of this process, as far as known.

    The order is `wandb-run:{WANDB_RUN_ID}`, `slurm-job:{SLURM_JOB_ID}`, `model:{model}`,
    `env:{env}`. `environ` is os.environ by default. `with_fallbacks`: without a run it is
    `wandb-run:local`, and without a job `slurm-job:interactive`.
    """
    environ = os.environ if environ is None else environ
    tags = {
        "wandb-run": environ.get("WANDB_RUN_ID") or (with_fallbacks and "local"),
        "slurm-job": environ.get("SLURM_JOB_ID") or (with_fallbacks and "interactive"),
        "model": model,
        "env": env,
    }
    found = {name: (value or "").strip() for name, value in tags.items()}
    return tuple(f"{name}:{value}" for name, value in found.items() if value)


def kubernetes_labels(tags: Iterable[str]) -> dict[str, str]:
    """Return the tags as labels, by the rules above; each distinct tag gets a label."""
    labels: dict[str, str] = {}
    for tag in dict.fromkeys(tags):
        name, colon, value = tag.partition(":")
        stem = key = _label(name) or _with_digest("tag", tag)
        digits = 0
        while key in labels:
            digits += _DIGITS
            key = _with_digest(stem, tag, digits)
        labels[key] = _label(value) if colon else "true"
    return labels


def _label(text: str) -> str:
    label = _trimmed(re.sub(r"[^A-Za-z0-9._-]", "-", text))
    return label if len(label) <= LONGEST_LABEL else _with_digest(label, text)


def _with_digest(stem: str, text: str, digits: int = _DIGITS) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return f"{_trimmed(stem[: LONGEST_LABEL - digits - 1])}-{digest}"


def _trimmed(label: str) -> str:
    return label.strip("-_.")
