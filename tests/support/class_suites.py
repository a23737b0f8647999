"""Classes to write, in the manner of ClassEval: a right and a wrong solution, and a suite for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """One class with its tests. `change` turns the right solution into a wrong one."""

    name: str
    right: str
    change: tuple[str, str]
    tests: str

    @property
    def wrong(self) -> str:
        """The right solution with its one mistake."""
        old, new = self.change
        assert self.right.count(old) == 1, self.name
        return self.right.replace(old, new)


SUITES = (
    Suite("Account", """
class Account:
    def __init__(self, balance=0): self.balance = balance
    def deposit(self, amount):
        if amount < 0: raise ValueError("negative")
        self.balance += amount
    def withdraw(self, amount):
        if amount > self.balance: raise ValueError("too much")
        self.balance -= amount
""", ("amount > self.balance", "False"), """
class AccountTest(unittest.TestCase):
    def setUp(self): self.account = Account(100)
    def test_deposit(self):
        self.account.deposit(50)
        self.assertEqual(self.account.balance, 150)
    def test_withdraw(self):
        with self.assertRaises(ValueError): self.account.withdraw(101)
        self.assertEqual(self.account.balance, 100)
    def test_negative(self):
        with self.assertRaisesRegex(ValueError, "neg"): self.account.deposit(-1)
"""),
    Suite("Notes", """
import os
class Notes:
    def __init__(self, path): self.path = path
    def add(self, text):
        with open(self.path, "a") as file: file.write(text + "\\n")
    def all(self):
        if not os.path.exists(self.path): return []
        with open(self.path) as file: return file.read().splitlines()
""", ('"a"', '"w"'), """
import os
class NotesTest(unittest.TestCase):
    def setUp(self): self.path = "notes.txt"
    def tearDown(self):
        if os.path.exists(self.path): os.remove(self.path)
    def test_empty(self): self.assertEqual(Notes(self.path).all(), [])
    def test_order(self):
        notes = Notes(self.path)
        notes.add("a"); notes.add("b")
        with open(self.path) as file: self.assertEqual(file.read(), "a\\nb\\n")
        self.assertListEqual(notes.all(), ["a", "b"])
"""),
    Suite("Students", """
import sqlite3
class Students:
    def __init__(self, path):
        self.path = path
        with sqlite3.connect(path) as db: db.execute("create table if not exists s (name text, age int)")
    def add(self, name, age):
        with sqlite3.connect(self.path) as db: db.execute("insert into s values (?, ?)", (name, age))
    def older(self, age):
        with sqlite3.connect(self.path) as db:
            return [row[0] for row in db.execute("select name from s where age > ? order by name", (age,))]
""", ("age > ?", "age >= ?"), """
import os, sqlite3
class StudentsTest(unittest.TestCase):
    def setUp(self): self.students = Students("test.db")
    def tearDown(self): os.unlink("test.db")
    def test_rows(self):
        self.students.add("ann", 20); self.students.add("bob", 30)
        rows = sqlite3.connect("test.db").execute("select * from s").fetchall()
        self.assertEqual(rows, [("ann", 20), ("bob", 30)])
        self.assertEqual(self.students.older(20), ["bob"])
"""),
    Suite("Zipper", """
import zipfile
class Zipper:
    def __init__(self, name): self.name = name
    def add(self, path):
        with zipfile.ZipFile(self.name, "a") as file: file.write(path)
    def names(self):
        with zipfile.ZipFile(self.name) as file: return file.namelist()
    def read(self, name):
        with zipfile.ZipFile(self.name) as file: return file.read(name).decode()
""", ("return file.namelist()", "return file.namelist()[:1]"), """
import os, zipfile
class ZipperTest(unittest.TestCase):
    def setUp(self):
        for name in ("one.txt", "two.txt"):
            with open(name, "w") as file: file.write(name)
    def tearDown(self):
        for name in ("one.txt", "two.txt", "x.zip"): os.remove(name)
    def test_zip(self):
        zipper = Zipper("x.zip")
        zipper.add("one.txt"); zipper.add("two.txt")
        self.assertEqual(zipper.names(), ["one.txt", "two.txt"])
        self.assertEqual(zipper.read("two.txt"), "two.txt")
        self.assertTrue(zipfile.is_zipfile("x.zip"))
"""),
    Suite("Table", """
