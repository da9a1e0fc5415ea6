--- @include "lib/rate"
-- The rates at which all senders of all hosts together may send, in messages and in bytes.

-- What all senders together may send now: how many of the first messages, and in how many ms one (more) may go.
-- A message above the whole burst goes when the burst is whole, and is owed after.
local function within_send_rate(sizes)
  local set_back = math.max(0, d.send_us - now_us) -- a clock that was set back must not lock the bucket
  d.send_tat, d.send_byte_tat = d.send_tat - set_back, d.send_byte_tat - set_back
  local count, again = #sizes, 0
  if d.send_rate then
    local tokens = tokens_left(d.send_rate, d.send_burst, d.send_tat)
    count = math.min(count, math.max(0, math.floor(tokens)))
    again = (count + 1 - tokens) * 1000 / d.send_rate
  end
  if d.send_byte_rate then
    local tokens = tokens_left(d.send_byte_rate, d.send_byte_burst, d.send_byte_tat)
    for i = 1, count do
      if tokens < math.min(sizes[i], d.send_byte_burst) then
        count = i - 1
        again = math.max(again, (math.min(sizes[i], d.send_byte_burst) - tokens) * 1000 / d.send_byte_rate)
        break
      end
      tokens = tokens - sizes[i]
    end
  end
  return count, math.max(1, math.ceil(again))
end

local function charge_send_rate(messages, bytes)
  redis.call('HSET', K_DESTINATION, 'send_us', int(now_us))
  if d.send_rate then
    redis.call('HSET', K_DESTINATION, 'send_tat', int(owe(d.send_tat, messages, d.send_rate)))
  end
  if d.send_byte_rate then
    redis.call('HSET', K_DESTINATION, 'send_byte_tat', int(owe(d.send_byte_tat, bytes, d.send_byte_rate)))
  end
end
