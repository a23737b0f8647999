"""Figures of a job as HTML: the body of the console's page, and the report in one file."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from journals import Evaluated, written

from proctor_service.errors import DeadlinePassed
from proctor_service.features.journal.address import checked
from proctor_service.features.journal.pages.render import Templates
from proctor_service.features.journal.pages.report import report_html
from proctor_service.features.journal.reading import Reader
from proctor_service.judge.submission import Judgement

pytestmark = pytest.mark.usefixtures("no_settings")

HOSTILE = '</h1><script>alert(1)</script>\' onclick="x" \u202e\x00\ud800{{ 7 * 7 }}'
VOID = ("meta", "br", "link", "input")


class Page(HTMLParser):
    """The tags of a page, which are closed in order; raises AssertionError otherwise."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.said += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all tags of a kind."""
        return [attributes for each, attributes in self.tags if each == tag]


def checked_page(html: str) -> Page:
    """The page, in which nothing acts and each id is that of one element."""
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        assert tag not in ("script", "iframe", "object", "embed", "base", "form")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    assert not {"\x00", "\u202e", "\ud800"} & set(html)
    assert "49" not in re.sub(r"\d\d:\d\d:\d\d", "", page.said)  # of {{ 7 * 7 }}, and not a time
    return page


def job_of(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures and the series of a job, all of whose names are hostile."""
    signalled = Judgement("failed", total=2, hack_signals=(HOSTILE,))
    late = DeadlinePassed("too late")
    url = written(
        tmp_path / "j",
        *(Evaluated(each, step=each, job=HOSTILE, tags=(HOSTILE,)) for each in range(1, 4)),
        Evaluated(4, judgement=signalled, reward=0.0, job=HOSTILE),
        Evaluated(5, judgement=None, reward=None, failure=late, job=HOSTILE),
    )
    reader = Reader(checked(url))
    found, series = reader.figures(None, HOSTILE), reader.job(None, HOSTILE)
    reader.close()
    assert found is not None
    assert series is not None
    found["tasks"]["nobody"] = [HOSTILE, "task"]
    found["tasks"]["solved_by_nobody"] = 22
    found["warnings"].append(HOSTILE)
    found["verdicts"][HOSTILE] = 1
    return found, series


def page_of(found: dict[str, Any], series: dict[str, Any], times: list[dict[str, Any]]) -> str:
    """The page of a job."""
    steps = series["series"]
    return Templates().html("job.html", found=found, steps=steps, times=times, links=True)


def by_time(series: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of a series at times instead of steps."""
    points = [dict(point) for point in series["series"]]
    for index, point in enumerate(points):
        del point["step"]
        point["at"] = 1_772_900_000.0 + 60 * index
    return points


def refused(*arguments: str | Path, **environment: str) -> str:
    """The one line on stderr of a command that cannot work."""
    result = proctor("journal", "report", *arguments, **environment)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    return result.stderr


LENGTHS = [
    {"from_characters": 1, "to_characters": 400, "count": 3, "mean_reward": 0.25},
    {"from_characters": 401, "to_characters": 90_000, "count": 1, "mean_reward": None},
]


# ------------------------------------------------------------ the page of the console


def test_hostile_names_are_texts_and_links(tmp_path: Path) -> None:
    found, series = job_of(tmp_path)
    html = page_of(found, series, by_time(series))
    page = checked_page(html)
    assert page.said.count('</h1><script>alert(1)</script>\' onclick="x"') >= 5
    links = [each["href"] or "" for each in page.of("a")]
    assert all(link.startswith("/console/evaluations?job=%3C%2Fh1%3E") for link in links)
    for part in ("&task=task", "&signal=%3C", "&verdict=passed", "&error=%2A"):
        assert any(part in link for link in links), part
    assert "and 20 more" in page.said


def test_every_chart_has_its_values_as_a_table(tmp_path: Path) -> None:
    found, series = job_of(tmp_path)
    found["lengths"] = LENGTHS
    html = page_of(found, series, by_time(series))
    page = checked_page(html)
    titles = re.findall(r"<summary>Values of ([^<]*)</summary>", html)
    assert titles == [
        "mean reward by step",
        "mean reward by time",
        "verdicts by step",
        "verdicts by time",
        "pass@k",
        "length against reward",
        "durations",
    ]
    images = [each for each in page.of("svg") if each.get("role") == "img"]
    assert len(images) == len(titles) + 1, "the table of the signals is open"
    assert "401 to 90,000" in page.said
    assert "without a step" in page.said


def test_steps_that_are_one_point_are_a_range(tmp_path: Path) -> None:
    found, series = job_of(tmp_path)
    series["series"][-1]["last_step"] = 1017
    page = checked_page(page_of(found, series, []))
    assert "3 to 1017" in page.said
    assert "by time" not in page.said.replace("by time, the number", "")


def test_a_job_without_steps_rewards_and_tasks(tmp_path: Path) -> None:
    late = DeadlinePassed("too late")
    url = written(tmp_path / "j", Evaluated(1, judgement=None, reward=None, failure=late))
    reader = Reader(checked(url))
    found, series = reader.figures(None, "run"), reader.job(None, "run")
    reader.close()
    assert found is not None
    assert series is not None
    page = checked_page(page_of(found, series, []))
    assert "No evaluation with a reward has a step." in page.said
    assert "No evaluation has a step." in page.said
    assert "None." in page.said


# ------------------------------------------------------------ the report


def test_the_report_admits_its_style_and_nothing_else(tmp_path: Path) -> None:
    found, series = job_of(tmp_path)
    html = report_html(found, series["series"], None, tenant=HOSTILE, made_at=1_772_900_000.0)
    page = checked_page(html)
    assert page.of("a") == []
    assert page.of("link") == page.of("img") == []
    assert not re.search(r"(src|href|action|url)\s*=", html)
    assert "Tenant </h1><script>" in page.said
    [style] = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policies = [each["content"] for each in page.of("meta") if "http-equiv" in each]
    assert policies == [
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    ]
    assert "prefers-color-scheme: dark" in style
    assert "<" not in style
    assert "@import" not in style
    assert "url(" not in style


def test_the_command_writes_the_report_of_a_job(tmp_path: Path) -> None:
    late = Evaluated(9, judgement=None, reward=None, failure=DeadlinePassed("late"), tenant="b")
    url = written(tmp_path / "j", *(Evaluated(each, step=each) for each in range(1, 6)), late)
    out = tmp_path / "run.html"
    out.write_text("older")
    result = proctor("journal", "report", "--job", "run", "--html", out, PROCTOR_JOURNAL=url)
    assert (result.exit_code, result.stdout) == (0, f"wrote the report to {out}\n")
    page = checked_page(out.read_text(encoding="utf-8"))
    assert "Report of the job run" in page.said
    assert "Warnings" in page.said
    assert "6 5 with a reward" in " ".join(page.said.split())
    assert "Tenant" not in page.said
    assert list(tmp_path.glob("run.html*")) == [out]
    assert out.stat().st_mode & 0o077 == 0, "only its owner may read it, as the journal"
    arguments = ("--job", "run", "--tenant", "b", "--html", out)
    assert proctor("journal", "report", *arguments, PROCTOR_JOURNAL=url).exit_code == 0
    page = checked_page(out.read_text(encoding="utf-8"))
    assert "1 0 with a reward" in " ".join(page.said.split())
    assert "Tenant b." in page.said


def test_a_report_that_cannot_be_written_leaves_what_is_there(tmp_path: Path) -> None:
    url, out = written(tmp_path / "j", Evaluated(1)), tmp_path / "run.html"
    out.write_text("older")
    assert "no evaluation of this job" in refused(
        "--job", "other", "--html", out, PROCTOR_JOURNAL=url
    )
    assert "give one of them" in refused(
        "--job", "run", "--json", "--html", out, PROCTOR_JOURNAL=url
    )
    assert out.read_text() == "older"
    missing = tmp_path / "missing" / "run.html"
    assert "No such file" in refused("--job", "run", "--html", missing, PROCTOR_JOURNAL=url)
    assert "it is no file" in refused("--job", "run", "--html", tmp_path, PROCTOR_JOURNAL=url)
    assert {each.name for each in tmp_path.iterdir()} >= {"j", "run.html"}
    assert list(tmp_path.glob("run.html*")) == [out]


def test_the_text_stays_the_default(tmp_path: Path) -> None:
    url = written(tmp_path / "j", Evaluated(1))
    result = proctor("journal", "report", "--job", "run", PROCTOR_JOURNAL=url)
    assert "mean reward" in result.stdout
    assert "<" not in result.stdout
