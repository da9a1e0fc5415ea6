--- @include "lib/rate"
--- @include "lib/lent_rate"
-- The rates at which all senders of all hosts together may send, in messages and in bytes.
local LOOK_MS = 1000 -- after which a slice is asked again at the latest, if nobody brings it more of the rate

-- What may be sent now of one rate. A slice sends what it has in hand.
local function sendable(kind, tat)
  if d.of_slices then
    local h = read_hand(kind)
    return h.granted - h.spent - h.back
  end
  return tokens_left(d[kind .. '_rate'], d[kind .. '_burst'], tat)
end

-- What all senders together may send now: how many of the first messages, and in how many ms one (more) may go.
-- A message above the whole burst goes when the burst is whole, and is owed after.
local function within_send_rate(sizes)
  local set_back = math.max(0, d.send_us - now_us) -- a clock that was set back must not lock the bucket
  d.send_tat, d.send_byte_tat = d.send_tat - set_back, d.send_byte_tat - set_back
  local count, again = #sizes, 0
  if d.send_rate then
    local tokens = sendable('send', d.send_tat)
    count = math.min(count, math.max(0, math.floor(tokens)))
    again = (count + 1 - tokens) * 1000 / d.send_rate
  end
  if d.send_byte_rate then
    local tokens, whole = sendable('send_byte', d.send_byte_tat), d.of_slices and math.huge or d.send_byte_burst
    for i = 1, count do
      local least = math.min(sizes[i], whole)
      if tokens < least then
        count = i - 1
        again = math.max(again, (least - tokens) * 1000 / d.send_byte_rate)
        break
      end
      tokens = tokens - sizes[i]
    end
  end
  return count, d.of_slices and LOOK_MS or math.max(1, math.ceil(again))
end

local function charge_one(kind, tat, amount)
  if d.of_slices and amount > 0 then
    local h = read_hand(kind)
    h.spent = h.spent + amount
    save_hand(kind, h)
  elseif not d.of_slices then
    redis.call('HSET', K_DESTINATION, kind .. '_tat', int(owe(tat, amount, d[kind .. '_rate'])))
  end
end

local function charge_send_rate(messages, bytes)
  redis.call('HSET', K_DESTINATION, 'send_us', int(now_us))
  if d.send_rate then
    charge_one('send', d.send_tat, messages)
  end
  if d.send_byte_rate then
    charge_one('send_byte', d.send_byte_tat, bytes)
  end
end
