--- @include "lib/firsts"
-- The limit of its key for which another unit of that waits since before it, and for how long; whatever else that waits for.
local function turn_in_key(key, amounts, mine, unit)
  local k, found, us = read_key(key), nil, 0

  local function needs_too(h)
    for _, amount in ipairs(amounts_of(h.amounts)) do
      local limit = k.forms[amount[1]]
      if limit and string.find(',' .. amounts, ',' .. amount[1] .. '[=:]') then
        local wait = judge(limit, k.levels, amount[3])
        if wait ~= 0 and us and (not wait or wait > us) then
          found, us = amount[1], wait
        end
      end
    end
  end

  for _, other in ipairs(next(k.forms) and units_of(key) or {}) do
    local id = other ~= unit and tonumber(redis.call('ZSCORE', K_LINE, other) or 0) >= PARKED and first_waiter(other)
    local h = id and read_hold(id)
    if h and is_earlier(h, mine) then
      needs_too(h)
    end
  end
  return found, us
end
