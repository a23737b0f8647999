"""Values much like a plain one and not equal to it: what an honest object that equals the one can't equal.

They have the same type and, as far as that goes, the same look: literals that occur in the tests, numbers
close by, texts of the same letters, containers with one item changed. So what is asked about them tells
nobody which of the questions is meant.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any

_random: random.Random = random.SystemRandom()
_MOST = 8
_MOST_LITERALS = 5  # of the tests: a class may say that it equals all that it was ever given
_TRIES = 40
_DEPTH = 4


def decoys_of(value: Any, literals: Iterable[Any] = ()) -> list[Any]:
    """Several decoys, in any order; none for a value of which no other of its kind is known."""
    return _several(value, [each for each in literals if type(each) is type(value)], 0)


def copied(value: Any) -> Any:
    """The same value in new containers, as decoys are."""
    kind = type(value)
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    return (
        kind(map(copied, value)) if kind in (list, tuple) else kind(value) if kind is set else value
    )


def _several(value: Any, literals: list[Any], depth: int) -> list[Any]:
    make = _MAKERS.get(type(value)) or _OTHERS.get((type(value).__module__, type(value).__name__))
    if make is None or depth > _DEPTH:
        return []
    found: list[Any] = []
    tries = _random.sample(literals, min(len(literals), _MOST_LITERALS))
    for attempt in range(len(tries) + _TRIES):
        decoy = copied(tries[attempt]) if attempt < len(tries) else make(value, depth)
        if not _alike(decoy, value) and not any(decoy == each for each in found):
            found.append(decoy)
        if len(found) == _MOST:
            break
    return found


def _alike(one: Any, other: Any) -> bool:
    """Whether honest classes may take two values for one."""
    if type(one) is str and type(other) is str:
        return "".join(one.casefold().split()) == "".join(other.casefold().split())
    return bool(one == other)


def _bool(value: bool, depth: int) -> bool:
    return not value


def _int(value: int, depth: int) -> int:
    step = _random.choice((1, 1, 1, 2, 3, 5, 10))
    return value + _random.choice((-1, 1)) * step if value else value + step


def _float(value: float, depth: int) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        return _random.choice((0.0, 1.0, -1.0))
    # As many digits as the value has.
    digits = len(repr(value).partition("e")[0].partition(".")[2])
    step = _random.choice((1, 1.0, 0.5, 10**-digits)) * _random.choice((-1, 1, 2))
    return value * 2 if value + step == value else round(value + step, max(digits, 1))


def _text(value: Any, depth: int) -> str:
    letters: list[str] = [*value] or [_random.choice("abcdeinorst")]
    if len(value) > 1 and _random.random() < 0.4:
        _random.shuffle(letters)
        return "".join(letters)
    if not value:
        return str(letters[0])
    place = _random.randrange(len(letters))
    letters[place] = _neighbour(letters[place], value)
    return "".join(letters)


def _neighbour(letter: str, value: str) -> str:
    for first, last in ("az", "AZ", "09"):
        if first <= letter <= last:
            own = [each for each in value if first <= each <= last and each != letter]
            near = chr(ord(first) + _random.randrange(ord(last) - ord(first) + 1))
            return str(_random.choice([*own, near]))
    return str(_random.choice([*value, "a"]))


def _bytes(value: bytes, depth: int) -> bytes:
    changed = bytearray(value or b"a")
    if value:
        changed[_random.randrange(len(changed))] ^= _random.choice((1, 2, 4))
    return bytes(changed)


def _sequence(value: Any, depth: int) -> Any:
    items = [*value]
    numbers = [place for place, item in enumerate(items) if type(item) is int]
    if not items:
        items = [_random.randint(0, 9)]
    elif len(numbers) > 1 and _random.random() < 0.4:
        # The same sum, and the same order if there was one.
        ordered = items == sorted(items, key=lambda x: x if type(x) is int else 0)
        more, less = _random.sample(numbers, 2)
        items[more] += 1
        items[less] -= 1
        if ordered and len(numbers) == len(items):
            items.sort()
    elif len(items) > 1 and _random.random() < 0.3:
        one, other = _random.sample(range(len(items)), 2)
        items[one], items[other] = items[other], items[one]
    else:
        _change(items, depth)
    return type(value)(items)


def _change(items: list[Any], depth: int) -> None:
    """Put another item in the place of one, or leave it out where there is no other."""
    place = _random.randrange(len(items))
    others = _several(items[place], [], depth + 1)
    if others and _random.random() < 0.8:
        items[place] = _random.choice(others)
    else:
        del items[place]


def _set(value: Any, depth: int) -> Any:
    items = [*value]
    if items:
        _change(items, depth)
    else:
        items = [_random.randint(0, 9)]
    return type(value)(items)


def _dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    pairs = [*value.items()]
    if not pairs:
        return {_random.choice("abcxy"): _random.randint(0, 9)}
    place = _random.randrange(len(pairs))
    key, item = pairs[place]
    values, keys = _several(item, [], depth + 1), _several(key, [], depth + 1)
    if values and _random.random() < 0.6:
        pairs[place] = key, _random.choice(values)
    elif keys and _random.random() < 0.7:
        pairs[place] = _random.choice(keys), item
    else:
        del pairs[place]
    return dict(pairs)


def _range(value: range, depth: int) -> range:
    step = _random.choice((-1, 1)) * value.step
    return range(value.start, value.stop + step, value.step)


_MAKERS: dict[type, Callable[[Any, int], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    complex: lambda value, depth: value + _random.choice((1, -1, 1j, -1j)),
    str: _text,
    bytes: _bytes,
    list: _sequence,
    tuple: _sequence,
    set: _set,
    frozenset: _set,
    dict: _dict,
    range: _range,
}


def _day(value: Any, depth: int) -> Any:
    return type(value).fromordinal(value.toordinal() + _random.choice((-31, -2, -1, 1, 2, 30)))


def _moment(value: Any, depth: int) -> Any:
    return value.replace(second=_random.randrange(60), minute=_random.randrange(60))


def _step(value: Any, depth: int) -> Any:
    return value + _random.choice((-3, -2, -1, 1, 2, 3))


# By name, so that nothing is imported for them.
_OTHERS: dict[tuple[str, str], Callable[[Any, int], Any]] = {
    ("datetime", "date"): _day,
    ("datetime", "datetime"): _moment,
    ("datetime", "time"): _moment,
    ("datetime", "timedelta"): lambda value, depth: (
        value + value.resolution * _random.randint(1, 9)
    ),
    ("decimal", "Decimal"): _step,
    ("fractions", "Fraction"): _step,
}
