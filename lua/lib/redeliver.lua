--- @include "lib/expiry"
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
  local bytes, payload, n = 0, 0, #out
  for _, entry in ipairs(entries) do
    local body = entry[2][2]
    local reference = is_reference(body)
    out[n + 1], out[n + 2] = entry[1], reference and hot_body(entry[1], body) or body
    n, bytes = n + 2, bytes + (reference and size_of(entry[1]) or #body)
    payload = payload + (reference and payload_size(body) or #body)
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

local function deliver_returned(cid, c, out, counts, max_messages, max_bytes, whole)
  local claim, ids, all = { 'XCLAIM', K_MESSAGES, c.sub, cid, 0 }, {}, 0
  local spooled = redis.call('EXISTS', K_SPOOLED) == 1
  for _, id in ipairs(pending_ids(c.sub, RETURNED, max_messages)) do
    local size = spooled and payload_of(id) or size_of(id)
    if all > 0 and all + size > max_bytes then
      break
    end
    all = all + size
    ids[#ids + 1] = id
  end
  local read = #ids
  d.returned = d.returned - read
  ids = unexpired(c.sub, ids)
  if #ids == 0 then
    return read, 0, 0
  end
  for i, id in ipairs(ids) do
    claim[5 + i] = id
  end
  for i, n in ipairs(delivery_counts(c.sub, ids)) do
    counts[i] = n or '0'
  end
  return read, take(out, redis.call(unpack(claim)), whole)
end
