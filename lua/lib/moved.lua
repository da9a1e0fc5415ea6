--- @include "lib/link"
--- @include "lib/append"
-- A message that is moved by hand, while it is in neither stream: what is to be known of it, and itself, in `links`. The
-- destination counts it as pending, and how many there are in `moving`.
local MOVED = 'to=%s since=%d fence=%d was=%s seq=%d size=%d expires=%s due=%s key=%s path=%s'
local MOVED_PATTERN = '^to=(%S+) since=(%d+) fence=(%d+) was=(%S+) seq=(%d+) size=(%d+) expires=(%S+) due=(%S+) key=(%S+) path=(.*)$'

local function read_moved(link)
  local m = {}
  local since, fence, seq, size
  m.to, since, fence, m.was, seq, size, m.x, m.d, m.k, m.path =
    string.match(redis.call('HGET', K_LINKS, 'moves:' .. link) or '', MOVED_PATTERN)
  if m.to then
    m.fence, m.seq, m.size = tonumber(fence), tonumber(seq), tonumber(size)
    return m
  end
end

-- The answer to the one that took it, each time: what it takes along, and itself.
local function reply_moved(link, m)
  local life, path = carried({ 'm', '', 'h', m.path, 'd', m.d, m.x ~= '0' and 'x' or '', m.x })
  return { 'OK', int(d.epoch), int(m.seq), life, path, redis.call('HGET', K_LINKS, 'moved:' .. link) }
end

-- Takes a message out of the stream, and keeps it under a number; it stays pending.
local function take_out(link, entry, fence, seq, to)
  local fields, id = { x = 0, d = 0, k = '-', h = '' }, entry[1]
  for i = 1, #entry[2], 2 do
    fields[entry[2][i]] = entry[2][i + 1]
  end
  local size = size_of(id)
  redis.call('HSET', K_LINKS, 'moves:' .. link, string.format(MOVED, to, now_ms, fence, id, seq, size, fields.x, fields.d, fields.k,
    fields.h), 'moved:' .. link, fields.m)
  redis.call('HINCRBY', K_DESTINATION, 'moving', 1)
  free_alone(id)
  d.pending_bytes, d.pending_messages = d.pending_bytes + size, d.pending_messages + 1
  return read_moved(link)
end

-- It is the newest message of its queue then; where keys take turns, it is sorted with what comes next.
local function put_back_moved(link, m)
  local body, key = redis.call('HGET', K_LINKS, 'moved:' .. link), m.k ~= '-' and m.k or nil
  local due, life = tonumber(m.d) > now_ms and tonumber(m.d), m.x ~= '0' and math.max(1, tonumber(m.x) - now_ms) or 0
  local ids = { append_one(body, life, m.path, true, nil, key, due) }
  send_later(ids, { due })
  wake_hungry(1)
end

-- How many there are, and their bytes.
local function count_moved()
  local messages, bytes = 0, 0
  local names = redis.call('HEXISTS', K_DESTINATION, 'moving') == 1 and redis.call('HKEYS', K_LINKS) or {}
  for _, name in ipairs(names) do
    local moved = read_moved(string.match(name, '^moves:(.+)$') or '')
    messages, bytes = messages + (moved and 1 or 0), bytes + (moved and moved.size or 0)
  end
  return messages, bytes
end

local function forget_moved(link)
  redis.call('HDEL', K_LINKS, 'moves:' .. link, 'moved:' .. link)
  if redis.call('HINCRBY', K_DESTINATION, 'moving', -1) == 0 then
    redis.call('HDEL', K_DESTINATION, 'moving')
  end
end
