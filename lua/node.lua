--[[
  node - a broker node says that it is there and learns which parts of a sweep fall to it, or leaves; or list nodes.

  KEYS  the namespace's registry of nodes, as lib/node_keys
  ARGV[1] mode      'beat', 'leave', 'list' or 'ask'
  ARGV[2] node      word             id of the node; '-' to list or ask
  ARGV[3] stale_ms  ms               ms after which a node that was not heard of is there no more
  ARGV[4] entry     bytes to 100000  what a node says about itself, for whoever lists; for 'ask' ids, with
                                      spaces between, at most 256; '-' otherwise
  Returns {code, part, count} for 'beat': so many parts of the sweep, from that one on, fall to the node; {code, node, ms
           since its beat, entry, ...} for 'list', the latest beats first, at most 1000; {code, node, ...} for 'ask', those
           that are there
  Codes    OK
]]
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/node_keys"
local mode, node, stale_ms, entry = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local MAX_NODES = 1000 -- listed
local MAX_FORGOTTEN = 100 -- by one call
local MAX_SOUGHT = 256 -- by one call that asks
local PARTS = 16 -- of a sweep; each is handed out once in a round, to whoever beats first then
local ROUND_MS = 5000

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
if mode == 'ask' then
  local answer, ids = { 'OK' }, string.gmatch(entry, '%S+')
  for _ = 1, MAX_SOUGHT do
    local id = ids()
    local beat = id and redis.call('ZSCORE', K_BEATS, id)
    if beat and tonumber(beat) > now_ms - stale_ms then
      answer[#answer + 1] = id
    end
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
  local due, given = math.floor(now_ms * PARTS / ROUND_MS), tonumber(redis.call('HGET', K_NODES, '!turn') or nil)
  if not given or given > due or given < due - PARTS then
    given = due - PARTS -- the first, after a pause, or by a clock that was set back: all parts
  end
  redis.call('HSET', K_NODES, '!turn', int(due))
  return { 'OK', int((given + 1) % PARTS), int(due - given) }
end
return { 'OK' }
