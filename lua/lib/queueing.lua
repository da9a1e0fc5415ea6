--- @include "lib/hold_now"
--- @include "lib/wake"
-- The lines are served: the first of each limit's line, until that has to wait, and then whoever was not looked at yet.
local MAX_SERVED = 64
local MAX_UNPARKED = 16
local POLL_US = 1000000
local LEAST_POLL_MS = 50 -- where more leases are to be looked at than one call may
local due, behind = {}, {} -- of waiters that were looked at: us until it is their turn, as far as is known; the limit of others' turn
local is_cut, looked_at = false, -1 -- whether some were not looked at, and the last ticket when that was

-- Its lease begins with its last sign of life, as its holder counts it too.
local function admit_first(first)
  local id, h = first.id, first.h
  local asked_ms = (leases[id] or redis.call('ZSCORE', K_LEASES, id) or limiter.now_ms) - stale_after(h)
  pass_bands(h.amounts, first.line)
  take_turn(h.key, h.amounts)
  local goes_on = leave_line(id, h)
  hold_now(id, h, math.min(asked_ms, limiter.now_ms))
  if goes_on then
    place_unit(first.unit, first.line)
  end
  keep_turns(first.line)
  wake(session_of(id), 'held', id)
end

-- The first of a line hears once when its turn comes, and again where it comes sooner than it heard; a lost hint costs a poll.
local function tell_front(fronts, id, wait_us)
  local turn_ms = limiter.now_ms + math.ceil(wait_us / 1000)
  local sent_ms = string.match(';' .. limiter.front, ';' .. string.gsub(id, '%p', '%%%0') .. '@(%d+)')
  if not sent_ms or turn_ms < sent_ms + 0 then
    sent_ms = int(turn_ms)
    wake(session_of(id), 'turn', id, int(wait_us))
  end
  fronts[#fronts + 1] = id .. '@' .. sent_ms
end

-- Who dies with all there is has it no longer than its lease: whoever is first asks when a lease is to be looked at, and so does
-- who waits behind a limit of its key, where nobody is first. Where that is one which this call looked at, it asks once more than it need.
local function until_lease_us()
  local first = tonumber(redis.call('ZRANGE', K_LEASES, 0, 0, 'WITHSCORES')[2]) or math.huge
  return math.min(POLL_US, math.max(LEAST_POLL_MS, first - limiter.now_ms + 1) * 1000)
end

local function move_to(first, line)
  place_unit(first.unit, line, first.start)
  keep_turns(first.line)
  keep_turns(line)
  return math.min(first.line, line)
end

-- Looks at the first of a line; returns the line where to go on, nil where nobody can go on.
local function look_at(first, fronts)
  local line, key, id, amounts = first.line, first.key, first.id, first.h.amounts
  local wait, limit, whose = what_binds(key, amounts)
  if wait == 0 then
    limit, wait = turn_in_key(key, amounts, first.h, first.unit)
    whose = limit and 'key' or 'all'
    limit = limit or whose_turn(key, amounts, first)
    if not limit then
      admit_first(first)
      return line
    end
    behind[id] = limit
  end
  due[id] = wait
  local at = (limiter.forms[limit] or {}).index
  if whose == 'key' then
    local learning_ms = d.learning_until - now_ms -- with its end nothing comes back
    park_unit(first.unit, wait or (learning_ms > 0 and learning_ms * 1000) or nil)
    keep_turns(line)
    if wait then
      wake(session_of(id), 'turn', id, int(wait))
    end
    return line
  elseif at and at ~= line then
    return move_to(first, at)
  end
  due[id] = wait or until_lease_us()
  tell_front(fronts, id, due[id])
  first.turns = turns_of(first)
  return at and line + 1 -- else all are held off, or stopped
end

local function serve_line()
  number_lines()
  for _, unit in ipairs(redis.call('ZRANGEBYSCORE', K_LINE, int(PARKED), int(PARKED + limiter.now_ms), 'LIMIT', 0, MAX_UNPARKED)) do
    place_unit(unit, NEW)
  end
  keep_all_turns() -- before anybody is let in
  local line, fronts = 0, {}
  is_cut, looked_at, limiter.stirred = true, d.tickets, false
  for _ = 1, MAX_SERVED do
    local first = next_kept(line) or first_of(NEW)
    line = first and look_at(first, fronts)
    if not line then
      is_cut = false
      break
    end
  end
  limiter.front = table.concat(fronts, ';')
end
