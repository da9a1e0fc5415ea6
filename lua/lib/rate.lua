--- @include "lib/destination"
local MOST_OWED_US = 315576000000000 -- ten years; settings with a slower burst are refused, so that sums stay exact
-- Rates as GCRA: `tat` is the moment (us) at which the burst will be whole again; before it the bucket owes.
local function tokens_left(rate, burst, tat)
  return burst - math.max(0, tat - now_us) * rate / 1000000
end

-- The `tat` after that many tokens more.
local function owe(tat, tokens, rate)
  return math.max(tat, now_us) + math.min(math.ceil(tokens * 1000000 / rate), MOST_OWED_US)
end
