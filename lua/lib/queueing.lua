--- @include "lib/waiters"
--- @include "lib/wake"
-- The line: one place for each key that waits, and in turn within a key.
local MAX_SERVED = 64
local MAX_UNPARKED = 16
local POLL_US = 1000000
local due = {} -- of waiters that were looked at: us until it is their turn, as far as is known

local function hold_now(id, h, from_ms)
  h.state, h.since, h.ticket = 'H', now_ms, 0
  limiter.admitted = limiter.admitted + 1
  take_amounts(h.key, h.amounts)
  renew_hold(id, h, h.ttl, from_ms)
  save_hold(id, h)
  note('held', id, of_ledger(h.key), for_ledger(h.amounts))
end

-- Its lease begins with its last sign of life, as its holder counts it too.
local function admit_first(id, h)
  local asked_ms = (redis.call('ZSCORE', K_LEASES, id) or limiter.now_ms) - stale_after(h)
  take_turn(h.key, h.amounts)
  leave_line(id, h)
  hold_now(id, h, math.min(asked_ms, limiter.now_ms))
  if redis.call('ZSCORE', K_LINE, h.key) then
    place_key(h.key)
  end
  wake(session_of(id), 'held', id)
end

-- Whether after this another one of its sort could not be held beside it.
local function is_scarce(amounts)
  for _, amount in ipairs(amounts_of(amounts)) do
    local limit = amount[2] == ':' and limiter.forms[amount[1]]
    if limit and limit.form == 'at_once' and (limiter.levels.held[amount[1]] or 0) + 2 * amount[3] > limit.most then
      return true
    end
  end
  return false
end

-- The key whose turn it is, its first waiter, and that one's record.
local function next_in_line()
  local first = redis.call('ZRANGE', K_LINE, 0, 0, 'WITHSCORES')
  if not first[1] or first[2] + 0 >= PARKED then
    return nil
  end
  local key, id = first[1], first_waiter(first[1])
  local h = id and read_hold(id)
  if h and is_scarce(h.amounts) then
    key = redis.call('ZRANGE', K_SHARES, 0, 0)[1] or key
    id = first_waiter(key)
    h = id and read_hold(id)
  end
  return key, id, h
end

-- It is told once whose turn it is, and again where it comes sooner than it was told; a lost hint costs a poll.
local function tell_front(id, wait_us)
  local before, at = string.match(limiter.front, '^(.*)@(%d+)$')
  local turn_ms = limiter.now_ms + math.ceil(wait_us / 1000)
  if id ~= before or turn_ms < at + 0 then
    limiter.front = id .. '@' .. int(turn_ms)
    wake(session_of(id), 'turn', id, int(wait_us))
  end
end

local function serve_line()
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', K_LINE, int(PARKED), int(PARKED + limiter.now_ms), 'LIMIT', 0, MAX_UNPARKED)) do
    place_key(key)
  end
  local learning_us = now_ms < d.learning_until and (d.learning_until - now_ms) * 1000 or nil
  for _ = 1, MAX_SERVED do
    local key, id, h = next_in_line()
    if not key then
      return
    elseif not h then -- nobody waits there
      redis.call('ZREM', K_LINE, key)
      redis.call('ZREM', K_SHARES, key)
    else
      local wait, _, whose = what_binds(key, h.amounts)
      if wait == 0 then
        admit_first(id, h)
      elseif whose == 'key' or (not wait and learning_us) then -- other limits need not wait for that
        due[id] = wait
        park_key(key, wait or learning_us)
        if wait then
          wake(session_of(id), 'turn', id, int(wait))
        end
      else
        due[id] = wait
        tell_front(id, wait or POLL_US)
        return
      end
    end
  end
end
