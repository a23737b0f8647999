"""The parts of a spread batch: what the queue hands over, and how a slice is written and read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from event_loop import FAR, Clock, settle

from proctor_client.wire import AssertsGrader, CallsGrader, Compiler, ExecGrader, RewardRequest
from proctor_service.errors import Cancelled, DeadlinePassed, Failure, InvalidTask
from proctor_service.features.replicas.reward_slices import LARGEST_ITEM_BYTES, RewardSlices
from proctor_service.features.replicas.slices import Peer
from proctor_service.http.body import FINGERPRINT, parse_body
from proctor_service.judge.submission import Submission
from proctor_service.outcomes import Item, Outcome
from proctor_service.sandbox.interface import Limits
from proctor_service.scheduling.fair_share import PeerItem, Shares
from proctor_service.scheduling.queue import Deadlines, FairQueue

LIMITS = Limits(1.5, 2.5, 300, 64, 10, 20)
EXEC = ExecGrader(kind="exec")


# ---------------------------------------------------------------- the queue


class Room:
    """A queue with a single slot in use, and items that wait: what each of them got in the end."""

    def __init__(self, quota: int = 100) -> None:
        self.clock = Clock()
        self.queue = FairQueue(1, 1000, Deadlines(), self.clock, Shares(slots={"quota": quota}))
        self.got: dict[str, Any] = {}
        self.ended: list[Any] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.leave = asyncio.Event()

    async def add(
        self, *names: str, tenant: str = "t", portable: bool = True, deadline: float = FAR
    ) -> None:
        """Items that ask for a ticket, one after the other."""
        for name in names:
            work = self._item(name, tenant, name if portable else None, deadline)
            self.tasks[name] = asyncio.create_task(work)
            await settle()

    def take(self, most: int = 100) -> list[PeerItem]:
        """What a peer gets."""
        return self.queue.handover.take(
            most, lambda one, other: True, lambda handed: self.ended.append(handed.work)
        )

    async def end(self) -> None:
        """Everybody leaves."""
        self.leave.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def _item(self, name: str, tenant: str, work: object, deadline: float) -> None:
        try:
            async with self.queue.admit(tenant, "j", deadline, work=work) as ticket:
                self.got[name] = ticket.elsewhere or "here"
                if ticket.elsewhere is None:
                    await self.leave.wait()
        except Failure as failure:
            self.got[name] = failure


def works(taken: list[PeerItem]) -> list[str]:
    return [str(each.work) for each in taken]


async def test_a_peer_gets_portable_items_in_order_and_their_results_arrive() -> None:
    room = Room()
    await room.add("first", "a", "b")
    await room.add("fixed", portable=False)
    await room.add("c")
    queue, handover = room.queue, room.queue.handover
    assert (handover.portable, handover.first()) == (3, "a")
    taken = room.take(2)
    assert works(taken) == ["a", "b"]
    assert (handover.away, handover.portable, queue.queued, queue.busy) == (2, 1, 2, 1)
    assert handover.finish(taken[0], "judged")
    assert not handover.finish(taken[0], "judged again")
    assert handover.finish(taken[1], InvalidTask("broken"))
    await settle()
    assert room.got["a"] == "judged"
    assert isinstance(room.got["b"], InvalidTask)
    assert (handover.away, room.ended) == (0, ["a", "b"])
    await room.end()
    assert room.got["fixed"] == room.got["c"] == "here"
    assert (queue.busy, queue.queued) == (0, 0)


async def test_what_is_taken_back_is_first_and_goes_to_no_other_peer() -> None:
    room = Room()
    await room.add("first", "a", "b", "c")
    handover = room.queue.handover
    tried, untried = room.take(2)
    assert handover.take_back(untried, tried=False)
    assert handover.take_back(tried)
    assert not handover.take_back(tried)
    assert not handover.finish(tried, "too late")
    assert (handover.away, room.ended) == (0, [])
    assert works(room.take()) == ["b", "c"]
    await room.add("d")
    room.leave.set()
    await room.tasks["a"]
    assert list(room.got) == ["first", "a", "d"]
    for task in room.tasks.values():
        task.cancel()
    await room.end()
    assert handover.away == 0


async def test_items_at_peers_are_cancelled_and_come_too_late_as_any_others() -> None:
    room = Room()
    room.clock.now = asyncio.get_running_loop().time()
    await room.add("first", "cancelled")
    await room.add("late", deadline=room.clock.now + 0.05)
    handover = room.queue.handover
    taken = room.take()
    room.tasks["cancelled"].cancel()
    await room.tasks["late"]
    await settle()
    assert isinstance(room.got["late"], DeadlinePassed)
    assert (sorted(room.ended), handover.away) == (["cancelled", "late"], 0)
    assert not any(handover.take_back(each) for each in taken)
    await room.end()
    assert room.queue.queued == room.queue.busy == 0


async def test_a_tenants_slots_bound_what_peers_get() -> None:
    room = Room(quota=3)
    await room.add(*"abcdef", tenant="quota")
    taken = room.take()
    assert works(taken) == ["b", "c"], "with the one that runs here"
    assert room.take() == []
    room.queue.handover.finish(taken[0], "judged")
    await settle()
    assert works(room.take()) == ["d"]
    for task in room.tasks.values():
        task.cancel()
    await room.end()


async def test_tenants_take_turns_at_peers() -> None:
    room = Room()
    await room.add("first", *(f"a{n}" for n in range(20)), tenant="a")
    await room.add(*(f"b{n}" for n in range(20)), tenant="b")
    turns = "".join(works(room.take(5))[0][0] for _ in range(8))
    assert turns in ("abababab", "babababa")
    for task in room.tasks.values():
        task.cancel()
    await room.end()


async def test_a_drain_leaves_what_peers_have() -> None:
    room = Room()
    await room.add("first", "a", "b")
    [taken] = room.take(1)
    await room.queue.drain()
    await settle()
    assert isinstance(room.got["b"], Cancelled)
    room.queue.handover.finish(taken, "judged")
    await settle()
    assert room.got["a"] == "judged"
    await room.end()


# ---------------------------------------------------------------- a peer's part


def test_a_peer_gets_more_as_it_shows_more_and_less_towards_the_end() -> None:
    peer = Peer("http://peer", slots=4, heard=10.0, counted_since=10.0)
    assert peer.wanted(1000, 2, 200.0, 10.0) == 64, "four at work, and 0.3 s in advance"
    assert peer.wanted(24, 2, 200.0, 10.0) == 14, "half of what there is"
    assert peer.wanted(2, 2, 200.0, 10.0) == 2
    assert peer.wanted(1000, 2, 0.4, 10.0) == 4, "items of ten seconds: none in advance"
    peer.hear(10.5, 200)
    assert peer.rate == 400.0
    assert peer.wanted(1000, 2, 1.0, 10.5) == 124
    assert peer.wanted(10_000, 2, 1e9, 10.5) <= 256


@pytest.mark.parametrize(
    ("told", "free"),
    [
        ({"slots": 2, "busy": 1, "queued": 0, "draining": False}, True),
        ({"slots": 2, "busy": 1, "queued": 0, "draining": False, "fingerprint": "x"}, False),
        ({"slots": 2, "busy": 2, "queued": 0, "draining": False}, False),
        ({"slots": 2, "busy": 0, "queued": 1, "draining": False}, False),
        ({"slots": 2, "busy": 0, "queued": 0, "draining": True}, False),
        ({"slots": 2}, False),
        ([], False),
        (None, False),
    ],
)
def test_a_peer_is_free_with_a_free_slot_and_nobody_waiting(told: Any, free: bool) -> None:
    peer = Peer("http://peer", free=True)
    peer.note_capacity(json.dumps(told).encode(), lambda digest: digest is None)
    assert peer.free is free


# ---------------------------------------------------------------- a slice on the wire


def item(source: str = "x = 1", tags: tuple[str, ...] = (), **fields: Any) -> Item:
    submission = Submission(source, **{"grader": EXEC, "limits": LIMITS, **fields})
    return Item("ev", submission, "t", "j", 200.0, tags=tags, priority="evaluation", portable=True)


ODD: list[Any] = ["\ud800", "\u2028", 1, 1.0, True, None, 10**400, float("inf"), {"\udfff": []}]


async def test_a_slice_says_all_that_the_judge_will_see() -> None:
    calls = CallsGrader.model_validate(
        {"kind": "calls", "entry_point": "f", "cases": [{"args": ODD, "expected": ODD}]}
    )
    asserts = AssertsGrader(kind="asserts", tests=["assert 1"], integrity="in_process")
    items = [
        item("a\ud800", grader=calls, scoring="fraction"),
        item("b", grader=asserts, files={"x/y": "\udfff"}, tags=("one",)),
        item("  c\n", language="bash", limits=Limits(9.0, 8.0, 70, 6, 5, 4, total_cpu_seconds=3.0)),
        item("d", language="cpp", compiler=Compiler(standard="c++17", defines=["A"], flags=["-g"])),
    ]
    slices = RewardSlices({"t": "secret"}, lambda: "mine", clock=lambda: 50.0)
    packed = await slices.pack(items)
    assert packed.count == 4
    assert packed.headers["authorization"] == "Bearer secret"
    assert packed.headers[FINGERPRINT] == "mine"
    assert b"secret" not in packed.body
    asked = await parse_body(RewardRequest, packed.body)
    assert (asked.job, asked.priority, asked.deadline_seconds) == ("j", "evaluation", 150.0)
    assert (asked.cache, asked.extract) == (False, "none")
    for each, wanted in zip(asked.submissions, items, strict=True):
        submission = wanted.submission
        assert isinstance(submission, Submission)
        assert each.completion == submission.source
        assert repr(each.grader or asked.grader) == repr(submission.grader)
        limits = each.limits or asked.limits
        assert limits is not None
        assert limits.model_dump() == {
            name: getattr(submission.limits, name) for name in type(limits).model_fields
        }
        assert (each.scoring, each.language) == (submission.scoring, submission.language)
        assert (each.files, each.compiler) == (submission.files, submission.compiler)


async def test_a_slice_has_integers_of_any_length() -> None:
    cases = [{"args": [10**10_000], "expected": -(10**10_000)}]
    grader = CallsGrader.model_validate({"kind": "calls", "entry_point": "f", "cases": cases})
    packed = await RewardSlices({}, lambda: "mine").pack([item(grader=grader)])
    assert (await parse_body(RewardRequest, packed.body)).grader == grader


async def test_a_submission_that_is_too_large_stays() -> None:
    large = AssertsGrader(kind="asserts", tests=["#" * 1024] * (LARGEST_ITEM_BYTES // 1000))
    slices = RewardSlices({}, lambda: "mine")
    assert (await slices.pack([item(grader=large)])).count == 0
    assert (await slices.pack([item(), item("y" * LARGEST_ITEM_BYTES), item()])).count == 1
    assert (await slices.pack([item("y" * 900_000 + str(n)) for n in range(9)])).count == 4


def result(**fields: Any) -> dict[str, Any]:
    return {
        "index": 0, "evaluation_id": "ev_there", "reward": 1.0, "verdict": "passed", "error": None,
        "tests": {"passed": 1, "total": 1, "failures": []}, "integrity": "separated",
        "cache": "miss", "degraded": ["pids_cgroup"], "usage": {"queue_seconds": 0.5}, **fields,
    }  # fmt: skip


def unpacked(line: Any, scoring: str = "all") -> tuple[int, Any]:
    found: tuple[int, Any] = RewardSlices({}, lambda: "mine").unpack(
        json.dumps(line).encode(), [item(scoring=scoring)]
    )
    return found


def test_a_line_becomes_an_outcome() -> None:
    index, outcome = unpacked(result())
    assert index == 0
    assert isinstance(outcome, Outcome)
    assert (outcome.reward, outcome.peer_degraded) == (1.0, ("pids_cgroup",))
    assert outcome.queue_seconds == 0.5
    assert unpacked({"summary": {}}) == (-1, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"reward": 0.0},
        {"reward": None},
        {"verdict": "failed", "reward": 1.0},
        {"verdict": "failed", "reward": 0.5, "tests": {"passed": 1, "total": 2}},
        {"verdict": "no_code", "reward": 0.0},
        {"verdict": "excellent"},
        {"integrity": "none"},
        {"reward": None, "verdict": None,
         "error": {"reason": "sandbox_lost", "message": "", "retryable": True}},
        {"reward": None, "verdict": None,
         "error": {"reason": "unheard_of", "message": "", "retryable": False}},
    ],
)  # fmt: skip
def test_an_answer_that_does_not_add_up_is_no_answer(fields: dict[str, Any]) -> None:
    assert unpacked(result(**fields)) == (0, None)


@pytest.mark.parametrize(
    ("passed", "kept", "share"), [(2, 2, 1 - 1 / 3), (3, 1, 0.0), (0, 2, 0.0), (2, 1, 0.0)]
)
def test_a_share_of_a_repository_is_that_of_its_tests(passed: int, kept: int, share: float) -> None:
    def line(reward: float) -> dict[str, Any]:
        tests = {
            "fail_to_pass": {"passed": passed, "total": 3},
            "pass_to_pass": {"passed": kept, "total": 2, "failed": ["b"] * (2 - kept)},
        }
        return result(verdict="failed", reward=reward, repository=tests, integrity="in_process")

    _, outcome = unpacked(line(share), "fraction")
    assert (outcome.reward, outcome.judgement.score) == (share, share)
    assert unpacked(line(0.9), "fraction") == (0, None)


@pytest.mark.parametrize("line", [{}, [], 1, "x", result(index=1), result(index=-1)])
def test_a_line_of_no_item_is_refused(line: Any) -> None:
    with pytest.raises(ValueError, match="not a"):
        unpacked(line)
    with pytest.raises(ValueError, match="Expecting"):
        RewardSlices({}, lambda: "mine").unpack(b"{", [item()])
