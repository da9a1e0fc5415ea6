--- @include "lib/firsts"
-- The limit of its key for which another unit of that waits since before it, and for how long.
local function turn_in_key(key, amounts, mine, unit)
  local found, us
  for _, other in ipairs(next(read_key(key).forms) and units_of(key) or {}) do
    local id = other ~= unit and tonumber(redis.call('ZSCORE', K_LINE, other) or 0) >= PARKED and first_waiter(other)
    local h = id and read_hold(id)
    if h and is_earlier(h, mine) then
      local wait, limit, whose = what_binds(key, h.amounts)
      if whose == 'key' and string.find(',' .. amounts, ',' .. limit .. '[=:]') then
        found, us = limit, wait
      end
    end
  end
  return found, us
end
