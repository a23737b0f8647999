<?php
// Includes setup, completion and tests in the global scope; descriptor 3 holds the word that proves the end.
function PROCTOR_NAME(): void
{
    static $word = null, $tests = null;
    $end = fopen("php://fd/3", "r+");
    if ($word === null) {
        [$word, $tests] = [fread($end, 64), file_get_contents(__DIR__ . "/tests.php")];
        ftruncate($end, 0);
    } elseif ($tests !== null) {
        file_put_contents(__DIR__ . "/tests.php", $tests);
        $tests = null;
    } else {
        rewind($end);
        fwrite($end, "$word\n");
    }
}

PROCTOR_NAME();
require "setup.php";
require "solution.php";
PROCTOR_NAME();
require "tests.php";
PROCTOR_NAME();
