--- @include "lib/queue_bands"
--- @include "lib/destination"
-- Of a queue with the rule `fair_by`: its messages that nobody has, under their keys. In `fair` is each of them, in order, and in
-- `rota` each key that has some, or had until its turn is over.
local MOST_KEYS = 100000 -- in turn; messages of any more go with those without one

local function filing()
  local turns = {}
  local joined = {} -- by key, in this call: under which it is in turn

  local function key_in(fields) -- the last of them
    return fields[#fields - 1] == 'k' and fields[#fields] or NO_KEY
  end

  local function member_of(key, id)
    local seq, size = string.match(id, '^(%d+)%-(%d+)$')
    return string.format('%s %016d-%s', key, seq, size)
  end

  -- A key that comes has its turn with the next of those that are there; a band was not overtaken yet.
  local function join(key)
    if not redis.call('ZSCORE', K_ROTA, key) then
      local by_priority = d.fair_by == BY_PRIORITY
      if key ~= NO_KEY and (by_priority and not bands().places[key] or redis.call('ZCARD', K_ROTA) >= MOST_KEYS) then
        return join(NO_KEY)
      end
      redis.call('ZADD', K_ROTA, not by_priority and redis.call('ZRANGE', K_ROTA, 0, 0, 'WITHSCORES')[2] or 0, key)
    end
    return key
  end

  -- Puts messages where they belong among those of their keys.
  local function file(keys, ids)
    local add, under = { 'ZADD', K_FAIR }, {}
    for i, id in ipairs(ids) do
      joined[keys[i]] = joined[keys[i]] or join(keys[i])
      under[i] = joined[keys[i]]
      add[2 * i + 1], add[2 * i + 2] = 0, member_of(under[i], id)
    end
    if #ids > 0 then
      redis.call(unpack(add))
      note_filed(under)
    end
  end

  turns.put = file

  function turns.file(entries)
    local keys, ids = {}, {}
    for i, entry in ipairs(entries) do
      keys[i], ids[i] = key_in(entry[2]), entry[1]
    end
    file(keys, ids)
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
      note_unfiled(redis.call(unpack(out)))
    end
  end

  function turns.id_in(member)
    local seq, size = string.match(member, '(%d+)%-(%d+)$')
    return int(seq + 0) .. '-' .. size
  end

  -- Keys that have nothing join again with what comes next.
  function turns.leave(keys)
    joined = {}
    if #keys > 0 then
      redis.call('ZREM', K_ROTA, unpack(keys))
    end
  end

  -- Files messages of a key among those without one.
  function turns.rename(its)
    local keys, ids = {}, {}
    for i, member in ipairs(its) do
      keys[i], ids[i] = NO_KEY, turns.id_in(member)
    end
    if #its > 0 then
      redis.call('ZREM', K_FAIR, unpack(its))
      file(keys, ids)
    end
  end

  function turns.forget(id)
    turns.unfile(redis.call('XRANGE', K_MESSAGES, id, id))
    return id
  end

  return turns
end
