"""Lists of the journal are those of a plain search through all evaluations, for any filter and cursor."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from journal_store import FAILED, PASSED, Under, item, opened

from proctor_service.errors import DeadlinePassed, SandboxLost
from proctor_service.features.journal import filters
from proctor_service.features.journal.filters import Filter
from proctor_service.judge.submission import Judgement
from proctor_service.outcomes import Item, Origin, Outcome

COUNT = 400
WORDS = ("alpha", "beta", "gamma", "İstanbul", "straße", "f_g")
OUTCOMES = (
    PASSED,
    FAILED,
    Outcome(Judgement("failed", hack_signals=("exits",)), 0.5),
    Outcome(failure=SandboxLost("gone")),
    Outcome(failure=DeadlinePassed("late")),
)


@dataclass(frozen=True)
class Given:
    """An evaluation that was written."""

    item: Item
    outcome: Outcome
    words: tuple[str, ...]


def given(number: int, chance: random.Random) -> Given:
    words = tuple(chance.sample(WORDS, chance.randint(0, 3)))
    task, step = chance.choice((None, "p0", "p1")), chance.choice((None, 0, 1, 2))
    made = replace(
        item(number),
        tenant=chance.choice("ttu"),
        job=chance.choice(("a", "b")),
        tags=tuple(chance.sample(("x", "y", "\ud800"), chance.randint(0, 2))),
        rollout_id=chance.choice((None, "ro_1", "ro_2")),
        origin=Origin(f"(say:{'.'.join(words)})", "none", None, task, step),
    )
    return Given(made, chance.choice(OUTCOMES), words)


TESTS: dict[str, Callable[[Given, Any], bool]] = {
    "job": lambda each, value: each.item.job == value,
    "step": lambda each, value: each.item.origin is not None and each.item.origin.step == value,
    "task": lambda each, value: each.item.origin is not None and each.item.origin.task == value,
    "verdict": lambda each, value: (
        each.outcome.judgement is not None and each.outcome.judgement.verdict == value
    ),
    "error": lambda each, value: (
        each.outcome.failure is not None and value in ("*", each.outcome.failure.reason)
    ),
    "reward": lambda each, value: each.outcome.reward == value,
    "tag": lambda each, value: value in each.item.tags,
    "signal": lambda each, value: (
        each.outcome.judgement is not None and value in each.outcome.judgement.hack_signals
    ),
    "rollout_id": lambda each, value: each.item.rollout_id == value,
    "words": lambda each, value: (
        {word.casefold() for word in value.split()}
        <= {word.casefold() for word in (*each.words, "say")}
    ),
}
"""Whether an evaluation fits a filter."""
VALUES: dict[str, tuple[Any, ...]] = {
    "job": ("a", "b", "none"),
    "step": (0, 1, 7),
    "task": ("p0", "p1", "none"),
    "verdict": ("passed", "failed", "timeout"),
    "error": ("*", "deadline", "sandbox_lost", "draining"),
    "reward": (0.0, 0.5, 1.0, 0.7),
    "tag": ("x", "y", "\ud800", "none"),
    "signal": ("exits", "none"),
    "rollout_id": ("ro_1", "ro_2", "none"),
    "words": ("alpha", "BETA alpha", "straße gamma", "İSTANBUL", "none", "say", "f_g"),
}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Under, list[Given]]]:
    """A journal, and what it has, the newest first."""
    chance = random.Random(3)
    with opened(tmp_path_factory.mktemp("lists") / "journal.db") as under:
        made = [given(number, chance) for number in range(COUNT)]
        under.write(*((each.item, each.outcome) for each in made))
        yield under, made[::-1]


@pytest.mark.parametrize("rare", [0, 20, filters.RARE])
@pytest.mark.parametrize("seed", range(4))
def test_a_list_has_what_fits(
    journal: tuple[Under, list[Given]], rare: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rare`: so many evaluations with a label are few; all ways to the same list are taken."""
    monkeypatch.setattr(filters, "RARE", rare)
    under, made = journal
    chance = random.Random(seed)
    for _ in range(60):
        names = chance.sample(list(TESTS), chance.choice((0, 1, 1, 2, 2, 3)))
        wanted = {name: chance.choice(VALUES[name]) for name in names}
        tenant = chance.choice(("t", "t", "u", "v", None))
        most, before = chance.choice((5, 50)), chance.choice((None, 100, 250))
        fitting = [
            COUNT - index
            for index, each in enumerate(made)
            if tenant in (None, each.item.tenant)
            and (before is None or COUNT - index < before)
            and all(TESTS[name](each, value) for name, value in wanted.items())
        ]
        page = under.reader.evaluations(tenant, Filter(**wanted), most, before)
        expected = fitting[:most]
        said = f"{tenant} {wanted} {most} {before}"
        assert [row["number"] for row in page.rows] == expected, said
        assert page.following == (expected[-1] if len(fitting) > most else None), said


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a “quoted” word", "quoted"),
        ("x=früh—spät", "SPÄT"),
        ("x=früh—spät", "früh x"),
        ("日本語 テスト", "テスト"),
        ("early_exit(0)", "exit early"),
        ("It's 3.14", "14 it"),
        ("\ud800after\0nul", "after nul"),
        ("\N{KELVIN SIGN}elvin", "kelvin"),
        ("STRASSE", "straße"),
    ],
)
def test_words_are_found_in_any_script(tmp_path: Path, text: str, found: str) -> None:
    with opened(tmp_path / "journal.db") as under:
        under.write((replace(item(1), origin=Origin(text, "none")), PASSED))
        under.write((replace(item(2), origin=Origin("something else", "none")), PASSED))
        assert under.ids(words=found) == ["ev_1"]
        assert under.ids(words=f"{found} else") == []
