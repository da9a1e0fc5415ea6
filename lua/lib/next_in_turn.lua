--- @include "lib/deliveryrate"
--- @include "lib/in_turn"
--- @include "lib/next_by_band"
--- @include "lib/next_in_order"
--- @include "lib/selecting"
--- @include "lib/weights"
-- What a consumer gets next, of a queue with `fair_by` above all.
local TURN = 1048576 -- steps of a turn: of a key with weight 1 one message, of a slice without keys all that nobody had
local MOST_TURN = 1125899906842624
local MAX_PASSED = 512

-- Each key in its turn, and of one that is before the next one's as many as bring it there.
local function take_turns(most)
  local ids, more, turned = {}, true, 0
  local keys = d.of_slices and redis.call('ZCARD', K_ROTA)
  for _ = 1, MAX_PASSED do
    local first = redis.call('ZRANGE', K_ROTA, 0, 1, 'WITHSCORES')
    local key, at, following = first[1], first[2], first[4]
    more = key and #ids < most
    if not more then
      break
    end
    local step = math.ceil(TURN / weight_among(d.fair_weights or '', key))
    local some = math.min(most - #ids, following and math.max(1, math.ceil((following - at) / step)) or most)
    local its = redis.call('ZRANGEBYLEX', K_FAIR, '[' .. key .. ' ', '(' .. key .. '!', 'LIMIT', 0, int(some))
    if #its == 0 then
      redis.call('ZREM', K_ROTA, key) -- its turn is over, and it has nothing more
      keys = keys and keys - 1
    else
      redis.call('ZREM', K_FAIR, unpack(its))
      redis.call('ZADD', K_ROTA, int(at + #its * step), key)
      turned = turned + (keys and #its * step / keys or 0) -- of those in turn then: a fetch that empties the slice removes all
      if at + #its * step > MOST_TURN then -- counted anew, in the same order
        redis.call('ZUNIONSTORE', K_ROTA, 1, K_ROTA, 'WEIGHTS', 1 / MOST_TURN)
      end
    end
    for _, member in ipairs(its) do
      ids[#ids + 1] = in_turn().id_in(member)
    end
  end
  d.more = d.more or more
  d.turned = (d.turned or 0) + math.ceil(turned) -- of a slice, whose consumers go by it to the next
  return ids
end

-- Returns entries, delivered to the consumer now, and how many were looked at; nil where nothing is in turn any more.
local function read_in_turn(c, cid, most)
  in_turn().sort()
  local ids = c.after and take_in_order(c, most) or d.fair_by == BY_PRIORITY and take_by_band(most) or take_turns(most)
  if #ids == 0 and not d.fair_by and redis.call('EXISTS', K_FAIR) == 0 then
    redis.call('HDEL', K_DESTINATION, 'fair_left', 'sorted')
    redis.call('HSET', K_DESTINATION, 'rules', name_rules())
    redis.call('DEL', K_ROTA)
    d.fair, d.fair_left = nil, nil
  end
  if #ids == 0 then
    return d.fair_by and {} or nil, 0
  end
  local claim, there, entries = { 'XCLAIM', K_MESSAGES, c.sub, cid, 0 }, {}, {}
  for i, id in ipairs(ids) do
    claim[5 + i] = id
  end
  claim[#claim + 1] = 'FORCE'
  for _, entry in ipairs(redis.call(unpack(claim))) do
    if entry then
      entries[#entries + 1], there[entry[1]] = entry, true
    end
  end
  for _, id in ipairs(#entries < #ids and ids or {}) do
    if not there[id] then
      redis.call('XACK', K_MESSAGES, c.sub, id) -- Redis 6.2 claims what is not there
    end
  end
  return entries, #ids
end

-- New ones, up to that many, and how many were looked at.
local function read_new(c, cid, most)
  if d.fair and c.sub == 'queue' then
    local entries, looked_at = read_in_turn(c, cid, most)
    if entries then
      return entries, looked_at
    end
  end
  local reply = redis.call('XREADGROUP', 'GROUP', c.sub, cid, 'COUNT', int(most), 'STREAMS', K_MESSAGES, '>')
  local entries = reply and reply[1] and reply[1][2] or {}
  note_read(c.sub, entries, most)
  return d.kind == 'topic' and wanted(c.sub, entries) or entries, #entries
end
