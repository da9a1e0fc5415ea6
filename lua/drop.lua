--[[
  drop - count messages that a session's producers dropped because there was no room.

  The totals are cumulative, so a repeated or reordered call adds nothing; they end with the session's account.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id    run    the server's run id as the caller learnt it when it connected
  ARGV[2] session   id     of the caller
  ARGV[3] messages  total  total that it dropped since its account was opened
  ARGV[4] bytes     total  the same in bytes
  Returns {code, epoch, messages, bytes}; what this call added
  Codes    OK, UNKNOWN, EXPIRED (the session has no account here: it opens one, and tells again)
]]
--- @include "lib/credit"
local run_id, sid, messages, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
elseif redis.call('HEXISTS', K_SESSIONS, sid) == 0 then
  return { 'EXPIRED', int(d.epoch) }
end
local known, known_b = string.match(redis.call('HGET', K_DROPS, sid) or '0 0', '^(%d+) (%d+)$')
local more, more_b = messages - known, bytes - known_b
if more <= 0 or more_b < 0 then
  return { 'OK', int(d.epoch), '0', '0' } -- known already, or older than what is
end
redis.call('HSET', K_DROPS, sid, int(messages) .. ' ' .. int(bytes))
local before = redis.call('HMGET', K_DESTINATION, 'dropped_messages', 'dropped_bytes')
redis.call('HSET', K_DESTINATION, 'dropped_messages', int(math.min(tonumber(before[1] or 0) + more, MOST)),
  'dropped_bytes', int(math.min(tonumber(before[2] or 0) + more_b, MOST)))
write_ledger('drop', sid, more_b, more, 0)
save_destination()
return { 'OK', int(d.epoch), int(more), int(more_b) }
