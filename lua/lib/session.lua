--- @include "lib/destination"
-- One session's record at this destination: cumulative totals, what it waits for, and its lease.
local MOST_GRANTED = 2251799813685248 -- of one account, in all
local RECORD = 'inc=%d granted=%d used=%d returned=%d granted_m=%d used_m=%d returned_m=%d need=%d need_m=%d '
  .. 'want=%d want_m=%d weight=%d consumers=%d since=%d seen=%d strike=%d ttl=%d turn=%d'
local RECORD_PATTERN = '^inc=(%d+) granted=(%d+) used=(%d+) returned=(%d+) granted_m=(%d+) used_m=(%d+) returned_m=(%d+) '
  .. 'need=(%d+) need_m=(%d+) want=(%d+) want_m=(%d+) weight=(%d+) consumers=(%d+) since=(%d+) seen=(%d+) strike=(%d+) '
  .. 'ttl=(%d+) turn=(%d+)$'

local function read_session(sid)
  local text = redis.call('HGET', K_SESSIONS, sid)
  if not text then
    return nil
  end
  local inc, granted, used, returned, granted_m, used_m, returned_m, need, need_m, want, want_m, weight, consumers,
    since, seen, strike, ttl, turn = string.match(text, RECORD_PATTERN)
  return { inc = inc + 0, granted = granted + 0, used = used + 0, returned = returned + 0, granted_m = granted_m + 0,
    used_m = used_m + 0, returned_m = returned_m + 0, need = need + 0, need_m = need_m + 0, want = want + 0,
    want_m = want_m + 0, weight = weight + 0, consumers = consumers + 0, since = since + 0, seen = seen + 0,
    strike = strike + 0, ttl = ttl + 0, turn = turn + 0 }
end

local function new_session(inc, ttl_ms)
  return { inc = inc, granted = 0, used = 0, returned = 0, granted_m = 0, used_m = 0, returned_m = 0, need = 0,
    need_m = 0, want = 0, want_m = 0, weight = 0, consumers = 0, since = 0, seen = now_ms, strike = 0, ttl = ttl_ms, turn = 0 }
end

local function save_session(sid, s)
  redis.call('HSET', K_SESSIONS, sid, string.format(RECORD, s.inc, s.granted, s.used, s.returned, s.granted_m, s.used_m,
    s.returned_m, s.need, s.need_m, s.want, s.want_m, s.weight, s.consumers, s.since, s.seen, s.strike, s.ttl, s.turn))
end

local function held(s)
  return s.granted - s.used - s.returned, s.granted_m - s.used_m - s.returned_m
end

-- Totals only grow, and one more grant may bring these above what is exact: the account has to be opened anew.
local function is_counted_out(s)
  return s.granted > MOST_GRANTED or s.granted_m > MOST_GRANTED
end

-- Reclaim needs two strikes, `grace` apart. First strike at 0.6 TTL, second 0.3 TTL later: a dead session's credit is
-- back before TTL + 1 s, and a live one (it renews every TTL/4) survives a clock that jumps past every expiry at once.
local function grace(ttl_ms)
  return math.floor(ttl_ms * 3 / 10)
end

local function renew(sid, s, ttl_ms)
  s.ttl, s.seen, s.strike = ttl_ms, now_ms, 0
  if ttl_ms > d.ttl_ms then
    d.ttl_ms = ttl_ms
  end
  redis.call('ZADD', K_LEASES, int(now_ms + math.floor(ttl_ms * 6 / 10)), sid)
end
