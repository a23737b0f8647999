"""A program for the client's tests: many processes use one client, and what they got is compared.

    python client_processes.py URL SCENARIO

prints, as JSON, how many calls were made in child processes and which of them went wrong. It is a
process of its own, so that what it forks holds nothing of the tests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from child_processes import CHILDREN, Subjects, Wrong, forked, loaded, pooled, sent

from proctor_client import AsyncClient, Client, ProctorConnectionError, Session
from proctor_trainers.trl import EnvironmentFactory, async_reward_function, reward_function
from proctor_trainers.trl.environment import Rules
from proctor_trainers.trl.workplaces import Order, Workplaces

CALLS = 12
TESTS = 10
GRADER = {"kind": "asserts", "tests": [f"assert f({n})" for n in range(TESTS)]}


def program(share: int) -> str:
    """One that passes `share` tests of `TESTS`."""
    return f"def f(n):\n    return n < {share}\n"


def shares(child: int, calls: int) -> list[int]:
    """What the programs of a child pass; neighbours and other children have other ones."""
    return [(3 * number + child) % (TESTS + 1) for number in range(calls)]


def told(child: int, share: int, got: object) -> Wrong:
    return [] if got == share / TESTS else [f"child {child}: {got} for {share / TESTS}"]


# ---------------------------------------------------------------- what a child does


def ask(client: Client, child: int, calls: int = CALLS) -> Wrong:
    """Call by call."""
    wrong: Wrong = []
    for share in shares(child, calls):
        answer = client.reward([program(share)], grader=GRADER, scoring="fraction", extract="none")
        wrong += told(child, share, answer.results[0].reward)
    return wrong


def ask_at_once(client: Client, child: int) -> Wrong:
    """In threads, whose calls wait for each other and travel together."""
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda number: ask(client, child + number), range(4))
        return [each for part in found for each in part]


async def ask_async(client: AsyncClient, child: int, calls: int = CALLS) -> Wrong:
    """All at once."""

    async def one(share: int) -> Wrong:
        answer = await client.reward(
            [program(share)], grader=GRADER, scoring="fraction", extract="none"
        )
        return told(child, share, answer.results[0].reward)

    found = await asyncio.gather(*(one(share) for share in shares(child, calls)))
    return [each for part in found for each in part]


def ask_in_a_loop(client: AsyncClient, child: int) -> Wrong:
    """In two loops, one after the other."""
    half = CALLS // 2
    first = asyncio.run(ask_async(client, child, half))
    return first + asyncio.run(ask_async(client, child, CALLS - half))


def ask_for_rewards(reward: Callable[..., Any], child: int) -> Wrong:
    """As a trainer does, a batch for each call."""
    wrong: Wrong = []
    for share in shares(child, CALLS):
        given = reward(prompts=["p"], completions=[program(share)])
        rewards = asyncio.run(given) if asyncio.iscoroutinefunction(reward) else given
        wrong += told(child, share, rewards[0])
    return wrong


def ask_in_sandboxes(session: Session, child: int, sandbox: Any) -> Wrong:
    """In a sandbox of its own, and in the one that it was forked with."""
    wrong: Wrong = []
    with session.sandbox() as own, sandbox:
        pending = [session.submit(own, ["echo", str(number)]) for number in range(CALLS)]
        wrong += [
            f"child {child}: {each.result().stdout!r} for {number}"
            for number, each in enumerate(pending)
            if each.result().stdout != f"{number}\n"
        ]
        seen = sandbox.exec(["sh", "-c", f"echo {child} > {child}; cat {child}"]).stdout
        if seen != f"{child}\n":
            wrong.append(f"child {child}: {seen!r} of the parent's sandbox")
    session.close()
    return wrong


def ask_in_an_unstarted_sandbox(sandbox: Any, child: int) -> Wrong:
    """A handle that was made before the fork is another sandbox in each child."""
    with sandbox:
        sandbox.exec(["sh", "-c", f"echo {child} >> children"])
        seen = sandbox.exec(["cat", "children"]).stdout
    return [] if seen == f"{child}\n" else [f"child {child}: {seen!r}"]


def read_on(stream: Any, child: int) -> Wrong:
    """A stream that its parent has begun is not its own to read."""
    try:
        next(stream)
    except ProctorConnectionError:
        stream.close()
        return []
    return [f"child {child}: it read its parent's stream"]


# ---------------------------------------------------------------- scenarios


def fork_client(url: str) -> Wrong:
    with Client(url) as client:
        return ask(client, 0, 1) + forked(
            lambda child: ask(client, child, 200), lambda: ask(client, 5)
        )


def fork_of_a_fork(url: str) -> Wrong:
    with Client(url) as client:

        def both(child: int) -> Wrong:
            wrong = ask(client, child, 5)
            if child:
                return wrong
            return wrong + forked(lambda grandchild: ask(client, grandchild, 5))

        return ask(client, 0, 1) + forked(both)


def fork_while_threads_ask(url: str) -> Wrong:
    """Their locks are held, and their answers under way, when the children are forked."""
    with Client(url) as client:
        wrong = ask(client, 0, 1)
        threads = [
            threading.Thread(target=lambda each=each: wrong.extend(ask(client, each)))
            for each in range(8)
        ]
        for thread in threads:
            thread.start()
        wrong += forked(lambda child: ask_at_once(client, child))
        for thread in threads:
            thread.join()
    return wrong


def fork_async_client(url: str) -> Wrong:
    async def parent() -> Wrong:
        async with AsyncClient(url) as client:
            wrong = await ask_async(client, 1)
            wrong += forked(lambda child: ask_in_a_loop(client, child))
            return wrong + await ask_async(client, 2)

    return asyncio.run(parent())


def fork_rewards(url: str) -> Wrong:
    reward = reward_function(url, grader=GRADER, scoring="fraction", extract="none", say=None)
    return ask_for_rewards(reward, 0) + forked(lambda child: ask_for_rewards(reward, child))


def fork_session(url: str) -> Wrong:
    with Client(url) as client, Session(client, tags=["forked"]) as session:
        [sandbox] = session.start()
        session.submit(sandbox, ["true"]).result()
        wrong = forked(lambda child: ask_in_sandboxes(session, child, sandbox))
        files = sandbox.exec(["sh", "-c", "cat [0-9]"]).stdout.split()
        if files != [str(child) for child in range(CHILDREN)]:
            wrong.append(f"the parent's sandbox holds {files}")
        wrong += (
            forked(lambda child: ask_in_an_unstarted_sandbox(unstarted, child))
            if (unstarted := client.sandbox())
            else []
        )
        left = client.count_active().total
        return wrong if left == 1 else [*wrong, f"{left} sandboxes are left"]


def fork_environments(url: str) -> Wrong:
    """A child that closes its copy of the factory leaves its parent's sandboxes alone."""

    def close(child: int) -> Wrong:
        environments.close()
        return []

    places = Workplaces(Client(url), Client(url), Order())
    with EnvironmentFactory("e", ["bash"], places, Rules()) as environments:
        environment: Any = environments()
        environment.reset(grader={"kind": "exec"})
        environment.bash("echo kept > kept")
        wrong = forked(close)
        kept = environment.bash("cat kept")
    return wrong if kept == "kept\n" else [*wrong, f"the parent's sandbox said {kept}"]


