"""Points of subtasks: groups of cases, each worth its points if all its cases pass.

A subtask earns the least score of its cases, times its points; 0 without the full points of its required
subtasks (IOI's rules).
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor_client.wire import Subtask

_LESS_THAN_ONE = 1 - 2**-53


class Points:
    """Points of a submission so far. Without subtasks, each of `count` cases is worth one point."""

    def __init__(self, subtasks: Sequence[Subtask], count: int) -> None:
        self._subtasks = subtasks or [Subtask(points=1, cases=[each]) for each in range(count)]
        self._least = [1.0] * len(self._subtasks)  # of the scores of each subtask's cases
        self._parts = self._least
        self._seen: set[int] = set()
        self._places: dict[int, list[int]] = {}
        for place, subtask in enumerate(self._subtasks):
            for case in set(subtask.cases):
                self._places.setdefault(case, []).append(place)

    def may_earn(self, case: int) -> bool:
        """Return True if the case still counts for the points of a subtask."""
        return any(self._parts[place] > 0 for place in self._places.get(case, ()))

    def add(self, case: int, score: float) -> None:
        """Add the score of a case, from 0 to 1."""
        self._seen.add(case)
        changed = [each for each in self._places.get(case, ()) if score < self._least[each]]
        for place in changed:
            self._least[place] = score
        if changed:
            self._parts = self._with_requirements(self._least)

    @property
    def score(self) -> float:
        """Share of all points, from 0 to 1; 1 only if each subtask has its full points.

        A case still to run has the score 0.
        """
        least = [
            each if self._seen.issuperset(subtask.cases) else 0.0
            for each, subtask in zip(self._least, self._subtasks, strict=True)
        ]
        parts = self._with_requirements(least)
        if all(part == 1 for part in parts):
            return 1.0
        whole = sum(subtask.points for subtask in self._subtasks)
        pairs = zip(parts, self._subtasks, strict=True)
        return min(sum(part * each.points for part, each in pairs) / whole, _LESS_THAN_ONE)

    def _with_requirements(self, least: Sequence[float]) -> list[float]:
        """Return the part of each subtask: 0 without the full points of its required subtasks."""
        parts: list[float] = []
        for part, subtask in zip(least, self._subtasks, strict=True):  # those required come earlier
            is_met = all(parts[earlier] == 1 for earlier in subtask.requires)
            parts.append(part if is_met else 0.0)
        return parts