import csv
class Table:
    def read(self, path):
        with open(path, newline="") as file: return list(csv.DictReader(file))
    def write(self, path, rows):
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader(); writer.writerows(rows)
""", ("writer.writeheader(); ", ""), """
import csv, tempfile, pathlib
class TableTest(unittest.TestCase):
    def test_there_and_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.csv"
            rows = [{"a": "1", "b": "x,y"}, {"a": "2", "b": 'q"'}]
            Table().write(path, rows)
            self.assertEqual(path.read_text().splitlines()[0], "a,b")
            self.assertEqual(Table().read(path), rows)
"""),
    Suite("Calendar", """
from datetime import datetime, timedelta
class Calendar:
    def __init__(self): self.events = []
    def add(self, start, minutes): self.events.append((start, start + timedelta(minutes=minutes)))
    def free(self, moment): return all(not a <= moment < b for a, b in self.events)
    def next(self, moment): return min((a for a, b in self.events if a >= moment), default=None)
""", ("moment < b", "moment <= b"), """
from datetime import datetime, timedelta
class CalendarTest(unittest.TestCase):
    def setUp(self):
        self.calendar, self.noon = Calendar(), datetime(2024, 2, 29, 12)
        self.calendar.add(self.noon, 30)
    def test_free(self):
        self.assertFalse(self.calendar.free(self.noon))
        self.assertTrue(self.calendar.free(self.noon + timedelta(minutes=30)))
    def test_next(self):
        self.assertEqual(self.calendar.next(datetime(2024, 1, 1)), self.noon)
        self.assertIsNone(self.calendar.next(datetime(2025, 1, 1)))
"""),
    Suite("Settings", """
import json, os
class Settings:
    def __init__(self, path):
        self.path, self.values = path, {}
        if os.path.exists(path):
            with open(path) as file: self.values = json.load(file)
    def set(self, key, value):
        self.values[key] = value
        with open(self.path, "w") as file: json.dump(self.values, file, sort_keys=True)
    def get(self, key, default=None): return self.values.get(key, default)
""", ("if os.path.exists(path):", "if False:"), """
import json, os, tempfile
class SettingsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "s.json")
    def test_kept(self):
        Settings(self.path).set("b", [1, None]); Settings(self.path).set("a", {"x": 1.5})
        with open(self.path) as file: self.assertEqual(json.load(file), {"a": {"x": 1.5}, "b": [1, None]})
        self.assertEqual(Settings(self.path).get("b"), [1, None])
        self.assertEqual(Settings(self.path).get("c", 3), 3)
"""),
    Suite("Vector", """
import math
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
    def __eq__(self, other): return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)
    def __repr__(self): return f"Vector({self.x}, {self.y})"
    def __abs__(self): return math.hypot(self.x, self.y)
""", ("math.hypot(self.x, self.y)", "self.x + self.y"), """
class VectorTest(unittest.TestCase):
    def test_add(self): self.assertEqual(Vector(1, 2) + Vector(3, 4), Vector(4, 6))
    def test_unequal(self):
        self.assertNotEqual(Vector(1, 2), Vector(2, 1))
        self.assertNotEqual(Vector(1, 2), 3)
    def test_abs(self): self.assertAlmostEqual(abs(Vector(3, 4)), 5.0)
    def test_repr(self): self.assertEqual(repr(Vector(1, 2)), "Vector(1, 2)")
"""),
    Suite("Stack", """
class Stack:
    def __init__(self): self._items = []
    def push(self, item): self._items.append(item)
    def pop(self): return self._items.pop()
    def __len__(self): return len(self._items)
    def __iter__(self): return iter(reversed(self._items))
    def __contains__(self, item): return item in self._items
""", ("reversed(self._items)", "self._items"), """
class StackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.items = list(range(5))
    def setUp(self):
        self.stack = Stack()
        for item in self.items: self.stack.push(item)
    def test_order(self): self.assertEqual(list(self.stack), [4, 3, 2, 1, 0])
    def test_pop(self):
        for left in range(4, -1, -1):
            with self.subTest(left=left):
                self.assertEqual(self.stack.pop(), left); self.assertEqual(len(self.stack), left)
        self.assertRaises(IndexError, self.stack.pop)
    def test_in(self): self.assertIn(3, self.stack); self.assertNotIn(9, self.stack)
"""),
    Suite("Shop", """
from decimal import Decimal
class Shop:
    def __init__(self): self.prices = {}
    def price(self, name, price): self.prices[name] = Decimal(price)
    def total(self, cart): return sum((self.prices[n] * c for n, c in cart.items()), Decimal(0))
