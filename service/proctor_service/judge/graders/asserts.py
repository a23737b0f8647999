"""`asserts`: test statements, in the form of MBPP and HumanEval.

The tests alone decide the level at which they are judged (`judge/analysis/levels.py`).
"""

from __future__ import annotations

from dataclasses import replace

from proctor_client.wire import AssertsGrader
from proctor_service.judge.analysis.formulas import NotDecidable
from proctor_service.judge.analysis.levels import Analyser
from proctor_service.judge.graders import asserts_calls, asserts_values, in_process
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend


async def judge(
    submission: Submission, grader: AssertsGrader, backend: Backend, analyser: Analyser
) -> Judgement:
    """Judge by test statements. Raises InvalidTask when tests or setup are broken by themselves."""
    analysis = analyser.analyse(grader)
    if analysis.plan is not None:
        try:
            judgement = await asserts_calls.judge(submission, grader, backend, analysis.plan)
            return replace(judgement, level="calls")
        except NotDecidable:
            analysis = analyser.analyse(grader, calls=False)
    if analysis.rewritten is not None:
        judgement = await asserts_values.judge(submission, grader, backend, analysis.rewritten)
    else:
        judgement = await in_process.judge_shared(submission, grader, backend, analysis.tests)
    return replace(judgement, level=analysis.level)
