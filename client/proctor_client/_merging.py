"""Queue of reward calls: groups them into requests and times the requests, without I/O or waiting.

A request for each of many small calls costs the client and the service more time than the judging. So
the requests of such calls keep a distance, which grows with the number of open requests, and a request
takes along the calls that wait by then. The first call goes at once, by itself. A
slow service gets fewer and larger requests, and slow submissions in open requests delay no call by more
than the distance. The results of a request arrive singly, and each call waits for its own only.

Only calls with the same options travel together. A refused request is taken apart: each
of its calls goes by itself, so that a call at fault harms only itself.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from proctor_client import wire
from proctor_client._answers import summary_of
from proctor_client._fair_semaphore import Event
from proctor_client._requests import encode
from proctor_client.errors import ProctorError, ProtocolError

DISTANCE_SECONDS = 0.005
"""Distance between two requests, for each open request: `n` are open at once if they last 5 ms · n²."""
LARGEST_CALL = 16
MOST_SUBMISSIONS = 256
MOST_BYTES = 4 << 20
MOST_OUTPUT_KB = 64
"""Output of a submission for which the service bounds no answer to MOST_SUBMISSIONS."""

_OF_EACH = (
    *("grader", "limits", "scoring", "negative_control", "environment", "prompt"),
    *("prelude", "prompt_code", "suffix_code", "compiler"),
)
"""Options of a request that a submission may have itself, with the same meaning."""


@dataclass(frozen=True, eq=False)
class RewardOrder:
    """A valid request of POST /reward, and its body."""

    request: wire.RewardRequest
    content: bytes = field(repr=False)

    @classmethod
    def of(cls, request: wire.RewardRequest) -> RewardOrder:
        """Encode the request. Raises InvalidRequestError for values that cannot be sent."""
        return cls(request, encode(request))

    @property
    def is_small(self) -> bool:
        """True if the call may share a request."""
        submissions = self.request.submissions
        limits = (self.request.limits, *(each.limits for each in submissions))
        outputs = [each.output_kb or 0 for each in limits if each is not None]
        return len(submissions) <= LARGEST_CALL and max(outputs, default=0) <= MOST_OUTPUT_KB

    @property
    def size(self) -> int:
        """Maximum of bytes added to a request by the call: each submission gets the options."""
        return len(self.content) * len(self.request.submissions)

    @property  # a `cached_property` of Python 3.11 has a lock, which a fork would leave held
    def options(self) -> str:
        """The shared options of the calls in a request."""
        return self.request.model_dump_json(exclude={"submissions", *_OF_EACH})

    def submissions(self) -> Sequence[wire.Submission]:
        """Return the submissions, each with all its options."""
        of_request = {name: getattr(self.request, name) for name in _OF_EACH}
        of_request = {name: value for name, value in of_request.items() if value is not None}
        return [
            each.model_copy(
                update={
                    name: value for name, value in of_request.items() if getattr(each, name) is None
                }
            )
            for each in self.request.submissions
        ]


def merged(orders: Sequence[RewardOrder]) -> RewardOrder:
    """Return the order of all these submissions with their shared options."""
    first = orders[0].request
    fields = {name: getattr(first, name) for name in first.model_fields_set if name not in _OF_EACH}
    fields["submissions"] = [each for order in orders for each in order.submissions()]
    return RewardOrder.of(wire.RewardRequest.model_construct(**fields))


@dataclass(eq=False)
class RewardCall:
    """A call in the queue or in a request. `event` wakes the call to look for changes.

    `outcome` is the answer. `goes_alone` is set after the refusal of a request with this call.
    """

    order: RewardOrder
    event: Event
    lane: Lane
    request: MergedRequest | None = None
    outcome: wire.RewardResponse | Exception | None = None
    goes_alone: bool = False
    has_left: bool = False
    results: dict[int, wire.Result] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """True if the call has all its results."""
        return self.has_left or self.goes_alone or self.outcome is not None

    def add(self, result: wire.Result) -> None:
        """Add a result; the last result settles the call."""
        self.results[result.index] = result
        if len(self.results) == len(self.order.request.submissions):
            results = [self.results[index] for index in sorted(self.results)]
            self.outcome = wire.RewardResponse(results=results, summary=summary_of(results))
            self.event.set()

    def answer(self) -> wire.RewardResponse:
        """Return the answer, or raise the error of its request."""
        if isinstance(self.outcome, ProctorError):
            raise copy.copy(self.outcome) from self.outcome.__cause__  # each call raises its own
        if isinstance(self.outcome, Exception):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


class MergedRequest:
    """Calls in one request. `cancel` ends the request; None until the request is begun."""

    def __init__(self, calls: Sequence[RewardCall]) -> None:
        self.calls = calls
        self.cancel: Callable[[], object] | None = None
        self.has_leavers = False
        self._places = [
            (call, index) for call in calls for index in range(len(call.order.request.submissions))
        ]
        for each in calls:
            each.request = self

    @property
    def is_abandoned(self) -> bool:
        """True if the rest of the answer is for cancelled calls."""
        return self.has_leavers and all(each.is_settled for each in self.calls)

    def order(self) -> RewardOrder:
        """Return the order of the whole request."""
        return merged([each.order for each in self.calls])

    def add(self, result: wire.Result) -> None:
        """Add a result to its call."""
        call, index = self._places[result.index]
        call.add(result.model_copy(update={"index": index}))

    def fail(self, error: BaseException | None) -> None:
        """Settle the calls without an answer: by the error, or by having each of them go alone."""
        for call in self.calls:
            if not call.is_settled:
                if isinstance(error, Exception) and not _may_be_of_one(error):
                    call.outcome = error
                else:
                    call.goes_alone = True
                call.event.set()


def _may_be_of_one(error: Exception) -> bool:
    """Return True if a single call may be the cause: the service refused the request for good."""
    if isinstance(error, ProtocolError):
        return True
    return isinstance(error, ProctorError) and error.status_code is not None and not error.retryable


@dataclass(eq=False)
class Lane:
    """The calls with the same options: waiting calls, and open requests."""

    key: Hashable
    waiting: OrderedDict[RewardCall, None] = field(default_factory=OrderedDict)
    open: set[MergedRequest] = field(default_factory=set)
    last_sent: float = 0.0

    def wake_first(self) -> None:
        """Wake the first waiting call, which may be due."""
        if self.waiting:
            next(iter(self.waiting)).event.set()

    def take(self) -> MergedRequest:
        """Take the first calls, as many as a request holds, out of the queue."""
        calls: list[RewardCall] = []
        count = size = 0
        for each in self.waiting:
            count += len(each.order.request.submissions)
            size += each.order.size
            if calls and (count > MOST_SUBMISSIONS or size > MOST_BYTES):
                break
            calls.append(each)
        for each in calls:
            del self.waiting[each]
        return MergedRequest(calls)


class RewardQueue:
    """Queue of a process's reward calls, by event loop (None: all threads) and options.

    Thread-safe; the lock is reentrant for the reason given in `FairSemaphore`.
    """

    def __init__(self) -> None:
        self._lanes: dict[Hashable, Lane] = {}
        self._lock = threading.RLock()

    def join(self, place: Hashable, order: RewardOrder, event: Event) -> RewardCall:
        """Queue a call. `place`: its event loop."""
        key = (place, order.options)
        with self._lock:
            lane = self._lanes.setdefault(key, Lane(key))
            call = RewardCall(order, event, lane)
            lane.waiting[call] = None
            return call

    def due(self, call: RewardCall, now: float) -> MergedRequest | float | None:
        """Return the request for this call to send now, or else the wait in seconds.

        None: until the call is woken. `now` is in seconds of a monotonic clock.
        """
        lane = call.lane
        with self._lock:
            if call not in lane.waiting or next(iter(lane.waiting)) is not call:
                return None
            wait = lane.last_sent + DISTANCE_SECONDS * len(lane.open) - now
            if lane.open and wait > 0:
                return wait
            request = lane.take()
            lane.open.add(request)
            lane.last_sent = now
            lane.wake_first()
            return request

    def end(self, request: MergedRequest) -> None:
        """Note the end of a request."""
        lane = request.calls[0].lane
        with self._lock:
            lane.open.discard(request)
            self._changed(lane)

    def leave(self, call: RewardCall) -> None:
        """Remove a call that is answered or cancelled. The last one's leaving ends the request."""
        with self._lock:
            call.has_left = call.has_left or not call.is_settled
            if call in call.lane.waiting:
                del call.lane.waiting[call]
                self._changed(call.lane)
        request = call.request
        if request is None:
            return
        request.has_leavers |= call.has_left
        if request.cancel is None and request.calls[0] is call:
            request.fail(None)  # others are in it only if the first one was interrupted just now
            self.end(request)
        if request.cancel is not None and request.is_abandoned:
            request.cancel()
            self.end(request)

    def _changed(self, lane: Lane) -> None:
        lane.wake_first()
        if not lane.waiting and not lane.open and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