def fork_transport(url: str) -> Wrong:
    """A transport that was given has its own sockets, which nothing here can make anew."""

    def refused(child: int) -> Wrong:
        try:
            return [*ask(client, child, 1), f"child {child} used its parent's sockets"]
        except ProctorConnectionError:
            return []

    with Client(url, transport=httpx.HTTPTransport()) as client:
        return ask(client, 0, 1) + forked(refused, lambda: ask(client, 1))


def fork_stream(url: str) -> Wrong:
    programs = [program(share) for share in range(TESTS + 1)]
    with Client(url) as client:
        stream = client.reward_stream(
            programs, grader=GRADER, scoring="fraction", extract="none", cache=False
        )
        results = [next(stream)]
        wrong = forked(lambda child: read_on(stream, child) + ask(client, child, 5))
        results += list(stream)
    return wrong + [each for result in results for each in told(-1, result.index, result.reward)]


def everywhere(url: str, method: str) -> Wrong:
    """Clients and reward functions, after a first call, in workers started by `method`."""
    options: Any = {"grader": GRADER, "scoring": "fraction", "extract": "none", "say": None}
    reward, later = reward_function(url, **options), async_reward_function(url, **options)
    with Client(url) as client:
        loops = AsyncClient(url)
        wrong = ask(client, 0) + ask_for_rewards(reward, 1) + ask_for_rewards(later, 2)
        subjects: Subjects = [
            (ask, client),
            (ask_in_a_loop, loops),
            (ask_for_rewards, reward),
            (ask_for_rewards, later),
        ]
        for work, subject in subjects:
            if method == "loader":
                wrong += loaded(lambda child, w=work, s=subject: w(s, child))  # type: ignore[misc]
            elif method == "ray":
                wrong += sent(work, subject)
        if method not in ("loader", "ray"):
            wrong += pooled(method, subjects)
    return wrong


SCENARIOS: dict[str, Callable[[str], Wrong]] = {
    each.__name__: each
    for each in (
        fork_client,
        fork_of_a_fork,
        fork_while_threads_ask,
        fork_async_client,
        fork_rewards,
        fork_session,
        fork_environments,
        fork_transport,
        fork_stream,
    )
}


def main(url: str, scenario: str) -> None:
    """Prints what went wrong."""
    wrong = SCENARIOS[scenario](url) if scenario in SCENARIOS else everywhere(url, scenario)
    print(json.dumps(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
