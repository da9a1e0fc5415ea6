--- @include "lib/consumer"
--- @include "lib/lent_rate"
-- The rate at which all consumers of all hosts together are given messages. A slice gives what it has in hand, and is lent more for
-- messages that are there: by `read_to`, the number of the last that a subscription has read.
local EPSILON = 1e-6 -- of a message: what rounding to microseconds may take
local LOOK_MS = 1000 -- after which a slice is asked again at the latest, if nobody brings it more of the rate

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
  elseif d.of_slices then
    local h = read_hand('delivery')
    return math.min(wanted, h.granted - h.spent - h.back)
  end
  local whole = d.delivery_burst * 1000000 / d.delivery_rate
  if owed_us() > whole + 1 then
    keep_tat(now_us + math.ceil(whole)) -- a clock set back, or a rate that was raised, must not lock it
  end
  return math.min(wanted, math.max(0, math.floor(tokens_left(d.delivery_rate, d.delivery_burst, d.delivery_tat) + EPSILON)))
end

local function count_delivered(messages)
  if d.delivery_rate and d.of_slices and messages > 0 then
    local h = read_hand('delivery')
    h.spent = h.spent + messages
    save_hand('delivery', h)
  elseif d.delivery_rate and messages > 0 then
    keep_tat(owe(d.delivery_tat, messages, d.delivery_rate))
  end
end

-- Notes how far a subscription has read, where `most` were asked for.
local function note_read(sub, entries, most)
  if d.of_slices and d.delivery_rate then
    redis.call('HSET', K_DESTINATION, read_field(sub),
      #entries < most and int(d.message_seq) or string.match(entries[#entries][1], '^%d+'))
  end
end

-- How many of `most` there are for a subscription, as far as that is known.
local function there_are(sub, most)
  local due = d.promoted and #d.promoted or d.returned > 0 and #pending_ids(sub, RETURNED, most) or 0
  if d.fair and sub == 'queue' then
    return math.min(most, due + redis.call('ZCARD', K_FAIR) + d.message_seq - d.sorted)
  end
  local read = tonumber(redis.call('HGET', K_DESTINATION, read_field(sub)) or sub ~= 'queue' and read_subscription(sub).from or 0)
  return math.min(most, due + d.message_seq - read)
end

-- Milliseconds until some of `wanted` more may be delivered: one, or at high rates 20 ms' worth, so that a call brings
-- more than one. A slice notes what it lacks for those that are there.
local function delivery_due_ms(sub, wanted)
  wanted = d.of_slices and there_are(sub, wanted) or wanted
  local some = math.max(1, math.min(wanted, d.delivery_burst, math.floor(d.delivery_rate / 50)))
  if d.of_slices then
    d.lacks = wanted > 0 and { int(some), int(wanted) } or nil
    return wanted > 0 and LOOK_MS or 0
  end
  return math.max(1, math.ceil((owed_us() - (d.delivery_burst - some) * 1000000 / d.delivery_rate) / 1000))
end
