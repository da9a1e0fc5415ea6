--- @include "lib/room"
-- The line of those who wait, and the ways out of it unserved. First come first served among those who were served alike:
-- a turn moves a session's next turn back by what it got, divided by its weight, on a clock that runs as fast as all
-- together are served (weighted fair queueing). So long-run shares are weighted max-min, and nobody starves.
local PRECISION = 16 -- steps of that clock for a byte, so that it moves for small messages among many too

local MOST_REMEMBERED = 1048576 -- bytes

-- Who was served a moment ago, and waits again, keeps the place that its turn gives it, were it before who came since.
local function join_line(sid, s)
  d.turns = d.turns + 1
  local since = d.turns - 2 * PRECISION * math.min(d.limit_bytes, MOST_REMEMBERED) / math.max(d.weight, 1)
  local turn = s.turn > math.max(0, since) and s.turn or d.turns
  d.blocked = d.blocked + redis.call('ZADD', K_WAITERS, 'NX', int(turn), sid)
  s.since = now_ms
end

local function take_turn(s, turn, bytes)
  s.turn = turn + math.floor(PRECISION * bytes / math.max(s.weight, 1))
  d.turns = d.turns + math.floor(PRECISION * bytes / math.max(d.weight, 1))
end

local function never_fits(s)
  return too_large(s.need - s.granted, s.need_m - s.granted_m)
end

local function leave_line(sid)
  d.blocked = d.blocked - redis.call('ZREM', K_WAITERS, sid)
end

local function give_up(sid, s)
  leave_line(sid)
  note('giveup', sid, int(now_ms - s.since))
  s.since = 0
end
