--[[
  pause - let a gate or a bucket admit nothing for a while, on all hosts; then it begins slowly.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id   run          the server's run id as the caller learnt it when it connected
  ARGV[2] session  id           of the caller
  ARGV[3] ms       ms           from now, no longer than the destination's `hold_off_ms`; 0 ends a hold-off, and the slow begin
  ARGV[4] reason   text to 200  for people
  Returns {code, ms}; ms: how long it lasts now, one that is longer already included
  Codes    OK, UNKNOWN, KIND (the kind follows)
]]
--- @include "lib/credit"
local MOST_RAMP_MS = 10000
local run_id, sid, ms, reason = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

if not load_destination(run_id, 0) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'gate' and d.kind ~= 'bucket' then
  return { 'KIND', d.kind }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows: it holds back
save_destination()
ms = math.min(ms, tonumber(redis.call('HGET', K_DESTINATION, 'hold_off_ms') or 3600000))
local ends = math.max(now_ms + ms, d.held_until or 0)
if ms > 0 then
  redis.call('HSET', K_DESTINATION, 'held_off', int(now_ms) .. ' ' .. int(ends), 'ramp',
    int(ends) .. ' ' .. int(ends + math.min(ends - now_ms, MOST_RAMP_MS)), 'off_reason', reason)
else
  redis.call('HDEL', K_DESTINATION, 'held_off', 'ramp', 'off_reason')
end
redis.call('HSET', K_DESTINATION, 'rules', name_rules())
d = read_destination()
hand_over()
note('off', '*', int(ms))
write_ledger('hold_off', sid, 0, 0, 0)
save_destination()
wake_all('settings')
if d.stopped then
  recall()
end
return { 'OK', int(ms > 0 and ends - now_ms or 0) }