""", ("* c for", "for"), """
from decimal import Decimal
class ShopTest(unittest.TestCase):
    def test_total(self):
        shop = Shop()
        shop.price("tea", "0.10"); shop.price("pie", "2.25")
        self.assertEqual(shop.total({"tea": 3, "pie": 2}), Decimal("4.80"))
        self.assertEqual(shop.total({}), 0)
        with self.assertRaises(KeyError): shop.total({"ham": 1})
"""),
    Suite("Cache", """
from collections import OrderedDict
class Cache:
    def __init__(self, size): self.size, self.items = size, OrderedDict()
    def get(self, key):
        if key not in self.items: return None
        self.items.move_to_end(key)
        return self.items[key]
    def put(self, key, value):
        self.items[key] = value
        self.items.move_to_end(key)
        if len(self.items) > self.size: self.items.popitem(last=False)
""", ("last=False", "last=True"), """
class CacheTest(unittest.TestCase):
    def test_the_oldest_goes(self):
        cache = Cache(2)
        cache.put("a", 1); cache.put("b", 2); cache.get("a"); cache.put("c", 3)
        self.assertIsNone(cache.get("b"))
        self.assertEqual((cache.get("a"), cache.get("c")), (1, 3))
"""),
    Suite("Logger", """
import logging
class Audit:
    def __init__(self): self.log = logging.getLogger("audit")
    def act(self, who, what):
        if what == "delete": self.log.warning("%s: %s", who, what)
        else: self.log.info("%s: %s", who, what)
""", ("self.log.warning", "self.log.info"), """
class AuditTest(unittest.TestCase):
    def test_logs(self):
        with self.assertLogs("audit", "INFO") as found: Audit().act("ann", "read")
        self.assertEqual(found.output, ["INFO:audit:ann: read"])
        with self.assertLogs("audit", "WARNING"): Audit().act("ann", "delete")
"""),
    Suite("Greeter", """
import sys
class Greeter:
    def ask(self): return self.greet(input("name? "))
    def greet(self, name): print(f"hello {name}"); return len(name)
""", ("hello {name}", "hi {name}"), """
import contextlib, io
from unittest import mock
class GreeterTest(unittest.TestCase):
    def test_output(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out): self.assertEqual(Greeter().greet("bob"), 3)
        self.assertEqual(out.getvalue(), "hello bob\\n")
    @mock.patch("builtins.input", return_value="ann")
    @mock.patch("builtins.print")
    def test_ask(self, printed, asked):
        self.assertEqual(Greeter().ask(), 3)
        printed.assert_called_once_with("hello ann"); asked.assert_called_once()
"""),
    Suite("Clock", """
import time
class Clock:
    def __init__(self): self.begun = time.time()
    def elapsed(self): return time.time() - self.begun
    def wait(self, seconds): time.sleep(seconds); return True
""", ("- self.begun", ""), """
from unittest.mock import patch
class ClockTest(unittest.TestCase):
    def test_elapsed(self):
        with patch("time.time", side_effect=[100.0, 103.5]): self.assertEqual(Clock().elapsed(), 3.5)
    def test_wait(self):
        with patch("time.sleep") as sleep: self.assertTrue(Clock().wait(999))
        sleep.assert_called_with(999)
"""),
    Suite("Shape", """
from abc import ABC, abstractmethod
import math
class Shape(ABC):
    @abstractmethod
    def area(self): ...
    def describe(self): return f"{type(self).__name__} of {self.area():.2f}"
class Circle(Shape):
    def __init__(self, r): self.r = r
    def area(self): return math.pi * self.r ** 2
""", ("self.r ** 2", "self.r * 2"), """
class Square(Shape):
    def __init__(self, side): self.side = side
    def area(self): return self.side ** 2
class ShapeTest(unittest.TestCase):
    def test_abstract(self):
        with self.assertRaises(TypeError): Shape()
    def test_own(self): self.assertEqual(Square(3).describe(), "Square of 9.00")
    def test_circle(self): self.assertAlmostEqual(Circle(3).area(), 28.274333, places=5)
"""),
    Suite("Fetcher", """
import asyncio
class Fetcher:
    def __init__(self, get): self.get = get
    async def all(self, names):
        return dict(zip(names, await asyncio.gather(*(self.get(name) for name in names))))
""", ("zip(names,", "zip(reversed(names),"), """
import asyncio
from unittest.mock import AsyncMock
class FetcherTest(unittest.IsolatedAsyncioTestCase):
    async def test_all(self):
        async def get(name):
            await asyncio.sleep(0)
            return name.upper()
        self.assertEqual(await Fetcher(get).all(["a", "b"]), {"a": "A", "b": "B"})
    async def test_mock(self):
        get = AsyncMock(return_value=1)
        self.assertEqual(await Fetcher(get).all(["x"]), {"x": 1})
        get.assert_awaited_once_with("x")
