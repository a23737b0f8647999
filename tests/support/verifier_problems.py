"""Tasks with verifiers of their own, each with right and wrong completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """A task. `right`: completions with the score 1; `wrong`: completion to its verdict and score.

    `grader`: more fields of the grader; `submission`: more fields of each submission.
    """

    verifier: str
    right: tuple[str, ...]
    wrong: Mapping[str, tuple[str, float]]
    grader: Mapping[str, Any] = field(default_factory=dict)
    submission: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


def _python(source: str) -> str:
    return f"Here it is:\n```python\n{source}\n```\nThat is all."


BRUTE_FORCE = Problem(
    """
import random

def best(numbers):
    count = len(numbers)
    return max(sum(numbers[i:j]) for i in range(count) for j in range(i + 1, count + 1))

def verify(submission, params):
    chance = random.Random(params["seed"])
    for _ in range(200):
        numbers = [chance.randint(-9, 9) for _ in range(chance.randint(1, 12))]
        if submission.call("largest_sum", numbers) != best(numbers):
            return {"score": 0.0, "message": "another sum than by brute force"}
    return 1.0
""",
    right=(
        _python(
            "def largest_sum(a):\n    best = here = a[0]\n    for x in a[1:]:\n"
            "        here = max(x, here + x)\n        best = max(best, here)\n    return best"
        ),
        "def largest_sum(a):\n    n = len(a)\n"
        "    return max(sum(a[i:j + 1]) for i in range(n) for j in range(i, n))",
    ),
    wrong={
        _python("def largest_sum(a):\n    return max(0, sum(a))"): ("failed", 0.0),
        "def largest_sum(a):\n    best = here = 0\n    for x in a:\n"
        "        here = max(0, here + x)\n        best = max(best, here)\n    return best": (
            "failed",
            0.0,
        ),
        "def largest_sum(a): return a[12]": ("runtime_error", 0.0),
        "def largest(a): return max(a)": ("runtime_error", 0.0),
        "I do not know.": ("no_code", 0.0),
    },
    grader={
        "params": {"seed": 11},
        "reference": "def largest_sum(a):\n    n = len(a)\n"
        "    return max(sum(a[i:j + 1]) for i in range(n) for j in range(i, n))",
    },
)

PROPERTIES = Problem(
    """
import random, string

def verify(submission):
    chance = random.Random(5)
    tests = []
    for number in range(40):
        words = ["".join(chance.choices("ab", k=chance.randint(0, 4))) for _ in range(number)]
        found = submission.call("by_length", words)
        is_list = isinstance(found, list)
        tests.append({"name": "same words", "passed": is_list and sorted(found) == sorted(words)})
        rising = is_list and all(len(a) <= len(b) for a, b in zip(found, found[1:]))
        tests.append({"name": "by length", "passed": rising})
        tests.append({"name": "stable", "passed": found == sorted(words, key=len)})
    return {"score": all(test["passed"] for test in tests), "tests": tests}
""",
    right=("def by_length(words): return sorted(words, key=len)",),
    wrong={
        "def by_length(words): return sorted(words, key=lambda w: (len(w), w))": ("failed", 0.0),
        "def by_length(words): return sorted(set(words), key=len)": ("failed", 0.0),
        "def by_length(words): words.sort(key=len)": ("failed", 0.0),
    },
)

METAMORPHIC = Problem(
    """
import random

def median(submission, numbers):
    done = submission.run(stdin=" ".join(map(str, numbers)) + "\\n")
    if done.ending != "exited" or done.exit_code != 0:
        raise ValueError(done.ending)
    return float(done.stdout)

def verify(submission):
    chance = random.Random(3)
    numbers = [chance.randint(-50, 50) for _ in range(9)]
    try:
        value = median(submission, numbers)
        held = [
            median(submission, sorted(numbers)) == value,
            median(submission, [each + 7 for each in numbers]) == value + 7,
            median(submission, [-each for each in numbers]) == -value,
            median(submission, numbers + [1000, -1000]) == value,
            median(submission, [4, 4, 5, 5]) == 4.5,
        ]
    except ValueError as error:
        return {"score": 0, "message": f"no median: {error}"}
    return sum(held) / len(held)
""",
    right=("import statistics\nprint(statistics.median(map(int, input().split())))",),
    wrong={
        "a = sorted(map(int, input().split()))\nprint(a[len(a) // 2])": ("failed", 0.8),
        "print(0)": ("failed", 0.6),
        "print('nan')": ("failed", 0.0),
        "print(1 / 0)": ("failed", 0.0),
        "import time\ntime.sleep(9)": ("failed", 0.0),
    },
    submission={"limits": {"wall_seconds": 0.3}},
)

UNITS = Problem(
    """
