// The environment of jest's tests: notes a test, hook or block that no file of the grader has declared.
"use strict";
const path = require("path");
const launcher = require("./launcher.js");
const { TestEnvironment } = require(launcher.environment);
const root = process.cwd();
const own = new Set(PROCTOR_OWN.map((name) => path.join(root, name)));
const DECLARES = new Set(["add_test", "add_hook", "start_describe_definition"]);

/** Return true if only files of the grader are on the stack, or none for a hook of jest itself. */
function isDeclaredByGrader(isHook) {
  const { prepareStackTrace, stackTraceLimit } = Error;
  Error.prepareStackTrace = (_, frames) => frames.map((frame) => frame.getFileName());
  Error.stackTraceLimit = 100;
  const names = new Error().stack;
  Error.prepareStackTrace = prepareStackTrace;
  Error.stackTraceLimit = stackTraceLimit;
  const local = names.filter((name) => name && name !== __filename && name.startsWith(root + path.sep));
  return (isHook || local.length > 0) && local.every((name) => own.has(name));
}

module.exports = class extends TestEnvironment {
  handleTestEvent(event) {
    if (DECLARES.has(event.name) && !isDeclaredByGrader(event.name === "add_hook")) launcher.foreign.push(event.name);
  }
};