"""),
    Suite("Permission", """
import enum
from dataclasses import dataclass, field
class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
@dataclass
class User:
    name: str
    rights: Right = Right.READ
    tags: list = field(default_factory=list)
    def may(self, right): return right in self.rights
    def grant(self, right): self.rights |= right
""", ("self.rights |= right", "self.rights = right"), """
class UserTest(unittest.TestCase):
    def test_rights(self):
        user = User("ann")
        self.assertFalse(user.may(Right.WRITE))
        user.grant(Right.WRITE)
        self.assertTrue(user.may(Right.WRITE) and user.may(Right.READ))
    def test_values(self):
        self.assertEqual(User("a"), User("a", Right.READ, []))
        self.assertIsNot(User("a").tags, User("a").tags)
        self.assertIn("name='a'", repr(User("a")))
"""),
    Suite("Words", """
import re
from collections import Counter
class Words:
    def __init__(self, text): self.counts = Counter(re.findall(r"[a-z']+", text.lower()))
    def top(self, n): return [w for w, _ in sorted(self.counts.items(), key=lambda p: (-p[1], p[0]))[:n]]
    def __getitem__(self, word): return self.counts[word]
""", ("text.lower()", "text"), """
class WordsTest(unittest.TestCase):
    text = "The cat and the hat. A cat, THE cat's"
    def test_counts(self):
        words = Words(self.text)
        self.assertDictEqual(dict(words.counts), {"the": 3, "cat": 2, "and": 1, "hat": 1, "a": 1, "cat's": 1})
        self.assertEqual(words["dog"], 0)
    def test_top(self): self.assertSequenceEqual(Words(self.text).top(3), ["the", "cat", "a"])
"""),
    Suite("Tree", """
class Node:
    def __init__(self, value): self.value, self.left, self.right = value, None, None
class Tree:
    def __init__(self): self.root = None
    def add(self, value):
        if self.root is None: self.root = Node(value); return
        node = self.root
        while True:
            side = "left" if value < node.value else "right"
            if getattr(node, side) is None: setattr(node, side, Node(value)); return
            node = getattr(node, side)
    def __iter__(self):
        def walk(node):
            if node: yield from walk(node.left); yield node.value; yield from walk(node.right)
        return walk(self.root)
    def depth(self):
        def deep(node): return 0 if node is None else 1 + max(deep(node.left), deep(node.right))
        return deep(self.root)
""", ("1 + max(", "1 + min("), """
import random
class TreeTest(unittest.TestCase):
    def test_sorted(self):
        values, tree = random.Random(3).sample(range(1000), 100), Tree()
        for value in values: tree.add(value)
        self.assertEqual(list(tree), sorted(values))
        self.assertIsInstance(tree.root, Node)
    def test_depth(self):
        tree = Tree()
        self.assertEqual(tree.depth(), 0)
        for value in (2, 1, 3, 4): tree.add(value)
        self.assertEqual(tree.depth(), 3)
"""),
    Suite("Matrix", """
import copy
class Matrix:
    def __init__(self, rows): self.rows = copy.deepcopy(rows)
    def __matmul__(self, other):
        turned = list(zip(*other.rows))
        return Matrix([[sum(a * b for a, b in zip(row, col)) for col in turned] for row in self.rows])
    def __getitem__(self, at): return self.rows[at[0]][at[1]]
    def __setitem__(self, at, value): self.rows[at[0]][at[1]] = value
    @property
    def T(self): return Matrix([list(col) for col in zip(*self.rows)])
    @classmethod
    def unit(cls, n): return cls([[int(i == j) for j in range(n)] for i in range(n)])
""", ("copy.deepcopy(rows)", "rows"), """
import pickle
class MatrixTest(unittest.TestCase):
    def setUp(self): self.rows = [[1, 2], [3, 4]]
    def test_product(self):
        self.assertEqual((Matrix(self.rows) @ Matrix.unit(2)).rows, self.rows)
        self.assertEqual((Matrix(self.rows) @ Matrix(self.rows)).rows, [[7, 10], [15, 22]])
    def test_own_rows(self):
        matrix = Matrix(self.rows)
        matrix[0, 1] = 9
        self.assertEqual((matrix[0, 1], self.rows[0][1], matrix.T[1, 0]), (9, 2, 9))
    def test_pickle(self): self.assertEqual(pickle.loads(pickle.dumps(Matrix(self.rows))).rows, self.rows)
"""),
)  # fmt: skip