import re
from fractions import Fraction

FACTORS = {"m": 1, "km": 1000, "cm": Fraction(1, 100), "mi": Fraction("1609.344"), "ft": Fraction("0.3048")}

def verify(completion, params):
    found = re.findall(r"([-+]?[0-9]+(?:\\.[0-9]+)?)\\s*([a-z]+)\\b", completion.lower())
    if not found:
        return {"score": 0, "message": "no length"}
    number, unit = found[-1]
    if unit not in FACTORS:
        return {"score": 0, "message": f"no unit: {unit}"}
    metres, wanted = Fraction(number) * FACTORS[unit], Fraction(params["metres"])
    return abs(metres - wanted) <= wanted / 1000
""",
    right=("That is 42.195 km.", "42195 m", "In feet: 138435 ft", "about 26.2188 mi"),
    wrong={
        "42.195 miles, I think": ("failed", 0.0),
        "42195": ("failed", 0.0),
        "42 km": ("failed", 0.0),
        "42.195 km, so the answer is 12 m": ("failed", 0.0),
        "": ("failed", 0.0),
    },
    grader={"params": {"metres": "42195"}},
)

REGEX_GOLF = Problem(
    """
import re

def verify(completion, params):
    pattern = completion.strip().strip("`")
    if len(pattern) > params["longest"]:
        return {"score": 0, "message": "too long"}
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        return {"score": 0, "message": f"no pattern: {error}"}
    right = [compiled.search(word) is not None for word in params["match"]]
    right += [compiled.search(word) is None for word in params["avoid"]]
    if not all(right):
        return {"score": 0, "tests": [{"name": str(i), "passed": each} for i, each in enumerate(right)]}
    return min(1.0, params["par"] / max(1, len(pattern)))
""",
    right=("`foo`", "foo"),
    wrong={
        "^.*foo.*$": ("failed", 3 / 9),
        "o": ("failed", 0.0),
        "(": ("failed", 0.0),
        "x" * 60: ("failed", 0.0),
    },
    grader={
        "params": {
            "match": ["food", "afoot", "foo"],
            "avoid": ["oof", "Folly", "bold"],
            "par": 3,
            "longest": 50,
        }
    },
)

FRACTIONS = Problem(
    """
import re
from fractions import Fraction

def verify(completion, params):
    boxed = re.findall(r"\\\\boxed\\{([^{}]*)\\}", completion)
    if len(boxed) != 1:
        return 0
    try:
        return Fraction(boxed[0].replace(" ", "")) == Fraction(params["answer"])
    except (ValueError, ZeroDivisionError):
        return False
""",
    right=(r"So it is \boxed{3/4}.", r"\boxed{0.75}", r"\boxed{ 6 / 8 }"),
    wrong={
        r"\boxed{4/3}": ("failed", 0.0),
        r"\boxed{1/0}": ("failed", 0.0),
        r"\boxed{nan}": ("failed", 0.0),
        r"\boxed{3/4} or \boxed{4/3}": ("failed", 0.0),
        "3/4": ("failed", 0.0),
    },
    grader={"params": {"answer": "3/4"}},
)

ACCOUNTS = Problem(
    """
def verify(submission):
    call = submission.call
    call("open", "ann")
    call("pay", "ann", 70)
    call("pay", to="ann", amount=-20)
    other = submission.fresh()
    try:
        other.call("balance", "ann")
        return {"score": 0, "message": "one account in two interpreters"}
    except SubmissionError as error:
        if error.type != "KeyError" or error.verdict != "runtime_error":
            return {"score": 0, "message": f"no KeyError: {error.type}"}
    other.close()
    again = call("balance", "ann") == 50 == submission.call("balance", "ann")
    return {"score": again, "message": "" if again else "it forgets"}
""",
    right=(
        "held = {}\ndef open(name): held[name] = 0\n"
        "def pay(to, amount): held[to] += amount\ndef balance(name): return held[name]",
    ),
    wrong={
        "held = {'ann': 50}\ndef open(name): pass\ndef pay(to, amount): pass\n"
        "def balance(name): return held[name]": ("failed", 0.0),
        "held = {}\ndef open(name): held[name] = 0\ndef pay(to, amount): held[to] = amount\n"
        "def balance(name): return held[name]": ("failed", 0.0),
        "held = {}\ndef open(name): held[name] = 0\ndef pay(to, amount): held[to] += amount\n"
        "def balance(name):\n    if name not in held: raise ValueError(name)\n    return held[name]": (
            "failed",
            0.0,
        ),
    },
)

DATA = Problem(
    """
