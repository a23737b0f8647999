// Runs setup, completion and tests as scripts that share one global scope; each is parsed by itself.
// Descriptor 3 holds the word that proves the end. Built-in functions are locked before the completion runs, but for those
// that setup or tests replace themselves, such as `Math.random`. Of the console only `assert` decides.
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

const replaced = new Set(PROCTOR_REPLACED);

function lock(owner, path) {
  for (const key of Reflect.ownKeys(owner)) {
    const found = Reflect.getOwnPropertyDescriptor(owner, key);
    const isFree = key === "prototype" || key === "constructor" || replaced.has(`${path}.${String(key)}`);
    if (found.configurable && "value" in found && !isFree)
      Reflect.defineProperty(owner, key, { writable: false, configurable: false });
  }
}

function lockOne(owner, key, path) {
  const isFree = replaced.has(`${path}.${key}`);
  if (!isFree) Reflect.defineProperty(owner, key, { value: owner[key], writable: false, configurable: false });
}

for (const name of ["Object", "Array", "String", "Number", "Boolean", "Map", "Set", "JSON", "Math", "Reflect",
                    "Promise", "Symbol", "Error"]) {
  if (replaced.has(`.${name}`)) continue;
  lock(globalThis[name], name);
  Reflect.defineProperty(globalThis, name, { value: globalThis[name], writable: false, configurable: false });
}
for (const name of ["Array", "String", "Number", "Boolean", "BigInt", "Map", "Set", "Promise", "RegExp", "Date"])
  lock(globalThis[name].prototype, `${name}.prototype`);
for (const owner of [assert, assert.strict, require("util").types]) lock(owner);
lock(require("util"));
const iterators = [[].values(), new Map().values(), new Set().values(), ""[Symbol.iterator](), "".matchAll(/a/g)];
for (const each of iterators) lock(Object.getPrototypeOf(each));
for (const name of ["abort", "emit", "exit", "listeners", "on", "reallyExit"]) lockOne(process, name, "process");
lockOne(console, "assert", "console");

const file = path.resolve("solution.js");
const made = new module.constructor(file, null);
made.filename = file;
made.paths = module.paths;
const given = { module: made, exports: made.exports, require: require("module").createRequire(file), __filename: file,
                __dirname: path.dirname(file) };
Object.assign(globalThis, given);

// Modules of Node that setup and tests name are those of before the completion.
const { builtinModules } = require("module");
const loaded = Object.create(null);
for (const [, , name] of `${sources[0][1]}\n${sources[2][1]}`.matchAll(/require\s*\(\s*(["'`])([\w:/]+)\1/g)) {
  if (builtinModules.includes(name.replace(/^node:/, ""))) loaded[name] = given.require(name);
}
const requireLoaded = (name) => loaded[name] ?? given.require(name);
Object.assign(requireLoaded, given.require);

// An error that the completion would swallow ends the program.
let isFailed = false;
function fail(error) {
  isFailed = true;
  print(error);
  Reflect.apply(reallyExit, process, [1]);
}
const REJECTED = "unhandledRejection";
process.on(REJECTED, fail);
process.setUncaughtExceptionCaptureCallback(fail);
Reflect.defineProperty(process, "setUncaughtExceptionCaptureCallback", { value: () => {}, writable: false });
const { listeners } = process;
const isWatching = () => Reflect.apply(listeners, process, [REJECTED]).includes(fail);

(async () => {
  const [setup, solution, tests] = sources;
  run(setup[1], { filename: setup[0] });
  run(solution[1], { filename: solution[0] });
  for (const name of ["require", "module", "exports"])
    if (globalThis[name] !== given[name]) globalThis[name] = given[name];
  // Blocks, so that the tests may declare names that the completion has, too.
  const value = () => Reflect.deleteProperty(globalThis, "PROCTOR_NAME") && requireLoaded;
  Reflect.defineProperty(globalThis, "PROCTOR_NAME", { value, configurable: true });
  await run(`{const require=PROCTOR_NAME();{${tests[1]}\n}}`, { filename: tests[0] });
  Reflect.apply(process.on, process, ["beforeExit", () => {
    if (!isFailed && !process.exitCode && isWatching()) writeFileSync(END, `${word}\n`);
  }]);
})().catch(fail);
