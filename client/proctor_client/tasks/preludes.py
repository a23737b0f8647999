"""Sources of data sets' harnesses before a solution, by the form of the rows.

A form without a text has an empty prelude: the prompt of a HumanEval row brings its
own imports, as `prompt_code` of the task, and an MBPP row its `test_imports`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
)
# The built-in names come after the modules, some of which define other functions by those names.
_CONTEST = "".join(
    (
        *(f"from {name} import *\n" for name in _STARRED),
        "from builtins import *\nfrom typing import *\n",
        f"import {', '.join(_STARRED)}\n",
    )
)
# numpy is not among them: its import takes longer than most of these programs run.
_APPS = """\
import sys, time, itertools, collections, math, fractions, random, heapq
from itertools import accumulate, product, permutations, combinations
from collections import Counter, OrderedDict, deque, defaultdict, ChainMap
from functools import lru_cache
from math import sqrt, sin, cos, tan, ceil, fabs, floor, gcd, exp, log, log2
from typing import List, Tuple
from heapq import *
"""
# Some of the Python versions without this function have no limit of digits.
_LIVECODEBENCH = f"""\
{_CONTEST}sys.setrecursionlimit(50_000)
getattr(sys, "set_int_max_str_digits", int)(50_000)
"""
_LEETCODE = """\
import random, functools, collections, string, math, datetime
from typing import *
from functools import *
from collections import *
from itertools import *
from heapq import *
from bisect import *
from string import *
from operator import *
from math import *
"""

PRELUDES: Mapping[str, str] = MappingProxyType(
    {
        "humaneval": "",
        "mbpp": "",
        "apps": _APPS,
        "taco": _APPS,
        "livecodebench": _LIVECODEBENCH,
        "prime": f"{_CONTEST}sys.setrecursionlimit(600_000)\n",
        "leetcode": _LEETCODE,
    }
)
"""Python sources by form."""
