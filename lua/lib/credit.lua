--- @include "lib/session"
--- @include "lib/ledger"
--- @include "lib/wake"
--- @include "lib/line"
-- The arithmetic of credit. Nothing here ever makes pending + leased exceed the limit.
local MAX_HAND_OVERS = 64
local STALE_WAITER_MS = 3000 -- three missed polls: it lost its place, so the living behind it need not wait for its lease

local function room()
  return math.min(d.limit_bytes, d.slice_bytes) - d.pending_bytes - d.leased_bytes, d.limit_messages - d.pending_messages - d.leased_messages
end

local function share(limit, weight)
  return limit == math.huge and limit or math.floor(limit * weight / math.max(d.weight, weight, 1))
end

-- Raise one total towards `want`, within the room, and never above the fair share unless the head message needs it.
local function raise(granted, held_now, want, need, free, cap)
  return math.max(0, math.min(want - granted, free, math.max(cap - held_now, need - granted)))
end

-- Grant session `s` what it wants if what it needs fits; returns whether its need is met now.
local function grant(sid, s)
  local free, free_m = room()
  if (s.need > s.granted and s.need - s.granted > free) or (s.need_m > s.granted_m and s.need_m - s.granted_m > free_m) then
    return false
  end
  local held_b, held_m = held(s)
  local more = raise(s.granted, held_b, s.want, s.need, free, share(d.limit_bytes, s.weight))
  local more_m = raise(s.granted_m, held_m, s.want_m, s.need_m, free_m, share(d.limit_messages, s.weight))
  if more > 0 or more_m > 0 then
    s.granted, s.granted_m = s.granted + more, s.granted_m + more_m
    d.leased_bytes, d.leased_messages = d.leased_bytes + more, d.leased_messages + more_m
    note('grant', sid, int(s.granted), int(s.granted_m))
  end
  return true
end

-- Walk the line in order while room covers the head's need: no barging, no herd, no second round trip.
local function hand_over(caller, caller_record)
  if d.blocked == 0 or now_ms < d.learning_until then
    return
  end
  for _ = 1, MAX_HAND_OVERS do
    local sid = redis.call('ZRANGE', K_WAITERS, 0, 0)[1]
    if not sid then
      return
    end
    local s = sid == caller and caller_record or read_session(sid)
    if not s then
      leave_line(sid)
    elseif sid ~= caller and (now_ms - s.seen > STALE_WAITER_MS or never_fits(s)) then
      give_up(sid, s) -- its next poll joins again, or is told that the message is too large
      save_session(sid, s)
    elseif grant(sid, s) then
      leave_line(sid)
      note('unblock', sid, int(now_ms - s.since))
      s.since = 0
      if sid ~= caller then -- the caller's record is saved by the calling script
        save_session(sid, s)
      end
      wake(sid, 'credit', int(d.epoch), int(s.inc), int(s.granted), int(s.granted_m))
    else
      return
    end
  end
end

-- Ask for the caller: at once when nobody waits and it fits, else in line. Then serve the line.
local function ask(sid, s)
  local blocked = s.need > s.granted or s.need_m > s.granted_m
  if s.since > 0 and not blocked then
    give_up(sid, s)
  end
  if now_ms < d.learning_until or (d.blocked == 0 and grant(sid, s)) then
    return
  end
  if blocked and s.since == 0 then
    d.tickets = d.tickets + 1
    d.blocked = d.blocked + redis.call('ZADD', K_WAITERS, 'NX', int(d.tickets), sid)
    s.since = now_ms
    note('block', sid, int(s.need - s.granted), int(s.need_m - s.granted_m))
  end
  hand_over(sid, s)
  if d.blocked == 0 then
    grant(sid, s) -- all were served, and there may be something left for the caller
  elseif math.abs(now_ms - d.recall_ms) >= 200 then
    d.recall_ms = now_ms -- holders of idle credit are asked for it at most five times a second
    local most = 2 ^ 52 -- an unlimited dimension
    wake_all('recall ' .. int(math.min(share(d.limit_bytes, 1), most)) .. ' ' .. int(math.min(share(d.limit_messages, 1), most)))
  else
    d.recall_due = 200 - math.abs(now_ms - d.recall_ms) -- the caller asks again then, for its holders were not asked
  end
end

-- {code, epoch, granted bytes, granted messages, place in line (0: not waiting), blocked sessions, ms to look again}
local function credit_reply(code, sid, s)
  local place, again = 0, 1000
  if s.since > 0 then
    place = (redis.call('ZRANK', K_WAITERS, sid) or -1) + 1
  end
  if now_ms < d.learning_until then
    again = math.min(again, d.learning_until - now_ms + 1)
  elseif place == 1 then
    local first = redis.call('ZRANGE', K_LEASES, 0, 0, 'WITHSCORES')[2]
    again = math.max(50, math.min(again, first and first - now_ms + 1 or again, d.recall_due or again))
  end
  return { code, int(d.epoch), int(s.granted), int(s.granted_m), int(place), int(d.blocked), int(again) }
end
