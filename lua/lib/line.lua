--- @include "lib/room"
-- The line of those who wait, and the ways out of it unserved. First come first served among those who were served alike:
-- a turn moves a session's next turn back by what it got, divided by its weight, on a clock that runs as fast as all
-- together are served, and is never behind the turn that was served last (weighted fair queueing): those who have a weight and
-- take little would slow it, and newcomers begin there. So long-run shares are weighted max-min, and nobody starves.
local PRECISION = 16 -- steps of that clock for a byte, so that it moves for small messages among many too

local MOST_REMEMBERED = 1048576 -- bytes
local MOST_AHEAD = 17592186044416 -- of the clock, by a turn that counts: 1 TiB
local MOST_TURNS = 4503599627370496

-- Who was served a moment ago, and waits again, keeps the place that its turn gives it, were it before who came since.
local function join_line(sid, s)
  d.turns = d.turns + 1
  local since = d.turns - 2 * PRECISION * math.min(d.limit_bytes, MOST_REMEMBERED) / math.max(d.weight, 1)
  local turn = s.turn > math.max(0, since) and s.turn < d.turns + MOST_AHEAD and s.turn or d.turns
  d.blocked = d.blocked + redis.call('ZADD', K_WAITERS, 'NX', int(turn), sid)
  s.since = now_ms
end

local function take_turn(s, turn, bytes)
  local steps = math.min(PRECISION * bytes, MOST_AHEAD - 1)
  s.turn = turn + math.floor(steps / math.max(s.weight, 1))
  d.turns = math.max(turn, d.turns + math.floor(steps / math.max(d.weight, 1)))
  if d.turns > MOST_TURNS then -- the clock goes back; who waits keeps its place, and who was served long ago has none
    d.turns = math.floor(d.turns / 1048576)
    redis.call('ZUNIONSTORE', K_WAITERS, 1, K_WAITERS, 'WEIGHTS', 1 / 1048576)
  end
end

local function never_fits(s)
  return too_large(s.need - s.granted, s.need_m - s.granted_m)
end

local function leave_line(sid)
  local gone = redis.call('ZREM', K_WAITERS, sid)
  d.blocked, d.moved = d.blocked - gone, d.moved or gone > 0
end

local function give_up(sid, s)
  leave_line(sid)
  note('giveup', sid, int(now_ms - s.since))
  s.since = 0
end
