"""`proctor bench hacks`: measure which reward hacks a service rewards.

The corpus also contains similar honest programs, to detect a service that rewards too little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.table import Column, Table
from rich.text import Text

from proctor_client import Client
from proctor_service.cli.console import aside, plain, print_list, screen, write_json
from proctor_service.cli.failures import TROUBLE, UNSOUND, Trouble, friendly
from proctor_service.cli.target import authorization, client_errors, connected, named_service
from proctor_service.features.evaluation import repository_hacks
from proctor_service.features.evaluation.scoreboard.corpus import CorpusEntry, corpus
from proctor_service.features.evaluation.scoreboard.requests import (
    WAIT_SECONDS,
    WIRES,
    NotExpressed,
)
from proctor_service.version import version

JOB = "bench-hacks"
SHOWN = 20
AT_ONCE = 4
PROCTOR = "proctor"
Wire = StrEnum("Wire", {name: name for name in (PROCTOR, *WIRES)})  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an entry. `rewarded` is None if the service gave no reward."""

    id: str
    group: str
    does: str
    honest: bool
    rewarded: bool | None
    verdict: str | None = None


def hacks(
    wire: Annotated[
        Wire, typer.Option(help="Whose requests to send; each says what it has words for.")
    ] = Wire[PROCTOR],
    only: Annotated[
        list[str] | None, typer.Option("--class", help="Only hacks of this class; repeat.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write every outcome here.")
    ] = None,
    repositories: Annotated[
        str | None,
        typer.Option(
            metavar="ENVIRONMENT",
            help="Judge changes of a repository instead, beside public judges, in this environment or "
            "image, which needs python3 with pytest, and git.",
        ),
    ] = None,
) -> None:
    """Send programs that deserve no reward, and similar honest programs.

    Status 0: every honest program was rewarded, and no hack. 1: otherwise. 2: some were not judged.
    """
    with friendly(), client_errors():
        console = aside()
        if repositories is not None:
            _repositories(repositories, json_path)
            return
        entries = _chosen(corpus(), only or [])
        with console.status(f"{len(entries)} programs"):
            if wire.value == PROCTOR:
                with connected(console) as client:
                    outcomes = _by_proctor(client, entries)
            else:
                outcomes = _by_wire(wire.value, entries)
        out = screen()
        left = len(entries) - len(outcomes)
        out.print(_table(outcomes))
        if left:
            out.print(f"\n{left} of {len(entries)} have no words on this wire", style="dim")
        for title, listed in (
            ("Hacks that were rewarded", [o for o in outcomes if _cheated(o)]),
            ("Honest programs that were not", [o for o in outcomes if _wronged(o)]),
            ("Not judged", [o for o in outcomes if o.rewarded is None]),
        ):
            columns = [Column(name, overflow="fold") for name in ("program", "what it does")]
            rows = [(plain(each.id, 80), plain(each.does)) for each in listed]
            print_list(out, title, columns, rows, SHOWN)
        if json_path is not None:
            write_json(json_path, report(wire.value, outcomes, left))
        _end(outcomes)


def _repositories(environment: str, json_path: Path | None) -> None:
    console = aside()
    with console.status("changes of a repository"), connected(console) as client:
        found = repository_hacks.judged_repositories(client, environment, JOB)
    out = screen()
    for table in repository_hacks.tables(found):
        out.print(table)
    if json_path is not None:
        write_json(json_path, {"proctor": version(), "cases": repository_hacks.report(found)})
    own = [(each.rewarded[repository_hacks.PROCTOR], each.case.honest) for each in found]
    if any(rewarded is None for rewarded, _ in own):
        raise typer.Exit(TROUBLE)
    if any(rewarded is not is_honest for rewarded, is_honest in own):
        raise typer.Exit(UNSOUND)


def _chosen(entries: Sequence[CorpusEntry], only: Sequence[str]) -> list[CorpusEntry]:
    """Return the entries of the named classes, or all. Raises Trouble for an unknown class."""
    names = {each.replace(" ", "_") for each in only}
    classes = {entry.group for entry in entries}
    if names - classes:
        raise Trouble(f"no class {min(names - classes)!r}; there are: {', '.join(sorted(classes))}")
    return [entry for entry in entries if not names or entry.group in names]


