--- @include "lib/consumer"
--- @include "lib/ledger"
--- @include "lib/backlog"
-- Who is slow: it held messages during a whole period, and at the end of it settled too few, or too many wait for it.
-- Who had nothing to do is never slow, so a period begins anew whenever a consumer is seen with empty hands. No slice sees all that
-- a consumer of a destination with slices does: see judge.lua.
local MAX_LOOKED_AT = 16
local SLOW_PERIOD_MS = 5000 -- unless `slow_period_ms` says otherwise
local SLOW, DETACHED = 1, 2
local PACE = 'settled=%d since=%d slow=%d of=%s'
local PACE_PATTERN = '^settled=(%d+) since=(%d+) slow=(%d) ?o?f?=?(%S*)$' -- without slices there is no `of`

local function read_pace(cid)
  local settled, since, slow, of = string.match(redis.call('HGET', K_PACE, cid) or '', PACE_PATTERN)
  return settled and { settled = tonumber(settled), since = tonumber(since), slow = tonumber(slow), of = of ~= '' and of or nil }
end

local function save_pace(cid, p)
  redis.call('HSET', K_PACE, cid, (string.gsub(string.format(PACE, p.settled, p.since, p.slow, p.of or ''), ' of=$', '')))
end

local function was_detached(cid)
  local p = read_pace(cid)
  return p and p.slow == DETACHED
end

local function is_above_windows(c, messages)
  local window = d.slow_multiple and tonumber(string.match(c.window, '^(%d+)/'))
  return window and window > 1 and messages() > d.slow_multiple * window
end

local function too_many_wait(c)
  return is_above_windows(c, function()
    return c.delivered - c.settled + waiting_for(c.sub)
  end)
end

local function slow_settings()
  if not d.slow_period_ms then
    local settings = redis.call('HMGET', K_DESTINATION, 'slow_period_ms', 'slow_action')
    d.slow_period_ms, d.slow_action = tonumber(settings[1] or SLOW_PERIOD_MS), settings[2] or 'notify'
  end
  return d.slow_period_ms
end

local function is_judged_here()
  return (d.slow_rate or d.slow_multiple) and not d.of_slices
end

-- Keep what was found, and tell whom it is about where it was not so `before`; returns whether it is to be detached.
local function save_verdict(cid, p, before)
  if p.slow ~= before then
    if p.slow == SLOW then
      note('slow', cid)
      wake(session_of(cid), 'slow', cid)
    else
      note('brisk', cid)
      wake(session_of(cid), 'brisk', cid)
    end
  end
  local detach = p.slow == SLOW and slow_settings() and d.slow_action == 'detach'
  p.slow = detach and DETACHED or p.slow
  save_pace(cid, p)
  return detach
end

-- Judge a consumer, which has held `held` messages since it was seen last; returns whether it is to be detached.
local function judge_pace(cid, c, held)
  if not is_judged_here() then
    return false
  end
  local p = read_pace(cid) or { settled = c.settled, since = now_ms, slow = 0 }
  local lasted, before = now_ms - p.since, p.slow
  if held == 0 or lasted < 0 then
    p.settled, p.since = c.settled, now_ms
    p.slow = held == 0 and 0 or p.slow
  elseif lasted >= slow_settings() then
    local few = d.slow_rate and c.settled - p.settled < d.slow_rate * lasted / 1000
    p.slow = (few or too_many_wait(c)) and SLOW or 0
    p.settled, p.since = c.settled, now_ms
  end
  return save_verdict(cid, p, before)
end

-- Close a consumer as if it had gone by itself: others get what it held.
local function detach_slow(cid, c)
  set_window(cid, c, PAUSED)
  d.orphans = d.orphans + redis.call('ZADD', K_ORPHANS, 'NX', 0, cid)
  note('detach', cid)
end

-- Look at a few of those that do not call, so that one that is alive and silent is seen too.
local function judge_others()
  if not is_judged_here() then
    return
  end
  for _, cid in ipairs(redis.call('HRANDFIELD', K_PACE, MAX_LOOKED_AT)) do
    local c = read_consumer(cid)
    if c and not redis.call('ZSCORE', K_ORPHANS, cid) and judge_pace(cid, c, c.delivered - c.settled) then
      detach_slow(cid, c)
    end
  end
end
