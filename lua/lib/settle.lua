--- @include "lib/consumer"
--- @include "lib/hot"
--- @include "lib/later"
-- Free messages exactly once. What is freed is known from the ids alone: XACK counts only ids it really delivered.

-- Whether a message here has one reader, whose settlement frees it.
local function has_one_reader()
  return d.kind ~= 'topic' and d.subscriptions < 2 and d.orphans == 0
end

-- A message lives until its last subscription settled it; `refs` counts only where there are two or more. A queue has
-- others than its own while links copy from it, and until what they left behind is worked off.
local function last_reference(id)
  if has_one_reader() then
    return true
  end
  local seq = string.match(id, '^(%d+)')
  local left = tonumber(redis.call('HGET', K_REFS, seq) or 1)
  if left > 2 then
    redis.call('HINCRBY', K_REFS, seq, -1)
  elseif left == 2 then
    redis.call('HDEL', K_REFS, seq)
    if may_be_reference(id) then
      cool(seq)
    end
  end
  return left == 1
end

-- Whether no message here expires; Redis is asked once a call, for at most destinations none does.
local function none_expires()
  if d.lasting == nil then
    d.lasting = redis.call('EXISTS', K_EXPIRY) == 0
  end
  return d.lasting
end

-- Take messages out that nobody waits for any more; `early`: some may not be due yet.
local function free_messages(gone, bytes, early)
  if #gone > 0 then
    redis.call('XDEL', K_MESSAGES, unpack(gone))
    if not none_expires() then
      redis.call('ZREM', K_EXPIRY, unpack(gone))
    end
    if early then
      forget_later(gone)
    end
  end
  d.pending_bytes, d.pending_messages = d.pending_bytes - bytes, d.pending_messages - #gone
  if d.pending_messages == 0 then
    d.largest_bytes = 0
  end
end

-- Of these, those that the one reader had in hand, and that so many were. What it settled before is gone, and what nobody
-- was given yet comes after all that somebody was.
local function those_in_hand(ids, count)
  local there, seen = {}, {}
  for _, id in ipairs(ids) do
    if not seen[id] and #redis.call('XRANGE', K_MESSAGES, id, id) == 1 then
      there[#there + 1] = id
    end
    seen[id] = true
  end
  return { unpack(put_in_order(there), 1, count) }
end

-- The bytes of these, which whoever read them has counted where none was taken out since.
local function bytes_of(ids)
  local bytes = ids.bytes or 0
  if not ids.bytes then
    for _, id in ipairs(ids) do
      bytes = bytes + size_of(id)
    end
  end
  return bytes
end

-- Returns deliveries settled and their bytes, messages freed and their bytes. Those of one reader are acknowledged at
-- once: Redis says how many it knew, and mostly these are all.
local function settle_ids(sub, ids, early)
  local gone, settled, settled_bytes, freed_bytes = {}, 0, 0, 0
  if #ids > 1 and has_one_reader() then
    settled = redis.call('XACK', K_MESSAGES, sub, unpack(ids))
    gone = settled == #ids and ids or those_in_hand(ids, settled)
    freed_bytes = bytes_of(gone)
    settled_bytes = freed_bytes
  else
    for _, id in ipairs(ids) do
      if redis.call('XACK', K_MESSAGES, sub, id) == 1 then
        local size = size_of(id)
        settled, settled_bytes = settled + 1, settled_bytes + size
        if last_reference(id) then
          gone[#gone + 1] = id
          freed_bytes = freed_bytes + size
        end
      end
    end
  end
  if settled > 0 and redis.call('EXISTS', K_REDELIVERED) == 1 then
    for _, id in ipairs(ids) do
      redis.call('HDEL', K_REDELIVERED, sub .. '|' .. id)
    end
  end
  free_messages(gone, freed_bytes, early)
  return settled, settled_bytes, #gone, freed_bytes
end
