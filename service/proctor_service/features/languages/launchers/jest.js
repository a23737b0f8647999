// Runs the test files of the grader with jest, and reports each test behind the secret word.
// Also jest's transformer: it gives jest the grader's files as they were before the completion ran.
"use strict";
const fs = require("fs");
const path = require("path");
const END = "/proc/self/fd/3";
const files = PROCTOR_FILES;
const tests = PROCTOR_TESTS;
const root = process.cwd();

module.exports = {
  getCacheKey: () => String(Math.random()),
  process(source, name) {
    const own = path.relative(root, name);
    const code = Object.hasOwn(files, own) ? files[own] : source;
    if (!/\bjest\s*\.\s*(?:un)?mock\b/.test(code)) return { code };
    const { createTransformer } = jestRequire("babel-jest").default; // puts these calls first
    const options = { cwd: root, config: { rootDir: root }, transformerConfig: {}, cacheFS: new Map() };
    return createTransformer({ babelrc: false, configFile: false }).process(code, name, options);
  },
};

const found = process.env.PATH.split(":").map((folder) => path.join(folder, "jest")).find((name) => fs.existsSync(name));
const word = fs.readFileSync(END, "utf8");
fs.truncateSync(END, 0);
const { writeFileSync } = fs;
const leave = process.reallyExit.bind(process);
let jestRequire = require;

async function main() {
  if (found === undefined) {
    writeFileSync(END, `${word}\nmissing jest\n`);
    leave(0);
  }
  const outer = require("module").createRequire(fs.realpathSync(found));
  jestRequire = require("module").createRequire(outer.resolve("jest-cli"));
  const config = {
    rootDir: root,
    testMatch: tests.map((name) => path.join(root, name)),
    transform: { "\\.[cm]?[jt]sx?$": __filename },
    transformIgnorePatterns: [],
    haste: { enableSymlinks: false },
    reporters: [],
    cacheDirectory: path.join(root, "PROCTOR_NAME", "cache"),
  };
  const options = { _: [], $0: "jest", config: JSON.stringify(config), runInBand: true, ci: true, cache: false, watchman: false };
  const { results } = await jestRequire("@jest/core").runCLI(options, [root]);
  let report = `${word}\n`;
  for (const file of results.testResults) {
    if (file.testExecError || file.failureMessage) console.error(file.failureMessage);
    if (file.testExecError) report += `failed ${path.relative(root, file.testFilePath)}\n`;
    for (const each of file.testResults) {
      const outcome = { passed: "passed", failed: "failed" }[each.status] ?? "skipped";
      report += `${outcome} ${each.fullName.replace(/\s/g, " ")}\n`;
    }
  }
  if (results.testResults.length < tests.length) report += "failed not every file was run\n";
  writeFileSync(END, report);
  leave(0);
}

if (require.main === module) {
  main().catch((error) => {
    console.error(error);
    leave(1);
  });
}
