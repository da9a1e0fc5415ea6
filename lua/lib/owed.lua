--- @include "lib/rate"
-- The `tat` of a rate that another one came before: what was owed at that moment is owed still, at most a burst of the new one,
-- and is paid as that says.
local function carried_tat(tat, old_rate, moment, rate, burst)
  local owed = math.min(math.max(0, tat - moment) * old_rate / 1000000, burst)
  return moment + math.min(math.ceil(owed * 1000000 / rate), MOST_OWED_US)
end
