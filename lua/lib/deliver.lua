--- @include "lib/deliveryrate"
--- @include "lib/next_in_turn"
--- @include "lib/redeliver"
-- Deliver within the room of a consumer's window: what came back first, in order, then what is new.
local MAX_DELIVERED = 256

-- Returns {id, body, id, body...}, the attempt counts of the first of them, their bytes, and in how many ms to look
-- again: 0 when there is nothing to fetch now, else the rate or the bytes held some back, or some had expired. At least one message,
-- however large, is delivered when there is any room; sizes are bounded by the largest stored, so the room is never overshot by more.
-- Who wants more of them than id and body gives `whole`, a table for their entries. A consumer that finds nothing is woken
-- for what comes: one at which somebody waits before all that have room alone. Of those of a slice, whose room is for its own senders, the
-- one that holds least of it: by turns half of what comes would go to the slowest, and the slice at twice its pace.
local AHEAD = 4503599627370496 -- of tickets
local BEHIND = 64
local function deliver(cid, c, max_messages, max_bytes, waits, whole)
  local out, counts, bytes, payload, read, again_ms = {}, {}, 0, 0, 0, 0
  max_messages = math.min(max_messages, MAX_DELIVERED)
  local most = deliverable(max_messages)
  if (d.promoted or d.returned > 0 and not c.after) and most > 0 then
    read, bytes, payload = deliver_returned(cid, c, out, counts, most, max_bytes, whole)
  end
  for _ = 1, MAX_DELIVERED do
    local left = most - read
    local fits = math.floor((max_bytes - payload) / math.max(d.largest_bytes, 1))
    if left < 1 or (fits < 1 and payload > 0) then
      break
    end
    local n = math.max(1, math.min(left, fits))
    local entries, looked_at = read_new(c, cid, n)
    local passed = 0
    if d.next_due and not whole then -- a link takes what is left of the time along
      entries, passed = timely(c.sub, entries)
    end
    read = read + looked_at - passed
    entries = unexpired_entries(c.sub, entries)
    count_attempts(c.sub, entries, counts, #out / 2)
    local stored, new = take(out, entries, whole)
    bytes, payload = bytes + stored, payload + new
    if looked_at < n and (d.more or not d.fair_left) then -- what comes after those that were in turn may follow
      break
    end
  end
  c.delivered, c.delivered_b = c.delivered + #out / 2, c.delivered_b + bytes
  count_delivered(#out / 2)
  if read > #out / 2 or d.more then
    again_ms = 1
  elseif most < max_messages and #out / 2 == most then
    again_ms = delivery_due_ms(c.sub, max_messages - most)
  elseif #out / 2 < max_messages and payload > 0 and d.largest_bytes > max_bytes - payload then
    again_ms = 1 -- the bytes are used up, not the messages
  end
  if again_ms == 0 and #out / 2 < max_messages then
    d.tickets = d.tickets + 1
    local ahead = d.kind == 'queue' and c.sub ~= 'queue' and 2 * AHEAD or waits > 0 and AHEAD or 0 -- a copy is not to be had from others
    local behind = d.of_slices and BEHIND * (c.delivered - c.settled) or 0
    redis.call('ZADD', K_HUNGRY, 'LT', int(d.tickets - ahead + behind), cid)
  else
    redis.call('ZREM', K_HUNGRY, cid)
  end
  return out, counts, bytes, again_ms
end

-- A reply was lost: everything this consumer holds, again, after the id it names; the client knows what it has.
local function deliver_again(cid, c, after)
  local out = {}
  local reply = redis.call('XREADGROUP', 'GROUP', c.sub, cid, 'COUNT', MAX_DELIVERED, 'STREAMS', K_MESSAGES, after)
  take(out, reply and reply[1] and reply[1][2] or {})
  return out
end

-- Whether nothing is left for it but what other consumers of its subscription hold.
local function is_beside(c)
  return d.consumers > 1 and d.pending_messages - count_later() > c.delivered - c.settled and read_subscription(c.sub).consumers > 1
end

-- For one that waits beside what others hold: they are asked for what they have not begun, at most five times a second
-- for a subscription; each may keep an equal part of all that is held, if it works on what it has. Of many, those who
-- hold most are asked, and as many of the others, from anywhere among them, so that nobody is passed over for ever.
local SEEK_MS = 200
local MAX_ASKED = 64
local function seek(c)
  local field = sought_field(c.sub)
  local before = tonumber(redis.call('HGET', K_DESTINATION, field) or 0)
  if math.abs(now_ms - before) < SEEK_MS then
    return
  end
  redis.call('HSET', K_DESTINATION, field, int(now_ms))
  local held = redis.call('XPENDING', K_MESSAGES, c.sub)
  local holders = held[4] or {}
  table.sort(holders, function(one, other)
    return tonumber(one[2]) > tonumber(other[2])
  end)
  local keep = math.floor(held[1] / read_subscription(c.sub).consumers)
  local most = #holders > MAX_ASKED and MAX_ASKED / 2 or #holders
  for i = 1, math.min(#holders, MAX_ASKED) do
    local at = i <= most and i or most + 1 + (now_us + i) % (#holders - most)
    local sid = session_of(holders[at][1])
    if sid then
      wake(sid, 'wanted', holders[at][1], int(keep))
    end
  end
end

-- As deliver, where `waits` receivers wait and have none; returns also whether nothing is left but what others hold.
local function deliver_to(cid, c, room, max_bytes, waits)
  local first = waits > 0 and (d.returned > 0 or d.promoted) and d.consumers > 1 and math.min(waits, room) or room
  local out, counts, bytes, again_ms = deliver(cid, c, first, max_bytes, waits)
  if #out / 2 == first and first < room then
    again_ms = 1 -- the rest is for whoever comes first, once others that wait had theirs
  end
  local beside = #out == 0 and again_ms == 0 and is_beside(c)
  if beside and waits > 0 then
    seek(c)
  end
  return out, counts, bytes, again_ms > 0 and again_ms or due_soon_ms(cid), beside
end
