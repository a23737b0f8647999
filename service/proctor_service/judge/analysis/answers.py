"""Answers to questions about test code that may depend on each other, as in `x = y` and `y = x`.

Each question is answered once. Questions in a circle are answered together, in rounds: each round
begins with the answers of the round before, until none changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_MOST_ROUNDS = 20


class TooIntricate(Exception):
    """The answers of a circle of questions still change after many rounds."""


class Answers(Generic[Item, Answer]):
    """The answers of a function about objects; the function may ask again.

    `first`: the answer to a question in a circle, in the first round. The objects must outlive the
    answers.
    """

    def __init__(self, find: Callable[[Item], Answer], first: Answer) -> None:
        self._find = find
        self._first = first
        self._known: dict[int, Answer] = {}
        self._latest: dict[int, Answer] = {}  # of unfinished circles
        self._open: dict[int, int] = {}  # the unfinished questions, with their place in the order
        self._earliest = 0  # place of the earliest open question that the present one depends on
        self._changed = False

    def of(self, item: Item) -> Answer:
        """Return the answer about an object. Raises TooIntricate."""
        key = id(item)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            self._earliest = min(self._earliest, self._open[key])
            return self._latest[key]
        place = len(self._open)
        around = self._earliest, self._changed
        for _ in range(_MOST_ROUNDS):
            self._open[key] = place
            self._earliest, self._changed = place + 1, False
            before = self._latest.setdefault(key, self._first)
            answer = self._latest[key] = self._find(item)
            self._changed |= answer != before
            if self._earliest < place:  # the answer belongs to the circle of an earlier question
                self._earliest = min(self._earliest, around[0])
                self._changed |= around[1]
                return answer
            members = []
            while len(self._open) > place:
                members.append(self._open.popitem()[0])
            if self._earliest > place or not self._changed:
                for member in members:
                    self._known[member] = self._latest.pop(member)
                self._earliest, self._changed = around
                return answer
        raise TooIntricate