from collections import Counter
from decimal import Decimal
from fractions import Fraction

def verify(submission):
    found = submission.call("summary", (3, 1, 3), kind="all")
    wanted = {
        "tuple": (3, 1, 3), "set": {1, 3}, "frozen": frozenset([1, 3]), "count": Counter({3: 2, 1: 1}),
        "mean": Fraction(7, 3), "price": Decimal("0.10"), "bytes": b"\\x03\\x01\\x03",
        "keys": {1: "a", (2, 3): "b"}, "big": 2 ** 100, "none": None, "array": [3, 1, 3],
    }
    tests = [
        {"name": name, "passed": name in found and type(found[name]) is type(value) and found[name] == value}
        for name, value in wanted.items()
    ]
    return {"score": sum(test["passed"] for test in tests) / len(tests), "tests": tests}
""",
    right=(
        _python(
            "from collections import Counter\nfrom decimal import Decimal\nfrom fractions import Fraction\n"
            "def summary(values, kind):\n"
            "    assert type(values) is tuple and kind == 'all'\n"
            "    return {'tuple': values, 'set': set(values), 'frozen': frozenset(values),\n"
            "            'count': Counter(values), 'mean': Fraction(sum(values), len(values)),\n"
            "            'price': Decimal('0.10'), 'bytes': bytes(values), 'keys': {1: 'a', (2, 3): 'b'},\n"
            "            'big': 2 ** 100, 'none': None, 'array': list(values)}"
        ),
    ),
    wrong={
        "def summary(values, kind): return {'tuple': list(values), 'none': None}": (
            "failed",
            1 / 11,
        ),
        "def summary(values, kind): return {'tuple': lambda: values}": ("failed", 0.0),
        "def summary(values): return {}": ("runtime_error", 0.0),
    },
)

ARRAYS = Problem(
    """
def verify(submission):
    product = submission.call("product", [[1, 2], [3, 4]], [[0, 1], [1, 0]])
    norm = submission.call("norm", [3, 4])
    return product == [[2, 1], [4, 3]] and norm == 5.0 and type(norm) is float
""",
    right=(
        "import numpy as np\ndef product(a, b): return np.array(a) @ np.array(b)\n"
        "def norm(v): return np.float64(np.hypot(*v))",
        "def product(a, b): return [[sum(x * y for x, y in zip(r, c)) for c in zip(*b)] for r in a]\n"
        "def norm(v): return sum(x * x for x in v) ** 0.5",
    ),
    wrong={
        "import numpy as np\ndef product(a, b): return np.array(a) * np.array(b)\n"
        "def norm(v): return np.float64(5)": ("failed", 0.0),
        "import numpy as np\ndef product(a, b): return np.array([print], dtype=object)\n"
        "def norm(v): return 5.0": ("failed", 0.0),
    },
    needs=("numpy",),
)

METHODS = Problem(
    """
def verify(submission):
    firsts = [submission.call("Solution().next") for _ in range(3)]
    shared = [submission.call("Solution.total") for _ in range(2)]
    return (firsts == [1, 1, 1]) * 0.5 + (shared == [3, 4]) * 0.5
""",
    right=(
        "class Solution:\n    made = 0\n    def __init__(self):\n        self.at = 0\n"
        "        Solution.made += 1\n    def next(self):\n        self.at += 1\n        return self.at\n"
        "    @classmethod\n    def total(cls):\n        cls.made += 1\n        return cls.made - 1",
    ),
    wrong={
        "class Solution:\n    at = 0\n    def next(self):\n        Solution.at += 1\n"
        "        return self.at\n    @staticmethod\n    def total():\n        return 3": (
            "failed",
            0.0,
        ),
        "class Solution:\n    def next(self): return 1\n    @staticmethod\n    def total(): return 3": (
            "failed",
            0.5,
        ),
        "class Solution:\n    def next(self): return 1": ("runtime_error", 0.0),
    },
)

ROUND_TRIP = Problem(
    r"""
#include <iostream>
#include <string>
using namespace std;

// The value of a text field that has no escapes but those of quotes.
string field(const string& line, const string& name) {
    size_t at = line.find("\"" + name + "\": \"");
    if (at == string::npos) return "?";
    at += name.size() + 5;
    return line.substr(at, line.find('"', at) - at);
}

