--- @include "lib/destination"
--- @include "lib/in_turn"
--- @include "lib/later"
--- @include "lib/plain"
--- @include "lib/reference"
local MOST_KEY = 128 -- bytes
-- Messages into the stream, each with its number and what it counts for under the limit as its id, the moment at which it
-- expires, if it does, and the places that it came through, if it came over links.

-- Stores one message under a number, and returns its id. `counts` are its bytes under the limit; `key` is the one in whose
-- turn it is delivered, where keys take turns; `due` the moment before which it is not; `without` the subscriptions that it
-- is not for.
local function store(seq, body, expires_ms, path, counts, key, due, without)
  local id = string.format('%d-%d', seq, counts)
  local entry = { 'XADD', K_MESSAGES, id, 'm', body }
  if expires_ms > 0 then
    entry[6], entry[7] = 'x', int(now_ms + expires_ms)
    redis.call('ZADD', K_EXPIRY, entry[7], id)
  end
  if path ~= '' then
    entry[#entry + 1], entry[#entry + 2] = 'h', path
  end
  if due then
    entry[#entry + 1], entry[#entry + 2] = 'd', int(due)
  end
  if key then
    entry[#entry + 1], entry[#entry + 2] = 'k', key
  end
  local readers = d.subscriptions
  if without and #without > 0 then
    entry[#entry + 1], entry[#entry + 2] = 's', table.concat(without, ' ')
    readers = readers - #without
  end
  redis.call(unpack(entry))
  if readers > 1 then
    redis.call('HSET', K_REFS, int(seq), int(readers))
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
local function append_one(body, expires_ms, path, kept, payload, key, due, without)
  local seq = d.message_seq + 1
  local id = kept and store(seq, body, expires_ms, path, payload and 0 or #body, key, due, without)
  d.message_seq, d.largest_bytes = seq, math.max(d.largest_bytes, payload or #body)
  return id
end

-- The keys of that many messages, where keys take turns: those that a call says, one after the other, else the producer or none.
local function keys_of(text, producer, count)
  if not d.fair_by then
    return nil
  end
  local keys = {}
  for key in string.gmatch(text, '%S+') do
    keys[#keys + 1] = #key <= MOST_KEY and key or NO_KEY
  end
  for i = #keys + 1, count do
    keys[i] = d.fair_by == 'producer' and producer or NO_KEY
  end
  return keys
end

-- Appends what came over a link, of which these ARGV are the first; `keys` are those of all that begin after `at`, and
-- `payloads` the bytes of what these lead to, where they are references.
local function append_each(puts, at, keys, kept, payloads)
  local before, ids, its, dues = d.message_seq, {}, {}, {}
  for n, i in ipairs(puts) do
    local life, wait = string.match(ARGV[i + 1], '^(%w+)%+?(%d*)$')
    its[n], dues[n] = keys and keys[(i - at + 3) / 4], wait ~= '' and dues_of(wait, 1)[1]
    ids[n] = append_one(ARGV[i + 3], shortest_ms(tonumber(life) or 0), ARGV[i + 2], kept, payloads and payloads[n], its[n], dues[n])
  end
  if kept then
    send_later(ids, dues)
  end
  if keys then
    in_turn().added(before, ids, its, dues)
  end
end

-- Appends `count` of ARGV after `at`, all of them references or none; returns whether they are stored. `keys`, where keys
-- take turns, are those of each, `dues` the moments of those for later, and `unwanted` the subscriptions that each is not for.
-- Returns also how many nobody wants, and their bytes: these are not stored.
local function append(at, count, expires_ms, references, keys, dues, unwanted)
  local kept, before, ids, idle, idle_b = keeps_messages(), d.message_seq, {}, 0, 0
  expires_ms = shortest_ms(expires_ms)
  if kept and expires_ms == 0 and d.subscriptions < 2 and not (keys or dues or unwanted) then
    return append_plain(at, count, references), 0, 0
  end
  for i = 1, count do
    local payload = references and payload_size(ARGV[at + i])
    local without = kept and unwanted and unwanted[i]
    if without and #without == d.subscriptions then
      idle, idle_b, d.message_seq = idle + 1, idle_b + #ARGV[at + i], d.message_seq + 1
      ids[i] = false
    elseif without then
      ids[i] = append_one(ARGV[at + i], expires_ms, '', kept, payload, nil, dues and dues[i], without)
    else
      ids[i] = append_one(ARGV[at + i], expires_ms, '', kept, payload, keys and keys[i], dues and dues[i])
    end
  end
  if dues and kept then
    send_later(ids, dues)
  end
  if keys then
    in_turn().added(before, ids, keys, dues)
  end
  if idle > 0 then
    note('purge', '-', int(idle_b), int(idle))
  end
  return kept, idle, idle_b
end
