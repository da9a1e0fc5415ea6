--- @include "lib/destination"
--- @include "lib/reference"
-- Messages into the stream, each with its number and what it counts for under the limit as its id, the moment at which it
-- expires, if it does, and the places that it came through, if it came over links.

-- Stores one message under a number, and returns its id. `counts` are its bytes under the limit.
local function store(seq, body, expires_ms, path, counts)
  local id = string.format('%d-%d', seq, counts)
  local entry = { 'XADD', K_MESSAGES, id, 'm', body }
  if expires_ms > 0 then
    entry[6], entry[7] = 'x', int(now_ms + expires_ms)
    redis.call('ZADD', K_EXPIRY, entry[7], id)
  end
  if path ~= '' then
    entry[#entry + 1], entry[#entry + 2] = 'h', path
  end
  redis.call(unpack(entry))
  if d.subscriptions > 1 then
    redis.call('HSET', K_REFS, int(seq), int(d.subscriptions))
  end
  return id
end

local function shortest_ms(expires_ms)
  if d.message_ttl_ms and (expires_ms == 0 or d.message_ttl_ms < expires_ms) then
    return d.message_ttl_ms
  end
  return expires_ms
end

-- Whether messages are kept: a topic without subscriptions keeps nothing.
local function keeps_messages()
  return d.kind ~= 'topic' or d.subscriptions > 0
end

-- Gives a message the next number, and stores it if messages are kept. `payload` are the bytes of what a reference leads
-- to; a reference counts nothing under the limit, for it has one of its own.
local function append_one(body, expires_ms, path, kept, payload)
  local seq = d.message_seq + 1
  if kept then
    store(seq, body, expires_ms, path, payload and 0 or #body)
  end
  d.message_seq, d.largest_bytes = seq, math.max(d.largest_bytes, payload or #body)
end

-- Appends `count` of ARGV after `at`, all of them references or none; returns whether they are stored.
local function append(at, count, expires_ms, references)
  local kept = keeps_messages()
  expires_ms = shortest_ms(expires_ms)
  for i = 1, count do
    append_one(ARGV[at + i], expires_ms, '', kept, references and payload_size(ARGV[at + i]))
  end
  return kept
end
