--- @include "lib/destination"
-- Rates as GCRA: `tat` is the moment (us) at which the burst will be whole again; before it the bucket owes.
local function tokens_left(rate, burst, tat)
  return burst - math.max(0, tat - now_us) * rate / 1000000
end

local function tat_with(tokens, rate, burst)
  return now_us + math.ceil((burst - tokens) * 1000000 / rate)
end

-- Before a rate changes: the tokens that are left (or owed) stay, at most the new burst of them.
local function carry_over(settings, rate_field, burst_field, tat_field, us_field)
  local rate, burst = tonumber(settings[rate_field]), tonumber(settings[burst_field])
  local old = redis.call('HMGET', K_DESTINATION, rate_field, burst_field, tat_field, us_field)
  local old_rate, old_burst, tat = tonumber(old[1]), tonumber(old[2]), tonumber(old[3])
  if not rate or not burst or not old_rate or not tat or (rate == old_rate and burst == old_burst) then
    return
  end
  tat = tat - math.max(0, tonumber(old[4] or 0) - now_us)
  local tokens = math.min(tokens_left(old_rate, old_burst, tat), burst)
  redis.call('HSET', K_DESTINATION, tat_field, int(tat_with(tokens, rate, burst)), us_field, int(now_us))
end

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
    local tokens = tokens_left(d.send_rate, d.send_burst, d.send_tat) - messages
    redis.call('HSET', K_DESTINATION, 'send_tat', int(tat_with(tokens, d.send_rate, d.send_burst)))
  end
  if d.send_byte_rate then
    local tokens = tokens_left(d.send_byte_rate, d.send_byte_burst, d.send_byte_tat) - bytes
    redis.call('HSET', K_DESTINATION, 'send_byte_tat', int(tat_with(tokens, d.send_byte_rate, d.send_byte_burst)))
  end
end
