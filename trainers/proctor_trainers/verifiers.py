"""A taskset for verifiers, and so for prime-rl: problems, and rewards from the service.

A module of yours exports the taskset, and its name is the taskset's id:

    # proctor_tasks.py
    from proctor_trainers.verifiers import ProctorTaskset

    __all__ = ["ProctorTaskset"]

    uv run eval proctor-tasks --env.taskset.dataset mbpp --env.taskset.task.url http://proctor:8080

Tasks of the same moment share a request to the service. An unjudged completion
raises, which verifiers records as the error of its trace: the reward
`tests_passed` stays None, and the trace is left out of the training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

from proctor_client.tasks.forms import Format
from proctor_trainers.batching import RETRY_SECONDS, RewardBatcher, batcher_for
from proctor_trainers.extras import MissingExtra
from proctor_trainers.problems import ANSWER, DIFF, load_problems

try:
    import verifiers.v1 as vf
except ImportError as error:
    raise MissingExtra(f"{error}: pip install 'proctor-trainers[verifiers]'") from None

__all__ = ["ProctorTaskset"]

TAG = "verifiers"


class NotJudged(RuntimeError):
    """Raised for an unjudged completion: verifiers makes a TaskError of the exception."""


class ProctorTaskConfig(vf.TaskConfig):  # type: ignore[misc]
    """The service; defaults: PROCTOR_URL and PROCTOR_TOKEN."""

    url: str | None = None
    token: str | None = None
    retry_seconds: float = RETRY_SECONDS


class ProctorTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """The problems: a data set by its name, or a file, as for the other training scripts."""

    dataset: str = "toy"
    form: Format | None = None
    split: str = "train"
    limit: int | None = None
    task: ProctorTaskConfig = ProctorTaskConfig()


class ProctorData(vf.TaskData):  # type: ignore[misc]
    """Problem. `task_fields`: the fields of its task, as JSON."""

    task_fields: str


class ProctorTask(vf.Task[ProctorData, vf.State, ProctorTaskConfig]):  # type: ignore[misc]
    """A problem with a judged last answer."""

    @vf.reward  # type: ignore[untyped-decorator]
    async def tests_passed(self, trace: vf.Trace) -> float:
        """Return the reward of the last answer. Raises NotJudged."""
        config = self.config
        batcher = _batcher(config.url, config.token, config.retry_seconds)
        row = json.loads(self.data.task_fields)
        answer = await batcher.judge_async(trace.last_reply, row, group=self.data.id)
        if answer.reward is None:
            raise NotJudged(answer.error)
        trace.info["proctor_verdict"] = answer.verdict
        return answer.reward


class ProctorTaskset(vf.Taskset[ProctorTask, ProctorTasksetConfig]):  # type: ignore[misc]
    """Problems for Python programs."""

    def load(self) -> Iterator[ProctorTask]:
        """Yield the tasks. Raises DatasetError and MissingExtra."""
        config = self.config
        problems = load_problems(
            config.dataset,
            split=config.split,
            limit=config.limit,
            extra="verifiers",
            form=config.form,
        )
        for problem in problems:
            data = ProctorData(
                id=problem.id,
                prompt=problem.text,
                system_prompt=DIFF if problem.is_repository else ANSWER,
                task_fields=json.dumps(problem.task.fields),
            )
            yield ProctorTask(data, config.task)


@cache
def _batcher(url: str | None, token: str | None, retry_seconds: float) -> RewardBatcher:
    """Return the batcher of all tasks with this configuration."""
    return batcher_for(TAG, url, token=token, retry_seconds=retry_seconds)
