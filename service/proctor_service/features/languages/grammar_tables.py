"""Tables of each language with a grammar, for the control: literals, assertions, doubtful words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from proctor_service.judge.control.expectations import Kind


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language by the node types of its tree-sitter grammar.

    `literals`: kind of each node type of a scalar. `transparent`: node types of types and of field
    names in a literal. `words`: texts of other leaves in a literal: brackets, constructors.

    `compares`: calls with a comparison of their first two arguments, with the place of an absolute tolerance
    or None. `holds`: calls with a condition as first argument. `equals`: calls, true for equal
    arguments, or methods, true for an equal argument (`.equals`). `fails`: failures of a
    test, in the body of an `if`. `absolute`: calls of the absolute value.

    `functions`: node types with statements of their own. `leaves`: node types of exits of a function.
    `doubtful`: words in tests without clear expectations. `is_narrow`: integers may have eight bits.
    """

    literals: Mapping[str, Kind]
    words: frozenset[str]
    compares: Mapping[str, int | None]
    holds: frozenset[str]
    equals: frozenset[str]
    fails: frozenset[str]
    functions: frozenset[str]
    leaves: frozenset[str]
    doubtful: frozenset[str]
    transparent: frozenset[str] = frozenset()
    absolute: frozenset[str] = frozenset()
    is_narrow: bool = True


_BRACKETS = ("(", ")", "[", "]", "{", "}", ",", "-")

_JAVASCRIPT = Grammar(
    literals={
        "number": "float",
        "string": "string",
        "true": "boolean",
        "false": "boolean",
        "null": "null",
        "undefined": "null",
    },
    words=frozenset((*_BRACKETS, ":", "new", "Map", "Set")),
    transparent=frozenset(["property_identifier"]),
    compares={
        f"assert.{name}": None for name in ("strictEqual", "deepStrictEqual", "equal", "deepEqual")
    }
    | {f"expect.{name}": None for name in ("toBe", "toEqual", "toStrictEqual")}
    | {"expect.toBeCloseTo": None},
    holds=frozenset(["assert", "assert.ok"]),
    equals=frozenset(),
    fails=frozenset(["throw"]),
    absolute=frozenset(["Math.abs"]),
    functions=frozenset(
        (
            *("arrow_function", "function_declaration", "function_expression"),
            *("generator_function", "generator_function_declaration", "class_declaration", "class"),
            "method_definition",
        )
    ),
    leaves=frozenset(["return_statement", "yield_expression", "labeled_statement"]),
    doubtful=frozenset(
        (
            *("only", "skip", "todo", "failing", "xit", "xtest", "fit", "xdescribe", "fdescribe"),
            *("concurrent", "retryTimes", "extend", "addEqualityTesters", "useFakeTimers", "eval"),
            *("uncaughtException", "unhandledRejection", "setUncaughtExceptionCaptureCallback"),
            *("toString", "__filename", "readFileSync", "exit", "reallyExit", "abort", "Proxy"),
        )
    ),
    is_narrow=False,
)

_JAVA = Grammar(
    literals={
        "decimal_integer_literal": "integer",
        "decimal_floating_point_literal": "float",
        "string_literal": "string",
        "character_literal": "bytes",
        "true": "boolean",
        "false": "boolean",
    },
    words=frozenset(
        (
            *_BRACKETS,
            ".",
            "new",
            "[]",
            "null",
            "null_literal",
            *(
                "List",
                "Set",
                "Map",
                "Arrays",
                "Optional",
                "Integer",
                "Long",
                "of",
                "asList",
                "valueOf",
            ),
        )
    ),
    transparent=frozenset(["integral_type", "floating_point_type", "boolean_type", "dimensions"]),
    compares=MappingProxyType(
        {
            f"{owner}{name}": 2
            for owner in ("", "Assertions.")
            for name in ("assertEquals", "assertArrayEquals", "assertIterableEquals")
        }
    ),
    holds=frozenset(["assertTrue", "Assertions.assertTrue"]),
    equals=frozenset([".equals", "Objects.equals", "Arrays.equals"]),
    fails=frozenset(["throw", "fail", "Assertions.fail"]),
    absolute=frozenset(["Math.abs"]),
    functions=frozenset(
        ["lambda_expression", "class_body", "method_declaration", "record_declaration"]
    ),
    leaves=frozenset(["return_statement", "labeled_statement"]),
    doubtful=frozenset(
        (
            *(
                "Disabled",
                "ExtendWith",
                "RegisterExtension",
                "Assumptions",
                "assumeTrue",
                "assumeFalse",
            ),
            *("assumingThat", "TestAbortedException", "setDefaultUncaughtExceptionHandler", "halt"),
            *("DisabledIf", "EnabledIf", "DisabledOnOs", "EnabledOnOs", "EnabledOnJre", "exit"),
            *("StackWalker", "getResource", "getResourceAsStream"),
        )
    ),
)

_GO = Grammar(
    literals={
        "int_literal": "integer",
        "float_literal": "float",
        "interpreted_string_literal": "string",
        "rune_literal": "bytes",
        "true": "boolean",
        "false": "boolean",
    },
    words=frozenset((*_BRACKETS, ":", "nil")),
    transparent=frozenset(
        ["slice_type", "array_type", "map_type", "type_identifier", "qualified_type"]
    ),
    compares={},
    holds=frozenset(),
    equals=frozenset(["reflect.DeepEqual", "slices.Equal", "maps.Equal"]),
    fails=frozenset(
        (
            "panic",
            "os.Exit",
            "log.Fatal",
            "log.Fatalf",
            "log.Fatalln",
            "log.Panic",
            *(f"t.{name}" for name in ("Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow")),
        )
    ),
    absolute=frozenset(["math.Abs"]),
    functions=frozenset(["func_literal"]),
    leaves=frozenset(["return_statement", "goto_statement", "labeled_statement"]),
    doubtful=frozenset(
        ("Skip", "Skipf", "SkipNow", "Short", "Skipped", "recover", "Goexit", "embed", "TestMain")
    ),
)

_RUST = Grammar(
    literals={
        "integer_literal": "integer",
        "float_literal": "float",
        "string_literal": "string",
        "char_literal": "bytes",
        "boolean_literal": "boolean",
    },
    words=frozenset(
        (
            *_BRACKETS, "!", "::", ".", "&", "vec", "Some", "Ok", "Err", "None", "String", "from",
            *("to_string", "to_owned", "into"),
        )
    ),
    compares={"assert_eq!": None, "debug_assert_eq!": None},
    holds=frozenset(["assert!", "debug_assert!"]),
    equals=frozenset(),
    fails=frozenset(["panic!"]),
    functions=frozenset(["closure_expression", "function_item", "impl_item", "async_block"]),
    leaves=frozenset(["return_expression", "return"]),
    doubtful=frozenset(
        (
            *("catch_unwind", "set_hook", "macro_rules", "PartialEq"),
            *("include_str", "exit", "abort", "cfg_attr", "debug_assertions"),
        )
    ),
)  # fmt: skip

GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {
        "javascript": _JAVASCRIPT,
        "typescript": _JAVASCRIPT,
        "java": _JAVA,
        "go": _GO,
        "rust": _RUST,
    }
)
"""Languages whose honest suites show that the control flags none; others have no clear expectations."""
