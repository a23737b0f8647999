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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BRACKETS = _words("( ) [ ] { } , -")
_JAVASCRIPT = Grammar(
    literals={
        "number": "float", "string": "string", "true": "boolean", "false": "boolean", "null": "null",
        "undefined": "null",
    },
    words=_BRACKETS | _words(": new Map Set"),
    transparent=_words("property_identifier"),
    compares=dict.fromkeys(
        _words(
            "assert.strictEqual assert.deepStrictEqual assert.equal assert.deepEqual expect.toBe"
            " expect.toEqual expect.toStrictEqual expect.toBeCloseTo"
        )
    ),
    holds=_words("assert assert.ok"),
    equals=frozenset(),
    fails=_words("throw"),
    absolute=_words("Math.abs"),
    functions=_words(
        "arrow_function function_declaration function_expression generator_function class"
        " generator_function_declaration class_declaration method_definition"
    ),
    leaves=_words("return_statement yield_expression labeled_statement"),
    doubtful=_words(
        "only skip todo failing xit xtest fit xdescribe fdescribe concurrent retryTimes extend eval Proxy"
        " addEqualityTesters useFakeTimers uncaughtException unhandledRejection __filename readFileSync exit"
        " setUncaughtExceptionCaptureCallback toString reallyExit abort"
    ),
    is_narrow=False,
)  # fmt: skip
_JAVA = Grammar(
    literals={
        "decimal_integer_literal": "integer", "decimal_floating_point_literal": "float",
        "string_literal": "string", "character_literal": "bytes", "true": "boolean", "false": "boolean",
    },
    words=_BRACKETS
    | _words(". new [] null null_literal List Set Map Arrays Optional Integer Long of asList valueOf"),
    transparent=_words("integral_type floating_point_type boolean_type dimensions"),
    compares=MappingProxyType(
        {
            f"{owner}{name}": 2
            for owner in ("", "Assertions.")
            for name in ("assertEquals", "assertArrayEquals", "assertIterableEquals")
        }
    ),
    holds=_words("assertTrue Assertions.assertTrue"),
    equals=_words(".equals Objects.equals Arrays.equals"),
    fails=_words("throw fail Assertions.fail"),
    absolute=_words("Math.abs"),
    functions=_words("lambda_expression class_body method_declaration record_declaration"),
    leaves=_words("return_statement labeled_statement"),
    doubtful=_words(
        "Disabled ExtendWith RegisterExtension Assumptions assumeTrue assumeFalse assumingThat halt exit"
        " TestAbortedException setDefaultUncaughtExceptionHandler DisabledIf EnabledIf DisabledOnOs"
        " EnabledOnOs EnabledOnJre StackWalker getResource getResourceAsStream"
    ),
)  # fmt: skip
_GO = Grammar(
    literals={
        "int_literal": "integer", "float_literal": "float", "interpreted_string_literal": "string",
        "rune_literal": "bytes", "true": "boolean", "false": "boolean",
    },
    words=_BRACKETS | _words(": nil"),
    transparent=_words("slice_type array_type map_type type_identifier qualified_type"),
    compares={},
    holds=frozenset(),
    equals=_words("reflect.DeepEqual slices.Equal maps.Equal"),
    fails=_words(
        "panic os.Exit log.Fatal log.Fatalf log.Fatalln log.Panic t.Error t.Errorf t.Fatal t.Fatalf t.Fail"
        " t.FailNow"
    ),
    absolute=_words("math.Abs"),
    functions=_words("func_literal"),
    leaves=_words("return_statement goto_statement labeled_statement"),
    doubtful=_words("Skip Skipf SkipNow Short Skipped recover Goexit embed TestMain"),
)  # fmt: skip
_RUST = Grammar(
    literals={
        "integer_literal": "integer", "float_literal": "float", "string_literal": "string",
        "char_literal": "bytes", "boolean_literal": "boolean",
    },
    words=_BRACKETS | _words("! :: . & vec Some Ok Err None String from to_string to_owned into"),
    compares={"assert_eq!": None, "debug_assert_eq!": None},
    holds=_words("assert! debug_assert!"),
    equals=frozenset(),
    fails=_words("panic!"),
    functions=_words("closure_expression function_item impl_item async_block"),
    leaves=_words("return_expression return"),
    doubtful=_words(
        "catch_unwind set_hook macro_rules PartialEq include_str exit abort cfg_attr debug_assertions"
    ),
)  # fmt: skip
GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {"javascript": _JAVASCRIPT, "typescript": _JAVASCRIPT, "java": _JAVA, "go": _GO, "rust": _RUST}
)
"""Languages with honest suites against false flags; the rest lack clear expectations."""
