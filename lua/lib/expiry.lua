--- @include "lib/in_turn"
--- @include "lib/settle"
-- Messages that expire. `expiry` holds the moment of each; EXPIRED for one that consumers had in hand at that moment:
-- it is theirs until they settle it or give it back, and nobody else's.
local MAX_MOVED = 64
local EXPIRED = 'inf'

-- Whether its time is over (or was seen to be over, before the clock was set back), and whether the sweep saw that.
local function is_over(id)
  local at = redis.call('ZSCORE', K_EXPIRY, id)
  return at and (at == EXPIRED or tonumber(at) <= now_ms), at == EXPIRED
end

local function note_expired(messages, bytes)
  if messages > 0 then
    d.expired = true -- room was made
    note('expired', int(bytes), int(messages))
  end
end

-- What is over leaves the subscription's hands for good.
local function settle_expired(sub, ids)
  local _, _, messages, bytes = settle_ids(sub, ids, true)
  note_expired(messages, bytes)
end

-- Of deliveries that come back: those that are not over. The others are settled.
local function unexpired(sub, ids)
  if #ids == 0 or none_expires() then
    return ids
  end
  local living, over = {}, {}
  for _, id in ipairs(ids) do
    local list = is_over(id) and over or living
    list[#list + 1] = id
  end
  settle_expired(sub, over)
  return living
end

-- Of entries that were just read for the first time: those that are not over. One that the sweep saw does not wait for
-- this subscription any more, so it is only taken out of its hands.
local function unexpired_entries(sub, entries)
  if none_expires() then
    return entries
  end
  local living, over = {}, {}
  for _, entry in ipairs(entries) do
    local gone, seen = false, false
    if entry[2][3] then
      gone, seen = is_over(entry[1])
    end
    if not gone then
      living[#living + 1] = entry
    elseif seen then
      redis.call('XACK', K_MESSAGES, sub, entry[1])
    else
      over[#over + 1] = entry[1]
    end
  end
  settle_expired(sub, over)
  return living
end

-- How many subscriptions have it in a consumer's hands; those where it awaits redelivery let go of it.
local function count_holders(id, subs)
  local holders = 0
  for _, sub in ipairs(subs) do
    local entry = redis.call('XPENDING', K_MESSAGES, sub, id, id, 1)[1]
    local who = entry and entry[2]
    if who == RETURNED or who == LATER or who == IN_TURN then
      d.returned = d.returned - redis.call('XACK', K_MESSAGES, sub, id) * (who == RETURNED and 1 or 0)
      redis.call('HDEL', K_REDELIVERED, sub .. '|' .. id)
      forget_later({ sub .. '|' .. id })
    elseif who and who ~= ENDED then
      holders = holders + 1
    end
  end
  return holders
end

-- A bounded piece of what is due; returns whether there was any.
local function expire_due()
  if none_expires() then
    return false
  end
  local due = redis.call('ZRANGEBYSCORE', K_EXPIRY, '-inf', int(now_ms), 'LIMIT', 0, MAX_MOVED)
  if #due == 0 then
    return false
  end
  if d.grows then
    redis.call('HSET', K_DESTINATION, 'kind', d.kind) -- as in reap_leases: under OOM nothing is applied
  end
  local subs, gone, bytes = redis.call('HKEYS', K_SUBSCRIPTIONS), {}, 0
  for i = 1, math.min(#due, math.max(1, math.floor(MAX_MOVED / math.max(1, #subs)))) do
    local id = d.fair and in_turn().forget(due[i]) or due[i]
    local seq, holders = string.match(id, '^(%d+)'), count_holders(id, subs)
    if holders > 1 then
      redis.call('HSET', K_REFS, seq, int(holders))
    else
      redis.call('HDEL', K_REFS, seq)
      cool(seq)
    end
    if holders > 0 then
      redis.call('ZADD', K_EXPIRY, EXPIRED, id)
    else
      gone[#gone + 1], bytes = id, bytes + size_of(id)
    end
  end
  free_messages(gone, bytes, true)
  note_expired(#gone, bytes)
  return true
end

-- Milliseconds until the next message expires; nothing when none will.
local function next_expiry_ms()
  local first = redis.call('ZRANGE', K_EXPIRY, 0, 0, 'WITHSCORES')[2]
  return first and first ~= EXPIRED and math.max(0, tonumber(first) - now_ms) or nil
end
