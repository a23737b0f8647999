-- Runs setup, completion and tests as chunks with common globals; descriptor 3 holds the word that proves the end.
-- What setup and completion have as locals at their end is global behind them, where no other global has the name.
local open, exit, place = io.open, os.exit, "/proc/self/fd/3"
local function read(name)
  local file = assert(open(name, "rb"))
  local text = file:read("a")
  file:close()
  return text
end
local word = read(place)
local function write(text)
  local file = open(place, "wb")
  file:write(text)
  file:close()
end
write("")
local load, assert = load, assert
-- The tests have the standard functions of before the completion, and the globals of the completion. What they replace,
-- such as `os.time`, is replaced for both.
local function guarded(place)
  local first = {}
  for name, value in pairs(place) do first[name] = value end
  return setmetatable({}, {
    __index = function(_, name)
      local value = first[name]
      if value == nil then value = place[name] end
      return value
    end,
    __newindex = function(_, name, value)
      if first[name] ~= nil then first[name] = value end
      place[name] = value
    end,
    __pairs = function() return next, place end,
  }), first
end
local own, standard = guarded(_G)
standard._G = nil
local in_os
for name, value in pairs(_G) do
  if type(value) == "table" and value ~= _G and name ~= "package" then
    local first
    standard[name], first = guarded(value)
    if name == "os" then in_os = first end
  end
end
local globals, next, rawget, rawset = _G, next, rawget, rawset
local getinfo, getlocal, sethook = debug.getinfo, debug.getlocal, debug.sethook
local function run(text, place)
  local chunk = assert(load(text, place, "t"))
  sethook(function()
    if getinfo(2, "f").func ~= chunk then return end
    local found, at = {}, 1
    local name, value = getlocal(2, at)
    while name do
      found[name], at = value, at + 1
      name, value = getlocal(2, at)
    end
    for each, value in next, found do  -- temporary values have names that no program can use
      if rawget(globals, each) == nil then rawset(globals, each, value) end
    end
  end, "r")
  chunk()
  sethook()
end
-- These reach the tests' variables.
for _, name in ipairs({ "gethook", "getlocal", "getregistry", "getupvalue", "sethook", "setlocal", "setmetatable", "setupvalue",
                        "upvaluejoin" }) do
  debug[name], standard.debug[name] = nil, nil
end
in_os.exit = function(code, ...)
  if code == nil or code == true or code == 0 then write(word .. "\n") end
  exit(code, ...)
end
local strings, methods, type = getmetatable(""), standard.string, type
local setup, solution, tests = read("setup.lua"), read("solution.lua"), read("tests.lua")
run(setup, "@setup.lua")
run(solution, "@solution.lua")
local index = strings.__index
rawset(strings, "__index", function(text, name)
  local method = methods[name]
  if method == nil and type(index) == "function" then return index(text, name) end
  return method
end)
assert(load(tests, "@tests.lua", "t", own))()
write(word .. "\n")
