<?php
// Evaluates setup, completion and tests in the global scope; descriptor 3 holds the word that proves the end.
// The completion can change how `assert` works, so setup and tests call another function in its place.
function PROCTOR_NAME(): void
{
    static $word = null;
    $calls = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS);
    if (count($calls) !== 1 || $calls[0]["file"] !== __FILE__) {
        return; // the completion has called it
    }
    $end = fopen("php://fd/3", "r+");
    if ($word === null) {
        $word = fread($end, 64);
        ftruncate($end, 0);
    } elseif (ini_get("zend.assertions") === "1" && ini_get("assert.exception") === "1") {
        rewind($end);
        fwrite($end, "$word\n");
    }
}

/** @throws Throwable if the assertion is false, with PHP 8's default settings. */
function PROCTOR_NAME_assert(mixed $assertion, Throwable|string|null $description = null): bool
{
    if ($assertion) {
        return true;
    }
    throw $description instanceof Throwable ? $description : new AssertionError($description ?? "assert(false)");
}

/** Return the code for `eval` of a file, with the function above in place of `assert`, but for strings and comments. */
function PROCTOR_NAME_code(string $file): string
{
    static $known = []; // of before the completion, which could change the file
    if (isset($known[$file])) {
        return $known[$file];
    }
    $text = file_get_contents($file);
    $text = preg_match('/^<\?php\s/i', $text) ? substr($text, 5) : "?>$text";
    $skipped = '"(?:[^"\\\\]++|\\\\.)*+"|\'(?:[^\'\\\\]++|\\\\.)*+\'|(?://|#(?!\[))[^\n]*+|/\*.*?\*/'
        . '|<<<[ \t]*+(["\']?)(\w++)\1\n.*?\n[ \t]*+\2\b|\bfunction\s++&?\s*+assert\b|(?:->|::)\s*+assert\b';
    $named = '(?<![\w\\\\$])\\\\?assert(?=\s*+\()';
    $code = preg_replace("~(?:$skipped)(*SKIP)(*FAIL)|$named~is", '\PROCTOR_NAME_assert', $text);
    return $known[$file] = $code ?? throw new Error(preg_last_error_msg());
}

ini_set("zend.assertions", "1");
ini_set("assert.exception", "1");
PROCTOR_NAME();
PROCTOR_NAME_code("tests.php");
eval(PROCTOR_NAME_code("setup.php"));
require "solution.php";
ini_set("zend.assertions", "1");
ini_set("assert.active", "1");
ini_set("assert.callback", "");
ini_set("assert.exception", "1");
eval(PROCTOR_NAME_code("tests.php"));
PROCTOR_NAME();
