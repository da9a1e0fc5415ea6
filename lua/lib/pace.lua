--- @include "lib/consumer"
--- @include "lib/ledger"
-- Who is slow: it held messages during a whole period, and at the end of it settled too few, or too many wait for it.
-- Who had nothing to do is never slow, so a period begins anew whenever a consumer is seen with empty hands.
local MAX_LOOKED_AT = 16
local SLOW_PERIOD_MS = 5000 -- unless `slow_period_ms` says otherwise
local SLOW, DETACHED = 1, 2
local PACE = 'settled=%d since=%d slow=%d'
local PACE_PATTERN = '^settled=(%d+) since=(%d+) slow=(%d)$'

local function read_pace(cid)
  local settled, since, slow = string.match(redis.call('HGET', K_PACE, cid) or '', PACE_PATTERN)
  return settled and { settled = tonumber(settled), since = tonumber(since), slow = tonumber(slow) }
end

local function save_pace(cid, p)
  redis.call('HSET', K_PACE, cid, string.format(PACE, p.settled, p.since, p.slow))
end

local function was_detached(cid)
  local p = read_pace(cid)
  return p and p.slow == DETACHED
end

-- Messages that wait for a subscription: given back, or never delivered. Of one of several subscriptions at most that many.
local function waiting_for(sub)
  local summary, returned, delivered = redis.call('XPENDING', K_MESSAGES, sub), 0, 0
  for _, holder in ipairs(summary[4] or {}) do
    delivered = delivered + tonumber(holder[2])
    if holder[1] == RETURNED then
      returned = tonumber(holder[2])
    end
  end
  if d.fair and sub == 'queue' then
    return redis.call('ZCARD', K_FAIR) + math.min(d.pending_messages, d.message_seq - d.sorted) + returned
  elseif d.kind == 'queue' and d.subscriptions < 2 then
    return d.pending_messages - delivered + returned
  end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', K_MESSAGES)) do
    local about = {}
    for i = 1, #group, 2 do
      about[group[i]] = group[i + 1]
    end
    if about.name == sub then
      local last = tonumber(string.match(about['last-delivered-id'], '^(%d+)'))
      return math.min(d.pending_messages, d.message_seq - last) + returned
    end
  end
  return returned
end

local function too_many_wait(c)
  local window = d.slow_multiple and tonumber(string.match(c.window, '^(%d+)/'))
  return window and window > 1 and c.delivered - c.settled + waiting_for(c.sub) > d.slow_multiple * window
end

local function slow_settings()
  if not d.slow_period_ms then
    local settings = redis.call('HMGET', K_DESTINATION, 'slow_period_ms', 'slow_action')
    d.slow_period_ms, d.slow_action = tonumber(settings[1] or SLOW_PERIOD_MS), settings[2] or 'notify'
  end
  return d.slow_period_ms
end

-- Judge a consumer, which has held `held` messages since it was seen last; returns whether it is to be detached.
local function judge_pace(cid, c, held)
  if not (d.slow_rate or d.slow_multiple) then
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

-- Close a consumer as if it had gone by itself: others get what it held.
local function detach_slow(cid, c)
  set_window(cid, c, PAUSED)
  redis.call('ZREM', K_HUNGRY, cid)
  d.orphans = d.orphans + redis.call('ZADD', K_ORPHANS, 'NX', 0, cid)
  note('detach', cid)
end

-- Look at a few of those that do not call, so that one that is alive and silent is seen too.
local function judge_others()
  if not (d.slow_rate or d.slow_multiple) then
    return
  end
  for _, cid in ipairs(redis.call('HRANDFIELD', K_PACE, MAX_LOOKED_AT)) do
    local c = read_consumer(cid)
    if c and not redis.call('ZSCORE', K_ORPHANS, cid) and judge_pace(cid, c, c.delivered - c.settled) then
      detach_slow(cid, c)
    end
  end
end
