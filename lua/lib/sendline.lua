--- @include "lib/rate"
-- The line of those whom the rate of all senders keeps waiting, in the field `send_line`. Turns are times of the rate: who sends
-- moves its own back by the time that this takes of the rate, divided by its weight, on a clock that runs as fast as all together
-- are served, and stands at 0. Whoever knows when to come has what it needs kept until then, and a little longer.
local MOST_IN_SEND_LINE = 128
local SEND_PART_US = 20000 -- of the rate, that one sends at once while others wait
local PROMPT_MS = 2 -- around its moment, in which its need is kept for the next one also where the bucket is whole
local PATIENT_MS = 50 -- after its moment, for which it is kept where the bucket is not
local MOST_TOLD_MS = 60000 -- after which it is waited for no more
local REMEMBERED_MS = 3000 -- after its moment, for which its turn is known
local STEPS_OF_US = 1024
local MOST_SEND_TURN = 2251799813685248
local SENDER = ' %s %d %d %d %d'
local SENDER_PATTERN = ' (%S+) (-?%d+) (%d+) (%d+) (%d+)'
local send_line

-- Whether it waits, or came so short a time ago that it goes on as if it had never left.
local function is_here(one)
  return now_ms <= one.due + PATIENT_MS
end

local function is_awaited(one)
  return one.need > 0 and is_here(one)
end

-- All of it but the caller, in the order in which they came, and the caller in `own`, behind `place` of them. Slices have none.
local function read_send_line(sid)
  local text = not d.of_slices and redis.call('HGET', K_DESTINATION, 'send_line')
  send_line = { known = text }
  for id, turn, need, seen, due in string.gmatch(text or '', SENDER_PATTERN) do
    local one = { sid = id, turn = turn + 0, need = need + 0, seen = seen + 0, due = due + 0 }
    if now_ms < one.seen or now_ms > one.due + REMEMBERED_MS then
      one = nil -- it is gone, or the clock was set back
    elseif id == sid then
      send_line.own, send_line.place = one, is_awaited(one) and #send_line or nil
    else
      send_line[#send_line + 1], send_line.waits = one, send_line.waits or is_awaited(one)
    end
  end
  local own = send_line.own or { sid = sid, turn = 0, due = 0 }
  own.turn = is_here(own) and own.turn or math.max(0, own.turn)
  send_line.own, send_line.place = own, send_line.place or #send_line
end

-- The time of the rate that is kept for those before a turn of the caller. Where the bucket is whole, what is kept any longer is lost.
local function kept_before(turn, is_whole)
  local kept = 0
  for i, one in ipairs(send_line) do
    local is_before = one.turn < turn or (one.turn == turn and i <= send_line.place)
    if is_before and is_awaited(one) and not (is_whole and math.abs(now_ms - one.due) > PROMPT_MS) then
      kept = kept + one.need
    end
  end
  return kept
end

local function send_steps(us, weight)
  return us > 0 and math.min(MOST_SEND_TURN, math.max(1, math.floor(us * STEPS_OF_US / math.max(weight, 1)))) or 0
end

-- Of more than may be in line the one whose turn is last leaves it, and comes anew.
local function bound_send_line()
  if #send_line >= MOST_IN_SEND_LINE then
    local last = 1
    for i, one in ipairs(send_line) do
      last = one.turn >= send_line[last].turn and i or last
    end
    table.remove(send_line, last)
    send_line.place = send_line.place - (last <= send_line.place and 1 or 0)
  end
end

-- How far the clock of turns goes on, where the caller sends what takes so much time: no further than to the first of those who
-- wait, but for what newcomers alone, who begin there, would hold up.
local function pass_of_clock(us, from)
  local first = us > 0 and from or math.huge
  for _, one in ipairs(send_line) do
    first = is_awaited(one) and math.min(first, one.turn) or first
  end
  return math.max(send_steps(us, d.weight), first < math.huge and first or 0)
end

-- Writes it, after the caller sent what takes that time of the rate.
local function save_send_line(us, weight, need, again_ms)
  local own, parts = send_line.own, {}
  local from = own.turn
  own.turn, own.need, own.seen, own.due = from + send_steps(us, weight), need, now_ms, now_ms + math.min(again_ms, MOST_TOLD_MS)
  bound_send_line()
  table.insert(send_line, us > 0 and #send_line + 1 or send_line.place + 1, own)
  local pass = pass_of_clock(us, from)
  for _, one in ipairs(send_line) do
    local turn = math.max(-MOST_SEND_TURN, math.min(MOST_SEND_TURN, one.turn - pass))
    local is_known = one.need > 0 or turn > 0 or is_here(one)
    if is_known and not (d.left_send_line and d.left_send_line[one.sid]) then
      parts[#parts + 1] = string.format(SENDER, one.sid, turn, one.need, one.seen, one.due)
    end
  end
  if #parts > 0 and (need > 0 or #send_line > 1) then
    redis.call('HSET', K_DESTINATION, 'send_line', table.concat(parts))
  elseif send_line.known then
    redis.call('HDEL', K_DESTINATION, 'send_line')
  end
end
