"""The core's own graders: a module each, listed here. Features add others."""

from __future__ import annotations

from proctor_service.judge.graders import calls, in_process, programs
from proctor_service.judge.graders.asserts import AssertsJudge
from proctor_service.judge.graders.programs import Languages
from proctor_service.judge.submission import GraderRules


def own_graders(languages: Languages) -> tuple[GraderRules, ...]:
    """Return the rules of each grader of the core. `languages`: all but Python."""
    return (AssertsJudge().rules, calls.RULES, in_process.RULES, *programs.rules(languages))
