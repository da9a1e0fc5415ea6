--[[
  discard - delete one message of a queue or topic, for all its subscriptions, if nobody has it in hand.

  KEYS  the destination's, as lib/keys
  ARGV[1] run_id  run      the server's run id as the caller learnt it when it connected
  ARGV[2] id      message  of the message
  Returns {code, bytes}; bytes: that it counted for
  Codes    OK, UNKNOWN, KIND (it stores no messages; the kind follows), GONE (no such message is here), HELD (a consumer
           or a link has it; its id follows)
]]
--- @include "lib/alone"
local id = ARGV[2]

if not load_destination(ARGV[1], 0) then
  return { 'UNKNOWN' }
elseif d.kind ~= 'queue' and d.kind ~= 'topic' then
  return { 'KIND', d.kind }
end
local entry, who = find_alone(id)
if not entry then
  return who and { 'HELD', who } or { 'GONE' }
end
redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM, and so is all that follows
local bytes = size_of(id)
free_alone(id)
reap()
hand_over()
note('purge', int(bytes), 1)
write_ledger('remove', '-', bytes, 1, 0)
save_destination()
return { 'OK', int(bytes) }
