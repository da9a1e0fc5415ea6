--[[
  snapshot - what explain needs, read at one instant; changes nothing.

  KEYS  the destination's, as lib/keys
  ARGV[1] waiters    how many of the line to return, at most 100
  ARGV[2] session    whose place in the line is wanted, '' for nobody's
  ARGV[3] consumers  how many consumers to return, at most 100
  Returns {code, now_ms, {field, value, ...}, {session, record, ...}, place, sessions, {consumer, record, ...}, {subscription, record, ...}}
  Codes    OK, UNKNOWN
]]
--- @include "lib/keys"
--- @include "lib/clock"
--- @include "lib/number"
local fields = redis.call('HGETALL', K_DESTINATION)
if #fields == 0 then
  return { 'UNKNOWN' }
end
local line = {}
for _, sid in ipairs(ARGV[1] == '0' and {} or redis.call('ZRANGE', K_WAITERS, 0, int(math.min(tonumber(ARGV[1]), 100) - 1))) do
  line[#line + 1] = sid
  line[#line + 1] = redis.call('HGET', K_SESSIONS, sid) or ''
end
local place = (redis.call('ZRANK', K_WAITERS, ARGV[2]) or -1) + 1
-- HSCAN reads a bounded piece, whatever the number of consumers.
local consumers = redis.call('HSCAN', K_CONSUMERS, 0, 'COUNT', int(math.max(1, math.min(tonumber(ARGV[3]), 100))))[2]
local subscriptions = redis.call('HSCAN', K_SUBSCRIPTIONS, 0, 'COUNT', 100)[2]
return { 'OK', int(now_ms), fields, line, int(place), int(redis.call('HLEN', K_SESSIONS)), consumers, subscriptions }
