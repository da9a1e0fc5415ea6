--- @include "lib/clock"
--- @include "lib/number"
-- Named leases of a namespace, and those who may hold them.
local K_OWNED = KEYS[1]
local K_OWNERS = KEYS[2]
local OWNED = 'owner=%s fence=%d ends=%d strike=%d'
local OWNED_PATTERN = '^owner=(%S+) fence=(%d+) ends=(%d+) strike=(%d+)$'
local NOBODY = '-'

local function read_owned(name)
  local owner, fence, ends, strike = string.match(redis.call('HGET', K_OWNED, name) or '', OWNED_PATTERN)
  return { owner = owner or NOBODY, fence = tonumber(fence or 0), ends = tonumber(ends or 0), strike = tonumber(strike or 0) }
end

local function save_owned(name, o)
  redis.call('HSET', K_OWNED, name, string.format(OWNED, o.owner, o.fence, o.ends, o.strike))
end

-- Two strikes, as for sessions: seen over once, and again 0.3 TTL later. Returns whether it may be taken now, and else
-- the moment to look again.
local function may_be_taken(name, o, ttl_ms)
  if o.owner == NOBODY then
    return true
  end
  local grace = math.floor(ttl_ms * 3 / 10)
  if o.ends > now_ms + ttl_ms or o.strike > now_ms then -- the clock was set back
    o.ends, o.strike = math.min(o.ends, now_ms + ttl_ms), 0
    save_owned(name, o)
  end
  if o.ends > now_ms then
    return false, o.ends
  elseif o.strike == 0 then
    o.strike = now_ms
    save_owned(name, o)
  end
  return now_ms - o.strike >= grace, o.strike + grace
end
