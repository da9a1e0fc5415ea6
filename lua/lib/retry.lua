--- @include "lib/aside"
-- How long a delivery that failed waits before it is delivered again: what its consumer asked for, or the destination's policy.
local function retry_ms(retry, attempts)
  local delay = tonumber(retry[1] or 0)
  if delay == 0 then
    return 0
  end
  local grown = delay * math.max(1, tonumber(retry[2] or 1)) ^ (attempts - 1)
  return math.min(grown, tonumber(retry[3] or MOST_LATER_MS))
end

-- Of deliveries that come back: those that are to be had at once. `attempts` counts the failed ones; `after` has the ms that
-- a consumer named.
local function none_to_retry(sub, ids, attempts, after)
  local retry = attempts and redis.call('HMGET', K_DESTINATION, 'retry_delay_ms', 'retry_factor', 'retry_max_ms') or {}
  if not retry[1] and not next(after) then
    return ids
  end
  local now, early, members, dues = {}, {}, {}, {}
  for _, id in ipairs(ids) do
    local ms = after[id] or (attempts and retry_ms(retry, attempts[id]) or 0)
    if ms < 1 then
      now[#now + 1] = id
    else
      early[#early + 1], members[#members + 1] = id, sub .. '|' .. id
      dues[#dues + 1] = math.floor(now_ms + math.min(ms, MOST_LATER_MS))
    end
  end
  local first = d.next_due
  set_aside(sub, early)
  wait_until(members, dues)
  if d.next_due ~= first and #early > 0 then
    wake_hungry(1, sub) -- who looks, and hears when to look again
  end
  return now
end
