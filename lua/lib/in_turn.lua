--- @include "lib/aside"
-- Of a queue with the rule `fair_by`: its keys take turns. In `fair` is each message that nobody has, under its key and in
-- order, and in `rota` each key that has some, or had until its turn is over, scored with its next turn. The group of the
-- stream stands behind all that is sorted so, up to number `sorted`.
local NO_KEY = '*' -- of messages without one
local MOST_KEYS = 100000 -- in turn; messages of any more go with those without one
local MAX_SORTED = 256
local MOST_SORTED = 4194304
local turns -- functions, made when they are needed: most destinations have no such rule

local function in_turn()
  if turns then
    return turns
  end
  turns = {}
  local joined = {} -- by key, in this call: under which it is in turn

  local function key_in(fields) -- the last of them
    return fields[#fields - 1] == 'k' and fields[#fields] or NO_KEY
  end

  local function member_of(key, id)
    local seq, size = string.match(id, '^(%d+)%-(%d+)$')
    return string.format('%s %016d-%s', key, seq, size)
  end

  -- A key that comes has its turn with the next of those that are there.
  local function join(key)
    if not redis.call('ZSCORE', K_ROTA, key) then
      if key ~= NO_KEY and redis.call('ZCARD', K_ROTA) >= MOST_KEYS then
        return join(NO_KEY)
      end
      redis.call('ZADD', K_ROTA, redis.call('ZRANGE', K_ROTA, 0, 0, 'WITHSCORES')[2] or 0, key)
    end
    return key
  end

  -- Puts messages where they belong among those of their keys.
  local function file(keys, ids)
    local add = { 'ZADD', K_FAIR }
    for i, id in ipairs(ids) do
      joined[keys[i]] = joined[keys[i]] or join(keys[i])
      add[2 * i + 1], add[2 * i + 2] = 0, member_of(joined[keys[i]], id)
    end
    if #ids > 0 then
      redis.call(unpack(add))
    end
  end

  function turns.file(entries)
    local keys, ids = {}, {}
    for i, entry in ipairs(entries) do
      keys[i], ids[i] = key_in(entry[2]), entry[1]
    end
    file(keys, ids)
  end

  local function note_sorted(seq)
    if d.sorted ~= seq then
      d.sorted = seq
      redis.call('HSET', K_DESTINATION, 'sorted', int(seq))
    end
  end

  function turns.has(entry, key)
    return redis.call('ZSCORE', K_FAIR, member_of(key or key_in(entry[2]), entry[1]))
  end

  -- Takes entries of the stream out of those in turn.
  function turns.unfile(entries)
    local out = { 'ZREM', K_FAIR }
    for _, entry in ipairs(entries) do
      out[#out + 1], out[#out + 2] = member_of(key_in(entry[2]), entry[1]), member_of(NO_KEY, entry[1])
    end
    if #entries > 0 then
      redis.call(unpack(out))
    end
  end

  function turns.forget(id)
    turns.unfile(redis.call('XRANGE', K_MESSAGES, id, id))
    return id
  end

  function turns.begin()
    redis.call('DEL', K_FAIR, K_ROTA)
    note_sorted(0)
  end

  -- Sorts a piece of what is not: it was there before the rule was, or came over a script that knows none.
  function turns.sort()
    if not d.fair_by or d.sorted == d.message_seq or redis.call('HEXISTS', K_SUBSCRIPTIONS, 'queue') == 0 then
      return
    end
    local most = math.max(1, math.min(MAX_SORTED, math.floor(MOST_SORTED / math.max(1, d.largest_bytes))))
    local reply = redis.call('XREADGROUP', 'GROUP', 'queue', IN_TURN, 'COUNT', int(most), 'NOACK', 'STREAMS', K_MESSAGES, '>')
    local entries = reply and reply[1] and reply[1][2] or {}
    turns.file((timely('queue', entries)))
    d.more = #entries == most
    note_sorted(d.more and tonumber(string.match(entries[most][1], '^%d+')) or d.message_seq)
  end

  -- Sorts what was appended just now after number `before`: at once, where all before it is sorted, but for what is due later.
  function turns.added(before, ids, keys, dues)
    if d.sorted ~= before or redis.call('HEXISTS', K_SUBSCRIPTIONS, 'queue') == 0 then
      turns.sort()
    elseif #ids > 0 then
      redis.call('XGROUP', 'SETID', K_MESSAGES, 'queue', ids[#ids])
      file(keys, aside_of(keys, ids, dues))
      note_sorted(d.message_seq)
    end
  end

  -- Puts deliveries that came back where they were: before all others of their keys.
  function turns.back(ids)
    local entries = {}
    for _, id in ipairs(ids) do
      entries[#entries + 1] = redis.call('XRANGE', K_MESSAGES, id, id)[1]
    end
    turns.file(entries)
  end

  return turns
end
