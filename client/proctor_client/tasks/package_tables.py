"""Adds columns to rows from the packages and folders where data sets keep commands and parsers.

    python package_tables.py FORM ROWS ADDED [FOLDER]

A program of its own: it runs in the interpreter that has the package, and imports the standard library
and that package alone. ROWS are JSON lines. ADDED gets a line for each: an object with the new columns,
or `{"left_out": reason}`. Status 3: the package is missing; its name is the last line of stderr.

| form | place | columns |
|---|---|---|
| `swe_bench`, `swe_gym` | the package `swebench` 4, or a fork | `eval_script`, `log_parser`, `eval_type` |
| `swe_smith` | the package `swesmith` | `test_cmd`, `log_parser`, `timeout` |
| `multi_swe` | the package `multi_swe_bench` | `test_cmd` |
| `swe_rebench` | FOLDER: a copy of SWE-rebench-V2 | |
| `swe_pro` | FOLDER: a copy of SWE-bench_Pro-os | `run_script`, `env` |

Each also adds `parser_source`: Python with a function `proctor_parse(log)`; for `swe_pro` a program.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import enum
import importlib
import inspect
import io
import json
import re
import shlex
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ColumnsOf = Callable[[Row], Row]

MISSING = 3
PARSE = "proctor_parse"
"""Name of the function of a source; no package has it."""
_PROFILES = (
    ("python", "PythonProfile", "pytest"),
    ("golang", "GoProfile", "gotest"),
    ("rust", "RustProfile", "cargo"),
)
"""Modules and classes of swesmith whose parser is that of a runner."""
_EXCLUDED = frozenset(["TestSpec", "TestResult"])
_RESULT = """
class TestResult:
    def __init__(self, **fields):
        self.__dict__.update(fields)
