"""Numbers and arrays of numpy that compare with Python's numbers without loss.

numpy converts Python's number to the narrower type: `float16("inf") == 3628800` is true there. And an array
without items, of shape (0, 1), equals any row.
"""

from __future__ import annotations

from typing import Any

_OPERATIONS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *(
        "radd",
        "rsub",
        "rmul",
        "rtruediv",
        "rfloordiv",
        "rmod",
        "rpow",
        "abs",
        "neg",
        "pos",
        "round",
    ),
)


def scalar(numpy: Any, value: Any) -> Any:
    """Return a narrow floating-point or complex number as one that calculates with its decimal digits.

    So `float32(0.1)` equals 0.1, and `float16(30000)` does not equal 30007.3. With a value of numpy, as in
    `float32(0.1) == np.float32(0.1)`, it calculates as numpy does.
    """

    def operation(name: str) -> Any:
        plain, widened = getattr(kind, name), getattr(same, name)

        def apply(self: Any, *others: Any) -> Any:
            of_numpy = any(isinstance(each, (numpy.generic, numpy.ndarray)) for each in others)
            if others and not of_numpy and name != "__round__":
                return widened(*others)
            found = plain(self, *others)
            return scalar(numpy, found) if isinstance(found, kind) else found

        return apply

    kind = type(value)
    wide = {"f": numpy.float64, "c": numpy.complex128}.get(value.dtype.kind)
    if wide is None or value.dtype.itemsize >= numpy.dtype(wide).itemsize:
        return value
    if wide is numpy.float64:
        same = wide(str(value))
    else:
        same = wide(complex(float(str(value.real)), float(str(value.imag))))
    members = {
        name: operation(name)
        for name in (f"__{each}__" for each in _OPERATIONS)
        if hasattr(wide, name)
    }
    members["__hash__"] = kind.__hash__
    return type(kind.__name__, (kind,), members)(value)


def empty_array(numpy: Any, value: Any) -> Any:
    """Return an array without items as one that has no shape in common with several items."""

    def apply(self: Any, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        if any(numpy.size(each) > 1 for each in inputs):
            raise ValueError("operands have different shapes")
        plain = [each.view(numpy.ndarray) if isinstance(each, made) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **more)

    made: Any = type("ndarray", (numpy.ndarray,), {"__array_ufunc__": apply})
    return value.view(made)
