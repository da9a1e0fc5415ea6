--[[
  node - a broker node says that it is there, or that it leaves; or list those that are there.

  KEYS  the namespace's registry of nodes, as lib/node_keys
  ARGV[1] mode      'beat', 'leave' or 'list'
  ARGV[2] node      word             id of the node; '-' to list
  ARGV[3] stale_ms  ms               ms after which a node that was not heard of is there no more
  ARGV[4] entry     bytes to 100000  what a node says about itself, for whoever lists; '-' otherwise
  Returns {code, node, ms since its beat, entry, ...}; nodes only for 'list', the latest beats first, at most 1000
  Codes    OK
]]
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/node_keys"
local mode, node, stale_ms, entry = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local MAX_NODES = 1000 -- listed
local MAX_FORGOTTEN = 100 -- by one call

if mode == 'list' then
  local answer = { 'OK' }
  local there = redis.call('ZREVRANGEBYSCORE', K_BEATS, '+inf', '(' .. int(now_ms - stale_ms), 'WITHSCORES',
    'LIMIT', 0, MAX_NODES)
  for i = 1, #there, 2 do
    answer[#answer + 1] = there[i]
    answer[#answer + 1] = int(math.max(0, now_ms - tonumber(there[i + 1])))
    answer[#answer + 1] = redis.call('HGET', K_NODES, there[i])
  end
  return answer
end
local gone = redis.call('ZRANGEBYSCORE', K_BEATS, '-inf', int(now_ms - stale_ms), 'LIMIT', 0, MAX_FORGOTTEN)
if mode == 'leave' then
  gone[#gone + 1] = node
end
for i = 1, #gone do
  redis.call('ZREM', K_BEATS, gone[i]) -- allowed under OOM, and so is what follows
  redis.call('HDEL', K_NODES, gone[i])
end
if mode == 'beat' then
  redis.call('ZREM', K_BEATS, node)
  redis.call('ZADD', K_BEATS, int(now_ms), node)
  redis.call('HSET', K_NODES, node, entry)
end
return { 'OK' }
