--- @include "lib/credit"
--- @include "lib/consumer"
--- @include "lib/send_left"
-- Bounded housekeeping that every changing script begins with, so that no process has to be alive for it.
local MAX_REAPED = 16
local MOST_CONSUMERS = 64 -- of one session at a destination

local function drop_session(sid, s)
  local bytes, messages = held(s)
  d.leased_bytes, d.leased_messages = d.leased_bytes - bytes, d.leased_messages - messages
  d.weight = d.weight - s.weight
  if s.since > 0 then
    give_up(sid, s)
  end
  redis.call('ZREM', K_LEASES, sid)
  redis.call('HDEL', K_SESSIONS, sid)
  redis.call('HDEL', K_DROPS, sid)
  leave_send_line(sid)
  for k = 1, math.min(s.consumers, MOST_CONSUMERS) do
    local cid = sid .. '.' .. int(k)
    local c = read_consumer(cid)
    redis.call('HDEL', K_PACE, cid)
    if c then
      set_window(cid, c, PAUSED)
      d.orphans = d.orphans + redis.call('ZADD', K_ORPHANS, 'NX', int(now_ms), cid)
    end
  end
  return bytes, messages
end

local function reap_leases()
  local changed = false
  -- Those of a limiter are of holds.
  for _, sid in ipairs(d.kind == 'limiter' and {} or redis.call('ZRANGEBYSCORE', K_LEASES, 0, int(now_ms), 'LIMIT', 0, MAX_REAPED)) do
    -- Deny-oom and a write of no effect: under OOM a script that takes room stops here, with nothing applied.
    if not changed and d.grows then
      redis.call('HSET', K_DESTINATION, 'kind', d.kind)
    end
    changed = true
    local s = read_session(sid)
    if not s then
      redis.call('ZREM', K_LEASES, sid)
    elseif sid == d.caller then
      note('late', sid) -- it lives after all, nobody took its credit, and it renews now
    elseif s.strike > 0 and s.strike <= now_ms and now_ms - s.strike >= grace(s.ttl) then
      local bytes, messages = drop_session(sid, s)
      note('reclaim', sid, int(bytes), int(messages))
    else
      if s.strike == 0 or s.strike > now_ms then
        s.strike = now_ms
        save_session(sid, s)
      end
      redis.call('ZADD', K_LEASES, int(s.strike + grace(s.ttl)), sid)
    end
  end
  return changed
end

-- After a clock that was set back leases would last for hours: of those that end last, none ends later than if its session
-- had called now. One that is not among them lasts no longer than one that is.
local function clamp_leases()
  for _, sid in ipairs(redis.call('ZREVRANGE', K_LEASES, 0, MAX_REAPED - 1)) do
    local s = read_session(sid)
    redis.call('ZADD', K_LEASES, 'LT', int(now_ms + math.floor((s and s.ttl or 0) * 6 / 10)), sid)
  end
end
