"use strict";
// Loaded by NODE_OPTIONS into each Node process before its program. It writes the outcomes that a test
// runner's own process knows: node:test's parent, jest's and vitest's main process, mocha.
// A line to SOCKET is {"file", "path": names from the outside, "outcome"}.
const fs = require("fs");
const Module = require("module");
const SOCKET = "@SOCKET@";
const HOLD = "@HOLD@";
const VITEST = "@VITEST@";
const { stringify } = JSON;
const { writeSync } = fs;
const { wait } = Atomics;
let socket = null;
let descriptor = -1;

function claim() {
  // The listener knows by the connection which process reports, so a child cannot. libuv connects at once.
  if (socket !== null) return;
  const { Socket } = require("net");
  socket = new Socket();
  socket.on("error", () => {});
  socket.unref();
  socket.connect({ path: SOCKET });
  descriptor = socket._handle ? socket._handle.fd : -1;
  // While this file is there, the files of the tests become read-only.
  for (let tries = 0; descriptor >= 0 && fs.existsSync(HOLD) && tries < 12000; tries++) pause(5);
}

function pause(milliseconds) {
  wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

function send(data) {
  let at = 0;
  while (at < data.length) {
    try {
      at += writeSync(descriptor, data, at);
    } catch (error) {
      if (error.code !== "EAGAIN") return false;
      pause(1);
    }
  }
  return true;
}

function record(file, names, outcome) {
  claim();
  const line = stringify({ file: file || "", path: names, outcome }) + "\n";
  if (descriptor >= 0 && !send(Buffer.from(line))) descriptor = -1;
}

function hideFromChildren() {
  // The processes of the tests need not know where the results are.
  const options = (process.env.NODE_OPTIONS || "").split(" ");
  const at = options.indexOf(__filename);
  if (at > 0) options.splice(at - 1, 2);
  if (options.length) process.env.NODE_OPTIONS = options.join(" ");
  else delete process.env.NODE_OPTIONS;
}

function outcomeOfNode(type, data) {
  if (data.skip !== undefined && data.skip !== false) return "skipped";
  if (data.todo !== undefined && data.todo !== false) return type === "test:pass" ? "passed" : "expected_failure";
  return type === "test:pass" ? "passed" : "failed";
}

function observeNodeTests() {
  if (process.env.NODE_TEST_CONTEXT) return; // a test file: its parent reports
  const { Readable } = require("stream");
  const { push } = Readable.prototype;
  const names = [];
  Readable.prototype.push = function (event) {
    if (event && typeof event.type === "string" && this.constructor.name === "TestsStream") {
      const data = event.data || {};
      if (event.type === "test:start") names[data.nesting] = data.name;
      if ((event.type === "test:pass" || event.type === "test:fail") && data.name !== data.file) {
        const outer = names.slice(0, data.nesting);
        record(data.file, [...outer, data.name], outcomeOfNode(event.type, data));
      }
    }
    return push.apply(this, arguments);
  };
  if (process.execArgv.some((each) => each === "--test" || each.startsWith("--test-"))) {
    claim();
    hideFromChildren();
  }
}

const OF_JEST = { passed: "passed", failed: "failed", pending: "skipped", todo: "skipped", disabled: "skipped", skipped: "skipped", focused: "passed" };

function observedJest(exported) {
  const runCLI = async (...given) => {
    claim();
    hideFromChildren();
    const answer = await exported.runCLI(...given);
    for (const file of answer.results.testResults) {
      const failed = file.testExecError || (file.failureMessage && !file.testResults.some((each) => each.status === "failed"));
      if (failed) record(file.testFilePath, [], "failed");
      for (const each of file.testResults) {
        record(file.testFilePath, [...each.ancestorTitles, each.title], OF_JEST[each.status] || "failed");
      }
    }
    return answer;
  };
  return new Proxy({}, {
    get: (_, name) => (name === "runCLI" ? runCLI : exported[name]),
    has: (_, name) => name in exported,
    ownKeys: () => Reflect.ownKeys(exported),
    getOwnPropertyDescriptor: (_, name) => ({ value: name === "runCLI" ? runCLI : exported[name], enumerable: true, configurable: true }),
  });
}

const OF_MOCHA = { pass: "passed", fail: "failed", pending: "skipped" };

function observeMocha() {
  const { EventEmitter } = require("events");
  const { emit } = EventEmitter.prototype;
  EventEmitter.prototype.emit = function (event, test) {
    if (event === "start" && /Runner$/.test(this.constructor.name) && this.suite) claim();
    const outcome = typeof event === "string" && Object.prototype.hasOwnProperty.call(OF_MOCHA, event) ? OF_MOCHA[event] : null;
    if (outcome && /Runner$/.test(this.constructor.name) && test && typeof test.titlePath === "function") {
      hideFromChildren();
      record(test.file, test.titlePath(), outcome);
    }
    return emit.apply(this, arguments);
  };
}

function observeJest() {
  const load = Module._load;
  const seen = new Map();
  Module._load = function (request) {
    const exported = load.apply(this, arguments);
    if (request !== "@jest/core" || !exported || !exported.runCLI) return exported;
    if (!seen.has(exported)) seen.set(exported, observedJest(exported));
    return seen.get(exported);
  };
}

function observeVitest() {
  // "/app/node_modules/.bin/vitest", "…/vitest/vitest.mjs"; not "/app/vitest-tests.js"
  if (!/[\\/]vitest(\.mjs)?$/.test(process.argv[1] || "")) return;
  process.argv.splice(2, 0, "--reporter=default", "--reporter=json", "--outputFile.json=" + VITEST);
  claim();
  hideFromChildren();
  process.on("exit", () => {
    let files = [];
    try {
      files = JSON.parse(fs.readFileSync(VITEST, "utf8")).testResults;
    } catch {
      return;
    }
    for (const file of files) {
      if (file.status === "failed" && !file.assertionResults.length) record(file.name, [], "failed");
      for (const each of file.assertionResults) {
        record(file.name, [...each.ancestorTitles.filter(Boolean), each.title], OF_JEST[each.status] || "failed");
      }
    }
  });
}

({ node: observeNodeTests, jest: observeJest, mocha: observeMocha, vitest: observeVitest })["@KIND@"]();
