--- @include "lib/rate"
--- @include "lib/lent_rate"
--- @include "lib/sendline"
-- The rates at which all senders of all hosts together may send, in messages and in bytes.
local LOOK_MS = 1000 -- after which a slice is asked again at the latest, if nobody brings it more of the rate

-- What may be sent now of one rate, without what is kept for others. A slice sends what it has in hand.
local function sendable(kind, sid, kept_us)
  if not d[kind .. '_rate'] then
    return MOST
  elseif d.of_slices then
    return in_hand_of(kind, read_hand(kind), sid)
  end
  return tokens_left(d[kind .. '_rate'], d[kind .. '_burst'], d[kind .. '_tat']) - kept_us * d[kind .. '_rate'] / 1000000
end

-- The time of the rate that it takes to send so much, by the rate that takes longer.
local function time_of(messages, bytes)
  return math.max(messages * 1000000 / (d.send_rate or math.huge), bytes * 1000000 / (d.send_byte_rate or math.huge))
end

-- How many messages after that one a sender is to come for, and their bytes: the next, and while others wait as many as one may send
-- at once, but no more than half a burst, so that none of the rate is lost when it comes late.
local function next_part(sizes, sent, whole)
  local count, bytes = 1, math.min(sizes[sent + 1], whole)
  local most, most_b = (d.send_rate and d.send_burst or math.huge) / 2, whole / 2
  for i = sent + 2, #send_line > 0 and #sizes or 0 do
    if count + 1 > most or bytes + sizes[i] > most_b or time_of(count + 1, bytes + sizes[i]) > SEND_PART_US then
      break
    end
    count, bytes = count + 1, bytes + sizes[i]
  end
  return count, bytes
end

-- What the caller may send now: how many of the first messages, and in how many ms one (more) may go.
-- A message above the whole burst goes when the burst is whole, and is owed after.
local function within_send_rate(sid, weight, sizes)
  local set_back = math.max(0, d.send_us - now_us) -- a clock that was set back must not lock the bucket
  d.send_tat, d.send_byte_tat = d.send_tat - set_back, d.send_byte_tat - set_back
  local is_whole = math.max(d.send_rate and d.send_tat or 0, d.send_byte_rate and d.send_byte_tat or 0) <= now_us
  local kept, waiting = 0, 0
  if not d.of_slices then -- of which the first has it
    read_send_line(sid, 'send_line')
    kept, waiting = kept_before(send_line.turn, is_whole), #send_line
  end
  local count, bytes, tokens, tokens_b = 0, 0, sendable('send', sid, kept), sendable('send_byte', sid, kept)
  local whole = d.send_byte_rate and not d.of_slices and d.send_byte_burst or math.huge
  for i = 1, #sizes do
    local least = math.min(sizes[i], whole)
    if tokens < i or tokens_b - bytes < least or (i > 1 and waiting > 0 and time_of(i, bytes + sizes[i]) > SEND_PART_US) then
      break
    end
    count, bytes = i, bytes + sizes[i]
  end
  if count == #sizes or d.of_slices then
    return count, LOOK_MS
  end
  local more, more_b = next_part(sizes, count, whole)
  local behind = kept_before(send_line.turn + send_steps(time_of(count, bytes), weight), is_whole) - kept
  local again = math.max((count + more - tokens) * 1000 / (d.send_rate or math.huge),
    (bytes + more_b - tokens_b) * 1000 / (d.send_byte_rate or math.huge)) + behind / 1000
  send_line.need, send_line.again_ms = math.ceil(math.min(time_of(more, more_b), MOST_OWED_US)), math.max(1, math.ceil(again))
  return count, send_line.again_ms
end

local function charge_one(kind, sid, tat, amount)
  if d.of_slices and amount > 0 then
    spend_in_hand(kind, sid, amount)
  elseif not d.of_slices then
    redis.call('HSET', K_DESTINATION, kind .. '_tat', int(owe(tat, amount, d[kind .. '_rate'])))
  end
end

local function charge_send_rate(sid, weight, messages, bytes)
  redis.call('HSET', K_DESTINATION, 'send_us', int(now_us))
  if d.send_rate then
    charge_one('send', sid, d.send_tat, messages)
  end
  if d.send_byte_rate then
    charge_one('send_byte', sid, d.send_byte_tat, bytes)
  end
  if not d.of_slices then
    save_send_line(sid, math.min(time_of(messages, bytes), MOST_OWED_US), weight, send_line.need or 0, send_line.again_ms or 0)
  end
end
