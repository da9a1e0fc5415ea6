local MOST = 9007199254740991 -- the largest that is exact, with the one after it; a total that is only reported stops there
-- Integers leave a script as plain decimal text; '%d' never writes -0, an exponent or a fraction.
local MOST_COUNTED = 4503599627370496 -- of what is in use at a time: 'unlimited' is that, so that sums stay exact
local function int(n)
  return string.format('%d', n)
end

local function limit_of(text)
  return tonumber(text) or math.huge -- 'unlimited'
end
