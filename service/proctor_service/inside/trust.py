"""How the side of the tests uses what it can't see into.

A submission may return an object whose ``__eq__`` says yes to everything. So an object of the
submission's answers about values of the tests only where the tests mean its class as one; then the
question is put in several ways and in random order, about decoys as often as about the value, and an
answer that contradicts itself counts as no. Any other object equals no plain value and computes with
none; what derives from a built-in type is compared and computed with by its content. Two objects of
one class are compared by it.
"""

import random
from collections.abc import Callable
from typing import Any

from .decoys import copied, decoys_of
from .mirrors import Attribute, Described, Mirror
from .operations import ARITHMETIC, COMPARISONS, CONTENT_METHODS, CONVERSIONS, FORWARDERS, SIGNS

_REFLECTED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_SIGNS = {"lt": (-1,), "le": (-1, 0), "gt": (1,), "ge": (0, 1)}
_ORDERED = (int, float, str, bytes, tuple, list, bool)
_STEPS = (-5, -3, -2, -1, 1, 2, 3, 5)
_random = random.SystemRandom()
_Method = Callable[..., Any]


class Lie(TypeError):
    """Answers of the submission's class that contradict each other."""


class Judging:
    """The policy of the tests' side."""

    def __init__(self, signal: Callable[[str], None]) -> None:
        # What the tests compare things with.
        self.literals: list[Any] = []
        self._mentioned: set[int] = set()
        self._trusted: set[int] = set()
        self._suspected: set[int] = set()
        self._signal = signal
        # Whether an outcome rested on what the submission's own classes said, or on its code.
        self.delegated = False

    def mention(self, number: int) -> None:
        """The tests mean this as a class; to be told before any class is built."""
        self._mentioned.add(number)

    def __call__(self, described: Described) -> dict[str, Any]:
        mirrors: list[Any] = [base for base in described.bases if type(base) is Mirror]
        parents = [base.__proctor_class__ for base in mirrors]
        trusted = described.number in self._mentioned or not self._trusted.isdisjoint(parents)
        if trusted:
            self._trusted.add(described.number)
        if described.data is None:
            members = self._object_methods(described, trusted)
        else:
            members = self._content_methods(described, trusted)
        if not described.failure:
            members["__dict__"] = Attribute("__dict__")
        members.setdefault("__dir__", FORWARDERS["__dir__"])
        return {**members, "__proctor_trusted__": trusted}

    def _object_methods(self, described: Described, trusted: bool) -> dict[str, Any]:
        flags = described.flags
        members: dict[str, Any] = {
            name: FORWARDERS[name]
            for name in flags
            if name in FORWARDERS
            and name not in COMPARISONS
            and (trusted or name not in ("__contains__", *CONVERSIONS))
        }
        for name in members:
            if name in ARITHMETIC or name in SIGNS:
                members[name] = self._measured(name) if trusted else _among_kin_only(name)
        if "!__hash__" in flags:
            members["__hash__"] = None
        elif "__eq__" in flags and "__hash__" not in flags:
            members["__hash__"] = object.__hash__
        if "__eq__" in flags:
            self._add_equality(members, described, trusted, object)
        for name in _REFLECTED:
            if f"__{name}__" in flags:
                members[f"__{name}__"] = self._ordering(name, described, trusted)
        return members

    def _content_methods(self, described: Described, trusted: bool) -> dict[str, Any]:
        data, own = described.data, described.own
        members: dict[str, Any] = {
            name: FORWARDERS[name]
            for name in own
            if name in FORWARDERS
            and name not in COMPARISONS
            and (trusted or name not in CONTENT_METHODS | ARITHMETIC | SIGNS | CONVERSIONS)
        }
        for name in ARITHMETIC.intersection(members):
            members[name] = self._measured(name)
        if "__eq__" in own:
            self._add_equality(members, described, trusted, data)
            members.setdefault("__hash__", data.__hash__)
        for name in _REFLECTED:
            if f"__{name}__" in own and hasattr(data, f"__{name}__"):
                members[f"__{name}__"] = self._ordering(name, described, trusted)
        return members

    def _add_equality(
        self, members: dict[str, Any], described: Described, trusted: bool, data: Any
    ) -> None:
        # A built-in base has its own `!=`, which a class with only `__eq__` keeps.
        both = described.data is None or "__ne__" in described.own
        by_class = trusted and described.data is None

        def equal(left: Any, right: Any) -> Any:
            if _are_kin(left, right, trusted):
                return self.equal(left, right, both)
            if by_class and not _is_stand_in(right):
                return self._equal_to_plain(left, right)
            self._suspect(described.number, left)
            return data.__eq__(left, right)

        def unequal(left: Any, right: Any) -> Any:
            if both and _are_kin(left, right, trusted):
                return self.unequal(left, right)
            if by_class and not _is_stand_in(right):
                answer = self._equal_to_plain(left, right)
                return answer if answer is NotImplemented else not answer
            return data.__ne__(left, right)

        members["__eq__"], members["__ne__"] = equal, unequal

    def _ordering(self, name: str, described: Described, trusted: bool) -> _Method:
        asked = [each for each in _REFLECTED if f"__{each}__" in described.flags]
        plain = getattr(described.data or object, f"__{name}__")

        def compare(left: Any, right: Any) -> Any:
            if _are_kin(left, right, trusted):
                return self.ordered(name, left, right)
            if trusted and described.data is None and type(right) in _ORDERED:
                return self._ordered_with_plain(name, asked, left, right)
            return plain(left, right)

        return compare

    def _measured(self, name: str) -> _Method:
        """Arithmetic of a trusted class: with a number to a number it must be what it says."""
        forward = FORWARDERS[name]
        kind = name.strip("_").removeprefix("r")
        sign = -1 if name == "__sub__" else 1
        # What changes the object in place may be asked once only.
        once = name.startswith("__i")

        def method(self_: Any, *operands: Any) -> Any:
            if once or len(operands) != 1 or type(operands[0]) not in (int, float):
                result = forward(self_, *operands)
                if _is_number(result) and not all(map(_is_stand_in, operands)):
                    raise TypeError("not a calculation that can be relied on")
                return result
            real = operands[0]
            asked = [real, *(real + step for step in _STEPS)]
            _random.shuffle(asked)  # the first one may not be the one that is meant
            results = {each: forward(self_, each) for each in asked}
            if not any(map(_is_number, results.values())):
                return results[real]
            self.delegated = True
            if kind not in ("add", "sub"):
                raise TypeError("not a calculation that can be relied on")
            for other in asked:
                moved = float(results[other]) - float(results[real])
                if abs(moved - sign * (other - real)) > 1e-6 * max(1.0, abs(real)):
                    self._signal("lying_equality")
                    raise Lie("the arithmetic contradicts itself")
            return results[real]

        return method

    def _suspect(self, number: int, left: Any) -> None:
        # The verdict doesn't depend on it; whether the class lies is worth knowing.
        if number in self._suspected:
            return
        self._suspected.add(number)
        ask = _asker(left)
        try:
            if ask("eq", left, ask("decoy")) is True:
                self._signal("lying_equality")
        except Exception:
            pass

    def _equal_to_plain(self, left: Any, right: Any) -> Any:
        """``left == right`` for a plain value; no unless all answers agree on it."""
        decoys = decoys_of(right, self.literals)
        if not decoys:
            # No honest object equals None; a value of the tests' own class may compare itself.
            return False if right is None else NotImplemented
        self.delegated = True
        candidates = [copied(right), *decoys]
        said = self._ask_about(left, candidates, both=True)
        # An honest object is equal to one value at most, in whatever way it is asked.
        equals = [any(answers) for answers in said]
        if sum(equals) > 1 or any(any(answers) and not all(answers) for answers in said):
            self._signal("lying_equality")
            return False
        return equals[0]

    def equal(self, left: Any, right: Any, both: bool = True) -> bool:
        """``left == right`` as the submission's class says, unless it contradicts itself."""
        self.delegated = True
        ask = _asker(left)
        if not _truth(ask("eq", left, right)):
            return False
        said = self._ask_about(left, [right, ask("decoy")], both)
        if all(said[0]) and not any(said[1]):
            return True
        self._signal("lying_equality")
        return False

    def _ask_about(self, left: Any, candidates: list[Any], both: bool) -> list[list[bool]]:
        """For each candidate whether it is said to be equal, in every way there is to ask."""
        ask = _asker(left)
        questions: list[tuple[int, str, Any, Any]] = []
        for place, value in enumerate(candidates):
            questions += [(place, "eq", left, value), (place, "eq", value, left)]
            if both:
                questions.append((place, "ne", left, value))
        # Which question is meant is not to be seen from the order in which they come.
        _random.shuffle(questions)
        answers: list[list[bool]] = [[] for _ in candidates]
        for place, name, one, other in questions:
            try:
                said = _truth(ask(name, one, other)) is (name == "eq")
            except Exception:
                # What the class can't compare itself with it isn't equal to.
                said = False
            answers[place].append(said)
        return answers

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
        """An ordering of two objects; raises ``Lie`` where the class contradicts itself."""
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
            try:
                said = _truth(ask(question, one, other))
            except Exception:
                said = False
            if said is not expected:
                self._contradiction()
        return holds

    def _ordered_with_plain(self, name: str, asked: list[str], left: Any, right: Any) -> bool:
        """All that the class says about the order, so that it can't tell what is wanted."""
        self.delegated = True
        ask = _asker(left)
        order = _random.sample(asked, len(asked))
        said = {each: _truth(ask(each, left, right)) for each in order}
        if any(said.values()):
            fitting = [
                sign
                for sign in (-1, 0, 1)
                if all(holds is (sign in _SIGNS[each]) for each, holds in said.items())
            ]
            if not fitting or (fitting == [0] and self._equal_to_plain(left, right) is not True):
                self._contradiction()
        return said[name]

    def _contradiction(self) -> None:
        self._signal("lying_equality")
        raise Lie("the order contradicts itself")


def _among_kin_only(name: str) -> _Method:
    """Arithmetic among objects of the submission's own, to one of these."""
    forward = FORWARDERS[name]

    def method(self: Any, *operands: Any) -> Any:
        if not all(map(_is_stand_in, operands)):
            return NotImplemented
        result: Any = forward(self, *operands)
        if not _is_stand_in(result) or type(result).__proctor_data__ is not None:
            raise TypeError("objects of a class that the tests don't use can't be calculated with")
        return result

    return method


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex) or hasattr(type(value), "as_integer_ratio")


def _is_stand_in(value: Any) -> bool:
    return type(type(value)) is Mirror


def _are_kin(left: Any, right: Any, trusted: bool) -> bool:
    """Whether the class of ``left`` may compare the two: its own, or any of the submission's."""
    if not _is_stand_in(right) or "__proctor_peer__" not in type(right).__dict__:
        return False
    return trusted or type(right) is type(left) or type(right).__proctor_trusted__


def _asker(value: Any) -> _Method:
    request: _Method = type(value).__proctor_peer__.request
    return request


def _truth(answer: Any) -> bool:
    return answer if type(answer) is bool else bool(answer)
