"""How the side of the tests compares what it can't see into.

A submission may return an object whose ``__eq__`` says yes to everything. So a comparison asks the
submission's class only where the tests themselves mention that class; then the same question is put
several times in random order, among decoys that no honest object is equal to, and an answer that
contradicts itself counts as no. An object of any other class is equal to itself and to nothing
else. What is or derives from a built-in value is compared by its content.
"""

import random
from collections.abc import Callable
from typing import Any

from .mirrors import Described, Mirror
from .operations import COMPARISONS, CONTENT_METHODS, FORWARDERS

_REFLECTED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_random = random.SystemRandom()


class Lie(TypeError):
    """A comparison whose answers contradict each other."""


class Judging:
    """The policy of the tests' side."""

    def __init__(self, signal: Callable[[str], None]) -> None:
        self._mentioned: set[int] = set()
        self._trusted: set[int] = set()
        self._suspected: set[int] = set()
        self._signal = signal
        # Whether an outcome rested on what the submission's own classes said.
        self.delegated = False

    def mention(self, number: int) -> None:
        """The tests name this class; to be told before any class is built."""
        self._mentioned.add(number)

    def __call__(self, described: Described) -> dict[str, Any]:
        mirrors: list[Any] = [base for base in described.bases if type(base) is Mirror]
        parents = [base.__proctor_class__ for base in mirrors]
        trusted = described.number in self._mentioned or not self._trusted.isdisjoint(parents)
        if trusted:
            self._trusted.add(described.number)
        if described.data is None:
            return self._object_methods(described, trusted)
        return self._content_methods(described, trusted)

    def _object_methods(self, described: Described, trusted: bool) -> dict[str, Any]:
        members: dict[str, Any] = {
            name: FORWARDERS[name]
            for name in described.flags
            if name in FORWARDERS and name not in COMPARISONS and name != "__hash__"
        }
        if trusted:
            members.update(self._judged(described.flags))
            if "__hash__" in described.flags:
                members["__hash__"] = FORWARDERS["__hash__"]
            elif "!__hash__" in described.flags:
                members["__hash__"] = None
            elif "__eq__" in members:
                members["__hash__"] = object.__hash__
            return members
        # Membership goes by iterating, and equality by identity.
        members.pop("__contains__", None)
        members["__hash__"] = object.__hash__
        if "__eq__" in described.flags:
            members["__eq__"] = self._suspicious(described.number, object.__eq__)
        return members

    def _content_methods(self, described: Described, trusted: bool) -> dict[str, Any]:
        data, own = described.data, described.own
        members: dict[str, Any] = {
            name: FORWARDERS[name]
            for name in own
            if name in FORWARDERS
            and name not in COMPARISONS
            and (name not in CONTENT_METHODS or trusted)
        }
        if "__eq__" in own:
            if trusted:
                members["__eq__"] = self._among_kin("eq", data.__eq__)
                members["__ne__"] = self._among_kin("ne", data.__ne__)
            else:
                members["__eq__"] = self._suspicious(described.number, data.__eq__)
            members.setdefault("__hash__", data.__hash__)
        if trusted:
            for name in ("lt", "le", "gt", "ge"):
                if f"__{name}__" in own and hasattr(data, f"__{name}__"):
                    members[f"__{name}__"] = self._among_kin(name, getattr(data, f"__{name}__"))
        return members

    def _judged(self, flags: set[str]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        if "__eq__" in flags:
            members["__eq__"] = lambda left, right: self.equal(left, right)
            members["__ne__"] = lambda left, right: self.unequal(left, right)
        for name in _REFLECTED:
            if f"__{name}__" in flags:
                members[f"__{name}__"] = self._ordering(name)
        return members

    def _ordering(self, name: str) -> Callable[[Any, Any], bool]:
        return lambda left, right: self.ordered(name, left, right)

    def _among_kin(self, name: str, plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        # A plain value is compared with the content; only two objects of the submission's are
        # compared by their class.
        def compare(left: Any, right: Any) -> Any:
            if type(type(right)) is not Mirror:
                return plain(left, right)
            if name == "eq":
                return self.equal(left, right)
            return self.unequal(left, right) if name == "ne" else self.ordered(name, left, right)

        return compare

    def _suspicious(self, number: int, plain: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        # The verdict doesn't depend on it; whether the class lies is worth knowing.
        def compare(left: Any, right: Any) -> Any:
            if number not in self._suspected:
                self._suspected.add(number)
                ask = _asker(left)
                try:
                    if ask("eq", left, ask("decoy")) is True:
                        self._signal("lying_equality")
                except Exception:
                    pass
            return plain(left, right)

        return compare

    def equal(self, left: Any, right: Any) -> bool:
        """``left == right`` as the submission's class says, unless it contradicts itself."""
        self.delegated = True
        ask = _asker(left)
        decoys = decoys_of(right) + decoys_of(right)
        if not decoys and not _truth(ask("eq", left, right)):
            return False
        meant = [("eq", left, right, True), ("ne", left, right, False), ("eq", right, left, True)]
        others = [("eq", left, other, False) for other in [ask("decoy"), *decoys]]
        # Which question is meant is not to be seen from the order in which they come.
        questions = [(True, question) for question in meant]
        questions += [(False, question) for question in others]
        _random.shuffle(questions)
        kept = {True: 0, False: 0}
        for is_meant, (name, one, other, expected) in questions:
            kept[is_meant] += _answer(ask, name, one, other) is expected
        if kept[False] == len(others) and kept[True] in (0, len(meant)):
            return kept[True] > 0
        self._signal("lying_equality")
        return False

    def unequal(self, left: Any, right: Any) -> bool:
        """``left != right``; raises ``Lie`` where the class contradicts itself."""
        self.delegated = True
        ask = _asker(left)
        differs = _truth(ask("ne", left, right))
        if differs is _truth(ask("eq", left, right)):
            self._signal("lying_equality")
            raise Lie("== and != contradict each other")
        if not differs and not self.equal(left, right):
            raise Lie("the equality is not one")
        return differs

    def ordered(self, name: str, left: Any, right: Any) -> bool:
        """An ordering; raises ``Lie`` where the class contradicts itself."""
        self.delegated = True
        ask = _asker(left)
        holds = _truth(ask(name, left, right))
        questions = [(_REFLECTED[name], right, left, holds), (name, left, right, holds)]
        if holds:
            questions.append((name, left, ask("decoy"), False))
            if name in ("lt", "gt"):
                questions.append((name, right, left, False))
        _random.shuffle(questions)
        for question, one, other, expected in questions:
            if _answer(ask, question, one, other) is not expected:
                self._signal("lying_equality")
                raise Lie("the order contradicts itself")
        return holds


def _asker(value: Any) -> Callable[..., Any]:
    request: Callable[..., Any] = type(value).__proctor_peer__.request
    return request


def _truth(answer: Any) -> bool:
    return answer if type(answer) is bool else bool(answer)


def _answer(ask: Callable[..., Any], name: str, left: Any, right: Any) -> bool:
    # A decoy may be something that the class can't compare with; that is honest.
    try:
        return _truth(ask(name, left, right))
    except Exception:
        return False


def decoys_of(value: Any) -> list[Any]:
    """Values much like a plain one, and not equal to it; none for anything else."""
    kind = type(value)
    decoy: Any
    if kind is bool or value is None:
        return []
    if kind is int:
        decoy = value + _random.choice((-1, 1)) * _random.randint(1, 9)
    elif kind is float:
        decoy = (value if abs(value) < 1e300 else 0.0) * 2 + 1 + _random.random()
    elif kind is str:
        decoy = value + _random.choice("aeioubcd")
    elif kind is list or kind is tuple:
        items = [*value]
        place = _random.randrange(len(items)) if items else 0
        inner = decoys_of(items[place]) if items else []
        if inner:
            items[place] = inner[0]
        else:
            items.insert(place, _random.randint(0, 99))
        decoy = kind(items)
    elif kind is dict or kind is set:
        decoy = kind(value)
        extra = _random.randint(10**6, 10**9)
        if kind is dict:
            decoy[extra] = extra
        else:
            decoy.add(extra)
    else:
        return []
    return [decoy]