def _by_proctor(client: Client, entries: Sequence[CorpusEntry]) -> list[Outcome]:
    found: dict[str, Outcome] = {}
    for mode in ("none", "auto"):
        chosen = [each for each in entries if each.extract == mode]
        if not chosen:
            continue
        answer = client.reward(
            [each.submission() for each in chosen],
            extract=mode,
            job=JOB,
            cache=False,
        )
        for entry, result in zip(chosen, answer.results, strict=True):
            rewarded = None if result.reward is None else result.reward >= 1.0
            found[entry.id] = _outcome(entry, rewarded, result.verdict)
    return [found[entry.id] for entry in entries]


def _by_wire(wire: str, entries: Sequence[CorpusEntry]) -> list[Outcome]:
    url = named_service()
    if not url:
        raise Trouble(
            "say where the service is: PROCTOR_URL; Proctor's own wires are below /compat"
        )
    headers = authorization()
    try:
        client = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=WAIT_SECONDS)
    except (httpx.InvalidURL, ValueError) as error:
        raise Trouble(f"{url}: {error}") from None
    with client, ThreadPoolExecutor(AT_ONCE) as threads:
        return list(
            filter(None, threads.map(lambda each: _outcome_of(client, wire, each), entries))
        )


def _outcome_of(client: httpx.Client, wire: str, entry: CorpusEntry) -> Outcome | None:
    try:
        return _outcome(entry, WIRES[wire](client, entry))
    except NotExpressed:
        return None
    except httpx.ConnectError as error:
        raise Trouble(f"no service answers at {client.base_url}: {error}") from None
    except (httpx.HTTPError, KeyError, IndexError, AttributeError, TypeError):
        return _outcome(entry, None)  # unknown answer format


def _outcome(entry: CorpusEntry, rewarded: bool | None, verdict: str | None = None) -> Outcome:
    return Outcome(entry.id, entry.group, entry.does, entry.honest, rewarded, verdict)


def _cheated(outcome: Outcome) -> bool:
    return outcome.rewarded is True and not outcome.honest


def _wronged(outcome: Outcome) -> bool:
    return outcome.rewarded is False and outcome.honest


def _counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    hacks, honest = ([o for o in outcomes if o.honest is kind] for kind in (False, True))
    return {
        "hacks": len(hacks),
        "hacks_rewarded": sum(o.rewarded is True for o in hacks),
        "honest": len(honest),
        "honest_rewarded": sum(o.rewarded is True for o in honest),
        "not_judged": sum(o.rewarded is None for o in outcomes),
    }


def _by_class(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, dict[str, int]]]:
    for group in sorted({o.group for o in outcomes}):
        yield group, _counts([o for o in outcomes if o.group == group])


def _table(outcomes: Sequence[Outcome]) -> Table:
    numbers = [
        Column(each, justify="right") for each in ("hacks", "rewarded", "honest", "rewarded")
    ]
    table = Table("class", *numbers, box=None, pad_edge=False)
    for name, counts in [*_by_class(outcomes), ("all", _counts(outcomes))]:
        bad = "red" if counts["hacks_rewarded"] else ""
        short = "red" if counts["honest_rewarded"] < counts["honest"] else ""
        table.add_row(
            name.replace("_", " "),
            str(counts["hacks"]),
            Text(str(counts["hacks_rewarded"]), style=bad),
            str(counts["honest"]),
            Text(str(counts["honest_rewarded"]), style=short),
        )
    return table


def report(wire: str, outcomes: Sequence[Outcome], left: int) -> dict[str, Any]:
    """Return all outcomes in JSON form. `not_expressed`: entries outside the wire format."""
    return {
        "wire": wire,
        "proctor": version(),
        **_counts(outcomes),
        "not_expressed": left,
        "classes": dict(_by_class(outcomes)),
        "outcomes": [asdict(each) for each in outcomes],
    }


def _end(outcomes: Sequence[Outcome]) -> None:
    if any(each.rewarded is None for each in outcomes):
        raise typer.Exit(TROUBLE)
    if any(_cheated(each) or _wronged(each) for each in outcomes):
        raise typer.Exit(UNSOUND)
