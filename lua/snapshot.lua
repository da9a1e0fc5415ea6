--[[
  snapshot - what explain needs, read at one instant; changes nothing.

  KEYS  the destination's, as lib/keys
  ARGV[1] waiters    0 to 100  how many of the line to return
  ARGV[2] session    '' or id  whose record and place in the line are wanted, '' for nobody's
  ARGV[3] consumers  0 to 100  how many consumers to return
  ARGV[4] entries    0 to 100  how many of the newest ledger entries to return
  Returns {code, now_ms, {field, value, ...}, {session, record, ...}, place, sessions, {consumer, record, ...},
           {subscription, record, ...}, record, {pool, record, ...}, {{subscription, unsettled, last delivered id}, ...},
           {entry, ...}, {} or {messages in turn, keys in turn, {key, its messages, ...}}}; keys are listed in nobody's view only;
           where consumers of slices are judged, `slow` of its pace follows in the record of each
  Codes    OK, UNKNOWN
]]
--- @include "lib/keys"
--- @include "lib/clock"
--- @include "lib/number"
local MAX_DRAWN = 64 -- messages drawn at random, to find the keys that have most
local MAX_TOLD = 5 -- keys that are listed, each time
local fields = redis.call('HGETALL', K_DESTINATION)
if #fields == 0 then
  return { 'UNKNOWN' }
end
local function at_most_100(text)
  return int(math.max(0, math.min(tonumber(text), 100)))
end
local line = {}
for _, sid in ipairs(ARGV[1] == '0' and {} or redis.call('ZRANGE', K_WAITERS, 0, at_most_100(ARGV[1]) - 1)) do
  line[#line + 1] = sid
  line[#line + 1] = redis.call('HGET', K_SESSIONS, sid) or ''
end
local place = (redis.call('ZRANK', K_WAITERS, ARGV[2]) or -1) + 1
-- HSCAN reads a bounded piece, whatever the number of consumers.
local consumers = redis.call('HSCAN', K_CONSUMERS, 0, 'COUNT', at_most_100(math.max(1, tonumber(ARGV[3]))))[2]
local rules = redis.call('HMGET', K_DESTINATION, 'sliced', 'slow_rate', 'slow_multiple')
for i = 1, rules[1] and (rules[2] or rules[3]) and #consumers or 0, 2 do
  local slow = string.match(redis.call('HGET', K_PACE, consumers[i]) or '', ' slow=(%d)')
  consumers[i + 1] = consumers[i + 1] .. ' slow=' .. (slow or '0')
end
local subscriptions = redis.call('HSCAN', K_SUBSCRIPTIONS, 0, 'COUNT', 100)[2]
local groups, entries = {}, {}
if ARGV[1] ~= '0' and #subscriptions > 0 and redis.call('HLEN', K_SUBSCRIPTIONS) <= 100
  and redis.call('EXISTS', K_MESSAGES) == 1 then
  for i, info in ipairs(redis.call('XINFO', 'GROUPS', K_MESSAGES)) do
    local group = {}
    for j = 1, #info, 2 do
      group[info[j]] = info[j + 1]
    end
    groups[i] = { group.name, group.pending, group['last-delivered-id'] }
  end
end
if ARGV[4] ~= '0' then
  for i, entry in ipairs(redis.call('XREVRANGE', K_LEDGER, '+', '-', 'COUNT', at_most_100(ARGV[4]))) do
    entries[i] = entry[2][2]
  end
end
-- Of a queue whose keys take turns, those that are next, and of messages drawn at random the keys that come most often.
local function keys_in_turn()
  local names, counts, found = {}, {}, {}
  local function name(key)
    counts[key] = (counts[key] or 0) + 1
    names[#names + 1] = counts[key] == 1 and key or nil
  end
  for _, member in ipairs(redis.call('ZRANDMEMBER', K_FAIR, MAX_DRAWN)) do
    name(string.match(member, '^%S+'))
  end
  table.sort(names, function(a, b) return counts[a] > counts[b] or (counts[a] == counts[b] and a < b) end)
  for i = #names, MAX_TOLD + 1, -1 do
    counts[names[i]], names[i] = nil, nil
  end
  local by_priority = redis.call('HGET', K_DESTINATION, 'fair_by') == 'priority' -- whose bands are listed all
  for _, key in ipairs(redis.call('ZRANGE', K_ROTA, 0, (by_priority and 2 or 1) * MAX_TOLD - 1)) do
    name(key)
  end
  for i, key in ipairs(names) do
    found[2 * i - 1], found[2 * i] = key, int(redis.call('ZLEXCOUNT', K_FAIR, '[' .. key .. ' ', '(' .. key .. '!'))
  end
  return { int(redis.call('ZCARD', K_FAIR)), int(redis.call('ZCARD', K_ROTA)), found }
end
local turns = ARGV[1] ~= '0' and ARGV[2] == '' and redis.call('EXISTS', K_ROTA) == 1 and keys_in_turn() or {}
return { 'OK', int(now_ms), fields, line, int(place), int(redis.call('HLEN', K_SESSIONS)), consumers, subscriptions,
  redis.call('HGET', K_SESSIONS, ARGV[2]) or '', redis.call('HGETALL', K_SLICES), groups, entries, turns }
