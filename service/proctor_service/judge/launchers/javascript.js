// Runs setup, completion and tests as scripts that share one global scope; each is parsed by itself.
// Descriptor 3 holds the word that proves the end. Built-in functions are locked before the completion runs, but for those
// that setup or tests replace themselves, such as `Math.random`. The console decides nothing and may be replaced.
"use strict";
const fs = require("fs");
const vm = require("vm");
const path = require("path");
const assert = require("assert");
const END = "/proc/self/fd/3";
const word = fs.readFileSync(END);
fs.truncateSync(END, 0);
const { writeFileSync } = fs;
const { reallyExit } = process;
const print = console.error;
const run = vm.runInThisContext;
const sources = ["setup.js", "solution.js", "tests.js"].map((name) => [name, fs.readFileSync(name, "utf8")]);

const replaced = new Set();
const REPLACES = /(?<![\w$.])([\w$.]+?)\s*(?:\.\s*([\w$]+)\s*=(?![=>])|,\s*(["'`])([\w$]+)\3)/g;
for (const [, owner, name, , quoted] of `${sources[0][1]}\n${sources[2][1]}`.matchAll(REPLACES))
  replaced.add(`${owner.replace(/^global(This)?\.?/, "")}.${name ?? quoted}`);

function lock(owner, path) {
  for (const key of Reflect.ownKeys(owner)) {
    const found = Reflect.getOwnPropertyDescriptor(owner, key);
    const isFree = typeof key === "string" && replaced.has(`${path}.${key}`);
    if (found.configurable && "value" in found && key !== "prototype" && !isFree)
      Reflect.defineProperty(owner, key, { writable: false, configurable: false });
  }
}

for (const name of ["Object", "Array", "String", "Number", "Boolean", "Map", "Set", "JSON", "Math", "Reflect",
                    "Promise", "Symbol", "Error"]) {
  if (replaced.has(`.${name}`)) continue;
  lock(globalThis[name], name);
  Reflect.defineProperty(globalThis, name, { value: globalThis[name], writable: false, configurable: false });
}
for (const name of ["Array", "String", "Number", "Map", "Set", "Promise"])
  lock(globalThis[name].prototype, `${name}.prototype`);
for (const owner of [assert, assert.strict, require("util").types]) lock(owner);
lock(require("util"));

const file = path.resolve("solution.js");
const made = new module.constructor(file, null);
made.filename = file;
made.paths = module.paths;
const given = { module: made, exports: made.exports, require: require("module").createRequire(file), __filename: file,
                __dirname: path.dirname(file) };
Object.assign(globalThis, given);

// An error that the completion would swallow ends the program.
let isFailed = false;
function fail(error) {
  isFailed = true;
  print(error);
  Reflect.apply(reallyExit, process, [1]);
}
const failing = ["uncaughtException", "unhandledRejection"];
for (const event of failing) process.on(event, fail);
const { listeners, hasUncaughtExceptionCaptureCallback } = process;
const isWatching = () =>
  failing.every((event) => Reflect.apply(listeners, process, [event]).includes(fail)) &&
  !hasUncaughtExceptionCaptureCallback();

(async () => {
  const [setup, solution, tests] = sources;
  run(setup[1], { filename: setup[0] });
  run(solution[1], { filename: solution[0] });
  for (const name of ["require", "module", "exports"])
    if (globalThis[name] !== given[name]) globalThis[name] = given[name];
  // A block, so that the tests may declare names that the completion has, too.
  await run(`{${tests[1]}\n}`, { filename: tests[0] });
  process.on("beforeExit", () => {
    if (!isFailed && isWatching()) writeFileSync(END, `${word}\n`);
  });
})().catch(fail);
