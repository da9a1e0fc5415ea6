--- @include "lib/putback"
--- @include "lib/hot"
-- What came back goes first: claimed for its next consumer, in order, within the room of that one's window.
local function delivery_counts(sub, ids)
  local fields = {}
  for i, id in ipairs(ids) do
    fields[i] = sub .. '|' .. id
  end
  return redis.call('HMGET', K_REDELIVERED, unpack(fields))
end

-- Where keys take turns, what failed comes among what is new: adds how often, after those of that many.
local function count_attempts(sub, entries, counts, before)
  if not d.fair or #entries == 0 or redis.call('EXISTS', K_REDELIVERED) == 0 then
    return
  end
  local ids = {}
  for i, entry in ipairs(entries) do
    ids[i] = entry[1]
  end
  for i, n in ipairs(delivery_counts(sub, ids)) do
    counts[before + i] = n or '0'
  end
end

-- Returns the bytes that they count for under the limit, and those that count for a window: the payload of references.
local function take(out, entries, whole)
  local bytes, payload, n, byte = 0, 0, #out, string.byte
  for _, entry in ipairs(entries) do
    local id, body = entry[1], entry[2][2]
    if byte(body) == REFERENCE then
      out[n + 1], out[n + 2], bytes, payload = id, hot_body(id, body), bytes + size_of(id), payload + payload_size(body)
    else
      out[n + 1], out[n + 2], bytes, payload = id, body, bytes + #body, payload + #body
    end
    n = n + 2
    if whole then
      whole[#whole + 1] = entry
    end
  end
  return bytes, payload
end

-- A reference says in its body alone how large its payload is.
local function payload_of(id)
  local entry = redis.call('XRANGE', K_MESSAGES, id, id)[1]
  return entry and payload_size(entry[2][2]) or 0
end

-- How many of these, in order, are within the room of a window; the first always is.
local function fitting(ids, max_messages, max_bytes)
  local all, spooled = 0, redis.call('EXISTS', K_SPOOLED) == 1
  for i = 1, math.min(#ids, max_messages) do
    all = all + (spooled and payload_of(ids[i]) or size_of(ids[i]))
    if i > 1 and all > max_bytes then
      return i - 1
    end
  end
  return math.min(#ids, max_messages)
end

-- What awaits redelivery; where nothing does, what this call promoted. Nobody may have read some of that yet: it is not
-- claimed, and comes as what is new.
local function deliver_returned(cid, c, out, counts, max_messages, max_bytes, whole)
  if d.returned > 0 then
    give_promoted_back(c.sub)
  end
  local due = d.promoted
  local ids = due or pending_ids(c.sub, RETURNED, max_messages)
  local read = fitting(ids, max_messages, max_bytes)
  d.promoted, d.returned = due and { unpack(ids, read + 1) }, d.returned - (due and 0 or read)
  local living, entries, claimed = unexpired(c.sub, { unpack(ids, 1, read) }), {}, {}
  for _, entry in ipairs(#living > 0 and redis.call('XCLAIM', K_MESSAGES, c.sub, cid, 0, unpack(living)) or {}) do
    if entry then
      entries[#entries + 1], claimed[#claimed + 1] = entry, entry[1]
    end
  end
  local had = not due or d.promoted_again or redis.call('EXISTS', K_REDELIVERED) == 1
  for i, n in ipairs(had and #claimed > 0 and delivery_counts(c.sub, claimed) or {}) do
    counts[i] = n or '0'
  end
  return read - #living + #entries, take(out, entries, whole)
end
