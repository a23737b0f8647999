// In jest's environment, before a test file: lock `expect`, its matchers, and built-in functions.
"use strict";
const { defineProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;

function lock(owner) {
  for (const key of ownKeys(owner)) {
    const found = getOwnPropertyDescriptor(owner, key);
    if (found.configurable && "value" in found && key !== "prototype")
      defineProperty(owner, key, { writable: false, configurable: false });
  }
}

lock(expect);
defineProperty(globalThis, "expect", { value: expect, writable: false, configurable: false });
const matchers = globalThis[Symbol.for("$$jest-matchers-object")];
if (matchers) lock(matchers.matchers);
for (const name of ["Object", "Array", "String", "Number", "Map", "Set", "JSON", "Math", "Reflect", "Promise", "Symbol"]) {
  lock(globalThis[name]);
  defineProperty(globalThis, name, { value: globalThis[name], writable: false, configurable: false });
}
for (const name of ["Array", "String", "Number", "Map", "Set", "Promise"]) lock(globalThis[name].prototype);
lock(require("assert"));
lock(require("assert").strict);
