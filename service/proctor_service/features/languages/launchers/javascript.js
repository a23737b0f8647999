// Runs setup, completion and tests as scripts that share one global scope; each is parsed by itself.
// Descriptor 3 holds the word that proves the end: nothing is left to do, and a promise at the end of the tests is kept.
"use strict";
const fs = require("fs");
const vm = require("vm");
const path = require("path");
const END = "/proc/self/fd/3";
const word = fs.readFileSync(END);
fs.truncateSync(END, 0);
const { writeFileSync } = fs;
const [setup, solution, tests] = ["setup.js", "solution.js", "tests.js"].map((name) => [fs.readFileSync(name, "utf8"), name]);
const file = path.resolve("solution.js");
const made = new module.constructor(file, null);
made.filename = file;
made.paths = module.paths;
const given = { module: made, exports: made.exports, require: require("module").createRequire(file), __filename: file,
                __dirname: path.dirname(file) };
Object.assign(globalThis, given);

/** Return the last value of the tests, which run in a block where they declare a name of the completion again. */
function lastValue([text, name], run) {
  try {
    return run(text, name);
  } catch (error) {
    if (!(error instanceof SyntaxError) || !`${error.message}`.endsWith("has already been declared")) throw error;
    return run(`{${text}\n}`, name);
  }
}

let isEnd = false;
process.on("beforeExit", () => {
  if (isEnd) writeFileSync(END, `${word}\n`);
});
const { runInThisContext } = vm;
runInThisContext(...setup);
runInThisContext(...solution);
const last = lastValue(tests, runInThisContext);
(async () => {
  await last;
  isEnd = true;
})();
