--[[
  snapshot - what explain needs, read at one instant; changes nothing.

  KEYS  the destination's, as lib/keys
  ARGV[1] waiters    0 to 100  how many of the line to return
  ARGV[2] session    '' or id  whose record and place in the line are wanted, '' for nobody's
  ARGV[3] consumers  0 to 100  how many consumers to return
  ARGV[4] entries    0 to 100  how many of the newest ledger entries to return
  Returns {code, now_ms, {field, value, ...}, {session, record, ...}, place, sessions, {consumer, record, ...},
           {subscription, record, ...}, record, {pool, record, ...}, {{subscription, unsettled, last delivered id}, ...},
           {entry, ...}}
  Codes    OK, UNKNOWN
]]
--- @include "lib/keys"
--- @include "lib/clock"
--- @include "lib/number"
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
return { 'OK', int(now_ms), fields, line, int(place), int(redis.call('HLEN', K_SESSIONS)), consumers, subscriptions,
  redis.call('HGET', K_SESSIONS, ARGV[2]) or '', redis.call('HGETALL', K_SLICES), groups, entries }
