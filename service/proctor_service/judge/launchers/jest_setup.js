// In jest's environment, before a test file: lock `expect`, its matchers, and the built-in functions that no test replaces.
"use strict";
const { defineProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;

const replaced = new Set(PROCTOR_REPLACED);

function lock(owner, path) {
  for (const key of ownKeys(owner)) {
    const found = getOwnPropertyDescriptor(owner, key);
    const isFree = key === "prototype" || key === "constructor" || replaced.has(`${path}.${String(key)}`);
    if (found.configurable && "value" in found && !isFree)
      defineProperty(owner, key, { writable: false, configurable: false });
  }
}

lock(expect);
defineProperty(globalThis, "expect", { value: expect, writable: false, configurable: false });
const matchers = globalThis[Symbol.for("$$jest-matchers-object")];
if (matchers) lock(matchers.matchers);
for (const name of ["Object", "Array", "String", "Number", "Map", "Set", "JSON", "Math", "Reflect", "Promise", "Symbol"]) {
  if (replaced.has(`.${name}`)) continue;
  lock(globalThis[name], name);
  defineProperty(globalThis, name, { value: globalThis[name], writable: false, configurable: false });
}
for (const name of ["Array", "String", "Number", "Boolean", "BigInt", "Map", "Set", "Promise", "RegExp", "Date"])
  lock(globalThis[name].prototype, `${name}.prototype`);
lock(require("assert"));
lock(require("assert").strict);
