"""Ten interactive problems: interactors in Python and C++, right and wrong programs in both."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

HEADER = dedent(
    r"""
    // A small header with the conventions of testlib.h: exit codes 0, 1, 2, 3 and 7, and messages on stderr.
    #pragma once
    #include <algorithm>
    #include <cstdarg>
    #include <cstdio>
    #include <cstdlib>
    #include <fstream>
    #include <iostream>
    #include <string>
    enum { _ok = 0, _wa = 1, _pe = 2, _fail = 3 };
    static std::ifstream inf;
    static std::ofstream tout;
    [[noreturn]] static void quitf(int code, const char *format, ...) {
        va_list rest;
        va_start(rest, format);
        vfprintf(stderr, format, rest);
        va_end(rest);
        std::exit(code);
    }
    [[noreturn]] static void quitp(double points) {
        fprintf(stderr, "points %f", points);
        std::exit(7);
    }
    static void registerInteraction(int count, char **names) {
        if (count < 3) quitf(_fail, "too few arguments");
        inf.open(names[1]);
        tout.open(names[2]);
        if (!inf || !tout) quitf(_fail, "no files");
    }
    struct Ouf {
        std::string readToken() {
            std::string word;
            if (!(std::cin >> word)) quitf(_pe, "unexpected end of the output");
            return word;
        }
        long long readInt(long long low, long long high) {
            std::string word = readToken();
            char *end;
            long long value = std::strtoll(word.c_str(), &end, 10);
            if (*end) quitf(_pe, "not a number");
            if (value < low || value > high) quitf(_wa, "%lld is not in its range", value);
            return value;
        }
    };
    static Ouf ouf;
    """
)


@dataclass(frozen=True)
class Problem:
    """An interactor, the input of its cases, and programs by language: right and wrong."""

    name: str
    interactor: dict[str, Any]
    inputs: tuple[str, ...]
    right: dict[str, str]
    wrong: dict[str, str] = field(default_factory=dict)

    def grader(self, **more: Any) -> dict[str, Any]:
        """Return the grader of all cases."""
        cases = [{"stdin": text} for text in self.inputs]
        return {"kind": "stdio", "cases": cases, "interactor": self.interactor, **more}


def python(source: str, **more: Any) -> dict[str, Any]:
    return {"language": "python", "source": dedent(source), **more}


def cpp(source: str, **more: Any) -> dict[str, Any]:
    source = '#include "talk.h"\n' + dedent(source)
    return {"language": "cpp", "source": source, "files": {"talk.h": HEADER}, **more}


def program(source: str) -> str:
    return dedent(source)


C = """#include <algorithm>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <vector>
using namespace std;
"""

GUESS = Problem(
    "guess a number, interactor in Python",
    python(
        """
        import sys
        low, high, secret, most = map(int, open(sys.argv[1]).read().split())
        print(low, high, flush=True)
        for _ in range(most):
            word, value = input().split()
            value = int(value)
            if word == "answer":
                sys.exit(0 if value == secret else 1)
            print("=" if value == secret else "<" if secret < value else ">", flush=True)
        print("too many questions", file=sys.stderr)
        sys.exit(1)
        """
    ),
    ("1 100 37 8\n", "1 1000000 1 21\n", "5 5 5 2\n"),
    {
        "python": program(
            """
            low, high = map(int, input().split())
            while low < high:
                middle = (low + high) // 2
                print("ask", middle, flush=True)
                reply = input()
                if reply == "=":
                    low = high = middle
                elif reply == "<":
                    high = middle - 1
                else:
                    low = middle + 1
            print("answer", low)
            """
        ),
        "cpp": C
        + program(
            """
            int main() {
                int low, high;
                cin >> low >> high;
                while (low < high) {
                    int middle = (low + high) / 2;
                    cout << "ask " << middle << endl;
                    string reply;
                    cin >> reply;
                    if (reply == "=") low = high = middle;
                    else if (reply == "<") high = middle - 1;
                    else low = middle + 1;
                }
                printf("answer %d", low);
            }
            """
        ),
    },
    {
        "python": "low, high = map(int, input().split())\nprint('answer', high - 7)",
        "cpp": C + 'int main() { int a, b; cin >> a >> b; cout << "answer " << b - 7 << endl; }',
    },
)

ADAPTIVE = Problem(
    "an adaptive guess, interactor in C++",
    cpp(
        """
        int main(int count, char **names) {
            registerInteraction(count, names);
            long long low = 1, high, most;
            inf >> high >> most;
            std::cout << high << std::endl;
            for (int turn = 0; turn < most; turn++) {
                std::string word = ouf.readToken();
                long long value = ouf.readInt(1, 1000000000);
                if (word == "answer") {
                    if (low == high && value == low) quitf(_ok, "found");
                    quitf(_wa, "other numbers are left");
                }
                // Whatever the question is, the larger part is left.
                bool larger = value < low || (value < high && value - low + 1 < high - value);
                if (larger) low = std::max(low, value + 1);
                else high = std::min(high, value);
                std::cout << (larger ? "larger" : "not larger") << std::endl;
            }
            quitf(_wa, "too many questions");
        }
        """
    ),
    ("1000000000 31\n", "17 6\n"),
    {
        "python": program(
            """
            import sys
            low, high = 1, int(sys.stdin.readline())
            while low < high:
                middle = (low + high) // 2
                sys.stdout.write(f"ask {middle}\\n")
                sys.stdout.flush()
                if sys.stdin.readline().strip() == "larger":
                    low = middle + 1
                else:
                    high = middle
            print("answer", low)
            """
        ),
        "cpp": C
        + program(
            """
            int main() {
                long long low = 1, high;
                scanf("%lld", &high);
                while (low < high) {
                    long long middle = (low + high) / 2;
                    printf("ask %lld\\n", middle);
                    fflush(stdout);
                    char a[20], b[20] = "";
                    scanf("%19s", a);
                    if (a[0] == 'n') { scanf("%19s", b); high = middle; } else low = middle + 1;
                }
                printf("answer %lld\\n", low);
            }
            """
        ),
    },
    {
        "python": "n = int(input())\nfor v in range(1, n):\n    print('ask', v, flush=True)\n    input()",
        "cpp": C + 'int main() { cout << "answer 5" << endl; }',
    },
)

GRID = Problem(
    "treasure in a grid, icpc interactor in C++",
    {
        "language": "cpp",
        "convention": "icpc",
        "source": program(
            """
            #include <cstdlib>
            #include <fstream>
            #include <iostream>
            int main(int, char **names) {
                std::ifstream in(names[1]);
                std::ofstream note(std::string(names[3]) + "/judgemessage.txt");
                int rows, columns, row, column, most;
                in >> rows >> columns >> row >> column >> most;
                std::cout << rows << ' ' << columns << std::endl;
                char kind;
                int r, c;
                while (most-- && std::cin >> kind >> r >> c) {
                    if (r < 1 || r > rows || c < 1 || c > columns) return 43;
                    if (kind == '!') return r == row && c == column ? 42 : 43;
                    std::cout << std::abs(r - row) + std::abs(c - column) << std::endl;
                }
                note << "no answer";
                return 43;
            }
            """
        ),
    },
    ("7 9 3 8 4\n", "1 1 1 1 4\n", "100 50 100 50 4\n"),
    {
        "python": program(
            """
            rows, columns = map(int, input().split())
            def ask(r, c):
                print("?", r, c, flush=True)
                return int(input())
            a = ask(1, 1)  # r - 1 + c - 1
            b = ask(1, columns)  # r - 1 + columns - c
            r = (a + b - columns + 1) // 2 + 1
            print("!", r, a - (r - 1) + 1)
            """
        ),
        "cpp": C
        + program(
            """
            int ask(int r, int c) { int d; cout << "? " << r << " " << c << endl; cin >> d; return d; }
            int main() {
                int rows, columns;
                cin >> rows >> columns;
                int a = ask(1, 1), b = ask(1, columns), r = (a + b - columns + 1) / 2 + 1;
                cout << "! " << r << " " << a - (r - 1) + 1;
            }
            """
        ),
    },
    {"python": "input()\nprint('! 1 1')", "cpp": C + 'int main() { cout << "! 0 0" << endl; }'},
)

SORT = Problem(
    "a hidden permutation by comparisons, interactor in Python",
    python(
        """
        import sys
        hidden = list(map(int, open(sys.argv[1]).readline().split()))
        n = len(hidden)
        print(n, flush=True)
        for questions in range(n * n):
            words = sys.stdin.readline().split()
            if words[0] == "!":
                sys.exit(0 if list(map(int, words[1:])) == hidden else 1)
            a, b = int(words[1]) - 1, int(words[2]) - 1
            sys.stdout.write("<\\n" if hidden[a] < hidden[b] else ">\\n")
            sys.stdout.flush()
        sys.exit(1)
        """
    ),
    ("3 1 2\n", "1\n", "9 4 7 1 8 2 5 6 3 10\n"),
    {
        "python": program(
            """
            import functools
            n = int(input())
            def compare(a, b):
                print("?", a + 1, b + 1, flush=True)
                return -1 if input() == "<" else 1
            order = sorted(range(n), key=functools.cmp_to_key(compare))
            ranks = [0] * n
            for rank, place in enumerate(order):
                ranks[place] = rank + 1
            print("!", *ranks)
            """
        ),
        "cpp": C
        + program(
            """
            int main() {
                int n;
                cin >> n;
                vector<int> order(n), ranks(n);
                iota(order.begin(), order.end(), 0);
                stable_sort(order.begin(), order.end(), [](int a, int b) {
                    string reply;
                    cout << "? " << a + 1 << " " << b + 1 << endl;
                    cin >> reply;
                    return reply == "<";
                });
                for (int i = 0; i < n; i++) ranks[order[i]] = i + 1;
                cout << "!";
                for (int rank : ranks) cout << " " << rank;
                cout << endl;
            }
            """
        ),
    },
    {
        "python": "n = int(input())\nprint('!', *range(n, 0, -1))",
        "cpp": C + 'int main() { cout << "! 3 3 3" << endl; }',
    },
)

BITS = Problem(
    "a number by masks, with points, interactor in C++",
    cpp(
        """
        int main(int count, char **names) {
            registerInteraction(count, names);
            int secret;
            inf >> secret;
            for (int questions = 0;; questions++) {
                std::string word = ouf.readToken();
                int value = ouf.readInt(0, 1 << 20);
                if (word == "!") {
                    if (value != secret) quitf(_wa, "it is not");
                    quitp(questions <= 16 ? 1.0 : 0.5);
                }
                if (questions == 64) quitf(_wa, "too many");
                std::cout << __builtin_popcount(secret & value) << "\\n" << std::flush;
            }
        }
        """
    ),
    ("43690\n", "0\n", "65535\n"),
    {
        "python": program(
            """
            found = 0
            for bit in range(16):
                print("?", 1 << bit, flush=True)
                found |= int(input()) << bit
            print("!", found)
            """
        ),
        "cpp": C
        + program(
            """
            int main() {
                int found = 0, reply;
                for (int bit = 0; bit < 16; bit++) {
                    cout << "? " << (1 << bit) << endl;
                    cin >> reply;
                    found |= reply << bit;
                }
                cout << "! " << found << endl;
            }
            """
        ),
    },
    {"python": "print('! 7')", "cpp": C + 'int main() { puts("! 7"); }'},
)

NIM = Problem(
    "a game of Nim, interactor in Python",
    python(
        """
        import sys
        heaps = list(map(int, open(sys.argv[1]).read().split()))
        print(len(heaps), *heaps, flush=True)
        while True:
            heap, count = map(int, input().split())
            if not (0 <= heap < len(heaps) and 1 <= count <= heaps[heap]):
                sys.exit(1)
            heaps[heap] -= count
            if not any(heaps):
                sys.exit(0)
            total = 0
            for each in heaps:
                total ^= each
            move = heaps.index(max(heaps)), 1
            for i, each in enumerate(heaps):
                if each ^ total < each:
                    move = i, each - (each ^ total)
            heaps[move[0]] -= move[1]
            print(*move, flush=True)
            if not any(heaps):
                sys.exit(1)
        """
    ),
    ("3 4 5\n", "1\n", "10 20 30 40 7\n"),
    {
        "python": program(
            """
            n, *heaps = map(int, input().split())
            while any(heaps):
                total = 0
                for each in heaps:
                    total ^= each
                i = next(i for i, each in enumerate(heaps) if each ^ total < each)
                count = heaps[i] - (heaps[i] ^ total)
                heaps[i] -= count
                print(i, count, flush=True)
                if any(heaps):
                    i, count = map(int, input().split())
                    heaps[i] -= count
            """
        ),
        "cpp": C
        + program(
            """
            int main() {
                int n;
                cin >> n;
                vector<int> heaps(n);
                for (int &heap : heaps) cin >> heap;
                for (;;) {
                    int total = 0, left = 0;
                    for (int heap : heaps) total ^= heap;
                    int i = 0;
                    while ((heaps[i] ^ total) >= heaps[i]) i++;
                    int count = heaps[i] - (heaps[i] ^ total);
                    heaps[i] -= count;
                    cout << i << " " << count << endl;
                    for (int heap : heaps) left += heap;
                    if (!left) return 0;
                    cin >> i >> count;
                    heaps[i] -= count;
                }
            }
            """
        ),
    },
    {"python": "print(0, 99)", "cpp": C + 'int main() { cout << "0 0" << endl; }'},
)

TREE = Problem(
    "a hidden vertex of a path by distances, interactor in C++",
    cpp(
        """
        int main(int count, char **names) {
            registerInteraction(count, names);
            int n, hidden;
            inf >> n >> hidden;
            std::cout << n << std::endl;
            for (int turn = 0; turn < 3; turn++) {
                std::string word = ouf.readToken();
                int vertex = ouf.readInt(1, n);
                if (word == "!") {
                    tout << vertex;
                    quitf(vertex == hidden ? _ok : _wa, "answered");
                }
                std::cout << std::abs(vertex - hidden) << std::endl;
            }
            quitf(_wa, "too many");
        }
        """
    ),
    ("10 4\n", "1 1\n"),
    {
        "python": "n = int(input())\nprint('?', 1, flush=True)\nprint('!', 1 + int(input()))",
        "cpp": C
        + 'int main() { int n, d; cin >> n; cout << "? 1" << endl; cin >> d; cout << "! " << 1 + d; }',
    },
    {
        "python": "print('! 1' if input() == '10' else '! 9')",
        "cpp": C + 'int main() { puts("! 9999"); }',
    },
)

STREAM = Problem(
    "the largest number so far, one line at a time, interactor in Python",
    python(
        """
        import sys
        largest = -1
        for word in open(sys.argv[1]).read().split():
            largest = max(largest, int(word))
            print(word, flush=True)
            if int(input()) != largest:
                sys.exit(1)
        print("end", flush=True)
        sys.exit(0 if sys.stdin.read() == "" else 2)
        """
    ),
    (" ".join(str(n * 7919 % 1000) for n in range(300)), "5 4 3"),
    {
        "python": program(
            """
            largest = -1
            while (word := input()) != "end":
                largest = max(largest, int(word))
                print(largest, flush=True)
            """
        ),
        "cpp": C
        + program(
            """
            int main() {
                string word;
                int largest = -1;
                while (cin >> word && word != "end") cout << (largest = max(largest, stoi(word))) << endl;
            }
            """
        ),
    },
    {
        "python": "while (w := input()) != 'end':\n    print(w, flush=True)",
        "cpp": C + "int main() { string w; while (cin >> w) cout << -5 << endl; }",
    },
)

SUM = Problem(
    "numbers on demand, icpc interactor in Python",
    python(
        """
        import sys
        numbers = list(map(int, open(sys.argv[1]).read().split()))
        print(len(numbers))
        sys.stdout.flush()
        for line in sys.stdin:
            word, value = line.split()
            if word == "get":
                print(numbers[int(value)], flush=True)
            else:
                sys.exit(42 if int(value) == sum(numbers) else 43)
        sys.exit(43)
        """,
        convention="icpc",
    ),
    ("1 2 3\n", "\n", "5 -5 1000000\n"),
    {
        "python": program(
            """
            total = 0
            for i in range(int(input())):
                print("get", i, flush=True)
                total += int(input())
            print("sum", total)
            """
        ),
        "cpp": C
        + program(
            """
            int main() {
                int n, value, total = 0;
                cin >> n;
                for (int i = 0; i < n; i++) {
                    cout << "get " << i << endl;
                    cin >> value;
                    total += value;
                }
                cout << "sum " << total << endl;
            }
            """
        ),
    },
    {"python": "print('sum 1')", "cpp": C + 'int main() { cout << "sum 1" << endl; }'},
)

WORDS = Problem(
    "a hidden word, letter by letter, adaptive, interactor in Python",
    python(
        """
        import sys
        words = open(sys.argv[1]).read().split()
        left = list(words)
        print(len(words), *words, flush=True)
        for turn in range(40):
            kind, *rest = input().split()
            if kind == "!":
                sys.exit(0 if left == rest else 1)
            place, letter = int(rest[0]), rest[1]
            yes = [word for word in left if word[place : place + 1] == letter]
            no = [word for word in left if word[place : place + 1] != letter]
            left = yes if len(yes) > len(no) else no
            print("yes" if left is yes else "no", flush=True)
        sys.exit(1)
        """
    ),
    ("pear plum peach fig\n", "one\n"),
    {
        "python": program(
            """
            n, *words = input().split()
            while len(words) > 1:
                place = next(i for i in range(99) if len({word[i : i + 1] for word in words}) > 1)
                letter = next(word[place] for word in words if word[place:])
                print("?", place, letter, flush=True)
                same = input() == "yes"
                words = [word for word in words if (word[place : place + 1] == letter) == same]
            print("!", *words)
            """
        ),
        "cpp": C
        + program(
            """
            int main() {
                int n;
                cin >> n;
                vector<string> words(n);
                for (string &word : words) cin >> word;
                auto at = [](const string &word, int i) { return i < (int)word.size() ? word[i] : '-'; };
                for (int place = 0; words.size() > 1; place++)
                    for (char letter = 'a'; letter <= 'z'; letter++) {
                        auto has = [&](const string &word) { return at(word, place) == letter; };
                        int count = count_if(words.begin(), words.end(), has);
                        if (count == 0 || count == (int)words.size()) continue;
                        string reply;
                        cout << "? " << place << " " << letter << endl;
                        cin >> reply;
                        vector<string> kept;
                        for (auto &word : words)
                            if (has(word) == (reply == "yes")) kept.push_back(word);
                        words = kept;
                    }
                cout << "! " << words[0] << endl;
            }
            """
        ),
    },
    {
        "python": "print('!', input().split()[1][:2])",
        "cpp": C + 'int main() { cout << "! x" << endl; }',
    },
)

PROBLEMS = (GUESS, ADAPTIVE, GRID, SORT, BITS, NIM, TREE, STREAM, SUM, WORDS)
