--- @include "lib/clock"
--- @include "lib/number"
-- What a namespace knows of its topics and of the wildcard subscriptions that wait for new ones. A producer enters its
-- topic and then reads the entries; a consumer keeps its entry and then reads the topics: one of them sees the other.
local K_WILDCARDS = KEYS[1]
local K_HOLDERS = KEYS[2]
local K_TOPICS = KEYS[3]
local ENTRY = 'durable=%d holders=%d ttl=%d'
local ENTRY_PATTERN = '^durable=(%d) holders=(%d+) ttl=(%d+)$'
local MAX_LAPSED = 16

local function read_entry(name)
  local text = redis.call('HGET', K_WILDCARDS, name)
  if not text then
    return nil
  end
  local durable, holders, ttl = string.match(text, ENTRY_PATTERN)
  return { durable = tonumber(durable), holders = tonumber(holders), ttl = tonumber(ttl) }
end

local function save_entry(name, e)
  redis.call('HSET', K_WILDCARDS, name, string.format(ENTRY, e.durable, e.holders, e.ttl))
end

-- One of an entry's holders is gone; the last takes it along unless it is durable.
local function let_go(name, holder)
  if redis.call('ZREM', K_HOLDERS, name .. ' ' .. holder) == 0 then
    return
  end
  local e = read_entry(name)
  if e then
    e.holders = e.holders - 1
    if e.holders == 0 and e.durable == 0 then
      redis.call('HDEL', K_WILDCARDS, name)
    else
      save_entry(name, e)
    end
  end
end

-- Holders that were not heard of for their whole lease; a living one makes its entry again when it next calls.
local function end_lapsed()
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', K_HOLDERS, '-inf', int(now_ms), 'LIMIT', 0, MAX_LAPSED)) do
    let_go(string.match(member, '^(%S+ %S+) (%S+)$'))
  end
end
