-- Runs setup, completion and tests as one function; descriptor 3 holds the word that proves the end.
-- Each must be whole by itself, too, so that none hides what follows.
local open, exit, getinfo, place = io.open, os.exit, debug.getinfo, "/proc/self/fd/3"
local function read(name)
  local file = assert(open(name, "rb"))
  local text = file:read("a")
  file:close()
  return (text:gsub("^#[^\n]*", ""))  -- as Lua reads a file: `#!/usr/bin/lua`
end
local word = read(place)
local function write(text)
  local file = open(place, "wb")
  file:write(text)
  file:close()
end
write("")
local function finish() write(word .. "\n") end

--- Return a text and the place of a `return M` at its end, or nil: Lua has none in the middle of a function.
local function parsed(name)
  local text, places = read(name), {}
  assert(load(text, "@" .. name, "t"))
  if load(text .. "\ndo end") then return text end
  for at in text:gmatch("()%f[%w_]return%f[^%w_]") do places[#places + 1] = at end
  for each = #places, 1, -1 do
    local at = places[each]
    if load(text:sub(1, at - 1) .. "if false then " .. text:sub(at) .. "\nend do end") then return text, at end
  end
  return text
end
local function without_return(name)
  local text, at = parsed(name)
  return (at and text:sub(1, at - 1) .. "if false then " .. text:sub(at) .. "\nend" or text) .. "\n"
end

local before = without_return("setup.lua") .. without_return("solution.lua")
local tests, at = parsed("tests.lua")
local _, lines = before:gsub("\n", "")
-- Tests may end with `os.exit(code)`, as those of luaunit do.
os.exit = function(code, ...)
  local caller = getinfo(2, "Sl")
  local is_tests = caller and caller.source == "@program.lua" and caller.currentline > lines
  if is_tests and (code == nil or code == true or code == 0) then finish() end
  exit(code, ...)
end
tests = at and tests:sub(1, at - 1) .. "PROCTOR_NAME() " .. tests:sub(at) or tests .. "\nPROCTOR_NAME()"
assert(load("local PROCTOR_NAME = ... return function(...) " .. before .. tests .. "\nend", "@program.lua", "t"))(finish)()
