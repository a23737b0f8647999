"""`python -m proctor_trainers.art`: train with ART on trajectories run by the service."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from proctor_client import ProctorError
from proctor_client.tasks.task import DatasetError
from proctor_trainers.addresses import Unreachable, async_client_for, check_service
from proctor_trainers.art.arguments import Job, check, parser
from proctor_trainers.art.backends import MissingKey, make_backend, server_config
from proctor_trainers.art.policies import Endpoint
from proctor_trainers.art.stopping import on_signal
from proctor_trainers.extras import MissingExtra, ignore_warnings_of_packages, require
from proctor_trainers.problems import Problem
from proctor_trainers.rewards import say_line

if TYPE_CHECKING:
    from proctor_trainers.art.training import PolicyOf, Summary, TrainingLoop

RULE = "=" * 60


def main(job: Job) -> int:
    """Train as the arguments say, and return the exit status."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # prevents a download by ART
    require("art", "art", "openai", "numpy", "pyarrow")
    import art  # first, because ART reads keys from a file .env

    from proctor_trainers.art.rollouts import Order
    from proctor_trainers.art.training import TooManyFailures, TrainingLoop, TrainingPlan

    args = job.args
    order = Order(
        project=args.project,
        run_name=args.run_name,
        job_id=job.id,
        trajectories_per_problem=args.trajectories_per_problem,
        agent=job.agent,
    )
    if args.dry_run:
        from proctor_trainers.art.dry_run import dry_run

        say_line(f"Dry run (job: {job.id}): nothing is trained")
        return 0 if dry_run(job, order, say_line) else 1
    endpoint = job.endpoint()
    backend = make_backend(args.backend)
    check_service(args.service_url)
    problems = job.problems()
    model = art.TrainableModel(name=args.run_name, project=args.project, base_model=args.base_model)
    _introduce(job, problems)
    serves = job.is_served_by_backend(endpoint)
    if serves and args.distill:
        raise Unreachable(f"--distill: no policy answers at {endpoint.base_url}")
    policy = _policy(job, model, endpoint, serves)
    plan = TrainingPlan(
        order=order,
        num_steps=args.num_steps,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        max_exceptions=args.max_exceptions,
        train_options=job.train_options,
    )
    client = async_client_for(args.service_url)
    loop = TrainingLoop(plan, problems, model, backend, client, policy)

    async def train() -> None:
        config = server_config(endpoint.base_url) if serves else None
        await model.register(backend, _openai_client_config=config)
        await loop.run()

    async def supervised() -> int:
        async with client:
            return await _until_stopped(train, loop, backend)

    try:
        return asyncio.run(supervised())
    except (ProctorError, TooManyFailures) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1


def _introduce(job: Job, problems: Sequence[Problem]) -> None:
    args = job.args
    say_line(f"ART Training (job: {job.id})")
    say_line(RULE)
    say_line(f"Backend: {args.backend}")
    say_line(f"Base model: {args.base_model}")
    say_line(f"Problems: {len(problems)}")
    say_line(f"Steps: {args.num_steps}")
    say_line(f"Batch size: {args.batch_size}")
    say_line(f"Trajectories per problem: {args.trajectories_per_problem}")
    say_line(f"Project: {args.project}, run: {args.run_name}")


async def _until_stopped(
    train: Callable[[], Coroutine[Any, Any, None]], loop: TrainingLoop, backend: Any
) -> int:
    """Train until the end or a signal, and print the summary. Raises the errors of the training."""
    work = asyncio.create_task(train())
    stopped_by: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        say_line(f"{number.name}: stopping; what is under way is cancelled")
        stopped_by.append(number)
        loop.cancel()
        work.cancel()

    try:
        with on_signal(stop):
            await asyncio.wait([work])
        await backend.close()
    finally:
        _conclude(loop.summary, is_whole=work.done() and not _failed(work))
    if stopped_by:
        return 128 + stopped_by[0]
    work.result()
    return 0


def _failed(work: asyncio.Task[None]) -> bool:
    return work.cancelled() or work.exception() is not None


def _conclude(summary: Summary, *, is_whole: bool) -> None:
    say_line(RULE)
    say_line("Training complete!" if is_whole else "Training stopped")
    for line in summary.lines():
        say_line(line)


def _policy(job: Job, model: Any, endpoint: Endpoint, serves: bool) -> PolicyOf:
    """Return the policy of a running server, or of the backend's future server at this address."""
    args = job.args
    if serves:
        say_line(f"Policy: what is trained, served by the backend at {endpoint.base_url}")
    else:
        say_line(f"Policy: {endpoint.model} at {endpoint.base_url}")
        if args.distill:
            say_line(f"Distillation: the policy plays, {args.base_model} learns")
        elif args.backend != "memory":
            say_line("  it runs already: it is not what is trained, and does not change")
    say_line(RULE)

    def served() -> dict[str, Any]:
        own = {
            "model": args.model or model.get_inference_name(),
            "api_key": model.inference_api_key,
        }
        return {**endpoint.policy(), **own}

    return served if serves else endpoint.policy


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the script and return its exit status; a user error prints a line without a traceback."""
    made = parser()
    args = made.parse_args(arguments)
    check(made, args)
    ignore_warnings_of_packages()
    try:
        return main(Job.of(args))
    except (DatasetError, MissingExtra, MissingKey, Unreachable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
