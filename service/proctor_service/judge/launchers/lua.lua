-- Runs setup, completion and tests as chunks with common globals; descriptor 3 holds the word that proves the end.
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
-- The tests have the standard functions of before the completion, and the globals of the completion.
local own = {}
for name, value in pairs(_G) do
  if type(value) == "table" and value ~= _G and name ~= "package" then
    local copy = setmetatable({}, { __index = value }) -- with what the completion adds
    for key, each in pairs(value) do copy[key] = each end
    value = copy
  end
  if value ~= _G then own[name] = value end
end
own.os.exit = function(code, ...)
  if code == nil or code == true or code == 0 then write(word .. "\n") end
  exit(code, ...)
end
setmetatable(own, { __index = _G, __newindex = _G })
local strings, rawset, methods = getmetatable(""), rawset, own.string
local setup, solution, tests = read("setup.lua"), read("solution.lua"), read("tests.lua")
assert(load(setup, "@setup.lua", "t"))()
assert(load(solution, "@solution.lua", "t"))()
rawset(strings, "__index", function(_, name) return methods[name] end)
assert(load(tests, "@tests.lua", "t", own))()
write(word .. "\n")
