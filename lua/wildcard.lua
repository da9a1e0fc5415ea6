--[[
  wildcard - keep, leave or end a wildcard subscription in its namespace's index; repeated, it changes nothing more.

  KEYS  the namespace's, as lib/index
  ARGV[1] mode     'keep', 'leave' or 'end'  'keep' makes the entry and renews the holder's lease, 'leave' ends that
                           lease, 'end' removes the entry
  ARGV[2] name     bytes to 3000  '<pattern> <subscription>', each encoded
  ARGV[3] holder   id      one consumer of it; '-' to end it
  ARGV[4] durable  0 to 1  '1' keeps an entry that this call makes when its last holder goes, '0' does not
  ARGV[5] ttl_ms   ttl     length of the lease
  Returns {code}
  Codes    OK, CREATED (there was no such entry), BUSY (an entry with holders is not removed), INVALID (no client spells
           an entry so; it can be removed whoever holds it)
]]
--- @include "lib/index"
local mode, name, holder, ttl_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])

local valid = is_entry(name)
if mode == 'keep' and not valid then
  return { 'INVALID' }
end
local e = read_entry(name)
if mode == 'keep' then
  local code = e and 'OK' or 'CREATED'
  e = e or { durable = tonumber(ARGV[4]), holders = 0 }
  e.holders = e.holders + redis.call('ZADD', K_HOLDERS, int(now_ms + ttl_ms), name .. ' ' .. holder)
  e.ttl = ttl_ms
  save_entry(name, e)
  end_lapsed()
  return { code }
end
if mode == 'leave' then
  let_go(name, holder)
end
end_lapsed()
if mode == 'end' then
  e = read_entry(name)
  if e and e.holders > 0 and valid then
    return { 'BUSY' }
  end
  redis.call('HDEL', K_WILDCARDS, name)
end
return { 'OK' }
