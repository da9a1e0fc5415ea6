--- @include "lib/held"
--- @include "lib/room"
--- @include "lib/wake"
--- @include "lib/line"
--- @include "lib/recall"
-- The line of those who wait for credit: served in turn, by whichever script frees room.
local MAX_HAND_OVERS = 64
local STALE_WAITER_MS = 3000
local MOST_STALE_MS = 6000

-- A waiter asks again at the latest when it renews its lease, after a quarter of it and 2.5 s at most: one call that comes
-- late, or not at all, costs no place. After two it lost it, so that the living behind it need not wait for its lease.
local function is_silent(s)
  return now_ms - s.seen > math.max(STALE_WAITER_MS, math.min(MOST_STALE_MS, math.floor(s.ttl * 6 / 10)))
end

-- Walk the line in order while room covers the head's need: no barging, no herd, no second round trip.
local function hand_over(caller, caller_record)
  if d.shut == 1 then
    resume_when_drained()
  end
  if d.blocked == 0 then
    return
  end
  for _ = 1, MAX_HAND_OVERS do
    local head = redis.call('ZRANGE', K_WAITERS, 0, 0, 'WITHSCORES')
    local sid = head[1]
    if not sid then
      return
    end
    local s = sid == caller and caller_record or read_session(sid)
    if not s then
      leave_line(sid)
    elseif sid ~= caller and (is_silent(s) or never_fits(s)) then
      give_up(sid, s) -- its next poll joins again, or hears that the message is too large
      save_session(sid, s)
    else
      local served, bytes = grant(sid, s)
      if not served then
        tell_first(sid, s, caller)
        return
      end
      leave_line(sid)
      take_turn(s, tonumber(head[2]), bytes)
      note('unblock', sid, int(now_ms - s.since))
      s.since = 0
      if sid ~= caller then -- the caller's record is saved by the calling script
        save_session(sid, s)
      end
      wake(sid, 'credit', int(d.epoch), int(s.inc), int(s.granted), int(s.granted_m))
    end
  end
end

-- Ask for the caller: at once when nobody waits and it fits, else in line. Then serve the line.
local function ask(sid, s)
  local blocked = s.need > s.granted or s.need_m > s.granted_m
  if s.since > 0 and not blocked then
    give_up(sid, s)
  end
  if d.blocked == 0 and grant(sid, s) then
    return
  end
  local joins = blocked and s.since == 0
  if joins then
    join_line(sid, s)
    note('block', sid, int(s.need - s.granted), int(s.need_m - s.granted_m))
  end
  hand_over(sid, s)
  if joins and d.kind == 'gate' and d.blocked == 2 and s.since > 0 then
    tell_companion(sid)
  end
  if d.blocked > 0 and d.rules ~= '' and now_ms >= d.learning_until then
    shut_when_full()
  end
  if d.blocked == 0 then
    grant(sid, s) -- all were served, and there may be something left for the caller
  elseif math.abs(now_ms - d.recall_ms) >= 200 then
    d.recall_ms = now_ms -- holders of idle credit are asked for it at most five times a second
    recall(sid, s)
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
  end
  if place == 1 then
    local first = redis.call('ZRANGE', K_LEASES, 0, 0, 'WITHSCORES')[2]
    again = math.max(50, math.min(again, first and first - now_ms + 1 or again, d.recall_due or again))
  elseif d.kind == 'gate' and d.recall_due and s.since >= d.recall_ms then
    again = math.max(50, math.min(again, d.recall_due)) -- holders heard what they may keep before it came
  end
  return { code, d.epoch, s.granted, s.granted_m, place, d.blocked, again }
end
