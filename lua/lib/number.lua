-- Integers leave a script as plain decimal text; '%d' never writes -0, an exponent or a fraction.
local function int(n)
  return string.format('%d', n)
end

local function limit_of(text)
  return tonumber(text) or math.huge -- 'unlimited'
end