"""
_ENV = re.compile(r"ENV\s+([A-Za-z_][A-Za-z0-9_]*)(?:=|\s+)(.*)")
"""A line of a Dockerfile: `ENV NODE_ENV=test`."""


class LeftOut(Exception):
    """Raised for a row without the data for its columns; the message names the missing part."""


def main(arguments: Sequence[str]) -> int:
    """Write the added columns of each row."""
    form, rows, added = arguments[:3]
    folder = Path(arguments[3]) if len(arguments) > 3 else None
    try:
        columns_of = TABLES[form](folder)
    except ImportError as error:
        print(getattr(error, "name", None) or error, file=sys.stderr)
        return MISSING
    with (
        Path(rows).open(encoding="utf-8") as lines,
        Path(added).open("w", encoding="utf-8") as output,
    ):
        for line in lines:
            output.write(json.dumps(_added(columns_of, json.loads(line))) + "\n")
    return 0


def _added(columns_of: ColumnsOf, row: Row) -> Row:
    try:
        return columns_of(row)
    except LeftOut as error:
        return {"left_out": str(error)}
    except Exception as error:  # any error of a package's code is one row's
        return {"left_out": f"{type(error).__name__}: {error}"[:500]}


# ---------------------------------------------------------------- packages


def swe_bench(_: Path | None) -> ColumnsOf:
    """Return a function for reading the tables of swebench 4."""
    constants = importlib.import_module("swebench.harness.constants")
    scripts = importlib.import_module("swebench.harness.test_spec.create_scripts")
    package = importlib.import_module("swebench.harness.log_parsers")
    modules = [each for each in vars(package).values() if isinstance(each, types.ModuleType)]
    parsers = package.MAP_REPO_TO_PARSER
    specs = constants.MAP_REPO_VERSION_TO_SPECS
    names = {name.lower(): name for name in specs}

    def columns_of(row: Row) -> Row:
        if row.get("eval_script"):
            return {"parser_source": _source_of_parser(modules, str(row.get("log_parser")))}
        name = names.get(str(row.get("repo")).lower())
        if name is None:
            raise LeftOut(f"repo: {row.get('repo')!r} is not in the package")
        version = str(row.get("version"))
        if version not in specs[name]:
            raise LeftOut(f"version: {version!r} of {name} is not in the package")
        row = {**row, "repo": name, "version": version}
        script = scripts.make_eval_script_list(
            *(
                row,
                specs[name][version],
                "testbed",
                "/testbed",
                row["base_commit"],
                row["test_patch"],
            )
        )
        parser = parsers[name]
        is_fail_only = name in getattr(constants, "FAIL_ONLY_REPOS", ())
        return {
            "eval_script": "\n".join(["#!/bin/bash", "set -uxo pipefail", *script]) + "\n",
            "log_parser": parser.__name__,
            "eval_type": "fail_only" if is_fail_only else "pass_and_fail",
            "parser_source": source_of(parser, "lambda log: {name}(log, None)"),
        }

    return columns_of


def _source_of_parser(modules: Sequence[types.ModuleType], name: str) -> str:
    """Return the source of the parser with this name. Raises LeftOut."""
    found = next((vars(each)[name] for each in modules if name in vars(each)), None)
    if not isinstance(found, types.FunctionType):
        raise LeftOut(f"log_parser: {name!r} is not in the package")
    return source_of(found, "lambda log: {name}(log, None)")


def swe_smith(_: Path | None) -> ColumnsOf:
    """Return a function for reading the profiles of swesmith."""
    registry = importlib.import_module("swesmith.profiles").registry
    parsers = {}
    for module, profile_name, name in _PROFILES:
        with contextlib.suppress(ImportError, AttributeError):
            base = getattr(importlib.import_module(f"swesmith.profiles.{module}"), profile_name)
            parsers[base.log_parser] = name
    found: dict[str, Row] = {}

    def columns_of(row: Row) -> Row:
        key = str(row.get("repo") or str(row.get("instance_id")).rpartition(".")[0])
        if key in found:
            return found[key]
        try:
            profile = registry.get(key)
        except KeyError:
            raise LeftOut(f"repo: {key!r} has no profile in the package") from None
        parser = type(profile).log_parser
        found[key] = {
            "test_cmd": profile.test_cmd,
            "timeout": max(profile.timeout, profile.timeout_ref),
            "log_parser": parsers.get(parser, "of_profile"),
            "parser_source": source_of(parser, "{self}.log_parser", profile),
        }
        return found[key]

    return columns_of


def multi_swe(_: Path | None) -> ColumnsOf:
    """Return a function for reading the classes of multi_swe_bench."""
    importlib.import_module("multi_swe_bench.harness.repos")
    instances = importlib.import_module("multi_swe_bench.harness.instance").Instance
    requests = importlib.import_module("multi_swe_bench.harness.pull_request")
    images = importlib.import_module("multi_swe_bench.harness.image")

    def columns_of(row: Row) -> Row:
        base = row["base"] if isinstance(row.get("base"), dict) else {}
        texts = {name: str(row.get(name) or "") for name in ("tag", "number_interval", "lang")}
        request = requests.PullRequest(
            org=row["org"],
            repo=row["repo"],
            number=int(row["number"]),
            state="",
            title="",
            body=None,
            base=requests.Base(*(str(base.get(each) or "") for each in ("label", "ref", "sha"))),
            resolved_issues=[],
            fix_patch="",
            test_patch="",
            **texts,
        )
        try:
            instance = instances.create(request, images.Config(False, None, False))
        except ValueError as error:
            raise LeftOut(f"org, repo: {error}") from None
        merged = (
            "lambda log: (lambda found: {{**dict.fromkeys(found.passed_tests, 'PASSED'), "
            "**dict.fromkeys(found.skipped_tests, 'SKIPPED'), "
            "**dict.fromkeys(found.failed_tests, 'FAILED')}})({self}.parse_log(log))"
        )
        return {
            "test_cmd": instance.fix_patch_run(),
            "parser_source": source_of(type(instance).parse_log, merged, instance),
        }

    return columns_of


def swe_rebench(folder: Path | None) -> ColumnsOf:
    """Return a function for reading the parsers of a copy of SWE-rebench-V2."""
    if folder is None:
        raise ImportError("--folder with a copy of SWE-rebench-V2")
    sys.path[:0] = [str(folder), str(folder / "lib")]
    parsers = importlib.import_module("agent.log_parsers")
    by_name = getattr(parsers, "NAME_TO_PARSER", {})

    def columns_of(row: Row) -> Row:
        config = row.get("install_config")
        config = json.loads(config) if isinstance(config, str) else config or {}
        name = str(config.get("log_parser") or "parse_log_pytest")
        parser = by_name.get(name) or getattr(parsers, name, None)
        if parser is None:
            raise LeftOut(f"install_config.log_parser: {name!r} is not in the folder")
        return {"parser_source": source_of(parser, "{name}")}

    return columns_of


def swe_pro(folder: Path | None) -> ColumnsOf:
    """Return a function for reading the scripts of a copy of SWE-bench_Pro-os."""
    if folder is None or not (folder / "run_scripts").is_dir():
        raise ImportError("--folder with a copy of SWE-bench_Pro-os")

    def columns_of(row: Row) -> Row:
        name = str(row.get("instance_id"))
        scripts = folder / "run_scripts" / name
        if "/" in name or not (scripts / "run_script.sh").is_file():
            raise LeftOut(f"instance_id: {name!r} has no folder of scripts")
        env: dict[str, str] = {}
        for layer in ("base_dockerfile", "instance_dockerfile"):
            place = folder / "dockerfiles" / layer / name / "Dockerfile"
            text = place.read_text(encoding="utf-8") if place.is_file() else ""
            for line in text.splitlines():
                _add_variables(env, line.strip())
        return {
            "run_script": (scripts / "run_script.sh").read_text(encoding="utf-8"),
            "parser_source": (scripts / "parser.py").read_text(encoding="utf-8"),
            "env": env,
        }

    return columns_of


def _add_variables(env: dict[str, str], line: str) -> None:
    """Add the variables of a line `ENV A=1 B=2` or `ENV A 1`; variables made of others are left out."""
    found = _ENV.fullmatch(line)
    if found is None:
        return
    pairs = [(found[1], found[2].strip())]
    if "=" in line.split(None, 2)[1]:
        pairs = [each.partition("=")[::2] for each in shlex.split(line[3:].strip())]
    env.update({name: value for name, value in pairs if "$" not in value and name.isidentifier()})


# ---------------------------------------------------------------- sources


def source_of(function: types.FunctionType, made: str, instance: object = None) -> str:
    """Return Python with `proctor_parse(log)`: a function, with everything used from its package.

    `made`: the expression of `proctor_parse`; `{name}` is the function, `{self}` an object with the methods
    and plain values of the function's own object.
    """
    parts = _Parts()
    name = function.__name__
    own = "proctor_profile"
    if instance is None:
        parts.add(name, function)
    else:
        parts.add_object(own, instance, name)
    lines = ["from __future__ import annotations", *sorted(parts.imports), *parts.sources.values()]
    source = "\n".join([*lines, f"{PARSE} = {made.format(name=name, self=own)}", ""])
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, "parser.py", "exec", dont_inherit=True), {"__name__": "parser"})
    except Exception as error:
        raise LeftOut(f"the parser cannot be taken out of its package: {error}") from None
    return source


class _Parts:
    """Sources of functions, classes and values by name, in the order of their need."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.sources: dict[str, str] = {}
        self._seen: set[str] = set()

    def add(self, name: str, value: Any) -> None:
        """Add a value under its name, after the values used by the value. Raises LeftOut."""
        if name in self._seen or hasattr(builtins, name):
            return
        self._seen.add(name)
        if name in _EXCLUDED:
            self.sources[name] = _RESULT if name == "TestResult" else ""
        elif isinstance(value, types.ModuleType):
            self._add_module(name, value)
        elif isinstance(value, (types.FunctionType, type)) and _is_standard(value):
            self.imports.add(f"from {value.__module__} import {value.__name__} as {name}")
        elif isinstance(value, types.FunctionType):
            source = self._source(value)
            self._add_names(source, value.__globals__)
            renamed = "" if value.__name__ == name else f"\n{name} = {value.__name__}"
            self.sources[name] = source + renamed
        elif isinstance(value, type) and issubclass(value, enum.Enum):
            members = {each.name: each.value for each in value}
            self.imports.add("import enum")
            self.sources[name] = f"{name} = enum.Enum({name!r}, {members!r})"
        else:
            self.sources[name] = f"{name} = {self._value(name, value)}"

    def add_object(self, name: str, instance: object, method: str) -> None:
        """Add an object with a method, and with the methods and values used by the method."""
        methods: dict[str, str] = {}
        values: dict[str, str] = {}
        wanted = [method]
        while wanted:
            each = wanted.pop()
            if each in methods or each in values:
                continue
            found = inspect.getattr_static(type(instance), each, None)
            function = getattr(found, "__func__", found)
            if isinstance(function, types.FunctionType):
                source = self._source(function)
                self._add_names(source, function.__globals__)
                methods[each] = source
                wanted += _attributes_of_self(source)
            else:
                values[each] = self._value(each, getattr(instance, each, None))
        body = "\n".join(
            [f"{key} = {value}" for key, value in values.items()] + [*methods.values()]
        )
        self.sources[name] = f"class _Self:\n{textwrap.indent(body, '    ')}\n\n{name} = _Self()"

    def _source(self, function: types.FunctionType) -> str:
        try:
            return textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            raise LeftOut(f"the source of {function!r} is missing") from None

    def _add_names(self, source: str, names: Mapping[str, Any]) -> None:
        tree = ast.parse(source)
        for definition in ast.walk(tree):
            if isinstance(definition, (ast.FunctionDef, ast.ClassDef)):
                definition.decorator_list = [
                    each
                    for each in definition.decorator_list
                    if ast.unparse(each) == "staticmethod"
                ]
            if isinstance(definition, ast.FunctionDef):
                definition.returns = None
            if isinstance(definition, (ast.arg, ast.AnnAssign)):
                definition.annotation = ast.Constant(None)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in names:
                self.add(node.id, names[node.id])

    def _add_module(self, name: str, module: types.ModuleType) -> None:
        if module.__name__.partition(".")[0] not in sys.stdlib_module_names:
            raise LeftOut(f"the parser needs the module {module.__name__}")
        self.imports.add(f"import {module.__name__} as {name}")

    def _value(self, name: str, value: Any) -> str:
        if isinstance(value, re.Pattern):
            self.imports.add("import re")
            return f"re.compile({value.pattern!r}, {value.flags})"
        if isinstance(value, enum.Enum):
            return repr(value.value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            self.imports.add("import types")
            fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            texts = {key: each for key, each in fields.items() if isinstance(each, (str, int))}
            return f"types.SimpleNamespace(**{texts!r})"
        if isinstance(value, (list, tuple)) and any(isinstance(each, re.Pattern) for each in value):
            return f"[{', '.join(self._value(name, each) for each in value)}]"
        try:
            if ast.literal_eval(repr(value)) == value:
                return repr(value)
        except (ValueError, SyntaxError):
            pass
        raise LeftOut(f"the parser needs {name}, which is no plain value")


def _is_standard(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in sys.stdlib_module_names


def _attributes_of_self(source: str) -> list[str]:
    return [
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ]


TABLES: Mapping[str, Callable[[Path | None], ColumnsOf]] = {
    "swe_bench": swe_bench,
    "swe_gym": swe_bench,
    "swe_smith": swe_smith,
    "multi_swe": multi_swe,
    "swe_rebench": swe_rebench,
    "swe_pro": swe_pro,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
