<?php
// Includes setup, completion and tests in the global scope; descriptor 3 holds the word that proves the end.
function PROCTOR_NAME(): void
{
    static $word = null;
    $end = fopen("php://fd/3", "r+");
    if ($word === null) {
        $word = fread($end, 64);
        ftruncate($end, 0);
    } elseif (ini_get("zend.assertions") === "1" && ini_get("assert.exception") === "1") {
        rewind($end);
        fwrite($end, "$word\n");
    }
}
ini_set("zend.assertions", "1");
ini_set("assert.exception", "1");
PROCTOR_NAME();
require "setup.php";
require "solution.php";
ini_set("zend.assertions", "1");
ini_set("assert.exception", "1");
require "tests.php";
PROCTOR_NAME();
