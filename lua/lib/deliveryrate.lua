--- @include "lib/rate"
-- The rate at which all consumers of all hosts together are given messages.
local EPSILON = 1e-6 -- of a message: what rounding to microseconds may take

local function keep_tat(tat)
  d.delivery_tat = tat
  redis.call('HSET', K_DESTINATION, 'delivery_tat', int(tat))
end

-- Microseconds for which the burst is owed.
local function owed_us()
  return math.max(d.delivery_tat - now_us, 0)
end

local function deliverable(wanted)
  if not d.delivery_rate then
    return wanted
  end
  local whole = d.delivery_burst * 1000000 / d.delivery_rate
  if owed_us() > whole + 1 then
    keep_tat(now_us + math.ceil(whole)) -- a clock set back, or a rate that was raised, must not lock it
  end
  return math.min(wanted, math.max(0, math.floor(tokens_left(d.delivery_rate, d.delivery_burst, d.delivery_tat) + EPSILON)))
end

local function count_delivered(messages)
  if d.delivery_rate and messages > 0 then
    keep_tat(owe(d.delivery_tat, messages, d.delivery_rate))
  end
end

-- Milliseconds until some of `wanted` more may be delivered: one, or at high rates 20 ms' worth, so that a call brings
-- more than one.
local function delivery_due_ms(wanted)
  local some = math.max(1, math.min(wanted, d.delivery_burst, math.floor(d.delivery_rate / 50)))
  return math.max(1, math.ceil((owed_us() - (d.delivery_burst - some) * 1000000 / d.delivery_rate) / 1000))
end
