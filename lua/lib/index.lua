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

-- Whether a name is spelled as clients spell it. Another spelling could stand for a name that nobody may have, or that
-- who wrote it may not use, and whoever reads it would have to guess.
local function is_name(text)
  local hidden = false
  local plain = string.gsub(text, '%%(%x%x)', function(hex)
    local char = string.char(tonumber(hex, 16))
    hidden = hidden or hex ~= string.upper(hex) or string.find(char, '[%c%w%-._~{}*?#>%[%]\\]') ~= nil
    return '_'
  end)
  return not hidden and #plain <= 255 and string.find(plain, '^[%w%-._~]+$') ~= nil
end

-- The same for '<pattern> <subscription>': in a pattern, a word may be '*', and a last one '#' or '>'.
local function is_entry(text)
  local pattern, subscription = string.match(text, '^(%S+) (%S+)$')
  if not pattern or #pattern > 765 or not is_name(subscription) then
    return false
  end
  local words = pattern == '#' and '' or pattern == '>' and '' or string.gsub(pattern, '%.[#>]$', '') .. '.'
  for word in string.gmatch(words, '([^.]*)%.') do
    if word ~= '*' and not is_name(word) then
      return false
    end
  end
  return true
end

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
    let_go(string.match(member, '^(.*) (%S+)$'))
  end
end
