--- @include "lib/send_left"
--- @include "lib/rate"
-- The line of those whom the rate of all senders keeps waiting, in the field `send_line`; of the first slice, that of each rate in a field
-- of its own, with the senders of all slices. Turns are times of the rate: who sends
-- moves its own back by the time that this takes of the rate, divided by its weight, on a clock that runs as fast as all together
-- are served. Whoever knows when to come has what it needs kept until then, and a little longer.
local MOST_IN_SEND_LINE = 128
local SEND_PART_US = 20000 -- of the rate, that one sends at once while others wait
local PROMPT_MS = 2 -- around its moment, in which its need is kept for the next one also where the bucket is whole
local PATIENT_MS = 50 -- after its moment, for which it is kept where the bucket is not
local MOST_TOLD_MS = 60000 -- after which it is waited for no more
local REMEMBERED_MS = 3000 -- after its moment, for which its turn is known
local STEPS_OF_US = 1024
local MOST_SEND_TURN = 2251799813685248 -- of the clock; then all begin anew
local SENDER = ' @%s %d %d %d' -- no session has an @
local SENDER_PATTERN = ' @(%S+) (%d+) (%d+) (%d+)'
local send_line

-- Those who are waited for, in the order in which they came, and of the caller its turn, and behind how many of them it is. All
-- else is left as it is written: a call costs as much as it takes to read the line.
local function read_send_line(sid, field)
  local text = redis.call('HGET', K_DESTINATION, field) or ''
  local clock, waited = string.match(text, '^(%d+) (%d+)')
  clock = tonumber(clock or 0)
  send_line = { field = field, known = text ~= '', text = clock < MOST_SEND_TURN and text or '', clock = clock < MOST_SEND_TURN and clock or 0,
    waited = tonumber(waited or 0), count = 0, gone = {} }
  local last_turn = -1
  for id, turn, need, due in string.gmatch(send_line.text, SENDER_PATTERN) do
    turn, due = turn + 0, due + 0
    local is_here = now_ms <= due + PATIENT_MS -- it waits, or sent so short a time ago that it goes on as if it had never left
    if now_ms > due + REMEMBERED_MS or now_ms < due - MOST_TOLD_MS or (need == '0' and turn <= clock and not is_here) then
      send_line.gone[#send_line.gone + 1] = id -- or the clock was set back
    elseif id == sid then
      send_line.came, send_line.waited = true, need ~= '0' and now_ms or send_line.waited
      send_line.turn, send_line.place = (is_here or turn > clock) and turn or clock, is_here and need ~= '0' and #send_line or nil
    else
      send_line.count = send_line.count + 1
      if is_here and need ~= '0' then
        send_line[#send_line + 1] = { turn = turn, need = need + 0, due = due }
      end
      if turn >= last_turn then
        last_turn, send_line.last = turn, id
      end
    end
  end
  send_line.turn, send_line.place = send_line.turn or send_line.clock, send_line.place or #send_line
end

-- The time of the rate that is kept for those before a turn of the caller. Where the bucket is whole, what is kept any longer is lost.
local function kept_before(turn, is_whole)
  local kept = 0
  for i, one in ipairs(send_line) do
    local is_before = one.turn < turn or (one.turn == turn and i <= send_line.place)
    if is_before and not (is_whole and math.abs(now_ms - one.due) > PROMPT_MS) then
      kept = kept + one.need
    end
  end
  return kept
end

local function send_steps(us, weight)
  return us > 0 and math.min(MOST_SEND_TURN, math.max(1, math.floor(us * STEPS_OF_US / math.max(weight, 1)))) or 0
end

-- What the clock of turns is, once the caller has sent what takes so much time: no further than the first of those who wait, but
-- for what newcomers alone, who begin there, would hold up. Of weights at other slices nothing is known here.
local function clock_after(us, turn)
  local first, weights = send_line.turn, d.of_slices and send_line.count + 1 or d.weight
  for _, one in ipairs(send_line) do
    first = math.min(first, one.turn)
  end
  return math.max(send_line.clock, first, math.min(send_line.clock + send_steps(us, weights), turn))
end

-- Writes it, after the caller sent what takes that time of the rate. Of more than may be in line the one whose turn is last leaves
-- it, and comes anew. Once nobody has waited for a while, there is none.
local function save_send_line(sid, us, weight, need, again_ms)
  local text = string.gsub(send_line.text, '^%d+ %d+', '')
  for _, id in ipairs(send_line.gone) do
    text = without_sender(text, id)
  end
  for id in pairs(d.left_send_line or {}) do
    text = without_sender(text, id)
  end
  if not send_line.came and send_line.count >= MOST_IN_SEND_LINE then
    text = without_sender(text, send_line.last or sid)
  end
  local turn = send_line.turn + send_steps(us, weight)
  local own = string.format(SENDER, sid, turn, need, now_ms + math.min(again_ms, MOST_TOLD_MS))
  local rest, from = without_sender(text, sid)
  local is_last = us > 0 or not from
  text = is_last and rest .. own or string.sub(rest, 1, from - 1) .. own .. string.sub(rest, from)
  local waited = (need > 0 or #send_line > 0) and now_ms or send_line.waited
  if (need > 0 or rest ~= '') and math.abs(now_ms - waited) <= PATIENT_MS then
    redis.call('HSET', K_DESTINATION, send_line.field, int(clock_after(us, turn)) .. ' ' .. int(waited) .. text)
  elseif send_line.known then
    redis.call('HDEL', K_DESTINATION, send_line.field)
  end
end