int main() {
    string line;
    getline(cin, line);  // completion, code, prompt, params
    int right = 0;
    const string texts[] = {"aaab", "a", "xyz", "ppppppppppppp"};
    for (const string& text : texts) {
        cout << "{\"run\": {\"stdin\": \"" << text << "\", \"argv\": [\"pack\"]}}" << endl;
        getline(cin, line);
        string packed = field(line, "stdout");
        if (packed.size() > text.size() + 1) break;
        cout << "{\"run\": {\"stdin\": \"" << packed << "\", \"argv\": [\"unpack\"]}}" << endl;
        getline(cin, line);
        right += field(line, "stdout") == text;
    }
    cout << "{\"score\": " << right / 4.0 << ", \"message\": \"" << right << " of 4\"}" << endl;
}
""",
    right=(
        "import sys\ntext = input()\npacks = sys.argv[1] == 'pack'\n"
        "if packs and len(set(text)) == 1 and len(text) > 2:\n"
        "    print(text[0], len(text), sep='', end='')\nelif not packs and text[1:].isdigit():\n"
        "    print(text[0] * int(text[1:]), end='')\nelse:\n    print(text, end='')",
        "print(input(), end='')",
    ),
    wrong={
        "print('x', end='')": ("failed", 0.0),
        "import sys\nprint(input()[: None if sys.argv[1] == 'pack' else 3], end='')": (
            "failed",
            0.5,
        ),
    },
    grader={"verifier_language": "cpp"},
    needs=("g++",),
)

JAVASCRIPT = Problem(
    """
const lines = require("readline").createInterface({input: process.stdin})[Symbol.asyncIterator]();
const next = async () => JSON.parse((await lines.next()).value);
const send = (value) => process.stdout.write(JSON.stringify(value) + "\\n");

(async () => {
    const {params, code} = await next();
    const tests = [];
    for (const [text, wanted] of params.cases) {
        send({call: ["slug", [text]]});
        const answer = await next();
        const message = answer.error ? answer.error.type : "";
        tests.push({name: text, passed: answer.value === wanted, message});
    }
    const score = tests.filter((test) => test.passed).length / tests.length;
    send({score, tests, message: `${(code || "").length}`});
})();
""",
    right=(
        "import re\ndef slug(text):\n    return '-'.join(re.findall('[a-z0-9]+', text.lower()))",
    ),
    wrong={
        "def slug(text): return text.lower().replace(' ', '-')": ("failed", 0.5),
        "def slug(text): raise ValueError": ("failed", 0.0),
        "def slug(text): return object()": ("failed", 0.0),
        "no code here": ("failed", 0.0),
    },
    grader={
        "verifier_language": "javascript",
        "params": {
            "cases": [["Hello World", "hello-world"], ["a b", "a-b"], ["x!", "x"], [" y ", "y"]]
        },
    },
    needs=("node",),
)

SHORTEST_PATHS = Problem(
    """
import random
from graphs import bellman_ford

def verify(submission, params):
    chance = random.Random(8)
    for _ in range(params["rounds"]):
        count = chance.randint(1, 7)
        edges = [[chance.randrange(count), chance.randrange(count), chance.randint(1, 9)] for _ in range(10)]
        found = submission.call("distances", count, edges)
        if found != bellman_ford(count, edges):
            return 0.0
    return 1.0
""",
    right=(
        "import heapq\nfrom math import inf\ndef distances(n, edges):\n    d = [inf] * n\n    d[0] = 0\n"
        "    heap = [(0, 0)]\n    while heap:\n        far, at = heapq.heappop(heap)\n"
        "        for a, b, w in edges:\n            if a == at and far + w < d[b]:\n"
        "                d[b] = far + w\n                heapq.heappush(heap, (d[b], b))\n    return d",
    ),
    wrong={
        "def distances(n, edges): return [0] * n": ("failed", 0.0),
        "def distances(n, edges): return [float('nan')] * n": ("failed", 0.0),
        "from graphs import bellman_ford as distances": ("runtime_error", 0.0),
        "def distances(n, edges):\n    while True: pass": ("timeout", 0.0),
    },
    grader={
        "params": {"rounds": 30},
        "files": {
            "graphs.py": "from math import inf\n\ndef bellman_ford(count, edges):\n"
            "    far = [0] + [inf] * (count - 1)\n    for _ in range(count):\n"
            "        for a, b, weight in edges:\n            far[b] = min(far[b], far[a] + weight)\n"
            "    return far\n"
        },
    },
    submission={"limits": {"cpu_seconds": 0.5}},
)

FILES = Problem(
    """
