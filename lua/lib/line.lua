--- @include "lib/session"
--- @include "lib/ledger"
-- The line of those who wait, and the ways out of it unserved.
local function never_fits(s)
  return s.need - s.granted > d.limit_bytes or s.need_m - s.granted_m > d.limit_messages
end

local function leave_line(sid)
  d.blocked = d.blocked - redis.call('ZREM', K_WAITERS, sid)
end

local function give_up(sid, s)
  leave_line(sid)
  note('giveup', sid, int(now_ms - s.since))
  s.since = 0
end
