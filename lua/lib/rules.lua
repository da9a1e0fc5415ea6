--- @include "lib/slice"
--- @include "lib/number"
--- @include "lib/level"
-- Rules beyond a plain limit. Most destinations have none; then the field `rules` is empty and nothing here is read.

local hold_off = {} -- of gates and buckets: `heed` and `finish`, in scripts with lib/held

-- Which limits bind now: none while enforcement is off, and never more than the slices held of the pools.
local function judge_rules(read)
  local off = read.enforce == 'off' or (read.enforce == 'with-consumers' and read.active == 0)
  read.unbound = off
  read.limit_bytes = off and math.huge or read.set_bytes
  read.limit_messages = off and math.huge or read.set_messages
  read.slice_bytes, read.pool_bytes, read.owes = MOST_COUNTED, math.huge, false
  read.slice_messages, read.pool_messages, read.wanted = MOST_COUNTED, math.huge, nil
  if read.pools and not off then
    for _, name in ipairs(read.pools) do
      local slice = read_slice(name, read)
      local left, holds = slice_left(read, slice), slice.epoch == read.epoch and slice.granted - slice.returned or math.huge
      read.owes = read.owes or slice.owed > slice.returned
      if math.abs(now_ms - slice.asked) < OWED_MS and string.find(name, '%.', 1, true) then
        read.wanted = read.wanted or {}
        table.insert(read.wanted, name)
      end
      if name == read.messages_pool then
        read.slice_messages, read.pool_messages = math.min(MOST_COUNTED, left), holds
      else
        read.slice_bytes, read.pool_bytes = math.min(read.slice_bytes, left), math.min(read.pool_bytes, holds)
      end
    end
  end
  if read.bytes_full then
    read.shut = math.max(read.bytes_full % 2, read.messages_full % 2)
  end
  if hold_off.heed and (read.held_off or read.ramp) then
    hold_off.heed(read)
  end
end

local function load_rules(read)
  read.set_bytes, read.set_messages = read.limit_bytes, read.limit_messages
  local pool, of = string.match(read.rules, '^=(%S+) (%d+)$')
  if pool then
    read.pools, read.of_slices, read.shut = { pool }, of + 0, 0
    return judge_rules(read)
  elseif read.rules == 'slices_pool messages_pool of_slices' then -- nothing else, so no call reads more
    local has = redis.call('HMGET', K_DESTINATION, 'slices_pool', 'messages_pool', 'of_slices')
    read.pools, read.messages_pool, read.of_slices, read.shut = { has[1], has[2] }, has[2], has[3] + 0, 0
    return judge_rules(read)
  end
  local NUMBERS = { 'active', 'shut', 'send_burst', 'send_tat', 'send_byte_burst', 'send_byte_tat', 'send_us', 'delivery_burst',
    'delivery_tat', 'sorted' }
  local function words(text)
    local found = {}
    for word in string.gmatch(text, '%S+') do
      found[#found + 1] = word
    end
    return found
  end
  local names = words(read.rules)
  for i, value in ipairs(redis.call('HMGET', K_DESTINATION, unpack(names))) do
    read[names[i]] = tonumber(value) or value or nil
  end
  for i, value in ipairs(redis.call('HMGET', K_DESTINATION, unpack(NUMBERS))) do
    read[NUMBERS[i]] = tonumber(value or 0)
  end
  read.stopped = read.stopped or read.spreading
  if read.pools or read.slices_pool then
    read.pools = words((read.pools or '') .. ' ' .. (read.slices_pool or '') .. ' ' .. (read.messages_pool or ''))
  end
  read.resume_bytes = level(read.resume_bytes, read.set_bytes)
  read.resume_messages = level(read.resume_messages, read.set_messages)
  if read.of_slices and (read.resume_bytes or read.resume_messages) then -- what slices heard of their pools: odd, these are full
    local heard = redis.call('HMGET', K_DESTINATION, 'bytes_full', 'messages_full')
    read.bytes_full, read.messages_full = tonumber(heard[1] or 0), tonumber(heard[2] or 0)
  end
  read.fair = read.kind == 'queue' and (read.fair_by or read.fair_left) or nil
  read.fair_by = read.fair and read.fair_by
  judge_rules(read)
end

-- The names of the rules among the fields of a destination, as the field `rules` keeps them; where slices are all, what
-- they say instead, for then no call reads more.
local function name_rules()
  local RULES = { 'enforce', 'stopped', 'spreading', 'resume_bytes', 'resume_messages', 'oversize', 'hard_bytes', 'pools', 'slices_pool', 'messages_pool', 'of_slices', 'overdrawn_bytes',
    'overdrawn_messages', 'store', 'send_rate',
    'send_byte_rate', 'delivery_rate', 'message_ttl_ms', 'slow_multiple', 'slow_rate', 'held_off', 'ramp',
    'fair_by', 'fair_weights', 'fair_left', 'max_overtaken', 'bands', 'aging', 'reserve', 'shed', 'order', 'fail_if_late',
    'next_due', 'shadow' }
  local names, values = {}, {}
  for i, value in ipairs(redis.call('HMGET', K_DESTINATION, unpack(RULES))) do
    local unused = RULES[i] == 'store' and redis.call('HGET', K_DESTINATION, 'when_full') ~= 'spool'
    if value and value ~= 'always' and value ~= 'refuse' and not unused then
      names[#names + 1] = RULES[i]
      values[#names] = value
    end
  end
  local slices_alone = #names == 2 and names[1] == 'slices_pool'
  return slices_alone and '=' .. table.concat(values, ' ') or table.concat(names, ' ')
end