def verify(submission):
    files = {"texts/a.txt": "one two\\nthree\\n", "texts/b.txt": ""}
    tests = []
    for path, wanted in (("texts/a.txt", "2 3"), ("texts/b.txt", "0 0")):
        done = submission.run(argv=[path], files=files)
        tests.append({"name": path, "passed": done.stdout.strip() == wanted, "message": done.stderr[-80:]})
    missing = submission.run(argv=["none.txt"])
    tests.append({"name": "missing", "passed": missing.exit_code == 2 and missing.stdout == ""})
    return {"score": sum(test["passed"] for test in tests) / 3, "tests": tests}
""",
    right=(
        "import sys\ntry:\n    text = open(sys.argv[1]).read()\nexcept OSError:\n    sys.exit(2)\n"
        "print(text.count('\\n'), len(text.split()))",
    ),
    wrong={
        "import sys\ntext = open(sys.argv[1]).read()\nprint(text.count('\\n'), len(text.split()))": (
            "failed",
            2 / 3,
        ),
        "print('2 3')": ("failed", 1 / 3),
        "```python\ndef f(:\n```": ("syntax_error", 0.0),
    },
)

HAIKU = Problem(
    """
def verify(completion, prompt, code):
    wanted = [int(word) for word in prompt[-1]["content"].split() if word.isdigit()]
    lines = completion.strip().splitlines()
    words = [len(line.split()) for line in lines]
    assert code is None or len(code) <= len(completion)
    return {"score": words == wanted, "message": f"{words} words"}
""",
    right=("an old pond\na frog leaps in now\nwater's sound",),
    wrong={
        "an old pond": ("failed", 0.0),
        "a b c\na b c d\na b": ("failed", 0.0),
    },
    submission={
        "prompt": [{"role": "user", "content": "Write lines of 3 and then 5 and then 2 words"}]
    },
)

STRICT = Problem(
    """
def raises(submission, text):
    try:
        submission.call("parse", text)
    except SubmissionError as error:
        return error.type == "ValueError" and text in error.message
    return False

def verify(submission):
    if submission.call("parse", "12:30") != [12, 30]:
        return {"score": 0.0, "message": "12:30"}
    refused = [raises(submission, text) for text in ("25:00", "x", "1:2:3", "12:60")]
    return 0.2 + 0.8 * sum(refused) / len(refused)
""",
    right=(
        "def parse(text):\n    parts = text.split(':')\n"
        "    if len(parts) != 2 or not all(p.isdigit() for p in parts):\n        raise ValueError(text)\n"
        "    h, m = map(int, parts)\n    if h > 23 or m > 59:\n        raise ValueError(text)\n"
        "    return [h, m]",
    ),
    wrong={
        "def parse(text): return [int(p) for p in text.split(':')]": ("failed", 0.4),
        "def parse(text): return list(text)": ("failed", 0.0),
        "def parse(text): return [int(p) for p in text.split(':')][:2] if text == '12:30' else 1 / 0": (
            "failed",
            0.2,
        ),
    },
    grader={"min": -1.0, "max": 2.0},
)

COMPILED = Problem(
    """
def verify(submission):
    outputs = [submission.run(f"{number}\\n").stdout.split() for number in (1, 7, 12, 97)]
    return outputs == [["1"], ["7"], ["2", "2", "3"], ["97"]]
""",
    right=(
        "```cpp\n#include <iostream>\nint main() {\n    int n;\n    std::cin >> n;\n"
        "    if (n == 1) std::cout << 1;\n    for (int p = 2; n > 1; p++)\n"
        '        for (; n % p == 0; n /= p) std::cout << p << " ";\n}\n```',
    ),
    wrong={
        "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n; }": (
            "failed",
            0.0,
        ),
        "#include <iostream>\nint main() { return 1 }": ("syntax_error", 0.0),
    },
    submission={"language": "cpp"},
    needs=("g++",),
)

PROBLEMS: Mapping[str, Problem] = {
    "brute force": BRUTE_FORCE,
    "properties": PROPERTIES,
    "metamorphic": METAMORPHIC,
    "units": UNITS,
    "regex golf": REGEX_GOLF,
    "fractions": FRACTIONS,
    "accounts": ACCOUNTS,
    "data": DATA,
    "arrays": ARRAYS,
    "methods": METHODS,
    "round trip in C++": ROUND_TRIP,
    "slugs in JavaScript": JAVASCRIPT,
    "shortest paths": SHORTEST_PATHS,
    "files": FILES,
    "haiku": HAIKU,
    "strict": STRICT,
    "compiled": COMPILED,
}
