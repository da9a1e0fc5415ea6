--- @include "lib/destination"
-- How often shadow limits would have kept somebody waiting, in all and of each, and how far above it the furthest was.
local would_wait -- counts of this call: { of all, by limit }

local function counted_waits()
  if not would_wait then
    local kept = redis.call('HMGET', K_DESTINATION, 'would_wait', 'shadowed')
    would_wait = { tonumber(kept[1] or 0), {} }
    for name, times, most in string.gmatch(kept[2] or '', '([%w_]+:%a+):(%d+):(%d+)') do
      would_wait[2][name] = { times + 0, most + 0 }
    end
  end
  return would_wait
end

local function count_waits(of, times, over)
  local counts = counted_waits()[2]
  local count = counts[of] or { 0, 0 }
  counts[of] = { math.min(count[1] + times, MOST), math.max(count[2], over) }
end

local function save_would_wait()
  if not would_wait then
    return
  end
  local parts = {}
  for of, count in pairs(would_wait[2]) do
    parts[#parts + 1] = of .. ':' .. int(count[1]) .. ':' .. int(count[2])
  end
  redis.call('HSET', K_DESTINATION, 'would_wait', int(math.min(would_wait[1], MOST)), 'shadowed', table.concat(parts, ';'))
end
