--[[
  policy - put a policy in force for a namespace: over the version that its author saw, or back where Redis lost it.

  KEYS  the namespace's policy
  ARGV[1] expected  'lost' or total    the version that must be in force, 0 for none; 'lost' for any that is older than
                                       `version`
  ARGV[2] version   total              that it gets, larger than `expected`
  ARGV[3] document  bytes to 16777216  the policy as headgate/core/policy.py writes it, its version included
  ARGV[4] source    bytes to 10000     where it came from, for people
  ARGV[5] came_ms   total              when it had come into force, with 'lost': what came later is newer, and stays
  Returns {code, version in force}
  Codes    OK (it is in force, now or already), CONFLICT (another version is in force; nothing was changed)
]]
--- @include "lib/clock"
--- @include "lib/number"
--- @include "lib/policy_key"
local expected, version, document, source, came_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

local stored = redis.call('HMGET', K_POLICY, 'version', 'document', 'applied_ms')
local current, lost = tonumber(stored[1] or 0), expected == 'lost'
local may_be = current == tonumber(expected)
if lost then
  may_be = tonumber(stored[3] or 0) <= came_ms
end
if stored[2] == document then
  return { 'OK', int(current) } -- a repeated call
elseif current >= version or not may_be then
  return { 'CONFLICT', int(current) }
end
redis.call('HDEL', K_POLICY, '-') -- allowed under OOM, and so is what follows: a policy can always be changed
redis.call('HSET', K_POLICY, 'version', int(version), 'document', document, 'source', source,
  'applied_ms', int(lost and came_ms or now_ms))
redis.call('PUBLISH', string.gsub(K_POLICY, ':policy$', ':wake'), 'policy ' .. int(version))
return { 'OK', int(version) }
